//===- Compressors.cpp - Table of compressors -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table of compressors, made of the rows of Compressors.def, and the text
// of a compression. Equal meanings have one text: the elements of a chunk, and
// how many of them are sent, are left out where they are the compressor's own.
//
//===----------------------------------------------------------------------===//

#include "plait/Configuration/Compressors.h"

#include "plait/Configuration/CompressionFacts.h"
#include "plait/Configuration/Configuration.h"

#include <algorithm>
#include <bit>
#include <charconv>

using namespace plait;

static constexpr std::string_view kFeedback = "feedback",
                                  kReplicas = "replicas", kKeep = "keep",
                                  kRounds = "rounds", kBoth = "both",
                                  kNone = "none";
static constexpr int64_t kMostRank = 64;

static constexpr Compressor kCompressors[] = {
#define PLAIT_COMPRESSOR(rule, ...) {__VA_ARGS__},
#define PLAIT_MATRIX_COMPRESSOR(name, rank) {name, 0, 0, rank},
#include "plait/Configuration/Compressors.def"
};

std::span<const Compressor> plait::getCompressors() { return kCompressors; }

static const Compressor *find(std::string_view name) {
  auto found = std::ranges::find(kCompressors, name, &Compressor::name);
  return found == std::end(kCompressors) ? nullptr : found;
}

const Compressor &Compression::get() const { return *find(scheme); }

bool plait::sendsDifferences(const Compression &compression) {
  return compression.scheme.starts_with("ef21");
}

bool plait::sendsFactors(const Compression &compression) {
  return compression.isOn() && compression.get().block == 0;
}

bool plait::compresses(const Compression &compression, size_t dims) {
  return compression.isOn() && dims >= (sendsFactors(compression) ? 2 : 1);
}

MatrixSides plait::getMatrixSides(std::span<const int64_t> shape) {
  MatrixSides best{};
  for (size_t cut = 1; cut < shape.size(); ++cut) {
    MatrixSides sides{cut, 1, 1};
    for (size_t dim = 0; dim < shape.size(); ++dim)
      (dim < cut ? sides.rows : sides.columns) *= shape[dim];
    if (best.cut == 0 || sides.rows + sides.columns < best.rows + best.columns)
      best = sides;
  }
  return best;
}

bool plait::sendsMomentum(const Compression &compression) {
  return compression.scheme == "onebit-adam";
}

bool plait::isOwnState(std::string_view name) {
  return name == kErrorState || name == kEstimateState;
}

bool plait::isCompressionState(std::string_view name) {
  return isOwnState(name) || name == kEstimateSumState ||
         name == kSumErrorState;
}

std::span<const std::string_view>
plait::getCompressionStates(const Compression &compression) {
  static constexpr std::string_view feedback[] = {kErrorState, kSumErrorState},
                                    differences[] = {kEstimateState,
                                                     kEstimateSumState};
  if (sendsDifferences(compression))
    return differences;
  if (!compression.feedback)
    return {};
  return std::span(feedback).first(keepsSumError(compression) ? 2 : 1);
}

bool plait::keepsSumError(const Compression &compression) {
  return compression.feedback && compression.both;
}

/// Leaves out matrices that are sent as factors: ranks keep blocks of them, not
/// rows.
int plait::getMostZero(const Compression &compression) {
  if (sendsMomentum(compression) || compression.both)
    return 0;
  return compression.feedback && !sendsFactors(compression) ? 3 : 1;
}

Status plait::checkZero(const Compression &compression, int zero) {
  int most = getMostZero(compression);
  if (!compression.isOn() || zero <= most)
    return Status::success();
  std::string what = "compress is " + print(compression);
  if (sendsMomentum(compression))
    return fail(what,
                ", for which each replica has all of the momentum: it "
                "takes zero 0, not ",
                zero);
  if (compression.both)
    return fail(what, ", which compresses what replicas get back. By zero ",
                zero, " these are weights: it takes zero 0");
  return fail(what, ", which takes zero 0 or 1, not ", zero, ": zero ", zero,
              " adds gradients to errors of blocks, which it does not keep");
}

Status plait::checkZeroOfMatrices(const Compression &compression, int zero) {
  if (!compression.isOn() || zero == 0)
    return Status::success();
  return fail("compress is ", print(compression),
              ", which takes zero 0 with an optimizer of whole matrices, not ",
              zero, ": ranks divide these in other parts than they send");
}

/// A compressor that tells nobody which elements it keeps draws them.
bool plait::drawsNumbers(const Compression &compression) {
  if (!compression.isOn() || sendsFactors(compression))
    return false;
  return compression.get().bits == 0 || compression.scheme.starts_with("qsgd");
}

/// How many elements of a chunk are sent where no number is given.
/// Of whole matrices it is their rank.
static int64_t getDefaultKeep(const Compressor &compressor, int64_t block) {
  if (compressor.block == 0)
    return compressor.share;
  return compressor.share ? std::max<int64_t>(1, block / compressor.share) : 0;
}

/// Columns have 16 bits, two of which are a word. Without bits nothing says
/// which elements are sent.
ChunkMessage Compression::getMessage() const {
  if (keep == 0)
    return {get().bits, block, 1};
  if (get().bits == 0)
    return {0, 0, keep};
  ChunkMessage map{1, block, keep}, list{16, keep + keep % 2, keep};
  return map.getCodeBytes() <= list.getCodeBytes() ? map : list;
}

/// The last chunk is filled up with zeros.
uint64_t Compression::getMessageBytes(uint64_t elements) const {
  uint64_t chunks = (elements + uint64_t(block) - 1) / uint64_t(block);
  ChunkMessage message = getMessage();
  return uint64_t(rounds) * chunks *
         (message.getCodeBytes() + message.getNumberBytes());
}

std::string plait::print(const Compression &value) {
  if (!value.isOn())
    return std::string(kNone);
  std::string text = value.scheme;
  bool isRank = sendsFactors(value);
  if (isRank && value.keep != value.get().share)
    text += ":" + std::to_string(value.keep);
  if (value.block != value.get().block)
    text += ":" + std::to_string(value.block);
  if (!isRank && value.keep != getDefaultKeep(value.get(), value.block))
    text += "+" + std::string(kKeep) + ":" + std::to_string(value.keep);
  if (value.feedback && !sendsMomentum(value))
    text += "+" + std::string(kFeedback);
  if (value.rounds != 1)
    text += "+" + std::string(kRounds) + ":" + std::to_string(value.rounds);
  if (value.both)
    text += "+" + std::string(kBoth);
  if (value.replicas)
    text += "+" + std::string(kReplicas) + ":" + std::to_string(value.replicas);
  return text;
}

/// Takes what is in front of `separator`, which is removed too; `isLast`
/// becomes whether there was none.
static std::string_view take(std::string_view &text, char separator,
                             bool &isLast) {
  size_t end = text.find(separator);
  isLast = end == std::string_view::npos;
  std::string_view part = text.substr(0, end);
  text.remove_prefix(isLast ? text.size() : end + 1);
  return part;
}

/// A whole number of at least `least` and at most `most`, or a failure that
/// names them.
static Status parseCount(std::string_view name, std::string_view what,
                         std::string_view text, int64_t least, int64_t most,
                         int64_t &value) {
  const char *end = text.data() + text.size();
  auto [last, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && last == end && value >= least && value <= most)
    return Status::success();
  return fail(name, " has ", what, " \"", text, "\", expected ", least, " to ",
              most);
}

/// The first part: "int8", "int8:128" or "powersgd:2".
static Status parseScheme(std::string_view name, std::string_view text,
                          Compression &value) {
  bool isLast;
  std::string_view word = take(text, ':', isLast);
  const Compressor *compressor = find(word);
  if (!compressor) {
    std::vector<std::string> names = {std::string(kNone)};
    for (const Compressor &known : kCompressors)
      names.emplace_back(known.name);
    return fail(name, " is \"", word, "\", expected ", joinChoices(names));
  }
  value.scheme = word;
  value.block = compressor->block;
  if (sendsFactors(value)) {
    value.keep = compressor->share;
    return isLast
               ? Status::success()
               : parseCount(name, "a rank of", text, 1, kMostRank, value.keep);
  }
  if (!isLast)
    PLAIT_RETURN_IF_ERROR(parseCount(name, "chunks of", text, kLeastBlock,
                                     kMostBlock, value.block));
  if (!std::has_single_bit(uint64_t(value.block)))
    return fail(name, " has chunks of ", value.block,
                " elements, expected a power of two");
  value.keep = getDefaultKeep(*compressor, value.block);
  value.feedback = sendsMomentum(value);
  return Status::success();
}

/// One part behind the scheme; `seen` has those before it.
static Status parsePart(std::string_view name, std::string_view number,
                        std::vector<std::string_view> &seen,
                        Compression &value) {
  bool hasNone;
  std::string_view word = take(number, ':', hasNone);
  bool isNew = std::ranges::find(seen, word) == seen.end();
  seen.push_back(word);
  bool keeps = value.get().share > 0 && !sendsFactors(value);
  bool feeds = !sendsDifferences(value) && !sendsMomentum(value);
  bool repeats = feeds && !sendsFactors(value);
  if (isNew && word == kFeedback && hasNone && feeds) {
    value.feedback = true;
    return Status::success();
  }
  if (isNew && word == kRounds && repeats)
    return parseCount(name, word, number, 1, kMostRounds, value.rounds);
  if (isNew && word == kBoth && hasNone && repeats) {
    value.both = true;
    return Status::success();
  }
  if (isNew && word == kReplicas)
    return parseCount(name, word, number, 1, int64_t(1) << 24, value.replicas);
  if (isNew && word == kKeep && keeps)
    return parseCount(name, word, number, 1, value.block, value.keep);
  std::vector<std::string> choices;
  if (feeds)
    choices.emplace_back(kFeedback);
  if (keeps)
    choices.push_back(std::string(kKeep) + ":K");
  if (repeats) {
    choices.push_back(std::string(kRounds) + ":R");
    choices.emplace_back(kBoth);
  }
  choices.push_back(std::string(kReplicas) + ":N");
  return fail(name, " has \"", word, "\" behind the scheme, expected ",
              joinChoices(choices), ", each once");
}

Status plait::parse(std::string_view name, std::string_view text,
                    Compression &value) {
  value = Compression();
  if (text == kNone)
    return Status::success();
  bool isLast;
  PLAIT_RETURN_IF_ERROR(parseScheme(name, take(text, '+', isLast), value));
  std::vector<std::string_view> seen;
  while (!isLast)
    PLAIT_RETURN_IF_ERROR(
        parsePart(name, take(text, '+', isLast), seen, value));
  // An unbiased message is on average what it was made of, but may be longer.
  if (value.rounds > 1 && drawsNumbers(value) && !value.feedback)
    return fail(name, " is ", print(value), ", but what a message of ",
                value.scheme,
                " leaves out grows from round to round, expected ", kFeedback,
                ", which makes it shrink");
  return Status::success();
}
