//===- PlanSummary.cpp - What can be counted in a plan --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PlanSummary.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Ranks.h"

#include <algorithm>

using namespace plait;
using namespace plait::tool;
namespace fb = plait::plan::fb;

/// The entries of a vector that may be absent from the file.
template <typename Vector> static uint32_t sizeOf(const Vector *vector) {
  return vector ? vector->size() : 0;
}

/// The most bytes of `category` live during one action.
static uint64_t getPeak(const fb::Program &program, fb::Category category) {
  std::map<uint32_t, int64_t> change; // by action
  for (uint32_t i = 0; i < sizeOf(program.regions()); ++i) {
    const fb::Region &region = *program.regions()->Get(i);
    if (region.category() != category)
      continue;
    change[region.first_action()] += region.bytes();
    change[region.last_action() + 1] -= region.bytes();
  }
  int64_t live = 0, peak = 0;
  for (auto [action, bytes] : change)
    peak = std::max(peak, live += bytes);
  return peak;
}

/// Every ring collective passes (members - 1) blocks through each rank; an
/// all-reduce does so twice, with blocks of 1/members of the tensor.
static uint64_t getSentBytes(const plan::Mesh &mesh,
                             const fb::CollectiveStep &step) {
  uint64_t members =
      sizeOf(step.members()) ? sizeOf(step.members()) : mesh.size(step.axis());
  uint64_t bytes =
      step.outer() * step.chunk() * plan::elementBytes(step.dtype());
  if (step.kind() == fb::CollectiveKind::AllReduce)
    return 2 * (members - 1) * bytes / members;
  return (members - 1) * bytes;
}

ProgramSummary tool::summarise(const fb::Plan &plan,
                               const fb::Program &program) {
  ProgramSummary summary;
  plan::Mesh mesh(plan);
  summary.sentBytes.resize(mesh.axes());
  for (fb::Category category : fb::EnumValuesCategory())
    if (uint64_t peak = getPeak(program, category))
      summary.peakBytes[category] = peak;
  for (uint32_t i = 0; i < sizeOf(program.shards()); ++i) {
    uint64_t elements = 1;
    for (int64_t size : *program.shards()->Get(i)->local_shape())
      elements *= size;
    summary.weights += elements;
  }

  std::vector<uint64_t> calls(sizeOf(program.functions()), 0);
  for (uint32_t i = 0; i < sizeOf(program.actions()); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    bool transfers = action.kind() == fb::ActionKind::Send ||
                     action.kind() == fb::ActionKind::Recv ||
                     action.kind() == fb::ActionKind::WaitSend;
    if (!transfers)
      ++calls[action.function()];
    else if (action.kind() == fb::ActionKind::Send)
      summary.sentBytes[0] += action.bytes(); // mesh[0] is "pp"
  }
  for (uint32_t i = 0; i < calls.size(); ++i) {
    const fb::Function &function = *program.functions()->Get(i);
    for (uint32_t j = 0; j < sizeOf(function.steps()); ++j) {
      const fb::Step &step = *function.steps()->Get(j);
      summary.steps[step.step_type()] += calls[i];
      if (const fb::CollectiveStep *collective = step.step_as_CollectiveStep())
        summary.sentBytes[collective->axis()] +=
            calls[i] * getSentBytes(mesh, *collective);
    }
  }
  return summary;
}

schedule::Schedule tool::getSchedule(const fb::Plan &plan) {
  schedule::Schedule schedule;
  schedule.problem.stages = sizeOf(plan.programs());
  schedule.problem.microbatches = plan.microbatches();
  for (const fb::Program *program : *plan.programs()) {
    std::vector<schedule::Action> &actions = schedule.ranks.emplace_back();
    for (uint32_t i = 0; i < sizeOf(program->actions()); ++i) {
      const fb::Action &source = *program->actions()->Get(i);
      // Both enumerations have the same values.
      schedule::Action action{schedule::ActionKind(source.kind()),
                              source.chunk(), source.microbatch()};
      if (!action.isCompute())
        continue;
      schedule.problem.chunks =
          std::max(schedule.problem.chunks, action.chunk + 1);
      actions.push_back(action);
    }
  }
  return schedule;
}
