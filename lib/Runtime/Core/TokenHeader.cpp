//===- TokenHeader.cpp - What files of tokens begin with ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Any bytes are tokens to a large enough vocabulary, so that a file that is
// something else would train without a word. Formats are told by what their
// files begin with, of which each is at least three bytes long: the chance that
// tokens begin so is small, and for most of them none.
//
//===----------------------------------------------------------------------===//

#include "TokenHeader.h"

#include <algorithm>
#include <cstring>
#include <string_view>

using namespace plait;
using namespace plait::runtime;
using namespace std::string_view_literals;

namespace {

struct Format {
  std::string_view begin, name;
};

constexpr Format formats[] = {
    {"\x93NUMPY"sv, "a NumPy file with a header; tokens are raw, as numpy's "
                    "tofile writes them"sv},
    {"\x7f"
     "ELF"sv,
     "a program or library"sv},
    {"\x1f\x8b\x08"sv, "a gzip file"sv},
    {"\x28\xb5\x2f\xfd"sv, "a zstd file"sv},
    {"\xfd"
     "7zXZ"sv,
     "an xz file"sv},
    {"BZh91AY&SY"sv, "a bzip2 file"sv},
    {"\x04\x22\x4d\x18"sv, "an lz4 file"sv},
    {"PK\x03\x04"sv, "a zip file, such as PyTorch and NumPy (.npz) write"sv},
    {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46"sv, "a PyTorch file"sv},
    {"\x89HDF\r\n"sv, "an HDF5 file"sv},
    {"PAR1"sv, "a Parquet file; plait-data makes tokens of it"sv},
    {"ARROW1"sv, "an Arrow file"sv},
    {"GGUF"sv, "a GGUF file"sv},
    {"MMIDIDX"sv, "an index of Megatron, whose name should end with .idx"sv},
    {"PLAITPLN"sv, "a plan"sv},
    {"%PDF-"sv, "a PDF file"sv},
    {"\x89PNG"sv, "an image"sv},
    {"SQLite format 3"sv, "an SQLite file"sv}};

/// A header of llm.c is 256 integers of 32 bits: what the file is, the version
/// of that, and how many tokens follow.
struct ShardFormat {
  uint32_t magic, version;
  TokenType type;
};
constexpr ShardFormat shardFormats[] = {{20240520, 1, {"uint16", 2, false}},
                                        {20240801, 7, {"uint32", 4, false}}};
constexpr uint64_t shardHeaderBytes = 1024;

struct OtherFormat {
  uint32_t magic;
  const char *name;
};
constexpr OtherFormat otherFormats[] = {
    {20240326, "a model of llm.c"},
    {20240327, "a state of llm.c"},
    {20240522, "an evaluation of llm.c, which is no list of tokens"}};

uint32_t loadWord(std::span<const uint8_t> file, size_t index) {
  uint32_t word = 0;
  if (file.size() >= 4 * (index + 1))
    std::memcpy(&word, file.data() + 4 * index, 4);
  return word;
}

/// The length of the JSON header, in 8 bytes, and its first brace.
bool isSafetensors(std::span<const uint8_t> file) {
  uint64_t length = loadWord(file, 0) | uint64_t(loadWord(file, 1)) << 32;
  return file.size() > 9 && file[8] == '{' && length >= 2 &&
         length <= file.size() - 8;
}

Status checkFormat(std::span<const uint8_t> file) {
  std::string_view text(reinterpret_cast<const char *>(file.data()),
                        file.size());
  for (const Format &format : formats)
    if (text.starts_with(format.begin))
      return fail("is ", format.name);
  // Of tar, behind the name and the owner of the first file.
  if (text.size() > 262 && text.substr(257, 5) == "ustar")
    return Status::failure("is a tar file");
  if (isSafetensors(file))
    return Status::failure("is a safetensors file");
  for (const OtherFormat &format : otherFormats)
    if (file.size() >= shardHeaderBytes && loadWord(file, 0) == format.magic)
      return fail("is ", format.name);
  return Status::success();
}

/// The size has to be that of as many tokens as the header says, to the byte.
Result<std::optional<TokenHeader>> readShard(const ShardFormat &format,
                                             std::span<const uint8_t> file) {
  std::optional<TokenHeader> header;
  uint32_t version = loadWord(file, 1);
  uint64_t count = loadWord(file, 2);
  if (file.size() < shardHeaderBytes)
    return fail("is truncated: it has ", file.size(),
                " bytes, the header of llm.c alone ", shardHeaderBytes);
  if (version != format.version)
    return fail("is a shard of llm.c of version ", version, ", expected ",
                format.version);
  uint64_t bytes = shardHeaderBytes + count * format.type.bytes;
  if (file.size() != bytes)
    return fail("has ", file.size(), " bytes, a shard of llm.c of ", count,
                " tokens of ", format.type.name, " has ", bytes);
  header = {format.type, shardHeaderBytes};
  return header;
}

} // namespace

Result<std::optional<TokenHeader>>
runtime::readTokenHeader(std::span<const uint8_t> file) {
  PLAIT_RETURN_IF_ERROR(checkFormat(file));
  for (const ShardFormat &format : shardFormats)
    if (loadWord(file, 0) == format.magic)
      return readShard(format, file);
  return std::optional<TokenHeader>();
}

/// Letters, digits, punctuation and blanks of ASCII, and bytes of other
/// letters. As tokens of two bytes, which are spread over a vocabulary, half of
/// a few hundred bytes are none of these.
bool runtime::looksLikeText(std::span<const uint8_t> file) {
  constexpr size_t least = 32, most = 4096;
  auto begin = file.first(std::min(file.size(), most));
  auto isText = [](uint8_t byte) {
    return byte >= 0x20 ? byte != 0x7f
                        : byte == '\n' || byte == '\r' || byte == '\t';
  };
  return begin.size() >= least &&
         std::all_of(begin.begin(), begin.end(), isText);
}
