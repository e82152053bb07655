//===- CreateCluster.cpp - Clusters of given ops --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ops are cloned and the originals stay, so that a cluster can be built to ask
// whether there is a kernel for it, and thrown away. A free op that members
// read is cloned with them and is no input, however long the chain of free ops
// is, unless a member addresses it in memory.
//
//===----------------------------------------------------------------------===//

#include "Fusion.h"

#include "plait/Analysis/KernelShape.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace plait;

/// Adds what the cluster of the ops `inside` reads for this use, if anything.
static void addInputs(OpOperand &use,
                      const llvm::SmallDenseSet<Operation *> &inside,
                      llvm::SetVector<Value> &inputs) {
  Operation *source = use.get().getDefiningOp();
  if (source && inside.contains(source))
    return;
  // A lookup addresses its table in memory: even a constant has to lie there
  // for it.
  if (!source || !isFree(source) || needsMemory(use)) {
    inputs.insert(use.get());
    return;
  }
  for (OpOperand &operand : source->getOpOperands())
    addInputs(operand, inside, inputs);
}

llvm::SetVector<Value> plait::findInputs(ArrayRef<Operation *> members) {
  llvm::SmallDenseSet<Operation *> inside(members.begin(), members.end());
  llvm::SetVector<Value> inputs;
  for (Operation *op : members)
    for (OpOperand &operand : op->getOpOperands())
      addInputs(operand, inside, inputs);
  return inputs;
}

namespace {

/// Builds one cluster.
class ClusterCreator {
public:
  /// Two users of a free op share one copy of it, or have one each: what a
  /// vector is spread from can then lie along two dimensions of one kernel.
  ClusterCreator(ArrayRef<Operation *> members, bool sharesCopies)
      : members(members), sharesCopies(sharesCopies),
        builder(members.front()->getContext()) {}

  OwningOpRef<plan::ClusterOp> create(ArrayRef<Value> outputs);

private:
  Value import(Value value);

  ArrayRef<Operation *> members;
  bool sharesCopies;
  OpBuilder builder;
  IRMapping mapping;
};

} // namespace

/// The value in the cluster that stands for `value`.
Value ClusterCreator::import(Value value) {
  if (Value known = mapping.lookupOrNull(value))
    return known;
  // Only free ops are left: copy them.
  Operation *source = value.getDefiningOp();
  SmallVector<Value> operands = llvm::map_to_vector(
      source->getOperands(), [&](Value operand) { return import(operand); });
  Operation *copy = builder.clone(*source);
  copy->setOperands(operands);
  if (sharesCopies)
    mapping.map(value, copy->getResult(0));
  return copy->getResult(0);
}

/// Arguments are in the order in which members first read them, results in that
/// of `outputs`.
OwningOpRef<plan::ClusterOp> ClusterCreator::create(ArrayRef<Value> outputs) {
  llvm::SetVector<Value> inputs = findInputs(members);
  OwningOpRef<plan::ClusterOp> cluster = plan::ClusterOp::create(
      builder, members.back()->getLoc(), ValueRange(outputs).getTypes(),
      inputs.getArrayRef(), DenseI32ArrayAttr());
  Block *block = builder.createBlock(&cluster->getBody());
  for (Value input : inputs)
    mapping.map(input, block->addArgument(input.getType(), input.getLoc()));
  // Members come in program order: what they read of each other is mapped by
  // then.
  for (Operation *op : members) {
    SmallVector<Value> operands = llvm::map_to_vector(
        op->getOperands(), [&](Value operand) { return import(operand); });
    Operation *copy = builder.clone(*op);
    copy->setOperands(operands);
    mapping.map(op->getResult(0), copy->getResult(0));
  }
  plan::YieldOp::create(builder, cluster->getLoc(),
                        llvm::map_to_vector(outputs, [&](Value value) {
                          return mapping.lookup(value);
                        }));
  return cluster;
}

/// Shared first, which is less to compute.
Copies plait::findCopies(ArrayRef<Operation *> members,
                         ArrayRef<Value> outputs) {
  for (Copies copies : {Copies::Shared, Copies::Separate})
    if (hasKernel(*createCluster(members, outputs, copies)))
      return copies;
  return Copies::None;
}

OwningOpRef<plan::ClusterOp> plait::createCluster(ArrayRef<Operation *> members,
                                                  ArrayRef<Value> outputs,
                                                  Copies copies) {
  return ClusterCreator(members, copies == Copies::Shared).create(outputs);
}
