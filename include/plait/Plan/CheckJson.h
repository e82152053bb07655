//===- CheckJson.h - Whether a text is JSON that plait reads ----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Leaves out the JSON library's header, which needs exceptions: the compiler,
// which is built without, parses by LLVM's and checks here before.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_CHECKJSON_H
#define PLAIT_PLAN_CHECKJSON_H

#include "plait/Support/Status.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace plait {

/// Deeper than any file is meant to be.
inline constexpr int kDeepestJson = 64;

/// Fails as parseJson() does (plait/Plan/Json.h).
Status checkJson(std::span<const uint8_t> text, int deepest = kDeepestJson);

/// The failure of the library's parser, with its reason, behind `read` bytes.
Status describeJsonError(std::span<const uint8_t> text, size_t read,
                         std::string_view reason);

} // namespace plait

#endif // PLAIT_PLAN_CHECKJSON_H
