//===- Data.h - Batches of tokens -------------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each source of a data set is a list of tokens, cut into samples of S + 1
// tokens that overlap by one: sample k is tokens [k S, k S + S]. Its first S
// tokens are the inputs, its last S the targets. There are floor((tokens - 1) /
// S) samples. SampleOrder.h says which sample of which source is at which
// position of training.
//
// Row r of the global batch of step n (from 1) is the sample at position (n -
// 1) G + r; a run that goes on with another G counts on from where it was
// (startAt). Data-parallel rank d has rows [d G / dp, (d + 1) G / dp);
// microbatch i of it is the i-th run of micro_batch rows. So the batch of a
// step does not depend on the mesh.
//
// Of a plan with sites each may have a list of its own: "{site}" in a path is
// the site's number, and "{part}" behind it the site's part of the file's
// samples, of as many parts as there are sites, which follow each other. Site i
// of S, which has rows [i G / S, (i + 1) G / S), then goes through its own
// samples, from one step to the next G / S.
//
// Of a plan with float inputs a source is a list of rows, which do not overlap
// (plait/Plan/FloatInputs.h): sample k is row k.
//
// A document ends with the token that endDocuments() names and at the end of
// the sample. The start of a position is the first position of its document in
// the sample.
//
// The key of that row, from which dropout draws, is the first word of
// Philox4x32-10 (see Random.h) of the counter (low half of r, high half of r,
// low half of n, high half of n) under the key (low half of the seed, high half
// of the seed).
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_DATA_H
#define PLAIT_RUNTIME_DATA_H

#include "plait/Plan/FloatInputs.h"
#include "plait/Runtime/SampleOrder.h"
#include "plait/Runtime/TokenFile.h"

#include <atomic>

namespace plait::runtime {

namespace fb = plan::fb;

/// Which samples have been read as inputs of a step, row by row. Of several
/// processes each knows the rows of its ranks.
class SampleRecord {
public:
  explicit SampleRecord(uint64_t rows) : rows(rows) {}

  /// Adds a sample. May be called from any thread.
  void add(int64_t row, uint64_t number) {
    // Ranks along other axes read the same.
    uint64_t before = rows[row].exchange(number + 1);
    if (before && before != number + 1)
      differs = true;
  }
  /// The numbers plus 1 by row, 0 where nothing was read, and starts anew.
  /// Fails where two ranks have read different samples as one row.
  Result<std::vector<uint64_t>> take();

private:
  std::vector<std::atomic<uint64_t>> rows;
  std::atomic<bool> differs = false;
};

/// The paths in a list of sources as Batches takes them; none where the list is
/// wrong.
std::vector<std::string> listPaths(const std::string &list);

/// A source of one site: so many of a file's samples, from `begin` on. 0: all
/// of them, or the site's part of all.
struct SitePart {
  uint32_t source;
  bool isPart;
  uint64_t begin = 0, samples = 0;
};

/// The batches of a data set. Reading is safe from all threads.
class Batches {
public:
  /// Files of tokens: see TokenFile::open. `list` is paths with commas between
  /// them, each with ":WEIGHT" behind it or none. What names a file as it is,
  /// is that file. Fails where sites would have different numbers of samples
  /// without weights, as their passes would end at different steps.
  static Result<Batches> fromTokens(const std::string &list,
                                    const std::string &type,
                                    const fb::Plan &plan);
  /// Texts, each byte of which is a token.
  static Result<Batches> fromText(const std::string &list,
                                  const fb::Plan &plan);
  /// Random tokens for one step.
  static Result<Batches> random(uint64_t seed, const fb::Plan &plan);
  /// Rows that setRows() gives from step to step.
  static Batches given(const fb::Plan &plan);

  /// Sets, of what is given, the rows of the next step: those of its global
  /// batch, sequence + 1 tokens each and the numbers of float inputs, one after
  /// the other. Fails, and changes nothing, where there are more or fewer, a
  /// token is not in the vocabulary, or a number is not finite.
  Status setRows(std::span<const int32_t> words);

  void shuffle(uint64_t seed);

  /// Rows get the keys of `seed`; before, those of 0.
  void drawKeys(uint64_t seed) { keySeed = seed; }

  /// Documents end with `token`, which belongs to them; before, a sample is
  /// one. Fails where the vocabulary has no such token.
  Status endDocuments(uint64_t token);

  /// Prepares for rows that are from now on asked for by a plan without data
  /// parallelism whose microbatches are those of `replicas` replicas, `rows`
  /// rows each, side by side: it gets the rows that those replicas have at the
  /// same time.
  void interleave(int64_t replicas, int64_t rows);

  /// Rows that are asked for from now on are those of site `site` of `sites`,
  /// from its first one on.
  void takeSite(uint32_t site, uint32_t sites) {
    firstRow = globalBatch / int64_t(sites) * int64_t(site);
  }

  /// The first row of the global batch of the step after step `step` is at
  /// position `position`, and those of later steps follow. Before, the first
  /// row of step 1 is at position 0.
  void startAt(uint64_t step, uint64_t position);
  /// The position of the first row of the step after step `step`.
  uint64_t positionAfter(uint64_t step) const {
    return startPosition + (step - startStep) * uint64_t(globalBatch);
  }

  /// Adds what is read from now on to `record`, which outlives this; null: no
  /// more.
  void recordTo(SampleRecord *newRecord) { record = newRecord; }

  /// Samples of a step.
  uint64_t batchSize() const { return uint64_t(globalBatch); }

  const SampleOrder &order() const { return samples; }

  /// Describes what the samples are, wherever the files are: data of the same
  /// description has the same samples in the same order.
  std::string describe() const;

  /// Writes row `row` of the global batch of step `step` (from 1), from its
  /// position `first` on, to `target`, which ends with the row or before. Its
  /// key, which has no position, goes to all of `target`. Fails where a token
  /// is not in the vocabulary.
  Status readRow(uint64_t step, int64_t row, fb::InputKind kind, int64_t first,
                 std::span<int32_t> target) const;
  /// Writes the bits of float input `input` of a row, from its number `first`
  /// on. Fails where one is not finite.
  Status readFloats(uint64_t step, int64_t row, uint32_t input, int64_t first,
                    std::span<int32_t> target) const;
  /// Has the system read what readRow() will, without waiting for it.
  void prefetchRow(uint64_t step, int64_t row, fb::InputKind kind,
                   int64_t first, int64_t count) const;

private:
  static Result<Batches> open(const std::string &list, bool isText,
                              const std::string &type, const fb::Plan &plan);
  static Result<Batches> create(std::vector<TokenFile> sources,
                                std::vector<double> weights,
                                const fb::Plan &plan);
  static Result<Batches> createForSites(std::vector<TokenFile> sources,
                                        std::vector<SitePart> parts,
                                        std::vector<double> weights,
                                        const fb::Plan &plan);
  const TokenFile &sourceOf(const Sample &sample) const;
  uint64_t positionOf(const Sample &sample) const;
  Status findStarts(const Sample &sample, int64_t first,
                    std::span<int32_t> target) const;
  Status checkTokens(std::span<const int32_t> tokens, int64_t first,
                     const std::string &row) const;
  static Status checkNumbers(const plan::FloatPart &part,
                             std::span<const int32_t> words, int64_t first,
                             const std::string &row);
  std::string nameRow(const Sample &sample) const;
  int64_t findRow(int64_t row) const;
  Sample findSample(uint64_t step, int64_t row) const;

  Batches(std::vector<TokenFile> sources, std::vector<double> weights,
          SampleOrder samples, const fb::Plan &plan)
      : sources(std::move(sources)), weights(std::move(weights)),
        samples(std::move(samples)), sequence(plan.sequence()),
        globalBatch(plan.global_batch()), vocabulary(plan.vocab_size()),
        floats(plan::getFloatParts(plan)), rowWords(plan::countRowWords(plan)),
        stride(floats.empty() ? plan.sequence() : rowWords) {}

  std::vector<TokenFile> sources;
  std::vector<double> weights; // empty: none
  SampleOrder samples;
  int64_t sequence;
  int64_t globalBatch;
  int64_t vocabulary;
  std::vector<plan::FloatPart> floats;
  uint64_t rowWords;
  uint64_t stride; // words from one sample of a source to the next
  std::optional<int32_t> documentEnd;
  uint64_t keySeed = 0;
  std::optional<uint64_t> shuffleSeed;
  uint64_t startStep = 0, startPosition = 0; // see startAt()
  int64_t replicas = 1, replicaRows = 1;
  int64_t firstRow = 0; // see takeSite()
  bool isGiven = false; // sources are the rows of a step, one sample each
  SampleRecord *record = nullptr;
  std::vector<SitePart> parts;         // site by site; empty: sources are it
  std::vector<SampleOrder> siteOrders; // of the parts of each; empty: no sites
};

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_DATA_H
