//===- EmitKernel.h - The loops of a kernel ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CODEGEN_KERNEL_EMITKERNEL_H
#define PLAIT_LIB_CODEGEN_KERNEL_EMITKERNEL_H

#include "Emitter.h"
#include "plait/Analysis/KernelShape.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace plait::codegen {

class Workers;

/// Emits the loops of `shape`, and sets extent, grain and scalars of `info`.
void emitLoops(Emitter &emitter, Workers &workers, const KernelShape &shape,
               KernelInfo &info);
void emitElementwise(Emitter &emitter, Workers &workers, KernelInfo &info);
void emitRows(Emitter &emitter, Workers &workers, const RowShape &shape,
              KernelInfo &info);
void emitColumns(Emitter &emitter, Workers &workers, const ColumnShape &shape,
                 KernelInfo &info);
void emitRowOp(Emitter &emitter, Workers &workers, const RowOpShape &shape,
               KernelInfo &info);
void emitSortedScatter(Emitter &emitter, Workers &workers, mlir::Operation *op,
                       KernelInfo &info);
void emitScatter(Emitter &emitter, Workers &workers, const ScatterShape &shape,
                 KernelInfo &info);

/// Ends the function whose loops have been emitted, and grants its arithmetic
/// what kernels may do: fused multiply-adds, reciprocals.
void finishFunction(mlir::func::FuncOp function);

/// Fewer elements than this are not worth a thread.
inline constexpr int64_t kGrainElements = 16384;

} // namespace plait::codegen

#endif // PLAIT_LIB_CODEGEN_KERNEL_EMITKERNEL_H
