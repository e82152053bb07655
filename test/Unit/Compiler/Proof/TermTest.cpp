//===- TermTest.cpp - The normal form of expressions ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Term.h"

#include "gtest/gtest.h"

using namespace plait::proof;

// One summand by itself is what it is as two halves, which are added up.
TEST(Terms, SumOfOneTermIsThatOfItsHalves) {
  Terms terms;
  const Term *leaf = terms.leaf("a", {4, 4});
  Expression twice = terms.sum(Argument{leaf, {0, 1}, 2});
  for (const Term *term : {leaf, twice.term, terms.sum({}).term})
    for (const Letters &given : {Letters{0, 1}, {2, 5}, {5, 2}, {3, 3}}) {
      Letters letters(given.begin(), given.begin() + term->shape.size());
      Expression one = terms.sum(Argument{term, letters, 1});
      Argument half{term, letters, 0.5};
      Expression both = terms.sum({half, half});
      EXPECT_EQ(one.term, both.term);
      EXPECT_EQ(one.letters, both.letters);
    }
}

TEST(Terms, SumOfOneTermMayBeAnother) {
  Terms terms;
  const Term *leaf = terms.leaf("a", {4, 4});
  EXPECT_EQ(terms.sum(Argument{leaf, {2, 5}}).term, leaf);
  // Transposed, its diagonal, and a multiple.
  EXPECT_NE(terms.sum(Argument{leaf, {5, 2}}).term, leaf);
  EXPECT_NE(terms.sum(Argument{leaf, {3, 3}}).term, leaf);
  EXPECT_NE(terms.sum(Argument{leaf, {2, 5}, 2}).term, leaf);
}
