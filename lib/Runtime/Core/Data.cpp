//===- Data.cpp - Which tokens a step sees --------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Data.h"

#include "plait/Runtime/Random.h"

#include <cstring>
#include <numeric>

using namespace plait;
using namespace plait::runtime;

static std::array<uint32_t, 4> draw(uint64_t counter, uint64_t seed) {
  return philox({uint32_t(counter), uint32_t(counter >> 32), 0, 0},
                {uint32_t(seed), uint32_t(seed >> 32)});
}

Result<Batches> Batches::create(Storage storage, unsigned tokenBytes,
                                const std::string &name, const fb::Plan &plan) {
  Batches batches(std::move(storage), tokenBytes, plan);
  uint64_t bytes = std::visit(
      [](const auto &held) -> uint64_t {
        if constexpr (requires { held.bytes(); })
          return held.bytes().size();
        else
          return held.size() * sizeof(held[0]);
      },
      batches.storage);
  if (bytes % tokenBytes)
    return fail("'", name, "' has ", bytes, " bytes, not a multiple of ",
                tokenBytes, ", the size of a token");
  uint64_t tokens = bytes / tokenBytes;
  if (tokens < uint64_t(batches.sequence) + 1)
    return fail("'", name, "' has ", tokens, " tokens, one sample needs ",
                batches.sequence + 1);
  for (uint64_t position = 0; position < tokens; ++position)
    if (uint32_t token = batches.token(position); token >= plan.vocab_size())
      return fail("'", name, "': token ", position, " is ", token,
                  ", the vocabulary has ", plan.vocab_size());
  batches.sampleCount = (tokens - 1) / batches.sequence;
  return batches;
}

Result<Batches> Batches::fromTokenFile(const std::string &path,
                                       const fb::Plan &plan) {
  Result<MappedFile> file = MappedFile::open(path, "tokens");
  if (!file.ok())
    return file.status();
  constexpr int64_t shortVocabulary = 65536;
  return create(std::move(*file), plan.vocab_size() <= shortVocabulary ? 2 : 4,
                path, plan);
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

void Batches::shuffle(uint64_t seed) {
  permutation.resize(sampleCount);
  std::iota(permutation.begin(), permutation.end(), uint64_t(0));
  for (uint64_t i = sampleCount; i-- > 1;) {
    auto words = draw(i, seed);
    uint64_t value = words[0] | uint64_t(words[1]) << 32;
    std::swap(permutation[i], permutation[value % (i + 1)]);
  }
}

const uint8_t *Batches::data() const {
  if (const auto *file = std::get_if<MappedFile>(&storage))
    return file->bytes().data();
  return reinterpret_cast<const uint8_t *>(
      std::get<std::vector<uint32_t>>(storage).data());
}

uint32_t Batches::token(uint64_t position) const {
  uint32_t value = 0;
  std::memcpy(&value, data() + position * tokenBytes, tokenBytes);
  return value;
}

void Batches::readRow(uint64_t step, int64_t row, fb::InputKind kind,
                      int32_t *target) const {
  uint64_t sample = ((step - 1) * globalBatch + row) % sampleCount;
  if (!permutation.empty())
    sample = permutation[sample];
  uint64_t begin = sample * sequence + (kind == fb::InputKind::Targets);
  for (int64_t i = 0; i < sequence; ++i)
    target[i] = static_cast<int32_t>(token(begin + i));
}
