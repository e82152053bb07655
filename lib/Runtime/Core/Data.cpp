//===- Data.cpp - Batches of tokens ---------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Data.h says which sample is row r of step n; all here is a function of that
// and of nothing that changes during a run, so that ranks read from any thread
// without locks, replicas read disjoint rows, and a run can begin at any step.
// Files are TokenFile.h's, the order is SampleOrder.h's.
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Data.h"

#include "plait/Plan/Defaults.h"
#include "plait/Plan/Ranks.h"
#include "plait/Runtime/Random.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <utility>

using namespace plait;
using namespace plait::runtime;

/// Halves of 64 bits as Philox wants them; see Data.h for who counts what.
static std::array<uint32_t, 4> draw(uint64_t counter, uint64_t seed,
                                    uint64_t step = 0) {
  return philox({uint32_t(counter), uint32_t(counter >> 32), uint32_t(step),
                 uint32_t(step >> 32)},
                {uint32_t(seed), uint32_t(seed >> 32)});
}

/// Between steps, when nobody adds. Numbers are kept plus 1, so that 0 is
/// "none".
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

/// The entry of one source in a list of them. Weight: nothing where the list
/// has none behind this path.
struct SourceName {
  std::string path;
  std::optional<double> weight;
};

/// Existence only: opening it tells whether it can be read.
bool isFile(const std::string &path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

/// "PATH" or "PATH:WEIGHT". What follows a colon and is no number belongs to
/// the path.
SourceName parseSource(const std::string &text) {
  // From the right: paths may have colons.
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

/// A path with a comma is meant where a file has that whole name. An empty
/// name, between two commas or at the end, is a failure and not left out.
Result<std::vector<SourceName>> parseSources(const std::string &list) {
  if (isFile(list))
    return std::vector<SourceName>{{list, std::nullopt}};
  std::vector<SourceName> names;
  for (size_t begin = 0; begin <= list.size();) {
    size_t end = std::min(list.find(',', begin), list.size());
    // Whether the file exists is told when it is opened.
    names.push_back(parseSource(list.substr(begin, end - begin)));
    if (names.back().path.empty())
      return fail("'", list, "' names a file without a name");
    begin = end + 1;
  }
  return names;
}

/// All weights or none. The comparison is written so that NaN fails it.
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

std::vector<std::string> runtime::listPaths(const std::string &list) {
  std::vector<std::string> paths;
  if (auto names = parseSources(list); names.ok())
    for (SourceName &name : *names)
      paths.push_back(std::move(name.path));
  return paths;
}

/// The texts that stand for the site's number in a path, and behind one for
/// its part.
static constexpr std::string_view kSite = "{site}", kPart = "{part}";

/// Replaces what stands for `site`. A path that is a file is meant as it is.
static std::string expand(std::string path, int64_t site) {
  if (isFile(path))
    return path;
  if (path.ends_with(kPart))
    path.resize(path.size() - kPart.size());
  std::string number = std::to_string(site);
  for (size_t at = 0; (at = path.find(kSite, at)) != std::string::npos;
       at += number.size())
    path.replace(at, kSite.size(), number);
  return path;
}

static bool isOfSite(const SourceName &name) {
  return !isFile(name.path) && (name.path.find(kSite) != std::string::npos ||
                                name.path.ends_with(kPart));
}

/// Opens one source. It is inspected here: a token outside of the vocabulary in
/// the part that is looked at fails before the run.
static Result<TokenFile> openSource(const std::string &path, bool isText,
                                    const std::string &type,
                                    const fb::Plan &plan) {
  auto vocabulary = static_cast<uint64_t>(plan.vocab_size());
  if (isText)
    return TokenFile::openText(path, vocabulary);
  return plan::length(plan.float_inputs())
             ? TokenFile::openRows(path)
             : TokenFile::open(path, type, vocabulary);
}

/// 1. Entries of the list, of which some may be of each site.
/// 2. Each file is opened once, whatever sites read it.
Result<Batches> Batches::open(const std::string &list, bool isText,
                              const std::string &type, const fb::Plan &plan) {
  // 1. Entries.
  auto names = parseSources(list);
  if (!names.ok())
    return names.status();
  auto weights = getWeights(*names);
  if (!weights.ok())
    return weights.status();
  if (plan::length(plan.float_inputs()) && (isText || !type.empty()))
    return fail("the plan takes '", plan.float_inputs()->Get(0)->name()->str(),
                "', numbers that ", isText ? "texts" : "files of tokens",
                " do not have: give files of rows as `tokens`");
  auto own = std::find_if(names->begin(), names->end(), isOfSite);
  bool areOfSites = own != names->end();
  if (areOfSites && !plan.outer())
    return fail("'", own->path, "' is of each site, the plan has no sites");
  int64_t sites = areOfSites ? plan::RankGrid(plan).sites() : 1;
  // 2. Files.
  std::vector<TokenFile> sources;
  std::vector<SitePart> parts;
  std::map<std::string, uint32_t> opened;
  for (int64_t site = 0; site < sites; ++site)
    for (const SourceName &name : *names) {
      std::string path = expand(name.path, site);
      auto [place, isNew] = opened.try_emplace(path, uint32_t(sources.size()));
      if (isNew || !areOfSites) {
        auto file = openSource(path, isText, type, plan);
        if (!file.ok())
          return file.status();
        sources.push_back(std::move(*file));
      }
      parts.push_back(
          {place->second, isOfSite(name) && name.path.ends_with(kPart)});
    }
  return areOfSites ? createForSites(std::move(sources), std::move(parts),
                                     std::move(*weights), plan)
                    : create(std::move(sources), std::move(*weights), plan);
}

/// Samples do not overlap but for one token: targets are the tokens one
/// further, so that S samples of T tokens need S · T + 1 tokens. Rows with
/// numbers do not overlap. The rest of a file that is less than a sample is not
/// read.
static Result<uint64_t> countSamples(const TokenFile &source,
                                     const fb::Plan &plan) {
  auto sequence = static_cast<uint64_t>(plan.sequence());
  if (plan::length(plan.float_inputs())) {
    uint64_t words = plan::countRowWords(plan);
    if (source.size() < words || source.size() % words)
      return fail("'", source.name(), "' has ", 4 * source.size(),
                  " bytes, which are no rows of ", 4 * words, ": of each ",
                  sequence + 1, " tokens and ", words - sequence - 1,
                  " numbers");
    return source.size() / words;
  }
  if (source.size() < sequence + 1)
    return fail("'", source.name(), "' has ", source.size(),
                " tokens, one sample needs ", sequence + 1);
  return (source.size() - 1) / sequence;
}

Result<Batches> Batches::create(std::vector<TokenFile> sources,
                                std::vector<double> weights,
                                const fb::Plan &plan) {
  std::vector<uint64_t> sizes;
  std::vector<std::string> names;
  for (const TokenFile &source : sources) {
    Result<uint64_t> count = countSamples(source, plan);
    if (!count.ok())
      return count.status();
    sizes.push_back(*count);
    names.push_back(source.name());
  }
  auto order = SampleOrder::create(std::move(sizes), weights, names);
  if (!order.ok())
    return order.status();
  return Batches(std::move(sources), std::move(weights), std::move(*order),
                 plan);
}

/// Finds the samples of each part, of `count` sources a site.
static Status measure(std::vector<SitePart> &parts, size_t count,
                      const std::vector<TokenFile> &sources,
                      const fb::Plan &plan) {
  uint64_t sites = parts.size() / count;
  for (size_t i = 0; i < parts.size(); ++i) {
    SitePart &part = parts[i];
    const TokenFile &source = sources[part.source];
    Result<uint64_t> samples = countSamples(source, plan);
    if (!samples.ok())
      return samples.status();
    if (part.isPart && *samples < sites)
      return fail("'", source.name(), "' has ", *samples,
                  *samples == 1 ? " sample" : " samples", ", ", sites,
                  " sites need one each");
    part.samples = part.isPart ? *samples / sites : *samples;
    part.begin = part.isPart ? i / count * part.samples : 0;
  }
  return Status::success();
}

/// Sites go through their samples together, a pass of one as long as that of
/// another. Sources with weights have no common pass.
Result<Batches> Batches::createForSites(std::vector<TokenFile> sources,
                                        std::vector<SitePart> parts,
                                        std::vector<double> weights,
                                        const fb::Plan &plan) {
  size_t sites = plan::RankGrid(plan).sites(), count = parts.size() / sites;
  PLAIT_RETURN_IF_ERROR(measure(parts, count, sources, plan));
  std::vector<SampleOrder> orders;
  std::vector<uint64_t> all;
  std::vector<double> allWeights;
  std::vector<std::string> allNames;
  for (size_t site = 0; site < sites; ++site) {
    std::vector<uint64_t> sizes;
    std::vector<std::string> names;
    for (size_t i = site * count; i < (site + 1) * count; ++i) {
      sizes.push_back(parts[i].samples);
      names.push_back(sources[parts[i].source].name());
    }
    auto order = SampleOrder::create(sizes, weights, names);
    if (!order.ok())
      return order.status();
    orders.push_back(std::move(*order));
    if (weights.empty() && orders[site].samples() != orders[0].samples())
      return fail("site ", site, " has ", orders[site].samples(), " samples, '",
                  names[0], "' the first of them, and site 0 ",
                  orders[0].samples(),
                  ", expected as many: give both as many, or sources with "
                  "weights, which begin again on their own");
    all.insert(all.end(), sizes.begin(), sizes.end());
    allNames.insert(allNames.end(), names.begin(), names.end());
    allWeights.insert(allWeights.end(), weights.begin(), weights.end());
  }
  auto order = SampleOrder::create(std::move(all), allWeights, allNames);
  if (!order.ok())
    return order.status();
  Batches batches(std::move(sources), std::move(weights), std::move(*order),
                  plan);
  batches.parts = std::move(parts);
  batches.siteOrders = std::move(orders);
  return batches;
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

/// Draws a number from -1 to 1. Weights are not negative: their sum is what the
/// loss is divided by.
static float drawNumber(uint32_t drawn, bool isWeight) {
  float number = float(int32_t(drawn)) * 0x1p-31F;
  return isWeight ? std::abs(number) : number;
}

/// Just one batch: every step is the same samples.
Result<Batches> Batches::random(uint64_t seed, const fb::Plan &plan) {
  bool hasFloats = plan::length(plan.float_inputs()) > 0;
  uint64_t words = plan::countRowWords(plan), width = plan.sequence() + 1;
  std::vector<uint32_t> tokens(hasFloats
                                   ? plan.global_batch() * words
                                   : plan.global_batch() * plan.sequence() + 1);
  std::vector<bool> isWeight(words);
  for (const plan::FloatPart &part : plan::getFloatParts(plan))
    if (part.name == plan::kTargetWeights)
      std::fill_n(isWeight.begin() + int64_t(width + part.begin), part.numbers,
                  true);
  for (uint64_t i = 0; i < tokens.size(); ++i) {
    uint32_t drawn = draw(i, seed)[0];
    uint64_t word = i % words;
    tokens[i] = hasFloats && word >= width
                    ? std::bit_cast<uint32_t>(drawNumber(drawn, isWeight[word]))
                    : drawn % plan.vocab_size();
  }
  std::vector<TokenFile> sources;
  sources.push_back(TokenFile::fromMemory(
      std::move(tokens),
      hasFloats ? TokenFile::anyWord : uint64_t(plan.vocab_size())));
  return create(std::move(sources), {}, plan);
}

/// A source a row. The order is never asked for where one is: see findSample().
Batches Batches::given(const fb::Plan &plan) {
  auto order = SampleOrder::create(
      std::vector<uint64_t>(plan.global_batch(), 1), {}, {});
  Batches batches({}, {}, std::move(*order), plan);
  batches.isGiven = true;
  return batches;
}

Status Batches::setRows(std::span<const int32_t> words) {
  const uint64_t width = uint64_t(sequence) + 1;
  if (words.size() != uint64_t(globalBatch) * rowWords)
    return fail(words.size(), " tokens are given, a step needs ",
                uint64_t(globalBatch) * rowWords, ", of ", globalBatch,
                " rows with ", rowWords, floats.empty() ? " tokens" : " words",
                " each");
  std::vector<TokenFile> rows;
  for (size_t begin = 0; begin < words.size(); begin += rowWords) {
    std::span<const int32_t> row = words.subspan(begin, rowWords);
    std::string name = "row " + std::to_string(rows.size());
    PLAIT_RETURN_IF_ERROR(checkTokens(row.first(width), 0, name));
    for (const plan::FloatPart &part : floats)
      PLAIT_RETURN_IF_ERROR(checkNumbers(
          part, row.subspan(width + part.begin, part.numbers), 0, name));
    rows.push_back(TokenFile::fromMemory({row.begin(), row.end()},
                                         floats.empty() ? uint64_t(vocabulary)
                                                        : TokenFile::anyWord));
  }
  sources = std::move(rows);
  return Status::success();
}

/// Those of a row from its position `first` on. `row` is for the message.
Status Batches::checkTokens(std::span<const int32_t> tokens, int64_t first,
                            const std::string &row) const {
  auto bad = std::find_if(tokens.begin(), tokens.end(), [&](int32_t token) {
    return token < 0 || token >= vocabulary;
  });
  if (bad == tokens.end())
    return Status::success();
  return fail("token ", first + (bad - tokens.begin()), " of ", row, " is ",
              *bad, ", the vocabulary has ", vocabulary, " tokens");
}

/// Those of a row from number `first` on. One that is not finite would make all
/// weights so.
Status Batches::checkNumbers(const plan::FloatPart &part,
                             std::span<const int32_t> words, int64_t first,
                             const std::string &row) {
  auto bad = std::find_if(words.begin(), words.end(), [](int32_t word) {
    return !std::isfinite(std::bit_cast<float>(word));
  });
  if (bad == words.end())
    return Status::success();
  return fail("number ", first + (bad - words.begin()), " of '", part.name,
              "' in ", row, " is ", std::bit_cast<float>(*bad),
              ", expected a finite one");
}

/// Checkpoints compare it: paths are not in it, for files may have moved.
std::string Batches::describe() const {
  if (isGiven)
    return "rows that are given step by step";
  std::ostringstream text;
  size_t count = parts.empty() ? sources.size() : parts.size();
  for (size_t i = 0; i < count; ++i) {
    const TokenFile &source = sources[parts.empty() ? i : parts[i].source];
    text << (i ? ", " : "") << source.size() << " tokens of hash " << std::hex
         << source.hash() << std::dec;
    if (!weights.empty())
      text << " and weight " << weights[i % weights.size()];
    if (!parts.empty())
      text << " from sample " << parts[i].begin << " on for site "
           << i / (count / siteOrders.size());
  }
  text << " in samples of " << sequence;
  if (!floats.empty())
    text << " with " << rowWords - sequence - 1 << " numbers";
  if (shuffleSeed)
    text << " permuted by seed " << *shuffleSeed;
  return text.str();
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// Kept beside the order for describe() only.
void Batches::shuffle(uint64_t seed) {
  shuffleSeed = seed;
  samples.shuffle(seed);
  for (SampleOrder &order : siteOrders)
    order.shuffle(seed);
}

void Batches::startAt(uint64_t step, uint64_t position) {
  startStep = step;
  startPosition = position;
}

void Batches::interleave(int64_t newReplicas, int64_t rows) {
  replicas = newReplicas;
  replicaRows = rows;
}

/// Tokens of a file are compared as int32, which a token of the vocabulary
/// fits.
Status Batches::endDocuments(uint64_t token) {
  if (token >= uint64_t(vocabulary))
    return fail("`document-end` is ", token, ", the vocabulary has ",
                vocabulary, " tokens");
  documentEnd = int32_t(token);
  return Status::success();
}

/// Returns where row `row` is in the global batch: see interleave(). Rows of
/// one replica follow each other in the global batch; rows of microbatch i are
/// those that all replicas have in their i-th microbatch, replica by replica.
int64_t Batches::findRow(int64_t row) const {
  row += firstRow;
  int64_t together = replicas * replicaRows;
  int64_t microbatch = row / together, inside = row % together;
  return inside / replicaRows * (globalBatch / replicas) +
         microbatch * replicaRows + inside % replicaRows;
}

/// `step` counts from 1. Given rows are those of this step. Sites have had as
/// many samples each.
Sample Batches::findSample(uint64_t step, int64_t row) const {
  if (isGiven)
    return {uint32_t(findRow(row)), 0};
  uint64_t position = positionAfter(step - 1), own = uint64_t(findRow(row));
  if (siteOrders.empty())
    return samples.find(position + own);
  uint64_t sites = siteOrders.size(), rows = uint64_t(globalBatch) / sites;
  Sample sample = siteOrders[own / rows].find(position / sites + own % rows);
  sample.source += uint32_t(own / rows * (parts.size() / sites));
  return sample;
}

const TokenFile &Batches::sourceOf(const Sample &sample) const {
  return sources[parts.empty() ? sample.source : parts[sample.source].source];
}

/// Returns where a sample begins in its source.
uint64_t Batches::positionOf(const Sample &sample) const {
  uint64_t begin = parts.empty() ? 0 : parts[sample.source].begin;
  return (begin + sample.index) * stride;
}

/// The starts of the positions from `first` on. Those before say where the
/// document of the first one begins. Reads the sample from its beginning, for a
/// rank of `cp` has positions from the middle of it. The token that ends a
/// document belongs to it: the next position is the first of the next one.
Status Batches::findStarts(const Sample &sample, int64_t first,
                           std::span<int32_t> target) const {
  // All tokens up to the last position that is asked for.
  std::vector<int32_t> tokens(first + target.size());
  PLAIT_RETURN_IF_ERROR(sourceOf(sample).read(positionOf(sample), tokens));
  int32_t start = 0;
  for (int64_t position = 0; position < int64_t(tokens.size()); ++position) {
    if (position >= first)
      target[position - first] = start;
    if (tokens[position] == documentEnd)
      start = int32_t(position) + 1;
  }
  return Status::success();
}

/// Only tokens are recorded: targets and starts are of the same sample. Targets
/// are the tokens one further.
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
  // By row of the global batch, so that ranks along other axes name the same.
  if (record && kind == fb::InputKind::Tokens)
    record->add(findRow(row), samples.number(sample));
  int64_t position = (kind == fb::InputKind::Targets) + first;
  PLAIT_RETURN_IF_ERROR(
      sourceOf(sample).read(positionOf(sample) + position, target));
  // Of rows with numbers a source does not know which words are tokens.
  return floats.empty() ? Status::success()
                        : checkTokens(target, position, nameRow(sample));
}

std::string Batches::nameRow(const Sample &sample) const {
  std::ostringstream text;
  text << "row "
       << (isGiven ? uint64_t(sample.source) : positionOf(sample) / stride)
       << " of '" << sourceOf(sample).name() << "'";
  return text.str();
}

Status Batches::readFloats(uint64_t step, int64_t row, uint32_t input,
                           int64_t first, std::span<int32_t> target) const {
  Sample sample = findSample(step, row);
  const plan::FloatPart &part = floats[input];
  PLAIT_RETURN_IF_ERROR(sourceOf(sample).read(positionOf(sample) +
                                                  uint64_t(sequence) + 1 +
                                                  part.begin + uint64_t(first),
                                              target));
  return checkNumbers(part, target, first, nameRow(sample));
}

/// Keys are computed and not read. A row with numbers is read as a whole.
void Batches::prefetchRow(uint64_t step, int64_t row, fb::InputKind kind,
                          int64_t first, int64_t count) const {
  if (kind == fb::InputKind::Keys)
    return;
  if (kind == fb::InputKind::Starts) // found in all tokens up to there
    count += std::exchange(first, 0);
  Sample sample = findSample(step, row);
  const TokenFile &source = sourceOf(sample);
  uint64_t begin = positionOf(sample);
  if (!floats.empty())
    return source.prefetch(begin, rowWords);
  source.prefetch(begin + (kind == fb::InputKind::Targets) + first, count);
}
