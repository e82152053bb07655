//===- NcclSplits.cpp - Splits of NCCL communicators ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which communicators a topology needs, and how few calls of ncclCommSplit make
// them. A split is a collective of the whole world and can make any number of
// communicators whose ranks are disjoint. So parts that do not touch are packed
// into one split: first fit, in a fixed order. All ranks compute the same list,
// since it follows from the topology alone.
//
//===----------------------------------------------------------------------===//

#include "NcclSplits.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace plait;
using namespace plait::runtime;

namespace {

/// Puts every part into the first division whose ranks it does not touch.
class Packer {
public:
  explicit Packer(uint32_t ranks) : ranks(ranks) {}

  // Takes time in the number of splits and the part's ranks.
  void add(NcclPart part) {
    size_t split = 0;
    while (split < splits.size() && touches(split, part))
      ++split;
    if (split == splits.size()) {
      splits.emplace_back();
      taken.emplace_back(ranks, false);
    }
    for (uint32_t rank : part.ranks)
      taken[split][rank] = true;
    splits[split].push_back(std::move(part));
  }

  std::vector<NcclSplit> splits;

private:
  bool touches(size_t split, const NcclPart &part) const {
    return std::any_of(part.ranks.begin(), part.ranks.end(),
                       [&](uint32_t rank) { return taken[split][rank]; });
  }

  uint32_t ranks;
  std::vector<std::vector<bool>> taken; // of each division, the ranks in it
};

/// The parts for transfers, numbered in the order of their first message.
std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t>
numberRoutes(const Topology &topology) {
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t> numbers;
  for (const Topology::Route &route : topology.messages)
    numbers.try_emplace({route.source, route.target, route.channel},
                        static_cast<uint32_t>(numbers.size()));
  return numbers;
}

} // namespace

/// Groups first, then routes in the order of (source, target, channel), which
/// is that of the map, not of the numbers.
std::vector<NcclSplit> runtime::splitWorld(const Topology &topology) {
  Packer packer(topology.ranks);
  for (uint32_t i = 0; i < topology.groups.size(); ++i)
    if (topology.groups[i].size() > 1)
      packer.add({topology.groups[i], i, false, 0});
  for (const auto &[route, number] : numberRoutes(topology)) {
    auto [source, target, channel] = route;
    // Ranks of a part increase, whichever way the messages go; `source`
    // remembers that.
    packer.add({{std::min(source, target), std::max(source, target)},
                number,
                true,
                source});
  }
  return packer.splits;
}

std::vector<uint32_t> runtime::partOfMessages(const Topology &topology) {
  auto numbers = numberRoutes(topology);
  std::vector<uint32_t> parts;
  for (const Topology::Route &route : topology.messages)
    parts.push_back(numbers.at({route.source, route.target, route.channel}));
  return parts;
}

void runtime::addMemory(CommunicatorMemory &memory, const Topology &topology,
                        uint32_t rank) {
  for (size_t index = 0; index < topology.groups.size(); ++index) {
    const std::vector<uint32_t> &ranks = topology.groups[index];
    if (ranks.size() < 2 ||
        !std::binary_search(ranks.begin(), ranks.end(), rank))
      continue;
    ++memory.groups;
    if (index < topology.packedBytes.size())
      memory.scratch += topology.packedBytes[index];
  }
  for (const auto &[route, number] : numberRoutes(topology))
    memory.routes += std::get<0>(route) == rank || std::get<1>(route) == rank;
}
