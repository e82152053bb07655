//===- SampleOrder.h - Order of samples -------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Training sees an endless sequence of samples, and the sample at a position of
// it is a function of the position, whatever came before: nothing else has to
// be stored to go on, and no array is as long as the data.
//
// Sources without weights are one list, one after the other. A pass (epoch)
// sees each of its N samples once: position i is entry i mod N of pass
// floor(i / N).
//
// With weights the sequence is rounds of 100,000 positions. Source d has n_d
// positions of each round: its part of the weights, by largest remainders. The
// k-th of them (from 0) is at (2k + 1) / (2 n_d) of the round; positions are in
// that order, equal ones by d. The r-th sample of source d in all rounds is
// entry r mod N_d of its pass floor(r / N_d): sources go through their samples
// as often as it takes.
//
// Entry e of pass p over N samples is sample e or, shuffled, sample E(e): E is
// a cipher of the numbers below 4^h, h >= 1 the least with 4^h >= N, applied
// again until the result is below N ("cycle walking": Black, Rogaway, "Ciphers
// with arbitrary finite domains", CT-RSA 2002). It is a Feistel network of 8
// rounds (Luby, Rackoff, "How to construct pseudorandom permutations from
// pseudorandom functions", 1988): with x = L 2^h + R, round j = 0 … 7 replaces
// (L, R) by (R, L xor F_j(R)), where F_j(R) is the lower h bits of the first
// word of Philox4x32-10 (see Random.h) of the counter (R, 2^31 + 2^8 d + j, low
// half of p, high half of p) under the key (low half of the seed, high half of
// the seed). d is 0 without weights.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_SAMPLEORDER_H
#define PLAIT_RUNTIME_SAMPLEORDER_H

#include "plait/Support/Status.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace plait::runtime {

/// One sample of one source, both counted from 0.
struct Sample {
  uint32_t source;
  uint64_t index;

  bool operator==(const Sample &) const = default;
};

class SampleOrder {
public:
  /// `sizes` are the samples of each source, at least one each. `weights` are
  /// as many, not negative, with a sum above 0 that is not infinite; empty:
  /// none. Fails where a source of positive weight has no place in a round; the
  /// message says `names` of it.
  static Result<SampleOrder> create(std::vector<uint64_t> sizes,
                                    const std::vector<double> &weights,
                                    const std::vector<std::string> &names);

  void shuffle(uint64_t newSeed) { seed = newSeed; }

  /// The sample at a position.
  Sample find(uint64_t position) const;

  /// The samples of a pass over all sources; nothing where they have weights.
  std::optional<uint64_t> passSamples() const;
  /// The samples of all sources.
  uint64_t samples() const { return begins.back(); }
  /// The number of a sample among those of all sources, one after the other.
  uint64_t number(Sample sample) const {
    return begins[sample.source] + sample.index;
  }
  Sample sample(uint64_t number) const;

private:
  struct Turn { // a position of a round
    uint32_t source;
    uint32_t rank; // among those of the source
  };

  uint64_t permute(uint64_t entry, uint64_t size, uint32_t source,
                   uint64_t pass) const;
  void arrangeRound();

  std::vector<uint64_t> begins; // numbers of first samples, and their end
  std::vector<uint32_t> shares; // of a round; empty: no weights
  std::vector<Turn> round;
  std::optional<uint64_t> seed; // nothing: not shuffled
};

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_SAMPLEORDER_H
