//===- Reduction.h - Adds up what ranks have ---------------------*- C++
//-*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reductions in the order of the members, in f32 with one rounding at the end:
// the one place that decides which bits a collective on CPUs has.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CPU_REDUCTION_H
#define PLAIT_LIB_RUNTIME_CPU_REDUCTION_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Support/BFloat16.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace plait::runtime {

/// Elements reduced at a time: a block of each member stays in the first-level
/// cache.
constexpr int64_t reductionBlock = 2048;

/// target[i] = the reduction of source(0)[i], …, source(members - 1)[i] for
/// `count` elements. A target may be one of the sources.
template <typename Element, typename Source>
void reduceInOrder(int64_t members, int64_t count,
                   plan::fb::Reduction reduction, Source source,
                   Element *target) {
  float sum[reductionBlock];
  for (int64_t begin = 0; begin < count; begin += reductionBlock) {
    int64_t size = std::min(reductionBlock, count - begin);
    std::copy_n(source(0) + begin, size, sum);
    for (int64_t j = 1; j < members; ++j) {
      const Element *next = source(j) + begin;
      if (reduction == plan::fb::Reduction::Sum)
        for (int64_t i = 0; i < size; ++i)
          sum[i] += next[i];
      else
        for (int64_t i = 0; i < size; ++i)
          sum[i] = std::max<float>(sum[i], next[i]);
    }
    for (int64_t i = 0; i < size; ++i)
      target[begin + i] = Element(sum[i]);
  }
}

/// Calls work(Element()) with the type of the elements that are reduced.
template <typename Work> auto withElement(plan::fb::DType type, Work work) {
  return type == plan::fb::DType::BF16 ? work(BFloat16()) : work(float());
}

struct Slice {
  int64_t begin, end;

  int64_t size() const { return end - begin; }
};

/// The slice of `count` elements that member `member` reduces. Slices begin at
/// cache lines, so that no two ranks write to one.
inline Slice getSlice(int64_t count, int64_t members, int64_t member,
                      int64_t elementBytes) {
  int64_t line = 64 / elementBytes;
  int64_t size = (count + members * line - 1) / (members * line) * line;
  int64_t begin = std::min(count, member * size);
  return {begin, std::min(count, begin + size)};
}

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CPU_REDUCTION_H
