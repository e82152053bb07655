//===- NVPTXLibrary.h - Kernels for NVIDIA GPUs -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CODEGEN_NVPTX_NVPTXLIBRARY_H
#define PLAIT_LIB_CODEGEN_NVPTX_NVPTXLIBRARY_H

#include "plait/Codegen/Kernel.h"

namespace plait::codegen {

class NVPTXLibrary : public KernelLibrary {
public:
  NVPTXLibrary(mlir::MLIRContext *context, TargetGPU target);

  llvm::FailureOr<std::vector<CodeObject>> finish() override;

protected:
  llvm::LogicalResult emit(plan::ClusterOp cluster, KernelInfo &info) override;

private:
  TargetGPU target;
};

/// The toolkit's assembler, from PTX to a cubin for `architecture`. Nothing if
/// there is no toolkit; an error has been emitted where it refuses the code.
llvm::FailureOr<std::optional<std::vector<char>>>
assemble(llvm::StringRef ptx, llvm::StringRef architecture,
         mlir::MLIRContext *context);

} // namespace plait::codegen

#endif // PLAIT_LIB_CODEGEN_NVPTX_NVPTXLIBRARY_H
