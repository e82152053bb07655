//===- MegatronIndex.cpp - The index of Megatron's data sets --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The format is described in TokenFile.h. It is that of
// megatron/core/datasets/indexed_dataset.py of NVIDIA's Megatron-LM.
//
// The index is mapped and read once, from front to back, to check that it fits
// the tokens to the byte. None of it is kept but the type of the tokens:
// samples are cut from the tokens as one row, and document ends are tokens.
// Numbers are little-endian and lie at any offset, so that they are copied out.
//
//===----------------------------------------------------------------------===//

#include "MegatronIndex.h"

#include <cstring>

using namespace plait;
using namespace plait::runtime;

namespace {

constexpr std::string_view magic("MMIDIDX\0\0", 9);
/// Magic, version (8 bytes), type (1), sequences (8), bounds of documents (8).
constexpr uint64_t headerBytes = magic.size() + 8 + 1 + 8 + 8;

/// The types by code, from 1; those without bytes are no integers.
constexpr TokenType types[] = {{"uint8", 1, false},  {"int8", 1, true},
                               {"int16", 2, true},   {"int32", 4, true},
                               {"int64", 8, true},   {"float64", 0, true},
                               {"float32", 0, true}, {"uint16", 2, false}};

/// Header, then int32 lengths of the sequences, int64 offsets of them, int64
/// bounds of documents; in data sets of several modes a byte for each sequence,
/// which is not read.
class Index {
public:
  Index(const std::string &path, const MappedFile &file)
      : path(path), file(file), bytes(file.bytes()) {}

  Status readHeader();
  Status checkSequences(const std::string &tokens, uint64_t tokenBytes) const;
  Status checkDocuments() const;
  TokenType tokenType() const { return type; }

private:
  template <typename Int> Int load(uint64_t offset) const {
    Int value;
    std::memcpy(&value, bytes.data() + offset, sizeof(Int));
    return value;
  }
  Status readType(uint8_t code);
  Status checkSize() const;

  /// Keeps no more than a few MiB of what has been read.
  void release(uint64_t entry) const {
    if (entry % (uint64_t(1) << 20) == 0)
      file.release();
  }

  const std::string &path;
  const MappedFile &file;
  std::span<const uint8_t> bytes;
  TokenType type = {};
  uint64_t sequences = 0, bounds = 0;
};

/// Everything else relies on checkSize(), which it ends with: from there on
/// every entry lies in the file.
Status Index::readHeader() {
  if (bytes.size() < headerBytes)
    return fail("index '", path, "' has ", bytes.size(),
                " bytes, its header needs ", headerBytes);
  if (std::memcmp(bytes.data(), magic.data(), magic.size()) != 0)
    return fail("'", path,
                "' does not begin with MMIDIDX, as Megatron's "
                "indexes do");
  if (auto version = load<uint64_t>(9); version != 1)
    return fail("index '", path, "' has version ", version, ", expected 1");
  PLAIT_RETURN_IF_ERROR(readType(bytes[17]));
  sequences = load<uint64_t>(18);
  bounds = load<uint64_t>(26);
  return checkSize();
}

/// Floats are listed for the message only.
Status Index::readType(uint8_t code) {
  if (code < 1 || code > std::size(types))
    return fail("index '", path, "' has the token type ", unsigned(code),
                ", expected 1 to ", std::size(types));
  type = types[code - 1];
  return type.bytes ? Status::success()
                    : fail("index '", path, "' says that tokens are ",
                           type.name, ", expected integers");
}

/// Exactly as long as the counts say, with or without the bytes of modes: a
/// longer file is of another format.
Status Index::checkSize() const {
  // In 128 bits: counts may be anything.
  auto wide = [](uint64_t value) { return static_cast<__int128>(value); };
  __int128 least = headerBytes + 12 * wide(sequences) + 8 * wide(bounds);
  if (wide(bytes.size()) < least)
    return fail("index '", path, "' has ", bytes.size(), " bytes, too few for ",
                sequences, " sequences and ", bounds, " bounds of documents");
  if (wide(bytes.size()) != least &&
      wide(bytes.size()) != least + wide(sequences))
    return fail("index '", path, "' has ", bytes.size(), " bytes, ", sequences,
                " sequences and ", bounds, " bounds of documents need ",
                uint64_t(least));
  return Status::success();
}

/// Sequences must tile the tokens without gaps: an index of another file, or of
/// a file that was cut, does not.
Status Index::checkSequences(const std::string &tokens,
                             uint64_t tokenBytes) const {
  const uint64_t offsets = headerBytes + 4 * sequences;
  uint64_t end = 0;
  for (uint64_t i = 0; i < sequences; ++i) {
    release(i);
    // Lengths and offsets are two arrays; both have to tell the same.
    auto length = load<int32_t>(headerBytes + 4 * i);
    auto offset = load<int64_t>(offsets + 8 * i);
    if (length < 0)
      return fail("index '", path, "': sequence ", i, " has ", length,
                  " tokens");
    if (offset < 0 || uint64_t(offset) != end)
      return fail("index '", path, "': sequence ", i, " begins at byte ",
                  offset, ", the one before it ends at ", end);
    end += uint64_t(length) * type.bytes;
    if (end > tokenBytes)
      return fail("index '", path, "': sequence ", i, " ends at byte ", end,
                  ", '", tokens, "' has ", tokenBytes);
  }
  if (end != tokenBytes)
    return fail("index '", path, "': the last sequence ends at byte ", end,
                ", '", tokens, "' has ", tokenBytes);
  return Status::success();
}

/// Bounds ascend from 0 to the number of sequences; a document may be empty.
Status Index::checkDocuments() const {
  const uint64_t begin = headerBytes + 12 * sequences;
  uint64_t last = 0;
  for (uint64_t i = 0; i < bounds; ++i) {
    release(i);
    auto bound = load<int64_t>(begin + 8 * i);
    if (bound < 0 || uint64_t(bound) < last || uint64_t(bound) > sequences ||
        (i == 0 && bound != 0))
      return fail("index '", path, "': document ", i, " begins with sequence ",
                  bound, " of ", sequences, ", the one before it with ", last);
    last = uint64_t(bound);
  }
  if (last != sequences)
    return fail("index '", path, "': the documents end with sequence ", last,
                " of ", sequences);
  return Status::success();
}

} // namespace

/// Linear in the entries, with a few MiB of pages at a time.
Result<TokenType> runtime::readMegatronIndex(const std::string &path,
                                             const std::string &tokens,
                                             uint64_t tokenBytes) {
  Result<MappedFile> mapped = MappedFile::open(path, "index");
  if (!mapped.ok())
    return mapped.status();
  Index index(path, *mapped);
  PLAIT_RETURN_IF_ERROR(index.readHeader());
  PLAIT_RETURN_IF_ERROR(index.checkSequences(tokens, tokenBytes));
  PLAIT_RETURN_IF_ERROR(index.checkDocuments());
  return index.tokenType();
}
