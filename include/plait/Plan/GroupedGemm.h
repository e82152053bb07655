//===- GroupedGemm.h - What grouped GEMMs need on a GPU ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_GROUPEDGEMM_H
#define PLAIT_PLAN_GROUPEDGEMM_H

#include <cstdint>

namespace plait::plan {

/// The workspace of a grouped GEMM on a GPU, in bytes: the numbers of its rows
/// by expert, and where each expert begins, as int32.
inline uint64_t gpuGroupedWorkspace(int64_t rows, int64_t experts) {
  return (uint64_t(rows) + uint64_t(experts) + 1) * sizeof(int32_t);
}

} // namespace plait::plan

#endif // PLAIT_PLAN_GROUPEDGEMM_H
