//===- FakeEnvironment.cpp - Makes the runtime find the fake GPUs ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include <cstdlib>
#include <initializer_list>

/// Before anything opens a library.
static const bool prepared = [] {
  for (const char *name : {"PLAIT_CUDA_DRIVER", "PLAIT_CUBLASLT", "PLAIT_NCCL"})
    setenv(name, PLAIT_FAKE_CUDA, /*overwrite=*/1);
  setenv("PLAIT_FAKE_GPUS", "8", 1);
  setenv("NVTX_INJECTION64_PATH", PLAIT_FAKE_CUDA, 1);
  for (const char *name : {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
    unsetenv(name);
  return true;
}();
