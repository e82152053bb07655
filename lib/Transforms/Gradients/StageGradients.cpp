//===- StageGradients.cpp - What stages owe each other --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StageGradients.h"

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Transforms/StageFunctions.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace plait;
using pipe::PortAttr;
using pipe::PortKind;

/// Erases dead backward ops. Forward ops stay, even dead ones: what the forward
/// pass computes is not this file's to judge. It goes backwards, so that a
/// chain goes in one walk.
static void eraseDead(func::FuncOp joint) {
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(joint.getBody().front())))
    if (isBackward(&op) && isOpTriviallyDead(&op))
      op.erase();
}

void plait::dropUnusedGradients(func::FuncOp joint, func::FuncOp next) {
  eraseDead(joint);
  // From the last, since erasing shifts those behind.
  for (unsigned index = joint.getNumArguments(); next && index-- > 0;) {
    PortAttr port = getPort(joint, index);
    if (port.getKind() != PortKind::OutputGradient ||
        !joint.getArgument(index).use_empty())
      continue;
    // It is there: seedOutputs() made the argument because of it. With it, what
    // `next` computed for it alone is dead, and goes when `next` has its turn.
    std::optional<unsigned> sent =
        findResult(next, PortKind::InputGradient, port.getIndex());
    next.getBody().front().getTerminator()->eraseOperand(*sent);
    (void)next.eraseResult(*sent);
    (void)joint.eraseArgument(index);
  }
}

void plait::accumulateZeros(const JointFunctions &joints) {
  llvm::MapVector<Attribute, Type> trained; // by symbol, what is accumulated
  std::map<int64_t, llvm::DenseSet<Attribute>> own;
  for (auto [stage, joint] : joints)
    for (auto add : nn::findAccesses(joint, nn::SlotAccess::Add))
      if (add.getSlot() == nn::Slot::Gradient) {
        trained.insert({add.getSymbolAttr(), add.getTensor().getType()});
        own[stage].insert(add.getSymbolAttr());
      }
  for (auto [stage, joint] : joints) {
    OpBuilder builder(joint.getBody().front().getTerminator());
    for (auto read : nn::findAccesses(joint, nn::SlotAccess::Read)) {
      Attribute symbol = read.getSymbolAttr();
      if (!trained.contains(symbol) || !own[stage].insert(symbol).second)
        continue;
      // A partial sum of zeros is zeros whatever it is partial over, so that
      // the type is that of the others' gradients.
      auto zero =
          nn::FillOp::create(builder, read.getLoc(), trained.lookup(symbol),
                             builder.getF32FloatAttr(0.0));
      auto add = nn::AccumulateOp::create(builder, read.getLoc(), zero,
                                          read.getSymbol(), nn::Slot::Gradient);
      for (Operation *op : {zero.getOperation(), add.getOperation()})
        op->setAttr(nn::kBackwardAttr, builder.getUnitAttr());
    }
  }
}

void plait::dropUnusedState(ModuleOp module) {
  llvm::DenseSet<Attribute> trained;
  for (auto add : nn::findAccesses(module, nn::SlotAccess::Add))
    if (add.getSlot() == nn::Slot::Gradient)
      trained.insert(add.getSymbolAttr().getAttr());
  for (auto parameter : module.getOps<nn::ParameterOp>())
    if (!trained.contains(parameter.getSymNameAttr()))
      parameter.removeStateAttr();
}

LogicalResult plait::checkTrains(const JointFunctions &joints) {
  SlotOpInterface loss;
  for (auto [stage, joint] : joints)
    for (auto add : nn::findAccesses(joint, nn::SlotAccess::Add)) {
      if (add.getSlot() == nn::Slot::Gradient)
        return success();
      if (add.getSymbol() == kLossSum)
        loss = add;
    }
  if (!loss ||
      loss->getParentOfType<ModuleOp>().getOps<nn::ParameterOp>().empty())
    return success();
  return loss->emitError("no parameter would be trained: the loss depends on "
                         "none, or only through ops that pass no gradient");
}
