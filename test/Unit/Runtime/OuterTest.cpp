//===- OuterTest.cpp - What sites compute ---------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CPU/Outer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

using namespace plait;
using namespace plait::runtime;

/// What clipping by `squares`, the norm's square, makes of some numbers.
static std::vector<float> clip(std::vector<float> value, float squares,
                               double radius) {
  OuterOperands operands = {};
  operands.value = reinterpret_cast<std::byte *>(value.data());
  operands.others = reinterpret_cast<const std::byte *>(&squares);
  operands.radius = radius;
  runOuter(fb::OuterKind::Clip, operands, int64_t(value.size()), 0,
           int64_t(value.size()));
  return value;
}

TEST(Outer, ClipsToTheRadius) {
  EXPECT_EQ(clip({3, -4}, 25, 2.5), (std::vector<float>{1.5f, -2}));
  // Inside of it nothing changes, also where nothing has moved.
  EXPECT_EQ(clip({3, -4}, 25, 5), (std::vector<float>{3, -4}));
  EXPECT_EQ(clip({3, -4}, 25, 1e30), (std::vector<float>{3, -4}));
  EXPECT_EQ(clip({0, 0}, 0, 1e-30), (std::vector<float>{0, 0}));
}

/// Also the numbers of a rank that are finite themselves.
TEST(Outer, ClipsWhatIsNoNumberToNothing) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float none = std::numeric_limits<float>::quiet_NaN();
  for (float squares : {infinity, none})
    EXPECT_EQ(clip({1, none, infinity, -infinity}, squares, 2),
              (std::vector<float>{0, 0, 0, 0}));
}

TEST(Outer, AddsUpSquares) {
  constexpr float largest = std::numeric_limits<float>::max();
  std::vector<float> value = {1, -2, 3, largest};
  OuterOperands operands = {};
  operands.value = reinterpret_cast<std::byte *>(value.data());
  EXPECT_EQ(sumSquares(operands, 0, 3), 14);
  EXPECT_EQ(sumSquares(operands, 1, 2), 4);
  EXPECT_EQ(sumSquares(operands, 3, 4), double(largest) * double(largest));
  value[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(sumSquares(operands, 0, 3)));
}
