//===- NcclWarmUp.cpp - First calls of collectives ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which collectives are distinct, and in which order all ranks call them so
// that none waits for ever: group after group in the order of splitWorld(),
// which is the same everywhere, and in a group in the order of the plan, in
// which its members have the same ones.
//
//===----------------------------------------------------------------------===//

#include "NcclWarmUp.h"

#include "Core/Operands.h"
#include "Core/Topology.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Uses.h"

#include <algorithm>
#include <set>
#include <tuple>

using namespace plait;
using namespace plait::runtime;

namespace {

/// A collective, and an action that calls it, which says where its operands
/// are.
struct Use {
  const fb::Action *action;
  const fb::CollectiveStep *step;
};

/// All that NCCL is told of a collective but addresses.
auto keyOf(const fb::CollectiveStep &step) {
  return std::make_tuple(plan::kindOf(step), step.dtype(), step.reduction(),
                         step.outer(), step.chunk(), step.middle(),
                         step.splits_inner());
}

/// The distinct collectives of a program, by the number of their group, in the
/// order of its actions.
class Uses {
public:
  Uses(const Topology &topology, uint32_t rank, const CudaDevice &device)
      : topology(topology), rank(rank), mesh(device.source()) {
    const fb::Program &program = device.ownProgram();
    for (uint32_t i = 0; i < plan::length(program.actions()); ++i) {
      const fb::Action &action = *program.actions()->Get(i);
      if (plan::isTransfer(action))
        continue;
      const auto *steps = program.functions()->Get(action.function())->steps();
      for (uint32_t j = 0; j < plan::length(steps); ++j)
        if (const auto *step = steps->Get(j)->step_as_CollectiveStep())
          add({&action, step});
    }
  }

  const std::vector<Use> &of(uint32_t group) { return uses[group]; }

private:
  void add(const Use &use) {
    auto found = std::find(topology.groups.begin(), topology.groups.end(),
                           membersOf(mesh, rank, *use.step));
    uint32_t group = found - topology.groups.begin();
    if (seen.insert({group, keyOf(*use.step)}).second)
      uses[group].push_back(use);
  }

  const Topology &topology;
  uint32_t rank;
  plan::RankGrid mesh;
  std::map<uint32_t, std::vector<Use>> uses;
  std::set<
      std::pair<uint32_t, decltype(keyOf(std::declval<fb::CollectiveStep>()))>>
      seen;
};

} // namespace

/// After each, stream 0 waits for the group's, and the host for stream 0: the
/// GPU is idle when the next one connects.
Status runtime::callCollectives(const Topology &topology, uint32_t rank,
                                CudaDevice &device, NcclRank &owner,
                                const NcclGroups &groups) {
  Uses uses(topology, rank, device);
  RankMemory memory(device);
  for (const NcclSplit &split : splitWorld(topology))
    for (const NcclPart &part : split) {
      auto group = groups.find(part.index);
      if (part.transfers || group == groups.end())
        continue;
      for (const auto &[action, step] : uses.of(part.index)) {
        PLAIT_RETURN_IF_ERROR(group->second->run(
            plan::kindOf(*step), memory.at(*action, *step->input()),
            memory.at(*action, *step->output()),
            {step->dtype(), step->outer(), step->chunk(), step->middle(),
             step->splits_inner()},
            step->reduction()));
        PLAIT_RETURN_IF_ERROR(device.join());
        PLAIT_RETURN_IF_ERROR(owner.awaitStream());
      }
    }
  return Status::success();
}
