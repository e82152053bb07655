//===- Attention.cpp - How attention is compiled --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Attention.h"

#include "plait/Conversion/ElementType.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Plan/Attention.h"

using namespace mlir;
using namespace plait;

static constexpr char kFlash[] = "flash", kUnfused[] = "unfused";

Status plait::checkAttentionOption(const CompileOptions &options) {
  if (options.attention.empty() || options.attention == kFlash ||
      options.attention == kUnfused)
    return Status::success();
  return fail("attention is \"", options.attention, "\", expected ", kFlash,
              " or ", kUnfused);
}

/// Whether the target computes `op` in one step. Processors take any.
static Status checkTarget(nn::AttentionOp op, const codegen::Target &target) {
  const auto *gpu = std::get_if<codegen::TargetGPU>(&target);
  if (!gpu)
    return Status::success();
  RankedTensorType query = op.getQuery().getType();
  return plan::checkGpuAttention(getElementDType(op.getQuery()),
                                 query.getDimSize(1), query.getShape().back(),
                                 gpu->getArchitecture());
}

FailureOr<std::vector<std::string>>
plait::findWholeAttention(ModuleOp module, const CompileOptions &options,
                          const codegen::Target &target) {
  std::vector<std::string> none;
  // Processors have memory to spare rather than time.
  bool wanted = options.attention == kFlash ||
                (options.attention.empty() &&
                 std::holds_alternative<codegen::TargetGPU>(target));
  if (!wanted)
    return none;
  WalkResult result = module.walk([&](nn::AttentionOp op) {
    Status status = checkTarget(op, target);
    if (status.ok())
      return WalkResult::advance();
    if (!options.attention.empty())
      op.emitError("is not computed by --attention flash: ")
          << status.message();
    return WalkResult::interrupt();
  });
  if (!result.wasInterrupted())
    return std::vector<std::string>{
        nn::AttentionOp::getOperationName().str(),
        nn::AttentionGradOp::getOperationName().str()};
  if (!options.attention.empty())
    return failure();
  return none;
}
