//===- Eliminate.cpp - Exact minimisation of sums of small tables ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each table is a function of few variables, and the total is their sum. To
// eliminate a variable is to replace the tables that mention it by their
// minimum over it, which is a table over its neighbours; the total keeps its
// minimum. When no variable is left, a constant is: the least cost. Going back
// through the eliminations then finds the values that have it.
//
// Time and memory are those of the largest table that arises, exponential in
// the number of neighbours that a variable has when it goes. On a chain that is
// two; side branches go first.
//
//===----------------------------------------------------------------------===//

#include "Eliminate.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <limits>
#include <set>
#include <utility>

using namespace plait;

int CostNetwork::addVariable(int domain) {
  domains.push_back(domain);
  return domains.size() - 1;
}

/// Layers that are alike add costs of the same variables: they are one table,
/// so that solving does not take longer for a deeper model.
void CostNetwork::add(Table table) {
  auto [known, isNew] = tableOf.try_emplace(
      {table.scope.front(), table.scope.back()}, tables.size());
  if (isNew)
    return tables.push_back(std::move(table));
  for (auto [sum, cost] :
       llvm::zip_equal(tables[known->second].costs, table.costs))
    sum += cost;
}

void CostNetwork::addCost(int variable, llvm::function_ref<double(int)> cost) {
  Table table{{variable}, {}};
  for (int x = 0; x < domains[variable]; ++x)
    table.costs.push_back(cost(x));
  add(std::move(table));
}

/// The scope is sorted, since getRow() and eliminate() index tables by it.
void CostNetwork::addCost(int a, int b,
                          llvm::function_ref<double(int, int)> cost) {
  if (a == b)
    return addCost(a, [&](int x) { return cost(x, x); });
  Table table{{std::min(a, b), std::max(a, b)}, {}};
  for (int x = 0; x < domains[table.scope[0]]; ++x)
    for (int y = 0; y < domains[table.scope[1]]; ++y)
      table.costs.push_back(a < b ? cost(x, y) : cost(y, x));
  add(std::move(table));
}

namespace {
/// Doubles of one table, 32 MiB. What needs more is refused rather than
/// approximated: nobody could tell a choice that is not the best from one that
/// is.
constexpr size_t kLargestTable = size_t(1) << 22;
} // namespace

/// The state of one solve: the tables that are left, by variable.
struct CostNetwork::Elimination {
  llvm::ArrayRef<int> domains;
  std::vector<Table> live;
  std::vector<llvm::SmallVector<int, 8>> tablesOf; // ascending
  /// For each eliminated variable, the best value for each assignment of the
  /// neighbours that were left.
  struct Choice {
    int variable;
    llvm::SmallVector<int, 4> scope;
    std::vector<int> best;
  };
  std::vector<Choice> choices;
  double constant = 0;
  /// The choice of each variable, by its number, so that tables of other scopes
  /// are looked up without mapping; those of no interest are never read.
  llvm::SmallVector<int> assignment;

  explicit Elimination(const CostNetwork &network)
      : domains(network.domains), tablesOf(domains.size()),
        assignment(domains.size(), 0) {
    for (const Table &table : network.tables)
      add(table);
  }

  /// `tablesOf` names tables by index, so that dead ones stay where they are.
  void add(Table table) {
    for (int variable : table.scope)
      tablesOf[variable].push_back(int(live.size()));
    live.push_back(std::move(table));
  }

  /// The variables that some table has in common with `variable`, ascending.
  llvm::SmallVector<int, 4> neighbours(int variable) const {
    llvm::SmallVector<int, 4> result;
    for (int table : tablesOf[variable])
      for (int other : live[table].scope)
        if (other != variable)
          result.push_back(other);
    llvm::sort(result);
    result.erase(llvm::unique(result), result.end());
    return result;
  }

  /// What a table over `scope` takes; over nothing it is one number. Saturates:
  /// a hub with many neighbours has more than can be counted.
  size_t countEntries(llvm::ArrayRef<int> scope) const {
    size_t entries = 1;
    for (int variable : scope)
      entries = llvm::SaturatingMultiply(entries, size_t(domains[variable]));
    return entries;
  }

  /// Entries of a table that differ in one variable's value alone.
  struct Row {
    const double *first;
    size_t stride;
  };
  /// The row of `table` for the values in `assignment`, whatever `variable` has
  /// there. Row-major over the scope, the last variable fastest.
  Row getRow(const Table &table, int variable) const {
    size_t index = 0, stride = 0;
    for (int other : table.scope) {
      index *= domains[other];
      stride *= domains[other];
      if (other == variable)
        stride = 1;
      else
        index += assignment[other];
    }
    return {&table.costs[index], stride};
  }

  bool eliminate(int variable);
  bool run();
  llvm::SmallVector<int> readBack() const;
};

/// Of a sum of some thousand costs, relatively.
static constexpr double kRounding = 1e-12;

/// Replaces all tables with `variable` by one over its neighbours, of the
/// least cost that it can have beside each of their assignments. Takes time
/// for the product of all their domains with its own; false where that is too
/// much.
bool CostNetwork::Elimination::eliminate(int variable) {
  Choice choice{variable, neighbours(variable), {}};
  // Counted before anything is allocated.
  size_t entries = countEntries(choice.scope);
  if (entries > kLargestTable / domains[variable])
    return false;
  Table merged{choice.scope, {}};
  llvm::SmallVector<Row, 8> rows;
  for (size_t entry = 0; entry < entries; ++entry) {
    size_t rest = entry;
    for (int other : llvm::reverse(choice.scope)) {
      assignment[other] = rest % domains[other];
      rest /= domains[other];
    }
    rows.clear();
    for (int table : tablesOf[variable])
      rows.push_back(getRow(live[table], variable));
    double least = std::numeric_limits<double>::infinity();
    int best = 0;
    for (int x = 0; x < domains[variable]; ++x) {
      double cost = 0;
      for (const Row &row : rows)
        cost += row.first[x * row.stride];
      // Equal sums are rounded differently: the first of them stays.
      if (cost < least * (1 - kRounding)) {
        least = cost;
        best = x;
      }
    }
    merged.costs.push_back(least);
    choice.best.push_back(best);
  }
  for (int table : std::exchange(tablesOf[variable], {}))
    for (int other : live[table].scope)
      if (other != variable)
        llvm::erase(tablesOf[other], table);
  choices.push_back(std::move(choice));
  if (merged.scope.empty())
    constant += merged.costs[0];
  else
    add(std::move(merged));
  return true;
}

/// Always the variable next whose elimination makes the smallest table, the
/// first of them where several do. An elimination changes the tables of its
/// neighbours alone.
bool CostNetwork::Elimination::run() {
  std::vector<size_t> entries;
  std::set<std::pair<size_t, int>> queue;
  for (int variable = 0, e = domains.size(); variable < e; ++variable) {
    entries.push_back(countEntries(neighbours(variable)));
    queue.insert({entries.back(), variable});
  }
  // Greedy, as an order of least width is NP-hard to find (Arnborg, Corneil and
  // Proskurowski 1987); for graphs with few cycles it finds a good one.
  while (!queue.empty()) {
    int next = queue.begin()->second;
    queue.erase(queue.begin());
    if (!eliminate(next))
      return false;
    for (int other : choices.back().scope) {
      queue.erase({entries[other], other});
      entries[other] = countEntries(neighbours(other));
      queue.insert({entries[other], other});
    }
  }
  return true;
}

/// In the opposite order: all neighbours that a variable had when it went have
/// their values by then.
llvm::SmallVector<int> CostNetwork::Elimination::readBack() const {
  llvm::SmallVector<int> values(domains.size(), 0);
  for (const Choice &choice : llvm::reverse(choices)) {
    size_t index = 0;
    for (int other : choice.scope)
      index = index * domains[other] + values[other];
    values[choice.variable] = choice.best[index];
  }
  return values;
}

/// Works on a copy, so that a network can be solved again with more costs.
std::optional<llvm::SmallVector<int>> CostNetwork::solve(double &cost) const {
  Elimination elimination(*this);
  if (!elimination.run())
    return std::nullopt;
  cost = elimination.constant;
  return elimination.readBack();
}

/// Solves it all again: only remarks ask.
double CostNetwork::findCost(int variable, int value) const {
  constexpr double excluded = 1e30; // no sum of seconds
  CostNetwork fixed = *this;
  fixed.addCost(variable,
                [&](int other) { return other == value ? 0 : excluded; });
  double cost = excluded;
  fixed.solve(cost);
  return cost;
}
