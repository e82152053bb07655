//===- WarmUp.h - The first call of every library step ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_WARMUP_H
#define PLAIT_LIB_RUNTIME_CUDA_WARMUP_H

#include "Core/Backend.h"

namespace plait::runtime {

/// Whether `rank` measures for all ranks that run its program: it is the first
/// of them.
bool measuresForOthers(const plan::RankGrid &mesh, uint32_t rank);

/// Calls every library step of the ranks of `backend` once, whose devices are
/// CudaDevice's, with the algorithms that are to stay; one rank after the
/// other, or with `atOnce` a thread for each. Before anything is in the arenas,
/// and before there are communicators. All processes of a run call this. Adds
/// to what the backend says of libraries, and sets Backend::libraryChoices.
Status warmUpLibraries(const fb::Plan &plan, const ExecutorOptions &options,
                       bool atOnce, Backend &backend);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_WARMUP_H
