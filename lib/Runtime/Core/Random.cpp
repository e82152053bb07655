//===- Random.cpp - Random numbers by position ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Random.h has the recipe, to the bit; this is a direct transcription of it.
// All that is wanted of it is that element n needs nothing but n: ranks draw
// their own parts of a tensor, in any order, and get the same numbers.
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Random.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <thread>
#include <vector>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

using namespace plait;
using namespace plait::runtime;

static uint32_t low(uint64_t value) { return static_cast<uint32_t>(value); }
static uint32_t high(uint64_t value) {
  return static_cast<uint32_t>(value >> 32);
}

/// Two 32 × 32 bit multiplications a round, of which high and low halves change
/// places; the key is bumped between rounds. All in wrapping integers, so that
/// every machine gives the same words.
std::array<uint32_t, 4> runtime::philox(std::array<uint32_t, 4> counter,
                                        std::array<uint32_t, 2> key) {
  // Multipliers and Weyl constants of Salmon et al.
  constexpr uint64_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57;
  constexpr uint32_t weyl0 = 0x9E3779B9, weyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    uint64_t product0 = multiplier0 * counter[0];
    uint64_t product1 = multiplier1 * counter[2];
    counter = {high(product1) ^ counter[1] ^ key[0], low(product1),
               high(product0) ^ counter[3] ^ key[1], low(product0)};
    key[0] += weyl0;
    key[1] += weyl1;
  }
  return counter;
}

/// The name enters by its hash, so that tensors of one model are independent
/// streams under one seed.
NormalStream::NormalStream(uint64_t seed, std::string_view tensor, float mean,
                           float std)
    : seed(seed), mean(mean), std(std) {
  uint64_t hash = XXH3_64bits(tensor.data(), tensor.size());
  key = {low(hash), high(hash)};
}

/// Box and Muller's transformation: two uniform numbers give two normal ones; a
/// block of four words gives four. In double precision and rounded once at the
/// end, so that an f32's last bit hardly depends on the library's functions.
void NormalStream::refill(uint64_t newBlock) {
  block = newBlock;
  auto words = philox({low(block), high(block), low(seed), high(seed)}, key);
  // In (0, 1), never 0, whose logarithm is infinite.
  auto uniform = [](uint32_t bits) { return ((bits >> 8) + 0.5) * 0x1p-24; };
  for (int pair = 0; pair < 2; ++pair) {
    double radius = std::sqrt(-2.0 * std::log(uniform(words[2 * pair])));
    double angle = 2.0 * std::numbers::pi * uniform(words[2 * pair + 1]);
    values[2 * pair] =
        static_cast<float>(mean + std * (radius * std::cos(angle)));
    values[2 * pair + 1] =
        static_cast<float>(mean + std * (radius * std::sin(angle)));
  }
}

/// The block that was used last is kept: consecutive calls of one row after the
/// other draw each block once.
void NormalStream::generate(uint64_t begin, std::span<float> target) {
  for (float &value : target) {
    if (begin / 4 != block)
      refill(begin / 4);
    value = values[begin++ % 4];
  }
}

/// Each thread has a stream of its own: what element n is needs nothing but n.
void NormalStream::generate(uint64_t begin, std::span<float> target,
                            unsigned threads) {
  // A millisecond of drawing, many times what a thread costs.
  constexpr size_t least = 1 << 15;
  size_t parts = std::clamp<size_t>(target.size() / least, 1, threads);
  size_t each = (target.size() + parts - 1) / parts;
  std::vector<std::thread> others;
  for (size_t from = each; from < target.size(); from += each)
    others.emplace_back([stream = *this, begin, target, from, each]() mutable {
      size_t count = std::min(each, target.size() - from);
      stream.generate(begin + from, target.subspan(from, count));
    });
  generate(begin, target.first(std::min(each, target.size())));
  for (std::thread &other : others)
    other.join();
}
