//===- Compare.h - Comparison of two steps ----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_COMPARE_H
#define PLAIT_LIB_PROOF_COMPARE_H

#include "Interpreter.h"

namespace plait::proof {

/// Shows that each rank of `plan` has written what the one of `claim` has, each
/// where it is declared to lie, and reports the same.
llvm::LogicalResult compareSteps(Step &claim, Step &plan, Rules &rules,
                                 mlir::ModuleOp module);

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_COMPARE_H
