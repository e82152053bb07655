//===- TokenHeader.h - What files of tokens begin with ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_TOKENHEADER_H
#define PLAIT_LIB_RUNTIME_CORE_TOKENHEADER_H

#include "plait/Runtime/TokenFile.h"

#include <optional>

namespace plait::runtime {

/// The contents of the header of a shard of llm.c.
struct TokenHeader {
  TokenType type;
  uint64_t begin; // of the tokens, in bytes
};

/// Reads the header of `file`; nothing where it has none, and is raw tokens for
/// all that is known. Fails where the header does not fit the file, and where
/// the file begins as those of another format do: its bytes would be read as
/// tokens. Failures go on after the name of the file.
Result<std::optional<TokenHeader>>
readTokenHeader(std::span<const uint8_t> file);

/// Whether a file begins with text, which many bytes of tokens are not.
bool looksLikeText(std::span<const uint8_t> file);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_TOKENHEADER_H
