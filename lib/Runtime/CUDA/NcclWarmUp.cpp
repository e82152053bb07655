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
#include "plait/Plan/Communicators.h"
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
                         step.splits_inner(), step.rows() != nullptr);
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
      const fb::Function &function =
          *program.functions()->Get(action.function());
      addBatches(action, function);
      const auto *steps = function.steps();
      for (uint32_t j = 0; j < plan::length(steps); ++j)
        if (const auto *step = steps->Get(j)->step_as_CollectiveStep())
          add({&action, step});
    }
  }

  const std::vector<Use> &of(uint32_t group) { return uses[group]; }
  const std::vector<std::vector<Use>> &batchesOf(uint32_t group) {
    return batches[group];
  }

private:
  using Key = decltype(keyOf(std::declval<fb::CollectiveStep>()));

  uint32_t groupOf(const fb::CollectiveStep &step) const {
    auto found = std::find(topology.groups.begin(), topology.groups.end(),
                           membersOf(mesh, rank, step));
    return found - topology.groups.begin();
  }

  /// Adds gathers that are launched together, which NCCL may do in another way
  /// than each of them.
  void addBatches(const fb::Action &action, const fb::Function &function) {
    std::vector<uint32_t> last = batchGathers(mesh, rank, function);
    for (uint32_t first = 0; first < last.size(); ++first) {
      std::vector<Use> batch;
      std::vector<Key> keys;
      for (uint32_t i = first; i <= last[first] && last[first] > first; ++i) {
        const auto *step = function.steps()->Get(i)->step_as_CollectiveStep();
        batch.push_back({&action, step});
        keys.push_back(keyOf(*step));
      }
      if (batch.empty())
        continue;
      uint32_t group = groupOf(*batch.front().step);
      if (seenBatches.insert({group, keys}).second)
        batches[group].push_back(std::move(batch));
    }
  }

  void add(const Use &use) {
    uint32_t group = groupOf(*use.step);
    if (seen.insert({group, keyOf(*use.step)}).second)
      uses[group].push_back(use);
  }

  const Topology &topology;
  uint32_t rank;
  plan::RankGrid mesh;
  std::map<uint32_t, std::vector<Use>> uses;
  std::map<uint32_t, std::vector<std::vector<Use>>> batches;
  std::set<std::pair<uint32_t, Key>> seen;
  std::set<std::pair<uint32_t, std::vector<Key>>> seenBatches;
};

} // namespace

/// After each, stream 0 waits for the group's, and the host for stream 0: the
/// GPU is idle when the next one connects.
Status runtime::callCollectives(const Topology &topology, uint32_t rank,
                                CudaDevice &device, NcclRank &owner,
                                const NcclGroups &groups) {
  Uses uses(topology, rank, device);
  RankMemory memory(device);
  auto call = [&](Group &group, const Use &use) {
    return runCollective(group, *use.step, [&](const fb::Ref &ref) {
      return memory.at(*use.action, ref);
    });
  };
  auto finish = [&]() -> Status {
    PLAIT_RETURN_IF_ERROR(device.join());
    return owner.awaitStream();
  };
  for (const NcclSplit &split : splitWorld(topology))
    for (const NcclPart &part : split) {
      auto group = groups.find(part.index);
      if (part.transfers || group == groups.end())
        continue;
      for (const Use &use : uses.of(part.index)) {
        PLAIT_RETURN_IF_ERROR(call(*group->second, use));
        PLAIT_RETURN_IF_ERROR(finish());
      }
      for (const std::vector<Use> &batch : uses.batchesOf(part.index)) {
        group->second->hold();
        for (const Use &use : batch)
          PLAIT_RETURN_IF_ERROR(call(*group->second, use));
        PLAIT_RETURN_IF_ERROR(group->second->release());
        PLAIT_RETURN_IF_ERROR(finish());
      }
    }
  return Status::success();
}
