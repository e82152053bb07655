//===- Reference.cpp - The unpartitioned model beside a plan --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Reference.h"

#include "Model.h"
#include "plait/Dialect/NN/IR/NN.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace plait;

/// What a machine that checks plans can be expected to have.
static constexpr uint64_t kLargestReference = uint64_t(8) << 30;

CompileOptions plait::getReferenceOptions(CompileOptions options,
                                          const Layout &partitioned) {
  // The types of a model in IR are for all data-parallel ranks together.
  if (isText(options))
    options.microBatch *= partitioned.data;
  options.mesh = "1";
  options.schedule = "1f1b";
  options.chunks = 1;
  options.recompute = "none";
  options.zero = 0;
  options.attention = "unfused";
  options.sequenceParallel = false;
  options.layers.clear();
  options.dumpPhasesTo.clear();
  options.shardings.clear();
  return options;
}

uint64_t plait::countParameterBytes(ModuleOp model, StringRef precision) {
  uint64_t elements = 0;
  for (auto parameter : model.getOps<nn::ParameterOp>())
    elements += cast<RankedTensorType>(parameter.getType()).getNumElements();
  // The value, its gradient and two moments in fp32; a copy to compute with.
  uint64_t bytes = 4 * sizeof(float) + (precision == "bf16" ? 2 : 0);
  return elements * bytes;
}

Status plait::checkReferenceSize(uint64_t bytes) {
  if (bytes <= kLargestReference)
    return Status::success();
  auto print = [](uint64_t bytes) {
    return llvm::formatv("{0:f1} GB", double(bytes) * 1e-9).str();
  };
  return fail("it needs ", print(bytes), " on one rank, more than ",
              print(kLargestReference));
}
