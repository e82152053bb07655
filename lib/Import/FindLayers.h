//===- FindLayers.h - Repeated blocks, by their shape -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_IMPORT_FINDLAYERS_H
#define PLAIT_LIB_IMPORT_FINDLAYERS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace plait {

/// Gives `nn.layer` to the ops of blocks that repeat, one after the other, with
/// other parameters or the same. Reads and constants that only one of them uses
/// belong to it, and are moved to where it is. Nothing else changes; a function
/// without such blocks stays as it is. The function has one block.
void findLayers(mlir::func::FuncOp loss);

} // namespace plait

#endif // PLAIT_LIB_IMPORT_FINDLAYERS_H
