//===- Metrics.cpp - Position of the metrics in a step --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Finds where the optimizer function turns from measuring to changing, by the
// bytes that its steps write: no step says so itself, and none could say it
// wrongly.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Metrics.h"

#include "plait/Plan/Defaults.h"
#include "plait/Plan/Uses.h"

#include <algorithm>

using namespace plait;
using namespace plait::plan;

bool plan::isLossName(std::string_view name) {
  constexpr size_t most = 32;
  auto isDigit = [](char c) { return c >= '0' && c <= '9'; };
  auto isLetter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && name.size() <= most && isLetter(name.front()) &&
         std::ranges::all_of(name,
                             [&](char c) { return isLetter(c) || isDigit(c); });
}

/// Half-open ranges.
static bool overlaps(const ByteRange &range, uint64_t begin, uint64_t bytes) {
  return range.begin < begin + bytes && begin < range.end;
}

/// Whether the range holds a part of what outlives the step. What is kept lives
/// over all actions, so that no other region has its bytes.
static bool isKept(const fb::Program &program, const ByteRange &range) {
  for (uint32_t i = 0; i < length(program.regions()); ++i) {
    const fb::Region &region = *program.regions()->Get(i);
    bool isState = region.category() == fb::Category::Parameters ||
                   region.category() == fb::Category::Optimizer;
    if (isState && overlaps(range, region.offset(), region.bytes()))
      return true;
  }
  return false;
}

/// Null: the program trains nothing.
static const fb::Action *findOptimizer(const fb::Program &program) {
  for (uint32_t i = 0; i < length(program.actions()); ++i)
    if (const fb::Action *action = program.actions()->Get(i);
        action->kind() == fb::ActionKind::Optimizer)
      return action;
  return nullptr;
}

/// `known` is behind the last step that writes a metric, `firstChange` is the
/// first one that writes what is kept. Writing both in one step is a failure as
/// well: it cannot be done by half.
Result<uint32_t> plan::countMetricSteps(const fb::Plan &plan,
                                        uint32_t program) {
  const fb::Program &owner = *plan.programs()->Get(program);
  const fb::Action *action = findOptimizer(owner);
  if (!action)
    return 0u;
  const auto *steps = owner.functions()->Get(action->function())->steps();
  RankGrid mesh(plan);
  // A function that changes nothing can be done as a whole.
  uint32_t known = 0, firstChange = length(steps);
  for (uint32_t i = 0; i < length(steps); ++i)
    for (const Use &use : usesOf(mesh, *steps->Get(i))) {
      if (!use.writes)
        continue;
      ByteRange range = rangeOf(owner, *action, use);
      if (overlaps(range, owner.metrics(), sizeof(float) * countMetrics(plan)))
        known = i + 1;
      if (isKept(owner, range))
        firstChange = std::min(firstChange, i);
    }
  if (firstChange < known)
    return fail("program ", program, " changes what it trains in step ",
                firstChange, " of '",
                owner.functions()->Get(action->function())->name()->str(),
                "', its metrics are known after step ", known - 1);
  return known;
}
