//===- FactorClasses.cpp - Dimensions that move together ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Union-find over (value, dimension). Which dimensions belong together is the
// ops' own knowledge: no op is named here.
//
//===----------------------------------------------------------------------===//

#include "plait/Analysis/FactorClasses.h"

using namespace mlir;
using namespace plait;

/// Union-find with path halving (Tarjan and van Leeuwen 1984).
int FactorClasses::root(int node) {
  while (parents[node] != node)
    node = parents[node] = parents[parents[node]];
  return node;
}

/// Nodes are made on demand: a dimension that no op relates to another one is a
/// class of its own.
int FactorClasses::find(Value value, int64_t dim) {
  auto [it, isNew] = nodes.try_emplace({value, dim}, parents.size());
  if (isNew)
    parents.push_back(it->second);
  return root(it->second);
}

/// The class of any dimension that moves with `factor`: they are all one. Of
/// the results first: operands may have been resharded.
int FactorClasses::findFactor(ShardableOpInterface op, const FactorRule &rule,
                              int factor) {
  auto search = [&](ValueRange values,
                    ArrayRef<FactorRule::DimFactors> tensors) {
    for (auto [value, dims] : llvm::zip_equal(values, tensors))
      for (auto [dim, along] : llvm::enumerate(dims))
        if (along == factor)
          return find(value, dim);
    return -1;
  };
  int found = search(op->getResults(), rule.results);
  return found >= 0 ? found : search(op->getOperands(), rule.operands);
}

/// Joins each dimension with the first that runs along the same factor. Without
/// ranks in the union the trees could become deep; path halving keeps the cost
/// of a find near constant all the same.
void FactorClasses::add(ShardableOpInterface op, const FactorRule &rule,
                        bool reordered) {
  SmallVector<int> first(rule.factors.size(), -1);
  auto join = [&](ValueRange values, ArrayRef<FactorRule::DimFactors> tensors) {
    for (auto [value, dims] : llvm::zip_equal(values, tensors))
      for (auto [dim, factor] : llvm::enumerate(dims)) {
        if (factor == FactorRule::kNone ||
            (reordered && rule.factors[factor].inOrder))
          continue;
        int node = find(value, dim);
        if (first[factor] < 0)
          first[factor] = node;
        else
          parents[node] = root(first[factor]);
      }
  };
  join(op->getOperands(), rule.operands);
  join(op->getResults(), rule.results);
}
