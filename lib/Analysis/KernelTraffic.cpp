//===- KernelTraffic.cpp - Memory traffic of fused kernels ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each input is read and each output written once: that is what fusion
// achieves, and what caches let several sweeps over a row have. Ops that read
// or write elsewhere are the exceptions, and are asked for by their role.
//
//===----------------------------------------------------------------------===//

#include "plait/Analysis/KernelTraffic.h"

#include "plait/Analysis/KernelShape.h"

#include "mlir/IR/TypeUtilities.h"
#include "plait/Dialect/NN/IR/NN.h"

using namespace mlir;
using namespace plait;

static double countElements(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor ? tensor.getNumElements() : 0;
}

/// Counts what a kernel reads of an operand: of one that an op reads elsewhere,
/// such as a table, or what ranks have in common, as much as the op makes of
/// it. The `table` that it adds scattered rows to counts as written.
static double countRead(plan::ClusterOp cluster, unsigned index,
                        BlockArgument table) {
  BlockArgument inner = cluster.getBody().getArgument(index);
  if (inner == table)
    return 0;
  for (Operation *user : inner.getUsers())
    if (getFacts(user).readsMemory && user->getOperand(0) == inner)
      return countElements(user->getResult(0).getType());
  return countElements(inner.getType());
}

/// Counts what a kernel writes of a result, and reads of it where it adds to
/// what is there. A scattered one is added to row by row in any case, after it
/// was filled with zeros where nothing is to be kept; where tokens are sorted
/// each row is written once. What is kept but for the first microbatch counts
/// as kept.
static double countWritten(plan::ClusterOp cluster, unsigned index,
                           BlockArgument table) {
  Value inner = cluster.getBody().front().getTerminator()->getOperand(index);
  double whole = countElements(inner.getType());
  bool keeps = cluster.getAccumulate() &&
               (*cluster.getAccumulate())[index] !=
                   static_cast<int32_t>(plan::Accumulate::Overwrite);
  if (table) {
    // The add has two operands: the table and what is scattered.
    Operation *add = inner.getDefiningOp();
    inner = add->getOperand(add->getOperand(0) == table ? 1 : 0);
    keeps = true;
  }
  if (Operation *op = inner.getDefiningOp(); getFacts(op).scatters) {
    double added = countElements(op->getOperand(0).getType());
    if (isSorted(op))
      return keeps ? 2 * std::min(added, whole) : whole;
    return 2 * added + (keeps ? 0 : whole);
  }
  return keeps ? 2 * whole : whole;
}

SmallVector<Access> plait::getKernelAccesses(plan::ClusterOp cluster) {
  SmallVector<Access> accesses;
  BlockArgument table = findScatterAddend(cluster);
  for (auto [index, input] : llvm::enumerate(cluster.getInputs()))
    accesses.push_back({input.getType(), countRead(cluster, index, table)});
  for (auto [index, output] : llvm::enumerate(cluster.getOutputs()))
    accesses.push_back({output.getType(), countWritten(cluster, index, table)});
  return accesses;
}

/// Counts by the types in which tensors are stored, not those in which a kernel
/// computes.
double plait::getKernelTraffic(plan::ClusterOp cluster) {
  double bytes = 0;
  for (const Access &access : getKernelAccesses(cluster))
    bytes += access.elements *
             getElementTypeOrSelf(access.type).getIntOrFloatBitWidth() / 8;
  return bytes;
}

/// Rows that are scattered into a table are added to it as they come: what adds
/// all of the table to them computes nothing.
double plait::getKernelFlops(plan::ClusterOp cluster) {
  double flops = 0;
  BlockArgument table = findScatterAddend(cluster);
  cluster.getBody().walk([&](CostedOpInterface op) {
    if (!table || !llvm::is_contained(op->getOperands(), table))
      flops += op.getFlops();
  });
  return flops;
}
