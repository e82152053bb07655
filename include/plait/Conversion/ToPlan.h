//===- ToPlan.h - From lowered IR to the plan file ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// This header sees both the compiler's IR and the plan's format.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CONVERSION_TOPLAN_H
#define PLAIT_CONVERSION_TOPLAN_H

#include "mlir/IR/BuiltinOps.h"
#include "plait/Codegen/Kernel.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Plan/Plan_generated.h"

namespace plait {

/// The plan of a module after the phase `steps`, with the code of its kernels.
/// Everything that it says is in the module; without `plait.target` its code is
/// for this machine's processor. Errors are emitted at the op at fault. The
/// plan is not checked yet. `kernels`, if given, become those of the plan, in
/// its order.
mlir::FailureOr<std::unique_ptr<plan::fb::PlanT>>
convertToPlan(mlir::ModuleOp module,
              std::vector<codegen::EmittedKernel> *kernels = nullptr);

} // namespace plait

#endif // PLAIT_CONVERSION_TOPLAN_H
