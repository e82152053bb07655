//===- DescribeProblem.cpp - The sharding problem as data -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Writes a solved ShardingProblem down: its variables in words, the tables as
// they were added, and the answer. Of layers that are alike the first gives its
// names to the variables that they share.
//
//===----------------------------------------------------------------------===//

#include "ShardingProblem.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace plait;
namespace json = llvm::json;

std::string ShardingProblem::describeFactor(const FactorRule &rule,
                                            int factor) {
  if (factor == kNone)
    return "nothing";
  const Factor &own = rule.factors[factor];
  return llvm::formatv("{0} ({1})", own.name, own.size);
}

std::string ShardingProblem::describeState(int state) {
  if (state == kNone)
    return "whole";
  if (state == kPartial)
    return "whole, its gradient a partial sum";
  return llvm::formatv("dimension {0}", state);
}

/// An op by its name in the model, too, where it has one.
json::Value ShardingProblem::describeVariable(ShardableOpInterface op,
                                              const Variable &variable) const {
  FactorRule rule = op.getFactorRule();
  json::Array choices;
  for (int choice : variable.choices)
    choices.push_back(describeFactor(rule, choice));
  json::Object object{{"splits", op->getName().getStringRef()},
                      {"choices", std::move(choices)}};
  if (StringAttr origin = findOrigin(op->getLoc()))
    object["origin"] = origin.getValue();
  return object;
}

json::Value ShardingProblem::describeVariable(Value value,
                                              const Variable &variable) const {
  json::Array choices;
  for (int choice : variable.choices)
    choices.push_back(describeState(choice));
  std::string name;
  if (auto argument = dyn_cast<BlockArgument>(value))
    name = llvm::formatv("argument {0}", argument.getArgNumber());
  else if (auto read = dyn_cast<SlotOpInterface>(value.getDefiningOp()))
    name = llvm::formatv("@{0}", read.getSymbolAttr().getValue());
  else
    name = llvm::formatv("result {0} of {1}",
                         cast<OpResult>(value).getResultNumber(),
                         value.getDefiningOp()->getName());
  return json::Object{{"lies", name}, {"choices", std::move(choices)}};
}

json::Value ShardingProblem::toJson() const {
  // The maps are by address: only what a variable's number is filled with is
  // in an order.
  std::vector<json::Value> variables(solution.size(), nullptr);
  for (auto [op, variable] : opVariables)
    variables[variable.id] =
        describeVariable(cast<ShardableOpInterface>(op), variable);
  for (auto [value, variable] : valueVariables)
    variables[variable.id] = describeVariable(value, variable);
  json::Array costs;
  for (const CostNetwork::Table &table : network.getTables()) {
    json::Array entries;
    for (double cost : table.costs)
      entries.push_back(cost < kImpossible ? json::Value(cost) : nullptr);
    costs.push_back(json::Object{{"variables", json::Array(table.scope)},
                                 {"seconds", std::move(entries)}});
  }
  return json::Object{{"axis", axis.getValue()},
                      {"ranks", blocks},
                      {"variables", json::Array(variables)},
                      {"costs", std::move(costs)},
                      {"solution", json::Array(solution)},
                      {"seconds", seconds}};
}
