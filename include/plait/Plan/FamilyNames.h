//===- FamilyNames.h - File names of plan families --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Plans of one model for several numbers of ranks: model.plan, and model-6.plan
// for 6. plaitc --also writes them, plait-run --supervise looks for them.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_FAMILYNAMES_H
#define PLAIT_PLAN_FAMILYNAMES_H

#include <charconv>
#include <cstdint>
#include <string>

namespace plait::plan {

/// Returns where the extension of `path` begins; its end where there is none.
inline size_t extensionOf(const std::string &path) {
  size_t dot = path.rfind('.'), slash = path.rfind('/');
  bool isNone =
      dot == path.npos || dot == 0 || (slash != path.npos && dot <= slash + 1);
  return isNone ? path.size() : dot;
}

/// "a/model.plan" and 6 are "a/model-6.plan".
inline std::string familyName(const std::string &path, uint32_t ranks) {
  std::string name = path;
  return name.insert(extensionOf(path), "-" + std::to_string(ranks));
}

/// Whether `name` is that of `path` for some number of ranks, and which.
inline bool isFamilyName(const std::string &path, const std::string &name,
                         uint32_t &ranks) {
  size_t stem = extensionOf(path), rest = path.size() - stem;
  if (name.size() <= stem + 1 + rest)
    return false;
  const char *begin = name.data() + stem + 1;
  const char *end = name.data() + name.size() - rest;
  auto [stop, error] = std::from_chars(begin, end, ranks);
  return error == std::errc() && stop == end && name == familyName(path, ranks);
}

} // namespace plait::plan

#endif // PLAIT_PLAN_FAMILYNAMES_H
