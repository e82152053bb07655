//===- Fields.h - Names of options in messages ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Messages name options in backquotes (plait/Support/Status.h). Here is what a
// command line makes of them.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_FIELDS_H
#define PLAIT_SUPPORT_FIELDS_H

#include <string>
#include <string_view>

namespace plait {

/// Returns whether `text` may be the name of an option: small letters, digits
/// and hyphens, the first a letter.
inline bool isFieldName(std::string_view text) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789-";
  return !text.empty() && text.front() >= 'a' && text.front() <= 'z' &&
         text.find_first_not_of(letters) == text.npos;
}

/// Returns `text` with `prefix` in front of each name of an option, in the
/// place of its backquotes: "`micro-batch` is 0" becomes "--micro-batch is 0".
/// Other text in backquotes, as in the name of a file, stays.
inline std::string spellFields(std::string_view text,
                               std::string_view prefix = "--") {
  std::string spelt;
  while (true) {
    size_t begin = text.find('`');
    spelt += text.substr(0, begin);
    if (begin == text.npos)
      return spelt;
    text.remove_prefix(begin + 1);
    size_t end = text.find('`');
    std::string_view name = text.substr(0, end);
    if (end == text.npos || !isFieldName(name)) {
      spelt += '`';
      continue;
    }
    spelt.append(prefix).append(name);
    text.remove_prefix(end + 1);
  }
}

} // namespace plait

#endif // PLAIT_SUPPORT_FIELDS_H
