//===- LossChunks.h - Logits in chunks of rows ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// In how many chunks a step computes logits and loss is asked by the pass that
// cuts them and by the planner.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_LOSSCHUNKS_H
#define PLAIT_SUPPORT_LOSSCHUNKS_H

#include <algorithm>
#include <cstdint>

namespace plait {

/// Returns the number of chunks of `rows`, at least one, where `asked` are
/// asked for: as many, or the next smaller number that divides the rows.
inline int64_t countLossChunks(int64_t rows, int64_t asked) {
  int64_t chunks = std::min(rows, asked);
  while (rows % chunks)
    --chunks;
  return chunks;
}

} // namespace plait

#endif // PLAIT_SUPPORT_LOSSCHUNKS_H
