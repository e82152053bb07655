//===- SampleOrder.cpp - Order of samples ---------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// SampleOrder.h has the recipe. find() is a function of the position alone:
// there is no state that a checkpoint would have to keep, and no array as long
// as the data. The one table is a round of sources with weights, 100,000 turns.
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/SampleOrder.h"

#include "plait/Runtime/Random.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace plait;
using namespace plait::runtime;

/// Weights of up to five decimals that add up to 1 are met exactly.
static constexpr uint32_t roundSize = 100000;

/// Parts of `roundSize` in proportion to `weights`, by largest remainders.
/// 1. Rounds every exact share down; remainders say by how much.
/// 2. Gives what is missing, less than one for each source, to the largest
///    remainders; the sort is stable, so that ties go to the first source.
static std::vector<uint32_t> divideRound(const std::vector<double> &weights) {
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<uint32_t> shares;
  std::vector<double> remainders;
  uint32_t given = 0;
  for (double weight : weights) {
    // 1. Down.
    double exact = weight / sum * roundSize;
    // What is whole but for the rounding of decimals is whole.
    double whole = std::floor(exact + 1e-6);
    shares.push_back(static_cast<uint32_t>(whole));
    remainders.push_back(exact - whole);
    given += shares.back();
  }
  // 2. The largest remainders first.
  std::vector<uint32_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return remainders[a] > remainders[b];
  });
  for (size_t i = 0; given < roundSize; ++i, ++given)
    ++shares[order[i % order.size()]];
  return shares;
}

/// A source of positive weight without a turn would silently never be read.
Result<SampleOrder> SampleOrder::create(std::vector<uint64_t> sizes,
                                        const std::vector<double> &weights,
                                        const std::vector<std::string> &names) {
  SampleOrder order;
  order.begins = {0};
  for (uint64_t size : sizes)
    order.begins.push_back(order.begins.back() + size);
  if (weights.empty())
    return order;
  order.shares = divideRound(weights);
  for (size_t i = 0; i < weights.size(); ++i)
    if (weights[i] > 0 && order.shares[i] == 0)
      return fail("'", names[i], "' has the weight ", weights[i],
                  ", less than 1/", roundSize, " of all");
  order.arrangeRound();
  return order;
}

/// The k-th of n turns lies at (2k + 1) / 2n of the round: in the middle of its
/// k-th part, so that sources are mixed evenly. Compared crosswise, without
/// dividing; products stay below 2 · 10^5 · 10^5.
void SampleOrder::arrangeRound() {
  for (uint32_t source = 0; source < shares.size(); ++source)
    for (uint32_t rank = 0; rank < shares[source]; ++rank)
      round.push_back({source, rank});
  // In whole numbers, so that equal places are equal.
  std::sort(round.begin(), round.end(), [&](const Turn &a, const Turn &b) {
    uint64_t left = (2 * uint64_t(a.rank) + 1) * shares[b.source];
    uint64_t right = (2 * uint64_t(b.rank) + 1) * shares[a.source];
    return left != right ? left < right : a.source < b.source;
  });
}

/// Without weights all sources are one list, permuted as one. With weights each
/// source has passes of its own: `drawn` counts what was read of it since
/// position 0, over all rounds.
Sample SampleOrder::find(uint64_t position) const {
  if (round.empty()) {
    uint64_t size = samples();
    return sample(permute(position % size, size, 0, position / size));
  }
  const Turn &turn = round[position % roundSize];
  uint64_t size = begins[turn.source + 1] - begins[turn.source];
  uint64_t drawn =
      position / roundSize * shares[turn.source] + uint64_t(turn.rank);
  return {turn.source, permute(drawn % size, size, turn.source, drawn / size)};
}

/// Sources with weights begin again at different times: no pass has an end.
std::optional<uint64_t> SampleOrder::passSamples() const {
  return round.empty() ? std::optional(samples()) : std::nullopt;
}

/// `begins` ascends strictly: each source has a sample at least.
Sample SampleOrder::sample(uint64_t number) const {
  auto after = std::upper_bound(begins.begin(), begins.end(), number);
  auto source = static_cast<uint32_t>(after - begins.begin() - 1);
  return {source, number - begins[source]};
}

/// A Feistel network is a bijection of the numbers of 2 · half bits whatever
/// its round function is; applying it until the result is below `size` makes it
/// one of the samples (cycle walking, see SampleOrder.h). The domain is at most
/// four times `size`, so that this takes at most four turns on average.
uint64_t SampleOrder::permute(uint64_t entry, uint64_t size, uint32_t source,
                              uint64_t pass) const {
  if (!seed)
    return entry;
  unsigned half = 1;
  // The least domain of an even number of bits that has all samples.
  while (half < 32 && size > uint64_t(1) << 2 * half)
    ++half;
  const uint64_t mask = (uint64_t(1) << half) - 1;
  constexpr uint32_t rounds = 8;
  do {
    uint64_t left = entry >> half, right = entry & mask;
    for (uint32_t i = 0; i < rounds; ++i) {
      // Round, source and pass are in the counter, so that each pass and each
      // source has a permutation of its own under one seed.
      auto words = philox(
          {static_cast<uint32_t>(right), uint32_t(1) << 31 | source << 8 | i,
           static_cast<uint32_t>(pass), static_cast<uint32_t>(pass >> 32)},
          {static_cast<uint32_t>(*seed), static_cast<uint32_t>(*seed >> 32)});
      left = std::exchange(right, left ^ (words[0] & mask));
    }
    entry = left << half | right;
  } while (entry >= size);
  return entry;
}
