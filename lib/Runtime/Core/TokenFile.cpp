//===- TokenFile.cpp - Tokens on disk -------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A file is mapped, never copied, and read as whatever integers it has. Opening
// it looks at all of a small file and at samples of a large one; what was not
// looked at is checked when it is read, so that no token outside of the
// vocabulary ever reaches an embedding, whose table it would index.
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/TokenFile.h"

#include "MegatronIndex.h"
#include "TokenHeader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

using namespace plait;
using namespace plait::runtime;

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

/// Types come in the order in which messages name them.
std::span<const TokenType> runtime::getTokenTypes() {
  static constexpr TokenType types[] = {{"uint16", 2, false},
                                        {"uint32", 4, false},
                                        {"int32", 4, true},
                                        {"int64", 8, true}};
  return types;
}

/// The message lists what there is.
static Result<TokenType> findTokenType(const std::string &name) {
  std::string names;
  for (const TokenType &known : getTokenTypes()) {
    if (name == known.name)
      return known;
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  return fail("token type '", name, "' is unknown, expected one of ", names);
}

/// Calls `work` with an integer of that type. One branch for a whole range: the
/// loops inside of `work` are compiled for each type. Indexes may have 8-bit
/// and signed 16-bit tokens, raw files may not.
template <typename Work> static auto withType(TokenType type, Work work) {
  switch (type.bytes) {
  case 1:
    return type.isSigned ? work(int8_t()) : work(uint8_t());
  case 2:
    return type.isSigned ? work(int16_t()) : work(uint16_t());
  case 4:
    return type.isSigned ? work(int32_t()) : work(uint32_t());
  default:
    return work(int64_t());
  }
}

/// Copied out, for a token may lie at any byte.
template <typename Int> static int64_t load(const uint8_t *bytes) {
  Int value;
  std::memcpy(&value, bytes, sizeof(Int));
  return value;
}

/// A negative token is beyond any vocabulary.
static bool isIn(int64_t token, uint64_t vocabulary) {
  return static_cast<uint64_t>(token) < vocabulary;
}

//===----------------------------------------------------------------------===//
// What is looked at
//===----------------------------------------------------------------------===//

/// Calls `look` with the bounds, in bytes, of what is looked at, until it
/// fails. Depends on the size only, so that the hash of a file is the same
/// everywhere. Blocks begin at whole tokens, and at multiples of eight, so that
/// checkWidth() sees them from an even one. The 128 bits hold a size times a
/// number of blocks.
template <typename Look> Status TokenFile::forEachBlock(Look look) const {
  const uint64_t size = bytes().size();
  if (size <= fully)
    return look(uint64_t(0), size);
  // From the first block to the last, whole tokens and not every other one.
  const uint64_t room = size - blockBytes;
  for (uint64_t i = 0; i < blocks; ++i) {
    auto exact = static_cast<unsigned __int128>(room) * i;
    auto begin = static_cast<uint64_t>(exact / (blocks - 1));
    begin -= begin % (uint64_t(8) * type.bytes);
    PLAIT_RETURN_IF_ERROR(look(begin, begin + blockBytes));
    // The system may have mapped much around the block.
    if (const auto *mapped = std::get_if<MappedFile>(&storage))
      mapped->release();
  }
  return Status::success();
}

/// Finds the first bad token and says what it is; bounds are bytes.
Status TokenFile::checkTokens(uint64_t begin, uint64_t end) const {
  const uint8_t *data = bytes().data();
  std::optional<uint64_t> bad = withType(type, [&](auto kind) {
    using Int = decltype(kind);
    for (uint64_t at = begin; at < end; at += sizeof(Int))
      if (!isIn(load<Int>(data + at), vocabulary))
        return std::optional(at);
    return std::optional<uint64_t>();
  });
  if (!bad)
    return Status::success();
  int64_t token = withType(
      type, [&](auto kind) { return load<decltype(kind)>(data + *bad); });
  return fail("'", path, "': token ", *bad / type.bytes, " is ", token,
              ", the vocabulary has ", vocabulary);
}

/// One pass for hash and vocabulary, as each block is fetched from disk once.
Status TokenFile::inspect() {
  if (bytes().size() % type.bytes)
    return fail("'", path, "' has ", bytes().size(),
                " bytes, not a multiple of ", type.bytes,
                ", the size of a token");
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  PLAIT_RETURN_IF_ERROR(forEachBlock([&](uint64_t begin, uint64_t end) {
    XXH3_64bits_update(&state, bytes().data() + begin, end - begin);
    return checkTokens(begin, end);
  }));
  contentHash = XXH3_64bits_digest(&state);
  return Status::success();
}

/// Fails where the tokens look like halves or quarters of wider ones: ids that
/// fit into the narrow type are followed by zeros. Other data can look so, too;
/// then --token-type says that it is meant. A few tokens may be such by chance,
/// and an odd number of them are halves of nothing.
Status TokenFile::checkWidth() const {
  constexpr uint64_t few = 8;
  if (size() < few || size() % 2)
    return Status::success();
  bool isTwice = true, isFourTimes = true, isZero = true;
  auto look = [&](uint64_t begin, uint64_t end) {
    for (uint64_t at = begin; at < end; at += type.bytes) {
      bool isSet = withType(type, [&](auto kind) {
        return load<decltype(kind)>(bytes().data() + at) != 0;
      });
      isZero &= !isSet;
      isTwice &= !isSet || at / type.bytes % 2 == 0;
      isFourTimes &= !isSet || at / type.bytes % 4 == 0;
    }
    return Status::success();
  };
  PLAIT_RETURN_IF_ERROR(forEachBlock(look));
  if (!isTwice || isZero)
    return Status::success();
  unsigned likely = std::min((isFourTimes ? 4 : 2) * type.bytes, 8u);
  const char *name = likely == 8 ? "int64" : "int32";
  return fail("'", path, "' looks like ", name, ": as ", type.name,
              " every other token is 0; say with `token-type` what it is");
}

//===----------------------------------------------------------------------===//
// Opening
//===----------------------------------------------------------------------===//

/// Existence only.
static bool isFile(const std::string &path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

/// Returns what the files of an indexed data set begin with, where `path` names
/// one.
static std::optional<std::string> findIndexed(const std::string &path) {
  for (std::string_view end : {".bin", ".idx"})
    if (path.ends_with(end)) {
      std::string prefix = path.substr(0, path.size() - end.size());
      return isFile(prefix + ".idx") ? std::optional(prefix) : std::nullopt;
    }
  return !isFile(path) && isFile(path + ".idx") ? std::optional(path)
                                                : std::nullopt;
}

/// An index beside a file goes before the name: a `.bin` without one is raw.
Result<TokenFile> TokenFile::open(const std::string &path,
                                  const std::string &type,
                                  uint64_t vocabulary) {
  if (std::optional<std::string> prefix = findIndexed(path))
    return openIndexed(*prefix, type, vocabulary);
  return openRaw(path, type, vocabulary);
}

/// Asked where nobody has said what a raw file is.
Status TokenFile::checkLooks() const {
  return looksLikeText(bytes())
             ? fail("'", path,
                    "' looks like text: plait-data makes tokens of it, "
                    "`text` reads its bytes; say with `token-type` what it is")
             : Status::success();
}

/// 1. A file with a header says its type; an option that says another one is a
///    mistake.
/// 2. A raw one has the type that is meant, or the likely one by the
///    vocabulary, unless it looks like text: its bytes are often too many for a
///    token, or beyond the vocabulary, and that would say less.
/// 3. Inspected; a likely type is then held against what the tokens look like.
Result<TokenFile> TokenFile::openRaw(const std::string &path,
                                     const std::string &type,
                                     uint64_t vocabulary) {
  Result<MappedFile> mapped = MappedFile::open(path, "tokens");
  if (!mapped.ok())
    return mapped.status();
  // 1. Headers.
  Result<std::optional<TokenHeader>> header = readTokenHeader(mapped->bytes());
  if (!header.ok())
    return fail("'", path, "' ", header.status().message());
  if (const std::optional<TokenHeader> &shard = *header) {
    if (!type.empty() && type != shard->type.name)
      return fail("'", path, "' says that tokens are ", shard->type.name,
                  ", `token-type` says ", type);
    TokenFile file(path, std::move(*mapped), shard->type, vocabulary,
                   shard->begin);
    PLAIT_RETURN_IF_ERROR(file.inspect());
    return file;
  }
  // 2. Types.
  constexpr uint64_t shortVocabulary = 65536;
  const char *likely = vocabulary <= shortVocabulary ? "uint16" : "int32";
  Result<TokenType> found = findTokenType(type.empty() ? likely : type);
  if (!found.ok())
    return found.status();
  TokenFile file(path, std::move(*mapped), *found, vocabulary);
  if (type.empty())
    PLAIT_RETURN_IF_ERROR(file.checkLooks());
  // 3. What it has.
  PLAIT_RETURN_IF_ERROR(file.inspect());
  if (type.empty())
    PLAIT_RETURN_IF_ERROR(file.checkWidth());
  return file;
}

/// The index knows the type; an option that says another one is a mistake.
Result<TokenFile> TokenFile::openIndexed(const std::string &prefix,
                                         const std::string &type,
                                         uint64_t vocabulary) {
  const std::string path = prefix + ".bin";
  Result<MappedFile> mapped = MappedFile::open(path, "tokens");
  if (!mapped.ok())
    return mapped.status();
  Result<TokenType> found =
      readMegatronIndex(prefix + ".idx", path, mapped->bytes().size());
  if (!found.ok())
    return found.status();
  if (!type.empty() && type != found->name)
    return fail("'", prefix, ".idx' says that tokens are ", found->name,
                ", `token-type` says ", type);
  TokenFile file(path, std::move(*mapped), *found, vocabulary);
  PLAIT_RETURN_IF_ERROR(file.inspect());
  return file;
}

/// A vocabulary of less than 256 tokens may make texts fail.
Result<TokenFile> TokenFile::openText(const std::string &path,
                                      uint64_t vocabulary) {
  Result<MappedFile> mapped = MappedFile::open(path, "text");
  if (!mapped.ok())
    return mapped.status();
  TokenFile file(path, std::move(*mapped), {"uint8", 1, false}, vocabulary);
  PLAIT_RETURN_IF_ERROR(file.inspect());
  return file;
}

Result<TokenFile> TokenFile::openRows(const std::string &path) {
  Result<MappedFile> mapped = MappedFile::open(path, "rows");
  if (!mapped.ok())
    return mapped.status();
  TokenFile file(path, std::move(*mapped), {"uint32", 4, false}, anyWord);
  PLAIT_RETURN_IF_ERROR(file.inspect());
  return file;
}

/// Not inspected: tokens come from this program.
TokenFile TokenFile::fromMemory(std::vector<uint32_t> tokens,
                                uint64_t vocabulary) {
  return TokenFile("random tokens", std::move(tokens), {"uint32", 4, false},
                   vocabulary);
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Mapped, or of this program.
std::span<const uint8_t> TokenFile::bytes() const {
  if (const auto *mapped = std::get_if<MappedFile>(&storage))
    return mapped->bytes().subspan(begin);
  const auto &tokens = std::get<std::vector<uint32_t>>(storage);
  return {reinterpret_cast<const uint8_t *>(tokens.data()),
          tokens.size() * sizeof(uint32_t)};
}

/// Checks while it copies, in one loop without an early exit that compilers can
/// vectorise; only a failure looks again, for the message.
Status TokenFile::read(uint64_t position, std::span<int32_t> target) const {
  const uint64_t begin = position * type.bytes;
  bool areIn = withType(type, [&](auto kind) {
    using Int = decltype(kind);
    const uint8_t *source = bytes().data() + begin;
    bool all = true;
    for (size_t i = 0; i < target.size(); ++i) {
      int64_t token = load<Int>(source + i * sizeof(Int));
      all &= isIn(token, vocabulary);
      target[i] = static_cast<int32_t>(token);
    }
    return all;
  });
  return areIn ? Status::success()
               : checkTokens(begin, begin + target.size() * type.bytes);
}

void TokenFile::prefetch(uint64_t position, uint64_t count) const {
  if (const auto *mapped = std::get_if<MappedFile>(&storage))
    mapped->prefetch(begin + position * type.bytes, count * type.bytes);
}
