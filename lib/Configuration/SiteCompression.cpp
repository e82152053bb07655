//===- SiteCompression.cpp - How sites compress messages ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table of compressors between sites, and the options of --outer that are
// about them. Equal meanings have one text.
//
//===----------------------------------------------------------------------===//

#include "plait/Configuration/SiteCompression.h"

#include "plait/Configuration/Configuration.h"

#include <algorithm>
#include <bit>
#include <charconv>

using namespace plait;

static constexpr std::string_view kCompress = "compress", kChunk = "chunk",
                                  kKeep = "k", kDecay = "decay";

static constexpr SiteCompressor kCompressors[] = {
    {"int8", SiteCode::Integer, 8, 256},
    {"int4", SiteCode::Integer, 4, 256},
    {"e3m0", SiteCode::Exponent, 4, 256},
    {"sign", SiteCode::Sign, 1, 4096},
    {"topk", SiteCode::Number, 32, 4096, 64},
    {"topk2", SiteCode::Levels, 2, 4096, 64},
};

std::span<const SiteCompressor> plait::getSiteCompressors() {
  return kCompressors;
}

static const SiteCompressor *find(std::string_view name) {
  auto found = std::ranges::find(kCompressors, name, &SiteCompressor::name);
  return found == std::end(kCompressors) ? nullptr : found;
}

const SiteCompressor &SiteCompression::get() const { return *find(scheme); }

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

/// Returns the words that `bits` of each of `count` codes fill.
static int64_t countWords(int64_t count, int64_t bits) {
  return (count * bits + 31) / 32;
}

bool SiteCompression::sendsPositions() const {
  int64_t bits = std::bit_width(uint32_t(chunk)) - 1;
  return keep && countWords(keep, bits) < countWords(chunk, 1);
}

int64_t SiteCompression::countPlaceWords() const {
  if (!keep)
    return 0;
  return sendsPositions()
             ? countWords(keep, std::bit_width(uint32_t(chunk)) - 1)
             : countWords(chunk, 1);
}

/// Places, the scale, and the codes.
int64_t SiteCompression::countChunkWords() const {
  return countPlaceWords() + (get().code != SiteCode::Number) +
         countWords(keep ? keep : chunk, get().bits);
}

/// The innermost dimension that is divided says how long neighbours are that a
/// rank has; where it is padded, a part of it has to be whole as well.
bool plait::hasWholeChunks(std::span<const int64_t> shape,
                           std::span<const int64_t> blocks, int64_t chunk) {
  int64_t inner = 1;
  for (size_t i = shape.size(); i-- > 0; inner *= shape[i]) {
    if (blocks[i] == 1)
      continue;
    bool isPadded = shape[i] % blocks[i] != 0;
    int64_t own = (shape[i] + blocks[i] - 1) / blocks[i];
    return (isPadded ? inner : inner * own) % chunk == 0;
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

static int32_t getUsualKeep(const SiteCompressor &compressor, int32_t chunk) {
  return compressor.share ? std::max(1, chunk / compressor.share) : 0;
}

void plait::setUsual(SiteCompression &value) {
  const SiteCompressor *compressor = find(value.scheme);
  if (!compressor)
    return;
  if (!value.chunk)
    value.chunk = compressor->chunk;
  if (!value.keep)
    value.keep = getUsualKeep(*compressor, value.chunk);
}

/// The shortest text that reads as the same number.
static std::string printNumber(double value) {
  char text[32];
  auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end);
}

std::string plait::print(const SiteCompression &value, std::string_view scheme,
                         double decay, bool hasUsual) {
  if (!value.isOn())
    return "";
  const SiteCompressor &compressor = value.get();
  std::string text;
  auto add = [&](std::string_view name, const std::string &own, bool isUsual) {
    if (hasUsual || !isUsual)
      text += "," + std::string(name) + "=" + own;
  };
  add(kCompress, value.scheme, value.scheme == scheme);
  add(kChunk, std::to_string(value.chunk), value.chunk == compressor.chunk);
  if (compressor.share)
    add(kKeep, std::to_string(value.keep),
        value.keep == getUsualKeep(compressor, value.chunk));
  add(kDecay, printNumber(value.decay), value.decay == decay);
  return text;
}

bool plait::isSiteOption(std::string_view word) {
  return word == kCompress || word == kChunk || word == kKeep || word == kDecay;
}

static std::string listCompressors() {
  std::vector<std::string> names;
  for (const SiteCompressor &known : kCompressors)
    names.emplace_back(known.name);
  return joinChoices(names);
}

/// Written so that NaN fails.
static bool isDecay(double value) { return value >= 0 && value <= 1; }

Status plait::parseSiteOption(std::string_view name, std::string_view word,
                              std::string_view text, SiteCompression &value) {
  if (word == kCompress) {
    value.scheme = text;
    return find(text) ? Status::success()
                      : fail(name, " has ", kCompress, " \"", text,
                             "\", expected ", listCompressors());
  }
  const char *end = text.data() + text.size();
  auto isWhole = [&](std::from_chars_result read) {
    return read.ec == std::errc() && read.ptr == end && !text.empty();
  };
  if (word == kDecay)
    return isWhole(std::from_chars(text.data(), end, value.decay)) &&
                   isDecay(value.decay)
               ? Status::success()
               : fail(name, " has ", kDecay, " \"", text,
                      "\", expected 0 to 1");
  int32_t &count = word == kChunk ? value.chunk : value.keep;
  int32_t least = word == kChunk ? kLeastSiteChunk : 1;
  return isWhole(std::from_chars(text.data(), end, count)) && count >= least &&
                 count <= kMostSiteChunk
             ? Status::success()
             : fail(name, " has ", word, " \"", text, "\", expected ", least,
                    " to ", kMostSiteChunk);
}

/// Without a compressor the rest is 0.
Status plait::check(std::string_view name, const SiteCompression &value) {
  if (!value.isOn())
    return value == SiteCompression()
               ? Status::success()
               : fail(name, " has ", kChunk, " ", value.chunk, ", ", kKeep, " ",
                      value.keep, " and ", kDecay, " ", value.decay,
                      ", but no ", kCompress);
  const SiteCompressor *compressor = find(value.scheme);
  if (!compressor)
    return fail(name, " has ", kCompress, " '", value.scheme, "', expected ",
                listCompressors());
  if (value.chunk < kLeastSiteChunk || value.chunk > kMostSiteChunk ||
      !std::has_single_bit(uint32_t(value.chunk)))
    return fail(name, " has ", kChunk, " ", value.chunk,
                ", expected a power of two from ", kLeastSiteChunk, " to ",
                kMostSiteChunk);
  if (!compressor->share && value.keep)
    return fail(name, " has ", kKeep, " ", value.keep, ", but ", value.scheme,
                " sends all elements");
  if (compressor->share && (value.keep < 1 || value.keep > value.chunk))
    return fail(name, " has ", kKeep, " ", value.keep, ", expected 1 to ",
                value.chunk, ", the elements of a chunk");
  return isDecay(value.decay) ? Status::success()
                              : fail(name, " has ", kDecay, " ", value.decay,
                                     ", expected 0 to 1");
}
