//===- PackMemory.h - Offsets for buffers with lifetimes ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_LOWERING_PACKMEMORY_H
#define PLAIT_LIB_TRANSFORMS_LOWERING_PACKMEMORY_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>

namespace plait {

/// A buffer that is live over the steps [first, last].
struct Lifetime {
  int64_t bytes;
  int64_t first, last;
};

/// A buffer whose offset is given.
struct PlacedBuffer : Lifetime {
  int64_t offset;
};

/// Offsets, multiples of plan::kAlignment, so that buffers which are live at
/// the same time do not overlap, nor what has been `placed`; `total` becomes
/// the end of the last one, or of what has been placed.
/// Buffers are placed one after the other, each at the lowest offset that is
/// free. The order decides how many gaps are left: of a few, of which the
/// largest first is the first (greedy by size; Pisarchyk and Lee 2020), the one
/// that takes the least memory. Others are only tried where that is more than
/// what is live at once. Deterministic; takes room for each step, and per
/// buffer time for the logarithm of the steps and for the gaps that it does not
/// fit. Steps count from 0.
llvm::SmallVector<int64_t> packMemory(llvm::ArrayRef<Lifetime> buffers,
                                      int64_t &total,
                                      llvm::ArrayRef<PlacedBuffer> placed = {});

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_LOWERING_PACKMEMORY_H
