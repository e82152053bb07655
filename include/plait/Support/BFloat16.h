//===- BFloat16.h - The upper half of a float -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// bf16 in memory, f32 in registers: a bf16 number is the upper half of the f32
// of the same value, so widening is exact, and rounding is the one step that
// loses anything. It goes to the nearest, of two equally near to the even one,
// as IEEE 754's default does; numbers beyond the largest bf16 become infinite,
// subnormals stay, and a NaN stays one. Generated kernels compute the same
// (lib/Codegen/Kernel/EmitMemory.cpp).
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_BFLOAT16_H
#define PLAIT_SUPPORT_BFLOAT16_H

#include <bit>
#include <cstdint>

namespace plait {

/// The bits of a bf16 number. A type of its own, so that no integer is taken
/// for one.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  /// Rounds.
  explicit BFloat16(float value) {
    uint32_t word = std::bit_cast<uint32_t>(value);
    // Half of the last place, less one where the number is even: what is at
    // the middle then goes up from odd numbers only.
    uint32_t rounded = word + 0x7fff + (word >> 16 & 1);
    // A NaN whose payload lies in the lower half would become infinite.
    bool isNan = (word & 0x7fffffff) > 0x7f800000;
    bits = static_cast<uint16_t>((isNan ? word | 0x400000 : rounded) >> 16);
  }

  operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

static_assert(sizeof(BFloat16) == 2);

} // namespace plait

#endif // PLAIT_SUPPORT_BFLOAT16_H
