//===- LeastSeconds.cpp - What the fastest configuration takes ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A search for one number. Runners-up, variants and layers that move are what
// search() spends most of its time on: a family has to be explored as long as
// it may be among the best eleven, and here only as long as it may be the best.
//
//===----------------------------------------------------------------------===//

#include "Search/Explore.h"
#include "plait/Planner/Search.h"

using namespace plait;
using namespace plait::planner;

Result<std::optional<double>>
planner::findLeastSeconds(WorkSource &source, const Cluster &cluster,
                          const Training &training, const SearchSpace &space,
                          const Pins &pins, double most) {
  SearchInput input{source, cluster, training, space, pins};
  Result<Choices> choices = Choices::get(space, pins, cluster, training);
  if (!choices.ok())
    return choices.status();
  Knowledge knowledge(input);
  Explorer explorer(input, *choices, knowledge, /*kept=*/1, most);
  explorer.run();
  std::vector<Leaf> found = explorer.getFamilies();
  if (found.empty() || found.front().seconds >= most)
    return std::optional<double>();
  return std::optional(found.front().seconds);
}
