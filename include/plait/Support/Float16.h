//===- Float16.h - The half-width floats of IEEE 754 ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// fp16 has a sign, five bits of exponent with a bias of 15, and ten of
// fraction. Weights may be stored so; nothing is computed in it, and every
// number of it is one of float. In bits, for compilers that do not know
// _Float16, as GCC 11.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_FLOAT16_H
#define PLAIT_SUPPORT_FLOAT16_H

#include <bit>
#include <cstdint>

namespace plait {

/// The bits of an fp16 number.
struct Float16 {
  uint16_t bits = 0;

  /// Exact. A NaN keeps its payload.
  operator float() const {
    constexpr uint32_t infinity = 0x7c00;
    uint32_t sign = uint32_t(bits & 0x8000) << 16, rest = bits & 0x7fff;
    // The same exponent counts from 127 in a float: 112 too low. The product
    // makes up for it, and makes subnormals normal.
    float value = std::bit_cast<float>(rest << 13) * 0x1p112f;
    uint32_t word = rest < infinity ? std::bit_cast<uint32_t>(value)
                                    : rest << 13 | 0x7f800000;
    return std::bit_cast<float>(sign | word);
  }
};

static_assert(sizeof(Float16) == 2);

} // namespace plait

#endif // PLAIT_SUPPORT_FLOAT16_H
