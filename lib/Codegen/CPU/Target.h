//===- Target.h - From kernels in MLIR to a shared object -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The steps of CPULibrary::finish. All report errors at an unknown location
// of the context they are given.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CODEGEN_CPU_TARGET_H
#define PLAIT_LIB_CODEGEN_CPU_TARGET_H

#include "plait/Codegen/Kernel.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SmallString.h"

namespace llvm {
class TargetMachine;
} // namespace llvm

namespace plait::codegen {

/// Null if LLVM does not know the processor.
std::unique_ptr<llvm::TargetMachine> createMachine(const TargetCPU &target);

/// Lists what is enabled of the features that /proc/cpuinfo names.
std::vector<std::string> listFeatures(const llvm::TargetMachine &machine);

/// The width of the widest vector register, in 32-bit numbers; 0 if the
/// processor cannot run kernels at all: they need avx2 and fma.
int64_t getVectorWidth(const llvm::TargetMachine &machine);

/// Lowers `module` (which it consumes) to machine code: an ELF object.
llvm::FailureOr<llvm::SmallString<0>>
compileModule(mlir::ModuleOp module, llvm::TargetMachine &machine);

/// Links an object to a shared object without undefined symbols.
llvm::FailureOr<std::vector<char>> linkObject(llvm::StringRef object,
                                              mlir::MLIRContext *context);

} // namespace plait::codegen

#endif // PLAIT_LIB_CODEGEN_CPU_TARGET_H
