//===- Memory.h - Memory as the compiler places it --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_DRIVER_MEMORY_H
#define PLAIT_LIB_DRIVER_MEMORY_H

#include "plait/Driver/Driver.h"
#include "plait/Planner/Estimate.h"

#include "mlir/Support/LLVM.h"

namespace plait {

/// Runs the phases up to placed buffers and says what each stage's ranks hold:
/// peak() is the arena that the plan will have, to the byte. What is neither a
/// parameter, gradient, moment nor activation counts as workspace. Failures
/// have been reported.
mlir::FailureOr<std::vector<planner::StageMemory>>
placeMemory(CompileOptions options);

} // namespace plait

#endif // PLAIT_LIB_DRIVER_MEMORY_H
