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

#include "plait/Interfaces/OpInterfaces.h"

using namespace mlir;
using namespace plait;

double plait::countModelFlops(func::FuncOp loss,
                              llvm::function_ref<int64_t(Operation *)> count) {
  double forward = 0;
  loss.walk([&](CostedOpInterface op) {
    if (op.getWorkShape().kind != WorkShape::Memory)
      forward += double(op.getFlops()) * double(count(op));
  });
  // Each matmul has two gradients, of as many operations each.
  return 3 * forward;
}
