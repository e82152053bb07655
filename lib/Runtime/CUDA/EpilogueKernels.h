//===- EpilogueKernels.h - Epilogues after their GEMMs ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shared between the host and the kernels of EpilogueKernels.cu.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_EPILOGUEKERNELS_H
#define PLAIT_LIB_RUNTIME_CUDA_EPILOGUEKERNELS_H

#include <stdint.h>

namespace plait::runtime {

/// Parameters of what a GemmStep's epilogue does to its GEMM in `c`; the values
/// of `kind` are those of plan::fb::Epilogue. Rows of c and geluInput begin
/// `stride` elements apart. Elements are f32 or, of the kernel called so, bf16.
struct EpilogueParams {
  void *c;
  const void *bias;
  void *geluInput; // null: not stored
  int64_t rows;
  int64_t columns;
  int64_t stride;
  int32_t kind;
};

/// Threads of a block of the kernels below, each of which takes one
/// EpilogueParams; any number of blocks does.
enum { epilogueThreads = 256 };
#define PLAIT_EPILOGUE "plait_epilogue"
#define PLAIT_EPILOGUE_BF16 "plait_epilogue_bf16"

/// The kernels as PTX, with a closing NUL.
extern const char epilogueKernelsPtx[];

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_EPILOGUEKERNELS_H
