//===- BFloat16Test.cpp - Rounding to the upper half of a float -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Support/BFloat16.h"
#include "plait/Support/Float16.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

using namespace plait;

namespace {

BFloat16 fromBits(uint32_t bits) {
  BFloat16 number;
  number.bits = static_cast<uint16_t>(bits);
  return number;
}

/// By definition, between all neighbours: below the middle down, above it up,
/// at it to the even one.
TEST(BFloat16, RoundsToTheNearest) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits)
    for (uint32_t sign : {0u, 0x8000u}) {
      float low = fromBits(sign | bits);
      // After the largest comes the power of two that it has no place for.
      double high = bits < 0x7f7f ? double(fromBits(sign | (bits + 1)))
                                  : std::copysign(0x1p128, low);
      auto middle = static_cast<float>((low + high) / 2);
      uint32_t even = bits % 2 ? bits + 1 : bits;
      EXPECT_EQ(BFloat16(low).bits, sign | bits);
      EXPECT_EQ(BFloat16(middle).bits, sign | even) << middle;
      EXPECT_EQ(BFloat16(std::nextafter(middle, low)).bits, sign | bits);
      EXPECT_EQ(
          BFloat16(std::nextafter(middle, std::copysign(INFINITY, low))).bits,
          sign | (bits + 1));
    }
}

TEST(BFloat16, KeepsWhatIsNoNumber) {
  EXPECT_EQ(BFloat16(INFINITY).bits, 0x7f80);
  EXPECT_EQ(BFloat16(-INFINITY).bits, 0xff80);
  EXPECT_TRUE(std::isnan(BFloat16(NAN)));
  // The bits that make it one lie in the half that is dropped.
  auto hidden = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(BFloat16(hidden)));
  hidden = std::bit_cast<float>(0xff80ffffu);
  EXPECT_TRUE(std::isnan(BFloat16(hidden)));
}

/// IEEE 754's definition: (1 + f / 2^10) 2^(e - 15), without the one for e = 0.
TEST(Float16, IsTheNumberOfItsBits) {
  for (uint16_t bits = 0; bits < 0x7c00; ++bits) {
    int exponent = bits >> 10, fraction = bits & 0x3ff;
    float value = exponent ? std::ldexp(1024 + fraction, exponent - 25)
                           : std::ldexp(fraction, -24);
    EXPECT_EQ(float(Float16{bits}), value);
    float negative = Float16{uint16_t(bits | 0x8000)};
    EXPECT_EQ(negative, -value);
    EXPECT_TRUE(std::signbit(negative));
  }
  EXPECT_EQ(float(Float16{0x7c00}), INFINITY);
  EXPECT_EQ(float(Float16{0xfc00}), -INFINITY);
  EXPECT_TRUE(std::isnan(float(Float16{0x7c01})));
  EXPECT_TRUE(std::isnan(float(Float16{0xfe00})));
}

} // namespace
