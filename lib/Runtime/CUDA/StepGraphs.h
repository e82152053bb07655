//===- StepGraphs.h - A step as one CUDA graph ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_STEPGRAPHS_H
#define PLAIT_LIB_RUNTIME_CUDA_STEPGRAPHS_H

#include "Core/Backend.h"
#include "Core/World.h"
#include "CudaStream.h"

#include <memory>
#include <span>
#include <vector>

namespace plait::runtime {

/// The graphs of ranks whose streams wait for each other by events: they are
/// recorded into one graph, which the first of them launches. All streams share
/// one recording lock. `patience` is that of the ranks' communicators. Each
/// result is used by the thread of its rank.
Result<std::vector<std::unique_ptr<StepGraph>>>
createStepGraphs(std::span<CudaStream *const> streams,
                 std::shared_ptr<Patience> patience);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_STEPGRAPHS_H
