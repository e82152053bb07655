//===- Json.h - Parsing JSON with the place of an error ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_JSON_H
#define PLAIT_PLAN_JSON_H

#include "plait/Plan/CheckJson.h"

#include <nlohmann/json.hpp>

namespace plait {

/// Parses `text`. A failure goes on after the name of what is read, as in "is
/// not JSON: 3:14: …": line and column count from 1, the column in bytes. What
/// nests deeper than `deepest` is refused, since what works on nested values
/// recurses; and so is an object that has a key twice, even with the same
/// value: readers differ in which one counts. Like what is below for both types
/// of values that the library has; slow to compile, thus in one source.
template <typename Json>
Result<Json> parseJson(std::span<const uint8_t> text,
                       int deepest = kDeepestJson);

/// Parses what plait itself has printed; throws at anything else.
template <typename Json> Json parsePrintedJson(std::string_view text);

} // namespace plait

#endif // PLAIT_PLAN_JSON_H
