//===- Exponentials.h - exp by the GPU's powers of two ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CODEGEN_NVPTX_EXPONENTIALS_H
#define PLAIT_LIB_CODEGEN_NVPTX_EXPONENTIALS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace plait::codegen {

/// Replaces math.exp of f32, or of vectors of it. The result is off by at most
/// 2.5e-7 of itself; infinite, 0 and no number where exp is.
llvm::LogicalResult expandExponentials(mlir::ModuleOp module);

/// Replaces math.exp of f32 in a kernel whose rows are bf16: 2 instructions.
/// The result is off by at most 2.5e-7 + 1e-7 |x| of itself, 0 where it is less
/// than 2^-126; infinite, 0 and no number where exp is.
void shortenExponentials(mlir::func::FuncOp kernel);

} // namespace plait::codegen

#endif // PLAIT_LIB_CODEGEN_NVPTX_EXPONENTIALS_H
