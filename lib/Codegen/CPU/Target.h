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
#include "llvm/ADT/SmallVector.h"

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

/// Lowers `module` (which it consumes) to machine code: an ELF object for each
/// function, which does not depend on the others.
llvm::FailureOr<llvm::SmallVector<llvm::SmallString<0>>>
compileFunctions(mlir::ModuleOp module, llvm::TargetMachine &machine);

/// A name that a plan calls a kernel by, and its function in the objects.
struct ExportedKernel {
  std::string symbol, function;
};

/// Links objects to a shared object without undefined symbols, which exports
/// the kernels' names and nothing else.
llvm::FailureOr<std::vector<char>>
linkObjects(llvm::ArrayRef<llvm::SmallString<0>> objects,
            llvm::ArrayRef<ExportedKernel> kernels, mlir::MLIRContext *context);

} // namespace plait::codegen

#endif // PLAIT_LIB_CODEGEN_CPU_TARGET_H
