//===- TokenFile.h - Tokens on disk -----------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A file of tokens is mapped, never copied, and is one list of tokens:
//
//  - raw little-endian integers, as numpy's tofile and nanoGPT's prepare.py
//    write them;
//  - a shard as llm.c and modded-nanogpt have them: 256 u32, of which the first
//    three are 20240520, the version 1 and the number of tokens, then these as
//    u16; or 20240801, the version 7, and tokens as u32;
//  - Megatron's indexed data set, X.bin and X.idx. X.bin is raw integers, X.idx
//    (little-endian) is: the 9 bytes "MMIDIDX\0\0", the version 1 (u64), the
//    type of a token (u8: 1 to 8 are uint8, int8, int16, int32, int64, float64,
//    float32, uint16), the number S of sequences (u64), the number D of
//    document bounds (u64), the lengths of sequences in tokens (S i32), their
//    offsets in X.bin in bytes (S i64), and of each document its first
//    sequence, with S at the end (D i64). Data sets of several modes have S
//    bytes more. Sequences have to follow each other in X.bin, as all writers
//    lay them out, so that X.bin is the list;
//  - text, each byte of which is a token.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_TOKENFILE_H
#define PLAIT_RUNTIME_TOKENFILE_H

#include "plait/Plan/Files.h"

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace plait::runtime {

/// How a token is stored, little-endian.
struct TokenType {
  const char *name;
  unsigned bytes;
  bool isSigned;

  bool operator==(const TokenType &) const = default;
};
/// Those that raw files may have.
std::span<const TokenType> getTokenTypes();

/// A list of tokens. Reading is safe from all threads.
class TokenFile {
public:
  /// The part that is looked at when a file is opened: all of one of `fully`
  /// bytes or less, and of a larger one `blocks` blocks of `blockBytes`, evenly
  /// spaced.
  static constexpr uint64_t fully = uint64_t(64) << 20;
  static constexpr uint64_t blocks = 1024;
  static constexpr uint64_t blockBytes = fully / blocks;

  /// A raw file, a shard, or, where there is an index beside it, Megatron's:
  /// `path` is X.bin, X.idx or X. The type of a raw file is the one called
  /// `type`; empty: uint16 where `vocabulary` is at most 65536, else int32, and
  /// a file that looks like a wider type or like text is an error. Fails where
  /// what is looked at has a token that is not in the vocabulary, and where a
  /// file begins as those of another format do.
  static Result<TokenFile> open(const std::string &path,
                                const std::string &type, uint64_t vocabulary);
  static Result<TokenFile> openText(const std::string &path,
                                    uint64_t vocabulary);
  /// A vocabulary that has every word of 32 bits.
  static constexpr uint64_t anyWord = uint64_t(1) << 32;
  /// Words of 32 bits, which are read as they are.
  static Result<TokenFile> openRows(const std::string &path);
  /// `tokens` are in the vocabulary.
  static TokenFile fromMemory(std::vector<uint32_t> tokens,
                              uint64_t vocabulary);

  const std::string &name() const { return path; }
  /// Returns the number of tokens.
  uint64_t size() const { return bytes().size() / type.bytes; }
  /// Returns the hash of what is looked at. Files of the same size and hash are
  /// taken to be the same.
  uint64_t hash() const { return contentHash; }

  /// Reads the tokens from `position` on. Fails where one is not in the
  /// vocabulary. `position + target.size()` is at most size().
  Status read(uint64_t position, std::span<int32_t> target) const;
  /// Has the system read `count` tokens from `position` on, without waiting.
  void prefetch(uint64_t position, uint64_t count) const;

private:
  using Storage = std::variant<MappedFile, std::vector<uint32_t>>;

  /// Tokens are behind `begin` bytes of a mapped file.
  TokenFile(std::string path, Storage storage, TokenType type,
            uint64_t vocabulary, uint64_t begin = 0)
      : path(std::move(path)), storage(std::move(storage)), type(type),
        vocabulary(vocabulary), begin(begin) {}

  static Result<TokenFile> openRaw(const std::string &path,
                                   const std::string &type,
                                   uint64_t vocabulary);
  Status checkLooks() const;
  static Result<TokenFile> openIndexed(const std::string &prefix,
                                       const std::string &type,
                                       uint64_t vocabulary);
  std::span<const uint8_t> bytes() const;
  template <typename Look> Status forEachBlock(Look look) const;
  Status inspect();
  Status checkTokens(uint64_t begin, uint64_t end) const;
  Status checkWidth() const;

  std::string path;
  Storage storage;
  TokenType type;
  uint64_t vocabulary;
  uint64_t begin; // of what bytes() has, in the mapped file
  uint64_t contentHash = 0;
};

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_TOKENFILE_H
