//===- StepParts.cpp - A step in several recordings -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/StepParts.h"

#include "plait/Plan/Defaults.h"

#include <algorithm>

using namespace plait;
using namespace plait::plan;

/// Walks the actions with the buffers that are being received into: each until
/// the first call that is bound to a byte of it.
static std::vector<uint32_t> findCuts(const fb::Program &program,
                                      uint32_t most) {
  std::vector<uint32_t> cuts;
  std::vector<std::pair<uint64_t, uint64_t>> pending;
  uint64_t operations = 0; // of the part
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    if (operations >= most && pending.empty()) {
      cuts.push_back(i);
      operations = 0;
    }
    if (action.kind() == fb::ActionKind::Recv)
      pending.emplace_back(action.buffer(), action.buffer() + action.bytes());
    if (isTransfer(action)) {
      ++operations;
      continue;
    }
    for (uint32_t s = 0; s < length(action.bindings()); ++s)
      std::erase_if(pending, [&](const auto &range) {
        uint64_t base = action.bindings()->Get(s);
        return range.first <= base && base < range.second;
      });
    operations += length(program.functions()->Get(action.function())->steps());
  }
  return cuts;
}

/// Whether a step that ends without cuts does so with them. One launch order is
/// not looked at where the plan needs the other.
static bool endsAlike(const fb::Plan &plan,
                      const std::vector<Message> &messages,
                      const StepCuts &cuts) {
  for (LaunchOrder order : {LaunchOrder::Routes, LaunchOrder::Serial})
    if (!findCircle(plan, messages, order, cuts).empty() &&
        findCircle(plan, messages, order, {}).empty())
      return false;
  return true;
}

/// Tries all cuts at once, which mostly works; else program after program those
/// that go with the ones before.
StepCuts plan::cutSteps(const fb::Plan &plan,
                        const std::vector<Message> &messages, uint32_t most) {
  StepCuts cuts;
  for (const fb::Program *program : *plan.programs())
    cuts.push_back(findCuts(*program, most));
  if (endsAlike(plan, messages, cuts))
    return cuts;
  StepCuts kept(cuts.size());
  for (size_t i = 0; i < cuts.size(); ++i) {
    kept[i] = cuts[i];
    if (!cuts[i].empty() && !endsAlike(plan, messages, kept))
      kept[i].clear();
  }
  return kept;
}
