//===- Carried.h - What a plan carries beside its step ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_CARRIED_H
#define PLAIT_LIB_PROOF_CARRIED_H

#include "Report.h"

namespace plait::proof {

/// Shows that `plan` says of the model, of its parameters and of the arithmetic
/// what `claim` says, wherever no step depends on it and a run, a file of
/// weights or a report does.
llvm::LogicalResult checkCarried(mlir::ModuleOp claim, mlir::ModuleOp plan,
                                 Report &report);

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_CARRIED_H
