//===- Topology.cpp - Groups and messages of a plan -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Backends make connections and buffers before the first step; from the plan
// follows what they have to make: groups of ranks that meet in collectives,
// messages between ranks, and how much they pack. Programs are few and ranks
// many, so that each kind of collective is looked at once and then spread over
// the mesh.
//
//===----------------------------------------------------------------------===//

#include "Topology.h"

#include "plait/Plan/Check.h"
#include "plait/Plan/Communicators.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Sites.h"
#include "plait/Plan/Streams.h"
#include "plait/Plan/Uses.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

using namespace plait;
using namespace plait::runtime;

namespace {

/// Calls `visit` with all collectives of all programs, in the plan's order.
template <typename Visit>
void forEachCollective(const fb::Plan &plan, Visit visit) {
  for (const fb::Program *program : *plan.programs()) {
    if (!program->functions())
      continue;
    for (const fb::Function *function : *program->functions())
      for (uint32_t i = 0; i < plan::length(function->steps()); ++i)
        if (const auto *step =
                function->steps()->Get(i)->step_as_CollectiveStep())
          visit(*step);
  }
}

} // namespace

/// Groups that are not found are in stream 0, as all are without overlap.
uint32_t Topology::streamOf(std::span<const uint32_t> members) const {
  auto found = std::find_if(groups.begin(), groups.end(),
                            [&](const std::vector<uint32_t> &group) {
                              return std::equal(group.begin(), group.end(),
                                                members.begin(), members.end());
                            });
  size_t index = found - groups.begin();
  return index < streams.size() ? streams[index] : 0;
}

/// Ascending: the index along the axis orders the ranks.
std::vector<uint32_t> runtime::membersOf(const plan::RankGrid &mesh,
                                         uint32_t rank,
                                         const fb::CollectiveStep &step) {
  std::vector<uint32_t> members;
  for (uint32_t index : plan::membersOf(mesh, step))
    members.push_back(mesh.withIndex(rank, step.axis(), index));
  return members;
}

/// The plan's message between two programs stands for one between each two of
/// their ranks that agree in all other axes; `peers` of them.
uint32_t runtime::messageId(const plan::RankGrid &mesh, uint32_t rank,
                            uint32_t message) {
  return message * mesh.programRanks() + mesh.peerOf(rank);
}

/// 1. Collectives of all programs. Kinds that were seen are skipped, unless
///    they pack more: enumerating the ranks is what costs.
/// 2. Of each kind the groups of all ranks, each found by its first member.
///    Groups come in the order of the plan, which is the same in all processes.
/// 3. Messages, `peers` of each, in the order of messageId().
Topology runtime::topologyOf(const fb::Plan &plan,
                             const std::vector<plan::Message> &messages) {
  plan::RankGrid mesh(plan);
  Topology topology;
  topology.ranks = mesh.ranks();
  topology.programRanks = mesh.programRanks();
  // What distinguishes two sets of groups: the axis and who is left out. Of
  // each set the bytes that must be packed are known.
  std::map<std::pair<uint8_t, std::vector<uint32_t>>, uint64_t> kinds;
  std::map<std::vector<uint32_t>, uint32_t> groups;
  // 1. Members of one rank and the axis identify the kind.
  forEachCollective(plan, [&](const fb::CollectiveStep &step) {
    std::vector<uint32_t> left = membersOf(mesh, 0, step);
    uint64_t packed = plan::packedBytesOf(step, left.size());
    auto [known, isNew] = kinds.try_emplace({step.axis(), left}, packed);
    if (!isNew && packed <= known->second)
      return;
    known->second = packed;
    // 2. Each group once, by its first member.
    uint32_t first = mesh.index(left.front(), step.axis());
    for (uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
      if (mesh.index(rank, step.axis()) != first)
        continue;
      std::vector<uint32_t> members = membersOf(mesh, rank, step);
      auto [group, added] =
          groups.try_emplace(members, uint32_t(topology.groups.size()));
      if (added) {
        topology.groups.push_back(std::move(members));
        topology.streams.push_back(plan::isBeside(plan, step));
        topology.packedBytes.push_back(0);
      }
      uint64_t &most = topology.packedBytes[group->second];
      most = std::max(most, packed);
    }
  });

  // 3. `peers` of each.
  std::vector<uint32_t> channels = plan::channelsOf(plan, messages);
  for (uint32_t i = 0; i < messages.size(); ++i) {
    const fb::Action &send = *plan.programs()
                                  ->Get(messages[i].source)
                                  ->actions()
                                  ->Get(messages[i].send);
    for (uint32_t peer = 0; peer < mesh.programRanks(); ++peer) {
      uint32_t source = mesh.rankOf(messages[i].source, peer);
      // A site that sends to none has a route to itself, which is not used.
      uint32_t target =
          plan::partnerOf(plan, mesh, source, send).value_or(source);
      topology.messages.push_back({source, target, channels[i]});
    }
  }
  return topology;
}

std::vector<uint32_t> runtime::peersOf(const Topology &topology,
                                       const RankSpread &spread,
                                       uint32_t process) {
  std::set<uint32_t> peers;
  auto add = [&](std::span<const uint32_t> ranks) {
    auto isHere = [&](uint32_t rank) {
      return spread.processOf(rank) == process;
    };
    if (std::any_of(ranks.begin(), ranks.end(), isHere))
      for (uint32_t rank : ranks)
        peers.insert(spread.processOf(rank));
  };
  for (const std::vector<uint32_t> &group : topology.groups)
    add(group);
  for (const Topology::Route &route : topology.messages)
    add(std::array{route.source, route.target});
  peers.erase(process);
  return {peers.begin(), peers.end()};
}
