//===- Parts.h - Shared parts of the cost model -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_COST_PARTS_H
#define PLAIT_PLANNER_COST_PARTS_H

#include "plait/Planner/Cost.h"

namespace plait::planner {

/// batch x (m x k) . (k x n); `outputBytes` is the traffic of one element of
/// the result (twice its size where the matmul is added to what is there).
struct Matmul {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  double inputBytes = 2, outputBytes = 2;
  int64_t rowAlignment = 0; ///< As Operation::rowAlignment.
};

Cost matmulCost(const Matmul &matmul, const Device &device,
                Precision precision);

/// Attention of one operation, forward or all of its gradients.
Cost attentionCost(const Operation &operation, const Device &device,
                   const CostOptions &options);

/// A kernel that moves `bytes` and computes `flops` elementwise.
Cost kernelCost(double bytes, double flops, const Device &device);

/// Operations that a processor takes for each element to make a message of
/// sites, or to read that of one: a sparse one has few of them.
double getEncodeFlops(bool isSparse);
double getDecodeFlops(bool isSparse);

} // namespace plait::planner

#endif // PLAIT_PLANNER_COST_PARTS_H
