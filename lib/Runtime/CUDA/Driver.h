//===- Driver.h - The functions of libcuda ----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_DRIVER_H
#define PLAIT_LIB_RUNTIME_CUDA_DRIVER_H

#include "plait/Support/Status.h"

#include <cuda.h>

#define PLAIT_DRIVER_FUNCTIONS(X)                                              \
  X(cuInit)                                                                    \
  X(cuDriverGetVersion)                                                        \
  X(cuGetErrorString)                                                          \
  X(cuDeviceGet)                                                               \
  X(cuDeviceGetCount)                                                          \
  X(cuDeviceGetName)                                                           \
  X(cuDeviceGetAttribute)                                                      \
  X(cuDeviceCanAccessPeer)                                                     \
  X(cuDevicePrimaryCtxRetain)                                                  \
  X(cuDevicePrimaryCtxRelease)                                                 \
  X(cuCtxSetCurrent)                                                           \
  X(cuCtxEnablePeerAccess)                                                     \
  X(cuModuleLoadDataEx)                                                        \
  X(cuModuleUnload)                                                            \
  X(cuModuleGetFunction)                                                       \
  X(cuMemGetInfo)                                                              \
  X(cuMemAlloc)                                                                \
  X(cuMemFree)                                                                 \
  X(cuMemHostAlloc)                                                            \
  X(cuMemFreeHost)                                                             \
  X(cuMemcpyHtoDAsync)                                                         \
  X(cuMemcpyDtoHAsync)                                                         \
  X(cuMemcpyAsync)                                                             \
  X(cuMemcpy2DAsync)                                                           \
  X(cuMemsetD8Async)                                                           \
  X(cuMemsetD32Async)                                                          \
  X(cuCtxGetStreamPriorityRange)                                               \
  X(cuStreamCreateWithPriority)                                                \
  X(cuStreamDestroy)                                                           \
  X(cuStreamQuery)                                                             \
  X(cuStreamSynchronize)                                                       \
  X(cuStreamWaitEvent)                                                         \
  X(cuStreamBeginCapture)                                                      \
  X(cuStreamEndCapture)                                                        \
  X(cuEventCreate)                                                             \
  X(cuEventDestroy)                                                            \
  X(cuEventRecord)                                                             \
  X(cuEventQuery)                                                              \
  X(cuGraphInstantiate)                                                        \
  X(cuGraphDestroy)                                                            \
  X(cuGraphExecDestroy)                                                        \
  X(cuGraphLaunch)                                                             \
  X(cuLaunchKernel)

namespace plait::runtime {

/// Callable from any thread.
struct Driver {
#define PLAIT_DECLARE(function) decltype(&::function) function;
  PLAIT_DRIVER_FUNCTIONS(PLAIT_DECLARE)
#undef PLAIT_DECLARE
  // Headers since CUDA 12.8 know it by a name that older drivers do not have.
  CUresult (*cuEventElapsedTime)(float *milliseconds, CUevent begin,
                                 CUevent end);

  /// Loads and initialises the driver in the first call; fails where there is
  /// none, where it is older than CUDA 12, or where it finds no GPU.
  static Result<const Driver *> load();

  /// Success, or "what: the driver's reason".
  Status check(CUresult result, const char *what) const;

private:
  static Result<Driver> open();
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_DRIVER_H
