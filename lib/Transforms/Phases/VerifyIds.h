//===- VerifyIds.h - Ids lie in the tables that they select from *- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_PHASES_VERIFYIDS_H
#define PLAIT_LIB_TRANSFORMS_PHASES_VERIFYIDS_H

#include "mlir/IR/BuiltinOps.h"

namespace plait {

/// (P10) of plait-verify-phase, of a module after any phase behind import: what
/// tokens and targets select from has an entry for each of the vocabulary.
mlir::LogicalResult verifyIds(mlir::ModuleOp module);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_PHASES_VERIFYIDS_H
