//===- Reference.cpp - The unpartitioned model beside a plan --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The reference of a plan is the same model and batch on one rank, with none of
// what a strategy does: what plait-run --check compares with. It has the plan's
// precision and microbatches, so that what differs is rounding and the order of
// sums.
//
//===----------------------------------------------------------------------===//

#include "Reference.h"

#include "plait/Configuration/Optimizers.h"
#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Dialect/Plait/IR/Plait.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace plait;

/// What a machine that checks plans can be expected to have.
static constexpr uint64_t kLargestReference = uint64_t(8) << 30;

/// The strategy goes back to its defaults, except for the microbatch; attention
/// and epilogues take their plain forms. Every field is pinned, so that nothing
/// follows from anything else.
CompileOptions
plait::getReferenceOptions(CompileOptions options,
                           const TrainingConfiguration &configuration) {
  TrainingConfiguration reference = configuration;
  // The strategy is a part of the configuration: one assignment resets its
  // fields.
  static_cast<Strategy &>(reference) = Strategy();
  reference.microBatch = configuration.microBatch;
  reference.attention = AttentionKind::Unfused;
  reference.epilogues = EpilogueKind::None;
  reference.lossChunks = 1;
  visitConfiguration(
      [](const Field &, auto &pin, const auto &value) { pin = value; },
      options.pins, reference);
  // What is about the mesh, the schedule or the files of the plan itself is
  // left out.
  options.mesh = "1";
  options.dumpPhasesTo.clear();
  options.scheduleFile.clear();
  return options;
}

/// A lower bound, from the types alone: activations come on top.
uint64_t plait::countParameterBytes(ModuleOp model) {
  TrainingConfiguration configuration = getConfiguration(model);
  const Optimizer &main = **findOptimizer(configuration.optimizer);
  uint64_t bytes = 0;
  for (auto parameter : model.getOps<nn::ParameterOp>()) {
    // What is a matrix is not known yet.
    uint64_t state = nn::findOptimizer(parameter, main).getStateBytes();
    if (!parameter.getOptimizer())
      state = std::min(state, main.getStateBytes());
    // The value, its gradient and state in fp32; a copy to compute with.
    bytes += cast<RankedTensorType>(parameter.getType()).getNumElements() *
             (2 * sizeof(float) + state +
              (configuration.precision == Precision::BF16 ? 2 : 0));
  }
  return bytes;
}

/// A reason for a warning, not an error: the plan is written without a
/// reference.
Status plait::checkReferenceSize(uint64_t bytes) {
  if (bytes <= kLargestReference)
    return Status::success();
  auto print = [](uint64_t bytes) {
    return llvm::formatv("{0:f1} GB", double(bytes) * 1e-9).str();
  };
  return fail("it needs ", print(bytes), " on one rank, more than ",
              print(kLargestReference));
}
