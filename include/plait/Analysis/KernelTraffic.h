//===- KernelTraffic.h - Memory traffic of fused kernels --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A fused kernel reads each of its inputs and writes each of its outputs once,
// whatever it computes in between. That traffic is what its time depends on;
// the planner's profile and the plan file both count it here.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_ANALYSIS_KERNELTRAFFIC_H
#define PLAIT_ANALYSIS_KERNELTRAFFIC_H

#include "plait/Dialect/Plan/IR/PlanIR.h"

namespace plait {

/// Elements of the type of one operand or result that go through memory.
struct Access {
  mlir::Type type;
  double elements = 0;
};

/// One entry per input and then per output. Of a table that rows are looked up
/// in, these rows count; of a result that is added to, reading it counts too;
/// of one that rows are scattered to, filling it with zeros and these rows.
llvm::SmallVector<Access> getKernelAccesses(plan::ClusterOp cluster);

/// The same in bytes.
double getKernelTraffic(plan::ClusterOp cluster);

/// Returns the FLOPs of the ops inside, as their interfaces count them.
double getKernelFlops(plan::ClusterOp cluster);

} // namespace plait

#endif // PLAIT_ANALYSIS_KERNELTRAFFIC_H
