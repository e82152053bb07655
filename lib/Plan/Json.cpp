//===- Json.cpp - Parsing JSON with the place of an error -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Json.h"

#include <algorithm>

using namespace plait;

Status plait::checkJson(std::span<const uint8_t> text, int deepest) {
  return parseJson<nlohmann::json>(text, deepest).status();
}

/// The library's own text has the place in another form, and may quote all that
/// it has read of a string:
/// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax
/// error while parsing value - invalid literal; last read: 'x'".
Status plait::describeJsonError(std::span<const uint8_t> text, size_t read,
                                std::string_view reason) {
  read = std::min(read, text.size());
  // The byte at fault is the last one that was read.
  auto before = text.first(read > 0 ? read - 1 : 0);
  auto line = std::count(before.begin(), before.end(), uint8_t('\n'));
  auto start = std::find(before.rbegin(), before.rend(), uint8_t('\n'));
  reason = reason.substr(0, reason.find("; last read: "));
  for (std::string_view end : {": ", "] "})
    if (size_t at = reason.find(end); at != reason.npos) {
      reason.remove_prefix(at + end.size());
      break;
    }
  return fail("is not JSON: ", line + 1, ":", start - before.rbegin() + 1, ": ",
              reason);
}
