//===- Sites.cpp - Lists of actions, and where weights are ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What compiler, checker and runtime ask of a plan with sites.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Sites.h"

#include "plait/Plan/Defaults.h"
#include "plait/Plan/Ranks.h"

#include <sstream>

using namespace plait;
using namespace plait::plan;

/// A plan without lists has the step alone.
uint32_t plan::everyOf(const fb::Plan &plan, const fb::Action &action) {
  return action.list() < length(plan.lists())
             ? plan.lists()->Get(action.list())->every()
             : 1;
}

std::string plan::describeOuter(const fb::Plan &plan) {
  const fb::OuterRule &rule = *plan.outer();
  std::ostringstream text;
  text << rule.scheme()->string_view() << ":" << rule.every();
  if (rule.rate() > 0)
    text << ",rate=" << rule.rate() << ",momentum=" << rule.momentum();
  return text.str();
}

/// Masters of bf16 copies are divided as the optimizer's state is, other
/// weights are whole.
ElementRange plan::weightRange(const fb::Plan &plan, const fb::Shard &shard) {
  bool isMaster = shard.compute_dtype() == fb::DType::BF16;
  if (isMaster && shard.division())
    return {shard.weight(), shard.division()->elements()};
  const fb::Parameter &parameter = *plan.parameters()->Get(shard.parameter());
  int64_t elements = countElements(RankGrid(plan), *parameter.shape(),
                                   dimsOf(shard, /*isDivided=*/isMaster));
  return {shard.weight(), uint64_t(elements)};
}

/// The copies of what is divided are made when the next step begins.
bool plan::roundsWeight(const fb::Shard &shard) {
  return shard.compute_dtype() == fb::DType::BF16 && !shard.division() &&
         !shard.state_dims();
}
