//===- Data.h - Which tokens a step sees ------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A data set is a list of tokens, cut into samples of S + 1 tokens that
// overlap by one: sample k is tokens [k S, k S + S]. Its first S tokens are the
// inputs, its last S the targets. There are floor((tokens - 1) / S) samples.
//
// Row r of the global batch of step n (from 1) is sample (n - 1) G + r, modulo
// the number of samples, after the permutation if there is one; a run that goes
// on with another G counts on from where it was (startAt). Data-parallel
// rank d has rows [d G / dp, (d + 1) G / dp); microbatch i of it is the i-th
// run of micro_batch rows. So the batch of a step does not depend on the mesh.
//
// The key of that row, from which dropout draws, is the first word of
// Philox4x32-10 (see Random.h) of the counter (low half of r, high half of r,
// low half of n, high half of n) under the key (low half of the seed, high half
// of the seed).
//
// The permutation of N samples: start with the identity and, for i from N - 1
// down to 1, swap entries i and j = (w0 + 2^32 w1) mod (i + 1), where w0 … w3
// is Philox4x32-10 (see Random.h) of the counter (low half of i, high half of
// i, 0, 0) under the key (low half of the seed, high half of the seed). Every
// pass over the data uses the same one.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_DATA_H
#define PLAIT_RUNTIME_DATA_H

#include "plait/Plan/Files.h"
#include "plait/Plan/Plan_generated.h"
#include "plait/Support/Status.h"

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace plait::runtime {

namespace fb = plan::fb;

/// How the tokens of a file are stored, little-endian.
struct TokenType {
  const char *name;
  unsigned bytes;
};
/// uint16, int32, int64: ids are not negative, so that the unsigned types of
/// these sizes are the same.
std::span<const TokenType> getTokenTypes();

/// The batches of a data set. Reading is safe from all threads.
class Batches {
public:
  /// A file of tokens of the type called `type`; empty: uint16 where the
  /// vocabulary has at most 65536 entries, else int32, and a file that looks
  /// like a wider type is an error. Reads the file once, to check that every
  /// token is in the vocabulary.
  static Result<Batches> fromTokenFile(const std::string &path,
                                       const std::string &type,
                                       const fb::Plan &plan);
  /// A text, each byte of which is a token.
  static Result<Batches> fromTextFile(const std::string &path,
                                      const fb::Plan &plan);
  /// Random tokens for one step.
  static Result<Batches> random(uint64_t seed, const fb::Plan &plan);

  void shuffle(uint64_t seed);

  /// Rows get the keys of `seed`; before, those of 0.
  void drawKeys(uint64_t seed) { keySeed = seed; }

  /// From now on rows are asked for by a plan without data parallelism whose
  /// microbatches are those of `replicas` replicas, `rows` rows each, side by
  /// side: it gets the rows that those replicas have at the same time.
  void interleave(int64_t replicas, int64_t rows);

  /// The first row of the global batch of the step after step `step` is sample
  /// `sample`, modulo the number of samples, and those of later steps follow.
  /// Before, the first row of step 1 is sample 0.
  void startAt(uint64_t step, uint64_t sample);

  uint64_t samples() const { return sampleCount; }

  /// What the samples are, wherever the file is: data of the same description
  /// has the same samples in the same order.
  std::string describe() const;

  /// Writes row `row` of the global batch of step `step` (from 1), from its
  /// position `first` on, to `target`, which ends with the row or before. Its
  /// key, which has no position, goes to all of `target`.
  void readRow(uint64_t step, int64_t row, fb::InputKind kind, int64_t first,
               std::span<int32_t> target) const;

private:
  using Storage = std::variant<MappedFile, std::vector<uint32_t>>;

  static Result<Batches> create(Storage storage, unsigned tokenBytes,
                                const std::string &name, const fb::Plan &plan);
  std::span<const uint8_t> bytes() const;
  int64_t findRow(int64_t row) const;
  uint64_t token(uint64_t position) const;
  uint64_t tokenCount() const;
  Status checkWidth(const std::string &name) const;

  Batches(Storage storage, unsigned tokenBytes, const fb::Plan &plan)
      : storage(std::move(storage)), tokenBytes(tokenBytes),
        sequence(plan.sequence()), globalBatch(plan.global_batch()) {}

  Storage storage;
  unsigned tokenBytes;
  int64_t sequence;
  int64_t globalBatch;
  uint64_t sampleCount = 0;
  uint64_t keySeed = 0;
  std::vector<uint64_t> permutation; // empty: the identity
  uint64_t permutationSeed = 0;
  uint64_t contentHash = 0;
  uint64_t startStep = 0, startSample = 0; // see startAt()
  int64_t replicas = 1, replicaRows = 1;
};

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_DATA_H
