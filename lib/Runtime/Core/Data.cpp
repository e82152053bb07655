//===- Data.cpp - Which tokens a step sees --------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Data.h"

#include "plait/Runtime/Random.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <sstream>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

using namespace plait;
using namespace plait::runtime;

static std::array<uint32_t, 4> draw(uint64_t counter, uint64_t seed,
                                    uint64_t step = 0) {
  return philox({uint32_t(counter), uint32_t(counter >> 32), uint32_t(step),
                 uint32_t(step >> 32)},
                {uint32_t(seed), uint32_t(seed >> 32)});
}

Result<Batches> Batches::create(Storage storage, unsigned tokenBytes,
                                const std::string &name, const fb::Plan &plan) {
  Batches batches(std::move(storage), tokenBytes, plan);
  uint64_t bytes = batches.bytes().size();
  if (bytes % tokenBytes)
    return fail("'", name, "' has ", bytes, " bytes, not a multiple of ",
                tokenBytes, ", the size of a token");
  uint64_t tokens = batches.tokenCount();
  if (tokens < uint64_t(batches.sequence) + 1)
    return fail("'", name, "' has ", tokens, " tokens, one sample needs ",
                batches.sequence + 1);
  for (uint64_t position = 0; position < tokens; ++position)
    if (uint64_t token = batches.token(position);
        token >= uint64_t(plan.vocab_size()))
      return fail("'", name, "': token ", position, " is ", token,
                  ", the vocabulary has ", plan.vocab_size());
  batches.sampleCount = (tokens - 1) / batches.sequence;
  batches.contentHash =
      XXH3_64bits(batches.bytes().data(), batches.bytes().size());
  return batches;
}

std::span<const TokenType> runtime::getTokenTypes() {
  static constexpr TokenType types[] = {
      {"uint16", 2}, {"int32", 4}, {"int64", 8}};
  return types;
}

static Result<unsigned> getTokenBytes(const std::string &type) {
  std::string names;
  for (const TokenType &known : getTokenTypes()) {
    if (type == known.name)
      return known.bytes;
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  return fail("token type '", type, "' is unknown, expected one of ", names);
}

/// Fails where the tokens look like halves or quarters of wider ones: ids that
/// fit into the narrow type are followed by zeros. Other data can look so, too;
/// then --token-type says that it is meant.
Status Batches::checkWidth(const std::string &name) const {
  bool isTwice = true, isFourTimes = true, isZero = true;
  for (uint64_t position = 0; position < tokenCount(); ++position) {
    if (token(position) == 0)
      continue;
    isZero = false;
    isTwice &= position % 2 == 0;
    isFourTimes &= position % 4 == 0;
  }
  if (!isTwice || isZero)
    return Status::success();
  unsigned likely = std::min((isFourTimes ? 4 : 2) * tokenBytes, 8u);
  auto getName = [](unsigned bytes) {
    auto types = getTokenTypes();
    return std::find_if(
               types.begin(), types.end(),
               [&](const TokenType &type) { return type.bytes == bytes; })
        ->name;
  };
  return fail("'", name, "' looks like ", getName(likely), ": as ",
              getName(tokenBytes),
              " every other token is 0; say with --token-type what it is");
}

Result<Batches> Batches::fromTokenFile(const std::string &path,
                                       const std::string &type,
                                       const fb::Plan &plan) {
  Result<MappedFile> file = MappedFile::open(path, "tokens");
  if (!file.ok())
    return file.status();
  std::string_view magic = "\x93NUMPY";
  if (file->bytes().size() >= magic.size() &&
      std::memcmp(file->bytes().data(), magic.data(), magic.size()) == 0)
    return fail("'", path,
                "' is a NumPy file with a header; tokens are raw, as "
                "numpy's tofile writes them");
  constexpr int64_t shortVocabulary = 65536;
  Result<unsigned> width = type.empty()
                               ? plan.vocab_size() <= shortVocabulary ? 2u : 4u
                               : getTokenBytes(type);
  if (!width.ok())
    return width.status();
  Result<Batches> batches = create(std::move(*file), *width, path, plan);
  if (batches.ok() && type.empty())
    PLAIT_RETURN_IF_ERROR(batches->checkWidth(path));
  return batches;
}

Result<Batches> Batches::fromTextFile(const std::string &path,
                                      const fb::Plan &plan) {
  Result<MappedFile> file = MappedFile::open(path, "text");
  if (!file.ok())
    return file.status();
  return create(std::move(*file), 1, path, plan);
}

Result<Batches> Batches::random(uint64_t seed, const fb::Plan &plan) {
  std::vector<uint32_t> tokens(plan.global_batch() * plan.sequence() + 1);
  for (uint64_t i = 0; i < tokens.size(); ++i)
    tokens[i] = draw(i, seed)[0] % plan.vocab_size();
  return create(std::move(tokens), sizeof(uint32_t), "random tokens", plan);
}

void Batches::startAt(uint64_t step, uint64_t sample) {
  startStep = step;
  startSample = sample;
}

std::string Batches::describe() const {
  std::ostringstream text;
  text << tokenCount() << " tokens of hash " << std::hex << contentHash
       << std::dec << " in samples of " << sequence;
  if (!permutation.empty())
    text << " permuted by seed " << permutationSeed;
  return text.str();
}

void Batches::shuffle(uint64_t seed) {
  permutationSeed = seed;
  permutation.resize(sampleCount);
  std::iota(permutation.begin(), permutation.end(), uint64_t(0));
  for (uint64_t i = sampleCount; i-- > 1;) {
    auto words = draw(i, seed);
    uint64_t value = words[0] | uint64_t(words[1]) << 32;
    std::swap(permutation[i], permutation[value % (i + 1)]);
  }
}

void Batches::interleave(int64_t newReplicas, int64_t rows) {
  replicas = newReplicas;
  replicaRows = rows;
}

std::span<const uint8_t> Batches::bytes() const {
  if (const auto *file = std::get_if<MappedFile>(&storage))
    return file->bytes();
  const auto &tokens = std::get<std::vector<uint32_t>>(storage);
  return {reinterpret_cast<const uint8_t *>(tokens.data()),
          tokens.size() * sizeof(uint32_t)};
}

uint64_t Batches::tokenCount() const { return bytes().size() / tokenBytes; }

uint64_t Batches::token(uint64_t position) const {
  uint64_t value = 0;
  std::memcpy(&value, bytes().data() + position * tokenBytes, tokenBytes);
  return value;
}

/// Where row `row` is in the global batch: see interleave().
int64_t Batches::findRow(int64_t row) const {
  int64_t together = replicas * replicaRows;
  int64_t microbatch = row / together, inside = row % together;
  return inside / replicaRows * (globalBatch / replicas) +
         microbatch * replicaRows + inside % replicaRows;
}

void Batches::readRow(uint64_t step, int64_t row, fb::InputKind kind,
                      int64_t first, std::span<int32_t> target) const {
  if (kind == fb::InputKind::Keys) {
    auto key = static_cast<int32_t>(draw(findRow(row), keySeed, step)[0]);
    return std::fill(target.begin(), target.end(), key);
  }
  uint64_t sample =
      (startSample + (step - 1 - startStep) * globalBatch + findRow(row)) %
      sampleCount;
  if (!permutation.empty())
    sample = permutation[sample];
  uint64_t begin = sample * sequence + (kind == fb::InputKind::Targets) + first;
  for (size_t i = 0; i < target.size(); ++i)
    target[i] = static_cast<int32_t>(token(begin + i));
}
