//===- LowerPrecision.cpp - Compute the loss function in bf16 ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Mixed precision as Micikevicius et al. 2018 ("Mixed Precision Training",
// section 3.1) have it: parameters stay f32, the model computes with copies of
// them in a half type. bf16 has f32's exponents, so that losses need no
// scaling. Everything that follows, gradients, optimizer and memory, goes by
// the types that this pass gives.
//
// Types are changed in place, in the order of the ops. Nothing is cast: a type
// says how a tensor is stored, not how it is computed (docs/Rationale.md).
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace plait {
#define GEN_PASS_DEF_LOWERPRECISIONPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

/// Makes an f32 tensor a bf16 one; leaves all else alone.
static void narrow(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (type && type.getElementType().isF32())
    value.setType(type.clone(BFloat16Type::get(value.getContext())));
}

/// Only the first result: others are statistics for the backward pass, which
/// rounding to bf16 would spoil.
static void narrow(Operation &op) {
  if (nn::getSlotAccess(&op) == nn::SlotAccess::Read) {
    auto read = cast<SlotOpInterface>(op);
    read.setSlot(nn::Slot::Compute);
    narrow(read.getTensor());
  } else if (isa<ShardableOpInterface>(op)) {
    narrow(op.getResult(0));
  }
}

namespace {
struct LowerPrecisionPass
    : plait::impl::LowerPrecisionPassBase<LowerPrecisionPass> {
  void runOnOperation() override {
    TrainingConfiguration configuration = getConfiguration(getOperation());
    if (Status status = checkExecutable(configuration); !status.ok()) {
      getOperation().emitError(status.message());
      return signalPassFailure();
    }
    if (configuration.precision == Precision::FP32)
      return;
    auto loss = getOperation().lookupSymbol<func::FuncOp>(nn::kLossFunction);
    if (!loss) {
      getOperation().emitOpError("has no function @loss to compute in bf16");
      return signalPassFailure();
    }
    Block &body = loss.getBody().front();
    // A model may be written in bf16 already, with casts where its author wants
    // them.
    auto isCopy = [](SlotOpInterface read) {
      return read.getSlot() == nn::Slot::Compute;
    };
    if (llvm::any_of(nn::findAccesses(loss, nn::SlotAccess::Read), isCopy))
      return;
    for (Operation &op : body)
      narrow(op);
    // Loss and count stay f32 because nn.softmax_cross_entropy, which is not
    // narrowed, makes them; a sum over bf16 would not.
    for (OpOperand &result : body.getTerminator()->getOpOperands())
      if (result.get().getType() !=
          loss.getResultTypes()[result.getOperandNumber()]) {
        loss.emitOpError("returns result ")
            << result.getOperandNumber()
            << " in bf16, expected one that nn.softmax_cross_entropy makes";
        return signalPassFailure();
      }
  }
};
} // namespace
