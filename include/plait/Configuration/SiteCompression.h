//===- SiteCompression.h - How sites compress messages ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a site has moved by since the last agreement may be sent in fewer bits.
// What is lost is kept and added to the next message (error feedback). A
// message is a sequence of chunks, each of as many words of 32 bits, so that
// its size follows from the plan; docs/SiteCompression.md has the bits.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CONFIGURATION_SITECOMPRESSION_H
#define PLAIT_CONFIGURATION_SITECOMPRESSION_H

#include "plait/Support/Status.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace plait {

/// The kinds of codes that a number becomes.
enum class SiteCode : uint8_t {
  Integer,  // a multiple of the chunk's scale
  Exponent, // 0 or a power of two times the scale, with a sign
  Sign,     // plus or minus the scale
  Number,   // itself, in fp32
  Levels    // plus or minus the scale or a third of it
};

/// One compressor. The string is a literal and lives for ever.
struct SiteCompressor {
  std::string_view name; // as compress=NAME has it
  SiteCode code;
  int bits;          // of a code
  int32_t chunk;     // elements, where none are given
  int32_t share = 0; // of how many elements one is sent; 0: all are
};

/// All of them, in the order in which help texts list them.
std::span<const SiteCompressor> getSiteCompressors();

/// A compressor with its options.
struct SiteCompression {
  std::string scheme; // the name of a compressor; empty: none
  int32_t chunk = 0;  // elements of a chunk
  int32_t keep = 0;   // of which so many are sent; 0: all
  /// Multiplies the error of the last message before it is added to the next
  /// one; 0: no error is kept.
  double decay = 0;

  bool isOn() const { return !scheme.empty(); }
  /// The row of the compressor, which has to be one.
  const SiteCompressor &get() const;
  bool keepsError() const { return decay > 0; }
  /// Words that say which elements of a chunk are sent: a bit for each of its
  /// elements, or the position of each that is sent, whichever is less.
  bool sendsPositions() const;
  int64_t countPlaceWords() const;
  /// The words of one chunk.
  int64_t countChunkWords() const;
  int64_t countChunks(int64_t elements) const {
    return (elements + chunk - 1) / chunk;
  }
  bool operator==(const SiteCompression &) const = default;
};

/// Bounds of the elements of a chunk, which are a power of two.
inline constexpr int32_t kLeastSiteChunk = 32, kMostSiteChunk = 4096;

/// Sets what is as usual with `value.scheme`, the name of a compressor, where
/// it is 0.
void setUsual(SiteCompression &value);

/// Fails unless all of it is within its bounds. `name` is the culprit's.
Status check(std::string_view name, const SiteCompression &value);

/// ",compress=topk,k=8", without what is as usual unless `hasUsual`: the
/// compressor `scheme`, with `decay`. Nothing where it is off.
std::string print(const SiteCompression &value, std::string_view scheme,
                  double decay, bool hasUsual);

/// Whether `word` is one of the options compress, chunk, k and decay.
bool isSiteOption(std::string_view word);
/// Reads one of them; what is not given stays as it is.
Status parseSiteOption(std::string_view name, std::string_view word,
                       std::string_view text, SiteCompression &value);

/// Whether ranks that have equal parts of a tensor of `shape`, `blocks` of each
/// dimension, have whole chunks of so many neighbours, in row-major order.
bool hasWholeChunks(std::span<const int64_t> shape,
                    std::span<const int64_t> blocks, int64_t chunk);

} // namespace plait

#endif // PLAIT_CONFIGURATION_SITECOMPRESSION_H
