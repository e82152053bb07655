//===- ModelFlops.cpp - FLOPs of a model, for utilisation -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Counted before anything is sharded or recomputed, so that what a plan
// computes twice does not count as work done.
//
//===----------------------------------------------------------------------===//

#include "plait/Analysis/ModelFlops.h"

#include "plait/Analysis/TrainedValues.h"
#include "plait/Interfaces/OpInterfaces.h"

using namespace mlir;
using namespace plait;

/// The part of what `op` reads that needs a gradient.
static double getTrainedPart(Operation *op,
                             const llvm::DenseSet<Value> &trained) {
  int64_t all = 0, found = 0;
  for (Value operand : op->getOperands()) {
    all += isa<FloatType>(getElementTypeOrSelf(operand.getType()));
    found += trained.contains(operand);
  }
  return all ? double(found) / double(all) : 0;
}

double plait::countModelFlops(func::FuncOp loss,
                              llvm::function_ref<int64_t(Operation *)> count) {
  double flops = 0;
  llvm::DenseSet<Value> trained = findTrainedValues(loss);
  loss.walk([&](CostedOpInterface op) {
    // Each matmul has two gradients, of as many operations each.
    if (op.getWorkShape().kind != WorkShape::Memory)
      flops += double(op.getFlops()) * double(count(op)) *
               (1 + 2 * getTrainedPart(op, trained));
  });
  return flops;
}
