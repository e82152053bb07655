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
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

/// How many letters have to be added, left out, replaced or exchanged with
/// their neighbour.
inline size_t countEdits(std::string_view from, std::string_view to) {
  std::vector<std::vector<size_t>> edits(from.size() + 1,
                                         std::vector<size_t>(to.size() + 1));
  for (size_t i = 0; i <= from.size(); ++i)
    for (size_t j = 0; j <= to.size(); ++j) {
      size_t &least = edits[i][j] = i + j;
      if (i == 0 || j == 0)
        continue;
      least = std::min({edits[i - 1][j] + 1, edits[i][j - 1] + 1,
                        edits[i - 1][j - 1] + (from[i - 1] != to[j - 1])});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] &&
          from[i - 2] == to[j - 1])
        least = std::min(least, edits[i - 2][j - 2] + 1);
    }
  return edits[from.size()][to.size()];
}

/// The choice that `word` is most like, or that it begins; empty: none is near.
/// Of short words a letter in three may be wrong, of longer ones two, or a
/// letter in four: any other word of two letters would be near.
inline std::string suggest(std::string_view word,
                           const std::vector<std::string> &choices) {
  constexpr size_t longest = 60; // longer words are no slip
  if (word.empty() || word.size() > longest)
    return "";
  size_t least =
      std::min(word.size() / 3, std::max<size_t>(2, word.size() / 4)) + 1;
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

/// The row of a table that is called `name`, or that failure.
template <typename Row>
Result<const Row *> findNamed(std::string_view kind, std::string_view name,
                              std::span<const Row> rows) {
  std::vector<std::string> names;
  for (const Row &row : rows) {
    if (row.name == name)
      return &row;
    names.emplace_back(row.name);
  }
  return failUnknown(kind, name, names);
}

} // namespace plait

#endif // PLAIT_SUPPORT_SUGGEST_H
