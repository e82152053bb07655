//===- Eliminate.h - Exact minimisation of sums of small tables -*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Discrete variables, and costs that depend on one or two of them. The minimum
// is found by eliminating variables one by one (bucket elimination; Dechter
// 1999): exact, and fast where the graph is a chain with short side branches,
// which is what a residual network is.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_SHARDING_ELIMINATE_H
#define PLAIT_LIB_TRANSFORMS_SHARDING_ELIMINATE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>
#include <vector>

namespace plait {

class CostNetwork {
public:
  /// Adds a variable with the values 0 … domain - 1, domain >= 1.
  int addVariable(int domain);
  int getDomain(int variable) const { return domains[variable]; }

  void addCost(int variable, llvm::function_ref<double(int)> cost);
  /// For a == b, the cost of (x, x).
  void addCost(int a, int b, llvm::function_ref<double(int, int)> cost);

  /// The sum of all costs of the same variables: one for each assignment to
  /// those of the scope, row-major, the last of them fastest.
  struct Table {
    llvm::SmallVector<int, 4> scope; // ascending
    std::vector<double> costs;
  };
  /// Returns the tables in the order in which the first cost of each was added.
  llvm::ArrayRef<Table> getTables() const { return tables; }

  /// The values of least total cost (the smallest values among equals), and
  /// that cost; nothing if a table would exceed 2^22 entries.
  std::optional<llvm::SmallVector<int>> solve(double &cost) const;
  /// The least cost with this value of `variable`.
  double findCost(int variable, int value) const;

private:
  struct Elimination;
  void add(Table table);

  llvm::SmallVector<int> domains;
  std::vector<Table> tables;
  llvm::DenseMap<std::pair<int, int>, size_t> tableOf; // by scope
};

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_SHARDING_ELIMINATE_H
