//===- InputWords.h - What an input of a plan takes -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_INPUTWORDS_H
#define PLAIT_PLAN_INPUTWORDS_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Support/SortedTokens.h"

namespace plait::plan {

/// Returns how the words of a microbatch lie on a rank whose tokens are sorted.
inline SortedTokens getSortedTokens(const fb::Input &input) {
  return {int64_t(input.rows()) * input.columns(), input.sorted()};
}

/// Returns the words of 32 bits that a microbatch takes on a rank, what is
/// sorted behind tokens included.
inline uint64_t countWords(const fb::Input &input) {
  SortedTokens tokens = getSortedTokens(input);
  return tokens.entries ? tokens.getWords() : tokens.count;
}

} // namespace plait::plan

#endif // PLAIT_PLAN_INPUTWORDS_H
