//===- LowerModule.h - From kernels in MLIR to machine code -----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CODEGEN_LOWERMODULE_H
#define PLAIT_LIB_CODEGEN_LOWERMODULE_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/CodeGen.h"

namespace llvm {
class Function;
class TargetMachine;
} // namespace llvm

namespace plait::codegen {

/// Lowers `module`, which it consumes, to what `machine` writes as `type`.
/// `adjust` sees every function before it is optimised. Errors are reported at
/// an unknown location.
llvm::FailureOr<llvm::SmallString<0>>
lowerModule(mlir::ModuleOp module, llvm::TargetMachine &machine,
            llvm::CodeGenFileType type,
            llvm::function_ref<void(llvm::Function &)> adjust);

/// Does the same with each function of `module` by itself, and returns an
/// object file each, in their order. A function's does not depend on the
/// others.
llvm::FailureOr<llvm::SmallVector<llvm::SmallString<0>>>
lowerFunctions(mlir::ModuleOp module, llvm::TargetMachine &machine,
               llvm::function_ref<void(llvm::Function &)> adjust);

} // namespace plait::codegen

#endif // PLAIT_LIB_CODEGEN_LOWERMODULE_H
