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
// Types are changed in place, in the order of the ops, and nothing is cast: a
// type says how a tensor is stored, not how it is computed (docs/Rationale.md).
// The loss is the exception. What makes it of what the model has computed is
// sums over many tokens, and differences of them: these stay f32, and their
// operands are cast.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/Layers.h"
#include "plait/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace plait {
#define GEN_PASS_DEF_LOWERPRECISIONPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {
/// Gives the ops of a loss function their types.
class Narrower {
public:
  explicit Narrower(Block &body) : body(body) { findWide(); }

  void run();

private:
  void findWide();
  void narrow(Operation &op);
  void castOperands(Operation &op, Type from, Type to);
  bool noteExact(Operation &op);

  Block &body;
  /// Whole numbers, and what is computed of them alone: indices stay f32, since
  /// those above 256 are none in bf16.
  llvm::DenseSet<Value> exact;
  /// Ops that stay f32: what they make reaches loss and count alone, and no
  /// matmul any more.
  llvm::DenseSet<Operation *> wide;
  llvm::DenseMap<std::pair<Value, Type>, Value> casts;
};
} // namespace

/// Begins at the end. `nn.softmax_cross_entropy` and what else has no factors
/// takes what there is, and so ends the way back: its logits are bf16.
void Narrower::findWide() {
  wide.insert(body.getTerminator());
  for (Operation &op : llvm::reverse(body.without_terminator())) {
    auto costed = dyn_cast<CostedOpInterface>(op);
    bool isElementwise =
        !costed || costed.getWorkShape().kind == WorkShape::Memory;
    if (isa<ShardableOpInterface>(op) && isElementwise && !op.use_empty() &&
        nn::getSlotAccess(&op) != nn::SlotAccess::Read &&
        llvm::all_of(op.getUsers(),
                     [&](Operation *user) { return wide.contains(user); }))
      wide.insert(&op);
  }
}

/// Makes an f32 tensor a bf16 one; leaves all else alone.
static void narrow(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (type && type.getElementType().isF32())
    value.setType(type.clone(BFloat16Type::get(value.getContext())));
}

/// Only the first result: others are statistics for the backward pass, which
/// rounding to bf16 would spoil. A contraction that is the loss itself adds up
/// in f32, and is not rounded behind that; nor is what some op takes as it is.
void Narrower::narrow(Operation &op) {
  bool staysWide = llvm::any_of(op.getUsers(), [](Operation *user) {
    auto composed = dyn_cast<DecomposableOpInterface>(user);
    return composed && composed.takesWideOperands();
  });
  if (nn::getSlotAccess(&op) == nn::SlotAccess::Read) {
    if (staysWide)
      return;
    auto read = cast<SlotOpInterface>(op);
    read.setSlot(nn::Slot::Compute);
    ::narrow(read.getTensor());
    return;
  }
  bool isSum =
      isa<ContractionOpInterface>(op) &&
      (staysWide || llvm::is_contained(op.getUsers(), body.getTerminator()));
  if (isa<ShardableOpInterface>(op) && !isSum)
    ::narrow(op.getResult(0));
}

/// Each value is cast once, and belongs to the layer of the first op that reads
/// it so.
void Narrower::castOperands(Operation &op, Type from, Type to) {
  OpBuilder builder(&op);
  for (OpOperand &operand : op.getOpOperands()) {
    auto type = dyn_cast<RankedTensorType>(operand.get().getType());
    if (!type || type.getElementType() != from)
      continue;
    Value &known = casts[{operand.get(), to}];
    if (!known) {
      known = nn::CastOp::create(builder, operand.get().getLoc(),
                                 type.clone(to), operand.get());
      nn::inheritLayer(known.getDefiningOp(), &op);
    }
    operand.set(known);
  }
}

bool Narrower::noteExact(Operation &op) {
  bool isConverted = isa<nn::ConvertOp>(op);
  if (!isConverted && (op.getNumOperands() == 0 || op.getNumResults() != 1 ||
                       !llvm::all_of(op.getOperands(), [&](Value operand) {
                         return exact.contains(operand);
                       })))
    return false;
  exact.insert(op.getResult(0));
  return true;
}

void Narrower::run() {
  Builder builder(body.getParent()->getContext());
  Type f32 = builder.getF32Type(), bf16 = builder.getBF16Type();
  for (Operation &op : llvm::make_early_inc_range(body)) {
    if (wide.contains(&op)) {
      castOperands(op, bf16, f32);
      continue;
    }
    if (noteExact(op))
      continue;
    narrow(op);
    // What is composed may take statistics, which stay f32.
    if (isa<ShardableOpInterface>(op) && !isa<DecomposableOpInterface>(op))
      castOperands(op, f32, bf16);
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
    Narrower(body).run();
  }
};
} // namespace
