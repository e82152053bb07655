//===- Suggest.h - What an unknown word may have meant ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_SUGGEST_H
#define PLAIT_SUPPORT_SUGGEST_H

#include "plait/Support/Status.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plait {

/// How many letters have to be added, removed or changed (Levenshtein 1966).
inline size_t countEdits(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < to.size(); ++j) {
      size_t changed = diagonal + (from[i] != to[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, changed});
    }
  }
  return row.back();
}

/// The choice that `word` is most like, or that it begins; empty: none is near.
inline std::string suggest(std::string_view word,
                           const std::vector<std::string> &choices) {
  constexpr size_t longest = 60; // longer words are no slip
  if (word.empty() || word.size() > longest)
    return "";
  size_t least = std::max<size_t>(2, word.size() / 4) + 1;
  std::string nearest;
  for (const std::string &choice : choices)
    if (size_t edits = countEdits(word, choice); edits < least) {
      least = edits;
      nearest = choice;
    }
  for (const std::string &choice : choices)
    if (nearest.empty() && choice.starts_with(word))
      nearest = choice;
  return nearest;
}

/// The failure for a `word` that is none of `choices`, which it lists.
inline Status failUnknown(std::string_view kind, std::string_view word,
                          const std::vector<std::string> &choices) {
  std::string known, nearest = suggest(word, choices);
  for (const std::string &choice : choices)
    known += (known.empty() ? "" : ", ") + choice;
  if (!nearest.empty())
    nearest = "did you mean " + nearest + "? ";
  return fail("unknown ", kind, " '", word, "', ", nearest, "expected one of ",
              known);
}

} // namespace plait

#endif // PLAIT_SUPPORT_SUGGEST_H
