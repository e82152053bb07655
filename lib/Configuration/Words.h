//===- Words.h - Words of enumerations ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How values that are words are read, and what is said of a text that is none.
// Private to lib/Configuration.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CONFIGURATION_WORDS_H
#define PLAIT_LIB_CONFIGURATION_WORDS_H

#include "plait/Configuration/Configuration.h"

#include <algorithm>

namespace plait {

/// "zero is "4", expected 0 to 3".
inline Status failParsing(std::string_view name, std::string_view text,
                          const std::string &expected) {
  return fail(name, " is \"", text, "\", expected ", expected);
}

/// Finds the index of `text` among `words`.
inline Status findWord(std::string_view name, std::string_view text,
                       std::span<const std::string_view> words, size_t &index) {
  auto found = std::find(words.begin(), words.end(), text);
  if (found == words.end())
    return failParsing(name, text, joinChoices({words.begin(), words.end()}));
  index = found - words.begin();
  return Status::success();
}

/// Finds `text` among the words of an enumeration.
template <typename Kind>
Status parseWord(std::string_view name, std::string_view text, Kind &value) {
  size_t index = 0;
  PLAIT_RETURN_IF_ERROR(findWord(name, text, getWords(value), index));
  value = Kind(index);
  return Status::success();
}

} // namespace plait

#endif // PLAIT_LIB_CONFIGURATION_WORDS_H
