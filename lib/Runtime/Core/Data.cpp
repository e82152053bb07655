//===- Data.cpp - Which tokens a step sees --------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Data.h"

#include "plait/Runtime/Random.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <utility>

using namespace plait;
using namespace plait::runtime;

static std::array<uint32_t, 4> draw(uint64_t counter, uint64_t seed,
                                    uint64_t step = 0) {
  return philox({uint32_t(counter), uint32_t(counter >> 32), uint32_t(step),
                 uint32_t(step >> 32)},
                {uint32_t(seed), uint32_t(seed >> 32)});
}

Result<std::vector<uint64_t>> SampleRecord::take() {
  if (differs)
    return Status::failure("ranks have read different samples as one row");
  std::vector<uint64_t> numbers;
  for (std::atomic<uint64_t> &row : rows)
    numbers.push_back(row.exchange(0));
  return numbers;
}

//===----------------------------------------------------------------------===//
// Sources
//===----------------------------------------------------------------------===//

namespace {

/// What a list of sources says of one.
struct SourceName {
  std::string path;
  std::optional<double> weight;
};

bool isFile(const std::string &path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

/// "PATH" or "PATH:WEIGHT". What follows a colon and is no number belongs to
/// the path.
SourceName parseSource(const std::string &text) {
  size_t colon = text.rfind(':');
  if (colon == std::string::npos || isFile(text))
    return {text, std::nullopt};
  double weight = 0;
  const char *end = text.data() + text.size();
  auto parsed = std::from_chars(text.data() + colon + 1, end, weight);
  if (parsed.ec == std::errc::invalid_argument || parsed.ptr != end)
    return {text, std::nullopt};
  if (parsed.ec != std::errc()) // out of range, as 1e999 is
    weight = HUGE_VAL;
  return {text.substr(0, colon), weight};
}

Result<std::vector<SourceName>> parseSources(const std::string &list) {
  if (isFile(list))
    return std::vector<SourceName>{{list, std::nullopt}};
  std::vector<SourceName> names;
  for (size_t begin = 0; begin <= list.size();) {
    size_t end = std::min(list.find(',', begin), list.size());
    names.push_back(parseSource(list.substr(begin, end - begin)));
    if (names.back().path.empty())
      return fail("'", list, "' names a file without a name");
    begin = end + 1;
  }
  return names;
}

/// All weights or none.
Result<std::vector<double>> getWeights(const std::vector<SourceName> &names) {
  std::vector<double> weights;
  for (const SourceName &name : names) {
    if (name.weight.has_value() != names.front().weight.has_value())
      return fail("'", names.front().path, "' and '", name.path,
                  "': one has a weight, the other has none");
    if (!name.weight)
      continue;
    if (!(*name.weight >= 0 && *name.weight <= 1e9))
      return fail("'", name.path, "' has the weight ", *name.weight,
                  ", expected 0 to 1e9");
    weights.push_back(*name.weight);
  }
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (!weights.empty() && sum == 0)
    return fail("'", names.front().path, "' and all others have the weight 0");
  return weights;
}

} // namespace

Result<Batches> Batches::open(const std::string &list, bool isText,
                              const std::string &type, const fb::Plan &plan) {
  auto names = parseSources(list);
  if (!names.ok())
    return names.status();
  auto weights = getWeights(*names);
  if (!weights.ok())
    return weights.status();
  auto vocabulary = static_cast<uint64_t>(plan.vocab_size());
  std::vector<TokenFile> sources;
  for (const SourceName &name : *names) {
    Result<TokenFile> file = isText
                                 ? TokenFile::openText(name.path, vocabulary)
                                 : TokenFile::open(name.path, type, vocabulary);
    if (!file.ok())
      return file.status();
    sources.push_back(std::move(*file));
  }
  return create(std::move(sources), std::move(*weights), plan);
}

Result<Batches> Batches::create(std::vector<TokenFile> sources,
                                std::vector<double> weights,
                                const fb::Plan &plan) {
  std::vector<uint64_t> sizes;
  std::vector<std::string> names;
  auto sequence = static_cast<uint64_t>(plan.sequence());
  for (const TokenFile &source : sources) {
    if (source.size() < sequence + 1)
      return fail("'", source.name(), "' has ", source.size(),
                  " tokens, one sample needs ", sequence + 1);
    sizes.push_back((source.size() - 1) / sequence);
    names.push_back(source.name());
  }
  auto order = SampleOrder::create(std::move(sizes), weights, names);
  if (!order.ok())
    return order.status();
  return Batches(std::move(sources), std::move(weights), std::move(*order),
                 plan);
}

Result<Batches> Batches::fromTokens(const std::string &list,
                                    const std::string &type,
                                    const fb::Plan &plan) {
  return open(list, /*isText=*/false, type, plan);
}

Result<Batches> Batches::fromText(const std::string &list,
                                  const fb::Plan &plan) {
  return open(list, /*isText=*/true, /*type=*/"", plan);
}

Result<Batches> Batches::random(uint64_t seed, const fb::Plan &plan) {
  std::vector<uint32_t> tokens(plan.global_batch() * plan.sequence() + 1);
  for (uint64_t i = 0; i < tokens.size(); ++i)
    tokens[i] = draw(i, seed)[0] % plan.vocab_size();
  std::vector<TokenFile> sources;
  sources.push_back(TokenFile::fromMemory(
      std::move(tokens), static_cast<uint64_t>(plan.vocab_size())));
  return create(std::move(sources), {}, plan);
}

std::string Batches::describe() const {
  std::ostringstream text;
  for (size_t i = 0; i < sources.size(); ++i) {
    text << (i ? ", " : "") << sources[i].size() << " tokens of hash "
         << std::hex << sources[i].hash() << std::dec;
    if (!weights.empty())
      text << " and weight " << weights[i];
  }
  text << " in samples of " << sequence;
  if (shuffleSeed)
    text << " permuted by seed " << *shuffleSeed;
  return text.str();
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

void Batches::shuffle(uint64_t seed) {
  shuffleSeed = seed;
  samples.shuffle(seed);
}

void Batches::startAt(uint64_t step, uint64_t position) {
  startStep = step;
  startPosition = position;
}

void Batches::interleave(int64_t newReplicas, int64_t rows) {
  replicas = newReplicas;
  replicaRows = rows;
}

Status Batches::endDocuments(uint64_t token) {
  if (token >= uint64_t(vocabulary))
    return fail("--document-end is ", token, ", the vocabulary has ",
                vocabulary, " tokens");
  documentEnd = int32_t(token);
  return Status::success();
}

/// Where row `row` is in the global batch: see interleave().
int64_t Batches::findRow(int64_t row) const {
  int64_t together = replicas * replicaRows;
  int64_t microbatch = row / together, inside = row % together;
  return inside / replicaRows * (globalBatch / replicas) +
         microbatch * replicaRows + inside % replicaRows;
}

Sample Batches::findSample(uint64_t step, int64_t row) const {
  return samples.find(positionAfter(step - 1) + uint64_t(findRow(row)));
}

/// The starts of the positions from `first` on. Those before say where the
/// document of the first one begins.
Status Batches::findStarts(const Sample &sample, int64_t first,
                           std::span<int32_t> target) const {
  std::vector<int32_t> tokens(first + target.size());
  PLAIT_RETURN_IF_ERROR(
      sources[sample.source].read(sample.index * sequence, tokens));
  int32_t start = 0;
  for (int64_t position = 0; position < int64_t(tokens.size()); ++position) {
    if (position >= first)
      target[position - first] = start;
    if (tokens[position] == documentEnd)
      start = int32_t(position) + 1;
  }
  return Status::success();
}

Status Batches::readRow(uint64_t step, int64_t row, fb::InputKind kind,
                        int64_t first, std::span<int32_t> target) const {
  if (kind == fb::InputKind::Keys) {
    auto key = static_cast<int32_t>(draw(findRow(row), keySeed, step)[0]);
    std::fill(target.begin(), target.end(), key);
    return Status::success();
  }
  Sample sample = findSample(step, row);
  if (kind == fb::InputKind::Starts)
    return findStarts(sample, first, target);
  if (record && kind == fb::InputKind::Tokens)
    record->add(findRow(row), samples.number(sample));
  return sources[sample.source].read(
      sample.index * sequence + (kind == fb::InputKind::Targets) + first,
      target);
}

void Batches::prefetchRow(uint64_t step, int64_t row, fb::InputKind kind,
                          int64_t first, int64_t count) const {
  if (kind == fb::InputKind::Keys)
    return;
  if (kind == fb::InputKind::Starts) // found in all tokens up to there
    count += std::exchange(first, 0);
  Sample sample = findSample(step, row);
  sources[sample.source].prefetch(sample.index * sequence +
                                      (kind == fb::InputKind::Targets) + first,
                                  count);
}
