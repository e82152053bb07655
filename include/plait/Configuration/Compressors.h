//===- Compressors.h - Table of compressors ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The facts of each compressor of gradients that planner, compiler, plan and
// help ask for. What it does to a gradient is written in a file of its own in
// lib/Transforms/Gradients/Compressors: a new one is a row of Compressors.def
// and a file there.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CONFIGURATION_COMPRESSORS_H
#define PLAIT_CONFIGURATION_COMPRESSORS_H

#include "plait/Support/Status.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace plait {

/// One compressor. It makes of a chunk some integers of a few bits, and some
/// fp32 numbers. The strings are literals and live for ever.
struct Compressor {
  std::string_view name; // as --compress has it
  /// The bits of the integer that each element becomes: 1, 2, 4, 8 or 16. There
  /// is one number for all of them.
  int bits;
  int64_t block; // elements of a chunk, where none are given
  /// Says of how many elements one is sent, as a number, where no count is
  /// given; the integers say which. 0: all are sent, as integers.
  int64_t share = 0;
};

/// Says what a chunk becomes.
struct ChunkMessage {
  int bits;        // of an integer
  int64_t codes;   // integers, which fill whole words of 32 bits
  int64_t numbers; // in fp32

  uint64_t getCodeBytes() const { return uint64_t(codes) * bits / 8; }
  uint64_t getNumberBytes() const { return uint64_t(numbers) * sizeof(float); }
};

/// Bounds of the elements of a chunk, which are a power of two.
inline constexpr int64_t kLeastBlock = 32, kMostBlock = 4096;
/// Bounds Compression::rounds.
inline constexpr int64_t kMostRounds = 16;

/// The tensor that a replica keeps of a parameter where errors are fed back: in
/// fp32, of the gradient's shape, zero at the start of a run, and another one
/// on each replica.
inline constexpr std::string_view kErrorState = "error";
/// The tensor that replicas keep of a parameter where sums are compressed again
/// and errors are fed back: as kErrorState is, but each has the part of those
/// rows that it adds up, so that there is one of all.
inline constexpr std::string_view kSumErrorState = "sum_error";

/// All of them, in the order in which help texts list them.
std::span<const Compressor> getCompressors();

/// How replicas compress the gradients that they add up: the value of
/// --compress.
struct Compression {
  std::string scheme; // the name of a compressor; empty: none
  int64_t block = 0;  // elements of a chunk
  int64_t keep = 0;   // of which so many are sent; 0: all
  /// Whether what a message leaves out is added to the next step's gradient
  /// (Stich et al. 2018, "MEM-SGD").
  bool feedback = false;
  /// Whether replicas each add up some of the chunks, and send sums as they
  /// send gradients (Tang et al. 2019, "DoubleSqueeze").
  bool both = false;
  /// The messages of a step, each of what those before it have left out (Huang
  /// et al. 2022, "NEOLITHIC").
  int64_t rounds = 1;
  /// The replicas whose parts of a gradient are compressed; 0: those that the
  /// mesh has. A step that says what others should compute has one rank, and
  /// says here how many they are.
  int64_t replicas = 0;

  bool isOn() const { return !scheme.empty(); }
  /// The compressor; it must be on.
  const Compressor &get() const;
  /// Returns what a chunk becomes. Which elements are sent is said by a bit for
  /// each element of the chunk or by 16 for each that is sent, whichever are
  /// fewer.
  ChunkMessage getMessage() const;
  /// Returns the bytes of the message of `elements` of a parameter, in all
  /// rounds.
  uint64_t getMessageBytes(uint64_t elements) const;
  bool operator==(const Compression &) const = default;
};

/// "none", "int8", "topk:1024+keep:10+feedback", and the inverse:
/// SCHEME[:BLOCK], and behind plus signs `keep:K`, `feedback`, `rounds:R`,
/// `both` and `replicas:N`.
std::string print(const Compression &value);
Status parse(std::string_view name, std::string_view text, Compression &value);

} // namespace plait

#endif // PLAIT_CONFIGURATION_COMPRESSORS_H
