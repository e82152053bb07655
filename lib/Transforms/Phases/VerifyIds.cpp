//===- VerifyIds.cpp - Ids lie in the tables that they select from --------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What (L3) of the nn dialect asks of the model, of what phases have made of
// it: the vocabulary is an attribute of the module, by which a run draws and
// bounds its tokens, and memory behind a table is somebody else's.
//
//===----------------------------------------------------------------------===//

#include "VerifyIds.h"

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Pipe/IR/Pipe.h"
#include "plait/Dialect/Plan/IR/Buffers.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace plait;

static bool isInput(StringRef buffer) {
  return buffer == kTokensBuffer || buffer == kTargetsBuffer;
}

/// Whether the argument of a function is tokens or targets. Before phase
/// `stage` those are the first two of @loss.
static bool isInput(func::FuncOp function, BlockArgument argument) {
  auto port = function.getArgAttrOfType<pipe::PortAttr>(argument.getArgNumber(),
                                                        pipe::kPortAttr);
  return port ? port.getKind() == pipe::PortKind::Tokens ||
                    port.getKind() == pipe::PortKind::Targets
              : function.getSymName() == nn::kLossFunction &&
                    argument.getArgNumber() < 2;
}

/// Whether the argument of a kernel of steps is tokens or targets. The memory
/// says it: a buffer's name, or that of a function's slot.
static bool isInput(plan::KernelOp kernel, BlockArgument argument) {
  auto memory =
      cast<plan::MemoryAttr>(kernel.getInputs()[argument.getArgNumber()]);
  if (memory.getBuffer())
    return isInput(memory.getBuffer().getValue());
  auto function = kernel->getParentOfType<plan::FunctionOp>();
  return function && size_t(memory.getSlot()) < function.getSlots().size() &&
         isInput(cast<StringAttr>(function.getSlots()[memory.getSlot()])
                     .getValue());
}

/// Whether `ids` are tokens or targets, brought into another order maybe.
/// Positions and what is counted are not.
static bool areInputs(Value ids) {
  SetVector<Value> seen; // values may share operands
  seen.insert(ids);
  for (size_t i = 0; i < seen.size(); ++i) {
    Value value = seen[i];
    if (Operation *maker = value.getDefiningOp()) {
      for (Value operand : maker->getOperands())
        if (getElementTypeOrSelf(operand).isInteger(32))
          seen.insert(operand);
      continue;
    }
    auto argument = cast<BlockArgument>(value);
    Operation *parent = argument.getOwner()->getParentOp();
    if (auto cluster = dyn_cast<plan::ClusterOp>(parent))
      seen.insert(cluster.getInputs()[argument.getArgNumber()]);
    else if (auto kernel = dyn_cast<plan::KernelOp>(parent);
             kernel && isInput(kernel, argument))
      return true;
    else if (auto function = dyn_cast<func::FuncOp>(parent);
             function && isInput(function, argument))
      return true;
  }
  return false;
}

/// Counts the entries of all ranks. Where their blocks end in padding the whole
/// is said, which is no more than the blocks have.
static int64_t countEntries(const nn::Selection &selection, dist::MeshOp mesh) {
  int64_t entries = selection.getEntries();
  int64_t whole = selection.limit;
  if (selection.begin) {
    for (const RankTerm &term : selection.begin.getTerms())
      entries *= std::max<int64_t>(1, mesh ? mesh.getAxisSize(term.axis) : 1);
    if (!whole)
      whole = selection.begin.getExtent();
  }
  return whole ? std::min(whole, entries) : entries;
}

LogicalResult plait::verifyIds(ModuleOp module) {
  auto model = module->getAttrOfType<DictionaryAttr>(nn::kModelAttr);
  auto vocab = model ? model.getAs<IntegerAttr>("vocab") : IntegerAttr();
  if (!vocab)
    return success(); // a piece of a model, which is not executed
  dist::MeshOp mesh = dist::MeshOp::find(module);
  WalkResult all = module.walk([&](SelectionOpInterface op) {
    nn::Selection selection = op.getSelection();
    if (!areInputs(selection.ids))
      return WalkResult::advance();
    int64_t entries = countEntries(selection, mesh);
    if (entries >= vocab.getInt())
      return WalkResult::advance();
    op->emitOpError("selects from ")
        << selection.from.getType() << ", of which all ranks have " << entries
        << " entries for a vocabulary of " << vocab.getInt() << " ("
        << nn::kModelAttr << ")";
    return WalkResult::interrupt();
  });
  return failure(all.wasInterrupted());
}
