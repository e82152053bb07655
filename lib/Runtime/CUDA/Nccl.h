//===- Nccl.h - The functions of libnccl ------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_NCCL_H
#define PLAIT_LIB_RUNTIME_CUDA_NCCL_H

#include "plait/Support/Status.h"

#include <nccl.h>

#define PLAIT_NCCL_FUNCTIONS(X)                                                \
  X(ncclGetVersion)                                                            \
  X(ncclGetErrorString)                                                        \
  X(ncclGetLastError)                                                          \
  X(ncclGetUniqueId)                                                           \
  X(ncclCommInitRankConfig)                                                    \
  X(ncclCommSplit)                                                             \
  X(ncclCommDestroy)                                                           \
  X(ncclCommAbort)                                                             \
  X(ncclCommGetAsyncError)                                                     \
  X(ncclAllReduce)                                                             \
  X(ncclReduceScatter)                                                         \
  X(ncclAllGather)                                                             \
  X(ncclSend)                                                                  \
  X(ncclRecv)                                                                  \
  X(ncclGroupStart)                                                            \
  X(ncclGroupEnd)

// Memory that NCCL's kernels and network cards reach without a copy. Headers
// before 2.28 do not have them all.
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
#define PLAIT_NCCL_REGISTRATION(X)                                             \
  X(ncclMemAlloc)                                                              \
  X(ncclMemFree)                                                               \
  X(ncclCommRegister)                                                          \
  X(ncclCommDeregister)                                                        \
  X(ncclCommWindowRegister)                                                    \
  X(ncclCommWindowDeregister)
#endif

namespace plait::runtime {

/// Has NCCL, before it is loaded, leave sums to GPUs, whose order of terms is
/// the same in every run, and not to the switches between them. Fails where the
/// environment says otherwise.
Status keepSumsOutOfSwitches();

/// One thread a GPU calls these.
struct Nccl {
#define PLAIT_DECLARE(function) decltype(&::function) function;
  PLAIT_NCCL_FUNCTIONS(PLAIT_DECLARE)
#ifdef PLAIT_NCCL_REGISTRATION
  // Null where the library is too old.
  PLAIT_NCCL_REGISTRATION(PLAIT_DECLARE)
#endif
#undef PLAIT_DECLARE

  /// Loads the library in the first call.
  static Result<const Nccl *> load();

  /// Success, or "what: the library's reason".
  Status check(ncclResult_t result, const char *what) const;

private:
  static Result<Nccl> open();
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_NCCL_H
