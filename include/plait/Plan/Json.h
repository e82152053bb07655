//===- Json.h - Parsing JSON with the place of an error ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_JSON_H
#define PLAIT_PLAN_JSON_H

#include "plait/Support/Status.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

namespace plait {

/// Parses `text`. A failure goes on after the name of what is read, as in "is
/// not JSON: 3:14: …": line and column count from 1, the column in bytes. What
/// nests deeper than `deepest` is refused: what works on nested values
/// recurses.
template <typename Json>
Result<Json> parseJson(std::span<const uint8_t> text, int deepest = 64) {
  bool tooDeep = false;
  auto watchDepth = [&](int depth, typename Json::parse_event_t, Json &) {
    tooDeep |= depth > deepest;
    return depth <= deepest;
  };
  try {
    Json json = Json::parse(text.begin(), text.end(), watchDepth);
    if (tooDeep)
      return fail("nests deeper than ", deepest, " levels");
    return json;
  } catch (const typename Json::exception &error) {
    if (tooDeep)
      return fail("nests deeper than ", deepest, " levels");
    // Where it is known: the byte after the last one read.
    size_t read = text.size();
    if (const auto *at =
            dynamic_cast<const typename Json::parse_error *>(&error))
      read = std::min(at->byte, text.size());
    auto before = text.first(read > 0 ? read - 1 : 0);
    auto line = std::count(before.begin(), before.end(), uint8_t('\n'));
    auto start = std::find(before.rbegin(), before.rend(), uint8_t('\n'));
    std::string reason = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: …"
    if (size_t colon = reason.find(": "); colon != std::string::npos)
      reason = reason.substr(colon + 2);
    return fail("is not JSON: ", line + 1, ":", start - before.rbegin() + 1,
                ": ", reason);
  }
}

} // namespace plait

#endif // PLAIT_PLAN_JSON_H
