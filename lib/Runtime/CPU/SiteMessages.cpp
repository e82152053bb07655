//===- SiteMessages.cpp - Compressed messages of sites --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Chunk by chunk: codes of a few bits in words, lowest bits first, and a scale.
// The formulas are those of docs/SiteCompression.md.
//
//===----------------------------------------------------------------------===//

#include "SiteMessages.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

using namespace plait;
using namespace plait::runtime;

namespace {

/// Codes of up to 32 bits one behind the other.
class BitWriter {
public:
  explicit BitWriter(uint32_t *words) : words(words) {}
  void add(uint32_t code, int bits) {
    held |= uint64_t(code) << count;
    for (count += bits; count >= 32; count -= 32, held >>= 32)
      *words++ = uint32_t(held);
  }
  /// Fills the last word with zeros.
  uint32_t *finish() {
    if (count)
      *words++ = uint32_t(held);
    return words;
  }

private:
  uint32_t *words;
  uint64_t held = 0;
  int count = 0;
};

class BitReader {
public:
  explicit BitReader(const uint32_t *words) : words(words) {}
  uint32_t take(int bits) {
    if (count < bits) {
      held |= uint64_t(*words++) << count;
      count += 32;
    }
    uint32_t code = uint32_t(held & ((uint64_t(1) << bits) - 1));
    held >>= bits;
    count -= bits;
    return code;
  }

private:
  const uint32_t *words;
  uint64_t held = 0;
  int count = 0;
};

using Positions = std::array<uint16_t, kMostSiteChunk>;

} // namespace

//===----------------------------------------------------------------------===//
// Codes
//===----------------------------------------------------------------------===//

/// Returns the largest magnitude or, of signs, the mean one of `elements`; NaN
/// where a number is not finite.
static float findScale(SiteCode code, std::span<const float> numbers,
                       size_t elements) {
  float largest = 0;
  double sum = 0;
  bool isFinite = true;
  for (float number : numbers) {
    largest = std::max(largest, std::abs(number));
    sum += std::abs(number);
    isFinite &= std::isfinite(number);
  }
  if (!isFinite)
    return std::numeric_limits<float>::quiet_NaN();
  return code == SiteCode::Sign ? float(sum / double(elements)) : largest;
}

namespace {

/// The codes of one chunk. What all of its elements share is computed once.
class Coder {
public:
  Coder(const SiteCompressor &compressor, float scale);
  uint32_t makeCode(float number) const;
  float readCode(uint32_t code) const {
    if (compressor.bits <= kMostTableBits)
      return table[code];
    if (compressor.code == SiteCode::Number)
      return std::bit_cast<float>(code);
    return toNumber(code);
  }

private:
  float toNumber(uint32_t code) const;

  static constexpr int kMostTableBits = 4;
  const SiteCompressor &compressor;
  float scale;
  float most;                 // of the integers
  float inverse, unit;        // what makes a number an integer, and back
  std::array<float, 7> above; // of an exponent: levels from which it is more
  std::array<float, 1 << kMostTableBits> table; // of short codes
};

} // namespace

/// The constant keeps chunks of zeros from 0 / 0. Halfway between two levels of
/// an Exponent, 0 and 2^(e - 7) times the scale, the smaller is taken.
Coder::Coder(const SiteCompressor &compressor, float scale)
    : compressor(compressor), scale(scale),
      most(float((1 << (std::min(compressor.bits, 8) - 1)) - 1)),
      inverse(most / (scale + 0x1p-100f)), unit(scale / most) {
  above[0] = scale * 0x1p-7f;
  for (size_t i = 1; i < above.size(); ++i)
    above[i] = scale * std::ldexp(1.5f, int(i) - 7);
  if (compressor.bits <= kMostTableBits)
    for (uint32_t code = 0; code < 1u << compressor.bits; ++code)
      table[code] = toNumber(code);
}

uint32_t Coder::makeCode(float number) const {
  uint32_t isNegative = number < 0;
  float magnitude = std::abs(number);
  switch (compressor.code) {
  case SiteCode::Integer:
    return uint32_t(int32_t(std::nearbyint(number * inverse))) &
           ((1u << compressor.bits) - 1);
  case SiteCode::Exponent: {
    uint32_t exponent = 0;
    for (float limit : above)
      exponent += magnitude > limit;
    return exponent | isNegative << 3;
  }
  case SiteCode::Sign:
    return isNegative;
  case SiteCode::Levels:
    return isNegative | uint32_t(magnitude * 3 > scale * 2) << 1;
  case SiteCode::Number:
    return std::bit_cast<uint32_t>(number);
  }
  __builtin_unreachable();
}

float Coder::toNumber(uint32_t code) const {
  int shift = 32 - compressor.bits;
  switch (compressor.code) {
  case SiteCode::Integer:
    return float(int32_t(code << shift) >> shift) * unit;
  case SiteCode::Exponent: {
    int exponent = int(code & 7);
    float number = exponent ? scale * std::ldexp(1.0f, exponent - 7) : 0;
    // A scale that is no number is seen also where all codes are 0.
    number += scale * 0;
    return code & 8 ? -number : number;
  }
  case SiteCode::Sign:
    return code ? -scale : scale;
  case SiteCode::Levels: {
    float number = code & 2 ? scale : scale / 3;
    return code & 1 ? -number : number;
  }
  case SiteCode::Number:
    return std::bit_cast<float>(code);
  }
  __builtin_unreachable();
}

//===----------------------------------------------------------------------===//
// Chunks
//===----------------------------------------------------------------------===//

/// Finds the elements of largest magnitude, of equal ones the first; zeros are
/// not sent. What is no number is larger than all numbers.
static size_t findLargest(std::span<const float> numbers, size_t keep,
                          Positions &positions) {
  // The bits of magnitudes are in their order, and ~ turns that round.
  std::array<uint64_t, kMostSiteChunk> keys;
  size_t count = 0;
  for (size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] != 0)
      keys[count++] =
          uint64_t(~std::bit_cast<uint32_t>(std::abs(numbers[i]))) << 16 | i;
  if (count > keep) {
    std::nth_element(keys.begin(), keys.begin() + keep, keys.begin() + count);
    count = keep;
  }
  for (size_t i = 0; i < count; ++i)
    positions[i] = uint16_t(keys[i]);
  std::sort(positions.begin(), positions.begin() + count);
  return count;
}

/// Positions ascend: what is left over of their room repeats the last one.
static uint32_t *writePlaces(const SiteCompression &compression,
                             std::span<const uint16_t> positions,
                             uint32_t *words) {
  if (!compression.sendsPositions()) {
    std::fill_n(words, compression.countPlaceWords(), 0);
    for (uint16_t position : positions)
      words[position / 32] |= 1u << position % 32;
    return words + compression.countPlaceWords();
  }
  BitWriter writer(words);
  int bits = std::bit_width(uint32_t(compression.chunk)) - 1;
  for (int32_t i = 0; i < compression.keep; ++i) {
    size_t own = std::min(size_t(i) + 1, positions.size());
    writer.add(own ? positions[own - 1] : 0, bits);
  }
  return writer.finish();
}

/// The number of elements that are sent.
static size_t readPlaces(const SiteCompression &compression,
                         const uint32_t *words, Positions &positions) {
  size_t count = 0;
  if (!compression.sendsPositions()) {
    for (int32_t i = 0; i < compression.chunk; ++i)
      if (words[i / 32] >> i % 32 & 1)
        positions[count++] = uint16_t(i);
    return std::min(count, size_t(compression.keep));
  }
  BitReader reader(words);
  int bits = std::bit_width(uint32_t(compression.chunk)) - 1;
  for (; count < size_t(compression.keep); ++count) {
    positions[count] = uint16_t(reader.take(bits));
    if (count && positions[count] <= positions[count - 1])
      break;
  }
  return count;
}

/// The numbers that are sent, in their order; codes of those that are not there
/// are 0.
void runtime::encodeChunk(const SiteCompression &compression,
                          std::span<const float> numbers, uint32_t *words) {
  const SiteCompressor &compressor = compression.get();
  size_t elements = numbers.size(), room = size_t(compression.chunk);
  std::array<float, kMostSiteChunk> sent;
  if (compression.keep) {
    Positions positions;
    room = size_t(compression.keep);
    size_t count = findLargest(numbers, room, positions);
    words = writePlaces(compression, std::span(positions).first(count), words);
    for (size_t i = 0; i < count; ++i)
      sent[i] = numbers[positions[i]];
    numbers = std::span(sent).first(count);
  }
  float scale = 0;
  if (compressor.code != SiteCode::Number) {
    scale = findScale(compressor.code, numbers, elements);
    *words++ = std::bit_cast<uint32_t>(scale);
  }
  BitWriter writer(words);
  Coder coder(compressor, scale);
  size_t sentCount = std::isfinite(scale) ? numbers.size() : 0;
  for (size_t i = 0; i < sentCount; ++i)
    writer.add(coder.makeCode(numbers[i]), compressor.bits);
  for (size_t i = sentCount; i < room; ++i)
    writer.add(0, compressor.bits);
  writer.finish();
}

/// Elements behind the end of a parameter are left out.
void runtime::addChunk(const SiteCompression &compression,
                       const uint32_t *words, std::span<float> numbers) {
  const SiteCompressor &compressor = compression.get();
  size_t count = numbers.size();
  Positions positions;
  if (compression.keep) {
    count = readPlaces(compression, words, positions);
    words += compression.countPlaceWords();
  }
  float scale = 0;
  if (compressor.code != SiteCode::Number)
    scale = std::bit_cast<float>(*words++);
  BitReader reader(words);
  Coder coder(compressor, scale);
  for (size_t i = 0; i < count; ++i) {
    float number = coder.readCode(reader.take(compressor.bits));
    size_t place = compression.keep ? positions[i] : i;
    if (place < numbers.size())
      numbers[place] += number;
  }
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

int64_t runtime::countChunks(const SiteCompression &compression,
                             const fb::OuterStep &step) {
  int64_t chunks = 0;
  for (uint32_t i = 1; i < step.pieces()->size(); i += 2)
    chunks += compression.countChunks(int64_t(step.pieces()->Get(i)));
  return chunks;
}

/// Finds what is lost by reading the message as all sites do.
static void encode(const OuterOperands &operands, int64_t first, size_t count,
                   uint32_t *words) {
  const SiteCompression &compression = *operands.compress;
  std::array<float, kMostSiteChunk> numbers, said;
  const float *value = reinterpret_cast<const float *>(operands.value) + first;
  float *error = reinterpret_cast<float *>(operands.error);
  if (error)
    error += first;
  float decay = float(compression.decay);
  for (size_t i = 0; i < count; ++i)
    numbers[i] = error ? value[i] + decay * error[i] : value[i];
  encodeChunk(compression, std::span(numbers).first(count), words);
  if (!error)
    return;
  std::fill_n(said.begin(), count, 0.0f);
  addChunk(compression, words, std::span(said).first(count));
  for (size_t i = 0; i < count; ++i)
    error[i] = numbers[i] - said[i];
}

static void decode(const OuterOperands &operands, uint64_t messageWords,
                   int64_t first, size_t count, int64_t offset) {
  std::span<float> numbers(reinterpret_cast<float *>(operands.value) + first,
                           count);
  std::ranges::fill(numbers, 0.0f);
  const auto *words = reinterpret_cast<const uint32_t *>(operands.others);
  for (int64_t site = 0; site < int64_t(operands.sites); ++site)
    addChunk(*operands.compress, words + site * int64_t(messageWords) + offset,
             numbers);
}

void runtime::runMessages(const fb::OuterStep &step,
                          const OuterOperands &operands, int64_t begin,
                          int64_t end) {
  const SiteCompression &compression = *operands.compress;
  int64_t chunkWords = compression.countChunkWords(), chunk = 0;
  auto *message = reinterpret_cast<uint32_t *>(operands.mixed);
  for (uint32_t i = 0; i < step.pieces()->size() && chunk < end; i += 2) {
    int64_t first = int64_t(step.pieces()->Get(i));
    int64_t left = int64_t(step.pieces()->Get(i + 1));
    int64_t last = chunk + compression.countChunks(left);
    for (int64_t own = std::max(begin, chunk); own < std::min(end, last);
         ++own) {
      int64_t before = (own - chunk) * compression.chunk;
      size_t count =
          size_t(std::min<int64_t>(compression.chunk, left - before));
      if (step.kind() == fb::OuterKind::Encode)
        encode(operands, first + before, count, message + own * chunkWords);
      else
        decode(operands, step.words(), first + before, count, own * chunkWords);
    }
    chunk = last;
  }
}
