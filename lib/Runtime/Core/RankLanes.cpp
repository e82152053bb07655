//===- RankLanes.cpp - The lanes of a rank's operations -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RankLanes.h"

#include "plait/Plan/Messages.h"
#include "plait/Plan/Uses.h"

#include <algorithm>

using namespace plait;
using namespace plait::runtime;
using plan::length;

namespace {

/// Adds a program's operations, with slots resolved.
class Scheduler {
public:
  Scheduler(const fb::Program &program, const plan::Mesh &mesh,
            const LaneChoice &choice)
      : program(program), choice(choice), planner(choice.lanes()) {
    for (uint32_t i = 0; i < length(program.functions()); ++i) {
      auto &uses = usesOfFunctions.emplace_back();
      const auto *steps = program.functions()->Get(i)->steps();
      for (uint32_t j = 0; j < length(steps); ++j)
        uses.push_back(plan::usesOf(mesh, *steps->Get(j)));
    }
  }

  LaneSchedule run() {
    for (uint32_t i = 0; i < length(program.actions()); ++i)
      add(i, *program.actions()->Get(i));
    return planner.finish();
  }

private:
  void add(uint32_t index, const fb::Action &action) {
    ByteRange buffer = {action.buffer(), action.buffer() + action.bytes(),
                        action.kind() == fb::ActionKind::Recv};
    switch (action.kind()) {
    case fb::ActionKind::Send:
    case fb::ActionKind::Recv:
      return planner.add(choice.transfers[index], std::span(&buffer, 1));
    case fb::ActionKind::WaitSend:
      // Until here another rank may read the buffer.
      return planner.add(choice.transfers[index],
                         std::span(&buffer, choice.sendsInLane ? 0 : 1));
    default:
      addCall(action);
    }
  }

  void addCall(const fb::Action &action) {
    const fb::Function &function = *program.functions()->Get(action.function());
    for (uint32_t i = 0; i < length(function.steps()); ++i) {
      ranges.clear();
      const auto *fill = function.steps()->Get(i)->step_as_FillStep();
      bool skipped = fill && fill->first_microbatch_only() && !action.first();
      for (const plan::Use &use : usesOfFunctions[action.function()][i])
        if (!skipped)
          ranges.push_back(resolve(action, function, use));
      planner.add(choice.steps[action.function()][i], ranges);
    }
  }

  ByteRange resolve(const fb::Action &action, const fb::Function &function,
                    const plan::Use &use) const {
    int32_t slot = use.ref->slot();
    uint64_t base = slot < 0 ? 0 : action.bindings()->Get(slot);
    uint64_t bytes =
        slot < 0 ? program.arena_bytes() : function.slot_bytes()->Get(slot);
    uint64_t begin = base + use.ref->offset();
    return {begin, use.toEnd ? base + bytes : begin + *use.count * use.unit,
            use.writes};
  }

  const fb::Program &program;
  const LaneChoice &choice;
  LanePlanner planner;
  std::vector<std::vector<std::vector<plan::Use>>> usesOfFunctions;
  std::vector<ByteRange> ranges; // of one operation
};

} // namespace

uint32_t LaneChoice::lanes() const {
  uint32_t last = 0;
  for (uint32_t lane : transfers)
    last = std::max(last, lane);
  for (const std::vector<uint32_t> &function : steps)
    for (uint32_t lane : function)
      last = std::max(last, lane);
  return last + 1;
}

uint32_t runtime::countOperations(const fb::Program &program) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    count += plan::isTransfer(action)
                 ? 1
                 : length(program.functions()->Get(action.function())->steps());
  }
  return count;
}

LaneSchedule runtime::scheduleLanes(const fb::Program &program,
                                    const plan::Mesh &mesh,
                                    const LaneChoice &choice) {
  return Scheduler(program, mesh, choice).run();
}
