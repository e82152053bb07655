//===- SortedTokens.h - The order of tokens, next to them -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The gradient of a table of embeddings adds up rows by token. A GPU finds the
// positions of a token at once if the host, which reads the tokens anyway, has
// sorted them: behind the tokens of a microbatch lie their positions by token,
// and where those of each token begin (Input.sorted in Plan.fbs).
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_SORTEDTOKENS_H
#define PLAIT_SUPPORT_SORTEDTOKENS_H

#include <algorithm>
#include <cstdint>
#include <span>

namespace plait {

/// The layout of one microbatch, in words of 32 bits: its `count` tokens,
/// their positions sorted by token, those of one token in their order, and of
/// each of the tokens [0, entries] how many positions have a smaller one.
struct SortedTokens {
  int64_t count, entries;

  int64_t getPositions() const { return count; }
  int64_t getStarts() const { return 2 * count; }
  int64_t getWords() const { return 2 * count + entries + 1; }

  /// Fills in what follows from the tokens. Positions of tokens outside of
  /// [0, entries) come last, and belong to none. Linear in the words.
  void sort(std::span<int32_t> words) const {
    std::span<int32_t> tokens = words.first(count),
                       positions = words.subspan(getPositions(), count),
                       starts = words.subspan(getStarts(), entries + 1);
    auto exists = [&](int32_t token) { return 0 <= token && token < entries; };
    // 1. Of each token, one further, how many positions have it.
    std::fill(starts.begin(), starts.end(), 0);
    for (int32_t token : tokens)
      if (exists(token))
        ++starts[token + 1];
    // 2. Of each token where its positions begin.
    for (int64_t token = 0; token < entries; ++token)
      starts[token + 1] += starts[token];
    // 3. A start moves to the end of its positions, which is the next one's.
    int32_t others = starts[entries];
    for (int32_t position = 0; position < count; ++position)
      positions[exists(tokens[position]) ? starts[tokens[position]]++
                                         : others++] = position;
    // 4. Each moves back by one.
    for (int64_t token = entries; token > 0; --token)
      starts[token] = starts[token - 1];
    starts[0] = 0;
  }
};

} // namespace plait

#endif // PLAIT_SUPPORT_SORTEDTOKENS_H
