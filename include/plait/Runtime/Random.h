//===- Random.h - Random numbers by position --------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A counter-based generator: the n-th number is a function of (seed, name, n),
// so that every rank of every mesh draws the same value for the same element
// of a parameter without drawing the ones before it.
//
// The recipe, to be reproduced exactly elsewhere. Element n (row-major index
// in the tensor of the safetensors file) of tensor `name` under seed s:
//
//  1. h = XXH3-64 of the bytes of `name` (seed 0 of the hash).
//  2. w0 w1 w2 w3 = Philox4x32-10 (Salmon et al., "Parallel random numbers: as
//     easy as 1, 2, 3", SC 2011) of the counter (low 32 bits of b, high 32
//     bits of b, low 32 bits of s, high 32 bits of s), b = floor(n / 4), under
//     the key (low 32 bits of h, high 32 bits of h).
//  3. l = n mod 4; (a, c) = (w0, w1) when l < 2, else (w2, w3).
//  4. u = (floor(a / 256) + 0.5) * 2^-24, v = (floor(c / 256) + 0.5) * 2^-24,
//     in double precision, as is all that follows.
//  5. r = sqrt(-2 ln u); z = r cos(2 pi v) when l is even, r sin(2 pi v) when
//     it is odd.
//  6. The element is mean + std * z, mean and std being the floats of the
//     plan, rounded once to f32.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_RANDOM_H
#define PLAIT_RUNTIME_RANDOM_H

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace plait::runtime {

/// Ten rounds of Philox4x32.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter,
                               std::array<uint32_t, 2> key);

/// The normals of one tensor. Cheap to make; use one per thread.
class NormalStream {
public:
  NormalStream(uint64_t seed, std::string_view tensor, float mean, float std);

  /// Elements [begin, begin + target.size()).
  void generate(uint64_t begin, std::span<float> target);
  /// The same, on up to `threads` threads where there is work for them.
  void generate(uint64_t begin, std::span<float> target, unsigned threads);

private:
  void refill(uint64_t newBlock);

  uint64_t seed;
  std::array<uint32_t, 2> key;
  double mean;
  double std;
  uint64_t block = UINT64_MAX; // of `values`
  std::array<float, 4> values;
};

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_RANDOM_H
