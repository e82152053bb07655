//===- PackMemory.cpp - Offsets for buffers with lifetimes ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PackMemory.h"

#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/Support/MathExtras.h"

using namespace plait;

llvm::SmallVector<int64_t> plait::packMemory(llvm::ArrayRef<Lifetime> buffers,
                                             int64_t &total) {
  auto order = llvm::to_vector(llvm::seq<int64_t>(0, buffers.size()));
  llvm::stable_sort(order, [&](int64_t a, int64_t b) {
    return buffers[a].bytes > buffers[b].bytes;
  });
  llvm::SmallVector<int64_t> offsets(buffers.size(), 0);
  llvm::SmallVector<int64_t> placed; // by offset
  total = 0;
  for (int64_t index : order) {
    const Lifetime &buffer = buffers[index];
    if (buffer.bytes == 0)
      continue;
    int64_t offset = 0;
    for (int64_t other : placed) {
      const Lifetime &taken = buffers[other];
      if (taken.first > buffer.last || taken.last < buffer.first)
        continue;
      if (offset + buffer.bytes <= offsets[other])
        break;
      offset = std::max<int64_t>(
          offset, llvm::alignTo(offsets[other] + taken.bytes,
                                plan::kAlignment));
    }
    offsets[index] = offset;
    total = std::max(total, offset + buffer.bytes);
    auto place = llvm::upper_bound(placed, offset, [&](int64_t a, int64_t b) {
      return a < offsets[b];
    });
    placed.insert(place, index);
  }
  total = llvm::alignTo(total, plan::kAlignment);
  return offsets;
}
