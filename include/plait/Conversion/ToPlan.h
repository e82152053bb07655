//===- ToPlan.h - From lowered IR to the plan file ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// This header and ElementType.h are the ones that see both the compiler's IR
// and the plan's format.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CONVERSION_TOPLAN_H
#define PLAIT_CONVERSION_TOPLAN_H

#include "mlir/IR/BuiltinOps.h"
#include "plait/Codegen/Kernel.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Plan/Plan_generated.h"

namespace plait {

/// What the plan says of itself beside what is in the IR.
struct PlanIdentity {
  std::string recompute;
  int64_t sequence = 0;
  int64_t globalBatch = 0;
  int64_t microBatch = 0; // sequences per data-parallel rank
  /// GPUs give the same bits in every run.
  bool deterministic = false;
  /// Of a GPU, what is needed beside the arena; see Plan.fbs.
  uint64_t deviceReserve = 0;
  /// What the model needs in a step; see Plan.fbs.
  double modelFlops = 0;
  /// The machines that the plan is for; null: not known.
  std::unique_ptr<plan::fb::ClusterT> cluster;
};

/// The plan of a module after the phase `lower`, with the code of its kernels.
/// Errors are emitted at the op at fault. The plan is not checked yet.
mlir::FailureOr<std::unique_ptr<plan::fb::PlanT>>
convertToPlan(mlir::ModuleOp module, PlanIdentity identity,
              const codegen::Target &target);

/// Bytes of the arena that the plan will have for `program`: its own and, on
/// GPUs, what libraries may use.
uint64_t getArenaBytes(plan::ProgramOp program, bool deterministic,
                       const codegen::Target &target);

} // namespace plait

#endif // PLAIT_CONVERSION_TOPLAN_H
