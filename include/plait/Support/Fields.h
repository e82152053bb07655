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

/// Returns whether `text` is what stands in backquotes for an option: words of
/// small letters, digits and hyphens, the last of which is its name. One before
/// it is the program whose option it is: "plait-run check".
inline bool isFieldName(std::string_view text) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789- ";
  return !text.empty() && text.front() >= 'a' && text.front() <= 'z' &&
         text.find_first_not_of(letters) == text.npos && text.back() != ' ';
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
    size_t space = name.rfind(' ') + 1; // 0: no program
    spelt.append(name.substr(0, space)).append(prefix);
    spelt += name.substr(space);
    text.remove_prefix(end + 1);
  }
}

} // namespace plait

#endif // PLAIT_SUPPORT_FIELDS_H
