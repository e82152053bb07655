//===- Compressors.cpp - Table of compressors -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table of compressors, made of the rows of Compressors.def, and the text
// of a compression. Equal meanings have one text: the elements of a chunk are
// left out where they are the compressor's own.
//
//===----------------------------------------------------------------------===//

#include "plait/Configuration/Compressors.h"

#include "plait/Configuration/Configuration.h"

#include <algorithm>
#include <bit>
#include <charconv>

using namespace plait;

static constexpr std::string_view kFeedback = "feedback",
                                  kReplicas = "replicas", kNone = "none";

static constexpr Compressor kCompressors[] = {
#define PLAIT_COMPRESSOR(rule, ...) {__VA_ARGS__},
#include "plait/Configuration/Compressors.def"
};

std::span<const Compressor> plait::getCompressors() { return kCompressors; }

static const Compressor *find(std::string_view name) {
  auto found = std::ranges::find(kCompressors, name, &Compressor::name);
  return found == std::end(kCompressors) ? nullptr : found;
}

const Compressor &Compression::get() const { return *find(scheme); }

/// The last chunk is filled up with zeros.
uint64_t Compression::getMessageBytes(uint64_t elements) const {
  uint64_t chunks = (elements + uint64_t(block) - 1) / uint64_t(block);
  return chunks * get().getMessageBytes(block);
}

std::string plait::print(const Compression &value) {
  if (!value.isOn())
    return std::string(kNone);
  std::string text = value.scheme;
  if (value.block != value.get().block)
    text += ":" + std::to_string(value.block);
  if (value.feedback)
    text += "+" + std::string(kFeedback);
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

/// The first part: "int8" or "int8:128".
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
  if (isLast)
    return Status::success();
  PLAIT_RETURN_IF_ERROR(parseCount(name, "chunks of", text, kLeastBlock,
                                   kMostBlock, value.block));
  if (std::has_single_bit(uint64_t(value.block)))
    return Status::success();
  return fail(name, " has chunks of ", value.block,
              " elements, expected a power of two");
}

Status plait::parse(std::string_view name, std::string_view text,
                    Compression &value) {
  value = Compression();
  if (text == kNone)
    return Status::success();
  bool isLast;
  PLAIT_RETURN_IF_ERROR(parseScheme(name, take(text, '+', isLast), value));
  while (!isLast) {
    std::string_view number = take(text, '+', isLast);
    bool hasNone;
    std::string_view word = take(number, ':', hasNone);
    if (word == kFeedback && hasNone && !value.feedback)
      value.feedback = true;
    else if (word == kReplicas && !value.replicas)
      PLAIT_RETURN_IF_ERROR(
          parseCount(name, word, number, 1, int64_t(1) << 24, value.replicas));
    else
      return fail(name, " has \"", word, "\" behind the scheme, expected ",
                  kFeedback, " or ", kReplicas, ":N, each once");
  }
  return Status::success();
}
