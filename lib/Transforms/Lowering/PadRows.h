//===- PadRows.h - Rows at addresses that loads like ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_LOWERING_PADROWS_H
#define PLAIT_LIB_TRANSFORMS_LOWERING_PADROWS_H

#include "mlir/IR/BuiltinOps.h"

namespace plait {

/// Gives rows of an odd number of elements a pitch (plan/RowPitch.h), where
/// only matmuls and kernels read and write them, in this function or,
/// as a residual, in another one of the same stage.
void padRows(mlir::ModuleOp module);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_LOWERING_PADROWS_H
