//===- CPULibrary.h - Kernels for x86-64 ------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CODEGEN_CPU_CPULIBRARY_H
#define PLAIT_LIB_CODEGEN_CPU_CPULIBRARY_H

#include "plait/Codegen/Kernel.h"

namespace llvm {
class TargetMachine;
} // namespace llvm

namespace plait::codegen {

class CPULibrary : public KernelLibrary {
public:
  CPULibrary(mlir::MLIRContext *context, TargetCPU target);
  ~CPULibrary() override;

  llvm::FailureOr<std::vector<CodeObject>> finish() override;

protected:
  llvm::LogicalResult emit(plan::ClusterOp cluster, KernelInfo &info) override;

private:
  /// Null when LLVM does not know the processor.
  std::unique_ptr<llvm::TargetMachine> machine;
  TargetCPU target;
};

} // namespace plait::codegen

#endif // PLAIT_LIB_CODEGEN_CPU_CPULIBRARY_H
