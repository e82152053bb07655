//===- BoxDraws.h - Random shapes, and what boxes hold ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_RUNTIME_BOXDRAWS_H
#define PLAIT_TEST_UNIT_RUNTIME_BOXDRAWS_H

#include "Checkpoint/Boxes.h"

#include <random>

namespace plait::test {

using runtime::Box;
using runtime::Shape;

class Draw {
public:
  explicit Draw(uint32_t seed) : engine(seed) {}

  int64_t from(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(engine);
  }
  bool chance(int percent) { return from(1, 100) <= percent; }

  Shape shape(int64_t leastDims, int64_t mostDims) {
    Shape shape(from(leastDims, mostDims));
    for (int64_t &size : shape)
      size = from(1, 6);
    return shape;
  }

  std::mt19937 engine;
};

/// The row-major indices of the elements of `boxes`, in their order.
inline std::vector<int64_t> expand(const std::vector<Box> &boxes,
                                   const Shape &shape) {
  std::vector<int64_t> indices;
  for (const Box &box : boxes)
    forEachRun(box, shape, [&](int64_t begin, int64_t count) {
      for (int64_t i = 0; i < count; ++i)
        indices.push_back(begin + i);
    });
  return indices;
}

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_RUNTIME_BOXDRAWS_H
