//===- Communicators.cpp - What a plan makes to exchange ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Looks at programs alone, so that its time does not grow with the ranks of a
// program, which make alike.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Communicators.h"

#include "plait/Plan/Check.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Ranks.h"
#include "plait/Plan/Uses.h"
#include "plait/Support/Collectives.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

using namespace plait;
using namespace plait::plan;

bool plan::exchangesRows(const fb::Plan &plan) {
  for (const fb::Program *program : *plan.programs())
    for (uint32_t i = 0; i < length(program->functions()); ++i) {
      const auto *steps = program->functions()->Get(i)->steps();
      for (uint32_t k = 0; k < length(steps); ++k)
        if (const auto *collective = steps->Get(k)->step_as_CollectiveStep();
            collective && collective->rows())
          return true;
    }
  return false;
}

RowStaging plan::stageRows(int64_t rows, uint64_t rowBytes, int64_t members,
                           int64_t choices) {
  double even = getRowShare(members, choices) * double(rows);
  RowStaging staging;
  staging.rows =
      std::clamp<int64_t>(int64_t(std::ceil(kStagedRows * even)), 1, rows);
  // Lists behind it begin where 16 bytes may be copied at once.
  staging.packed = (uint64_t(members * staging.rows) * rowBytes + 15) / 16 * 16;
  staging.lists = uint64_t(2 * members * rows) * sizeof(int32_t);
  staging.counts = uint64_t(2 * members) * sizeof(int32_t);
  return staging;
}

/// Blocks of one member are contiguous in the tensor only without outer and
/// middle dimensions; else a backend whose library wants contiguous blocks
/// copies them, or has a few outer blocks moved one by one.
uint64_t plan::packedBytesOf(const fb::CollectiveStep &step, size_t members) {
  if (members == 1)
    return 0;
  if (const fb::RowSelection *rows = step.rows())
    return stageRows(step.chunk() / rows->width(),
                     uint64_t(rows->width()) * elementBytes(step.dtype()),
                     int64_t(members), rows->choices())
        .bytes();
  CollectiveKind kind = kindOf(step);
  const CollectiveFacts &facts = getFacts(kind);
  int64_t most = kind == CollectiveKind::AllToAll ? 1 : kMostGrouped;
  bool isContiguous = step.outer() <= most && step.middle() == 1;
  uint64_t bytes = step.outer() * step.middle() * step.chunk() * members *
                   elementBytes(step.dtype());
  return isContiguous ? 0 : bytes * (facts.readsAll + facts.writesAll);
}

/// Whether `step` gathers, from ranks that run the program of `rank`, what
/// nobody packs.
static bool canBatch(const RankGrid &mesh, uint32_t rank,
                     const fb::CollectiveStep *step) {
  if (!step || kindOf(*step) != CollectiveKind::AllGather || step->rows() ||
      step->middle() != 1 || step->outer() > kMostGrouped)
    return false;
  std::vector<uint32_t> members = membersOf(mesh, *step);
  return std::all_of(members.begin(), members.end(), [&](uint32_t index) {
    return mesh.index(mesh.withIndex(rank, step->axis(), index), 0) ==
           mesh.index(rank, 0);
  });
}

std::vector<uint32_t> plan::batchGathers(const RankGrid &mesh, uint32_t rank,
                                         const fb::Function &function) {
  uint32_t count = uint32_t(length(function.steps()));
  std::vector<uint32_t> last(count);
  std::iota(last.begin(), last.end(), 0);
  auto collectiveAt = [&](uint32_t i) {
    return function.steps()->Get(i)->step_as_CollectiveStep();
  };
  for (uint32_t first = 0, end = 0; first < count; first = end) {
    uint64_t bytes = 0;
    for (end = first; end < count; ++end) {
      const fb::CollectiveStep *step = collectiveAt(end);
      if (!canBatch(mesh, rank, step) ||
          step->axis() != collectiveAt(first)->axis() ||
          membersOf(mesh, *step) != membersOf(mesh, *collectiveAt(first)))
        break;
      bytes +=
          uint64_t(step->outer()) * step->chunk() * elementBytes(step->dtype());
      if (bytes > kMostBatched)
        break;
    }
    end = std::max(end, first + 1);
    last[first] = end - 1;
  }
  return last;
}

/// Deals the messages of each (source, target, direction), in the order of
/// their sends, to the first channel whose last message is received earlier.
/// Backends deliver messages of a channel in order, so that two messages which
/// are received in another order than they are sent need two channels. That is
/// partitioning into increasing sequences; first fit needs the least number of
/// them.
std::vector<uint32_t> plan::channelsOf(const fb::Plan &plan,
                                       std::span<const Message> messages) {
  // By sender and position in its list, so that each channel is in sending
  // order.
  std::vector<uint32_t> order(messages.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t left, uint32_t right) {
    return std::tie(messages[left].source, messages[left].send) <
           std::tie(messages[right].source, messages[right].send);
  });
  std::map<std::tuple<uint32_t, uint32_t, fb::Direction>, std::vector<uint32_t>>
      lastReceive; // of each channel
  std::vector<uint32_t> channels(messages.size());
  for (uint32_t index : order) {
    const Message &message = messages[index];
    fb::Direction direction = plan.programs()
                                  ->Get(message.source)
                                  ->actions()
                                  ->Get(message.send)
                                  ->direction();
    auto &last = lastReceive[{message.source, message.target, direction}];
    auto found = std::find_if(last.begin(), last.end(), [&](uint32_t receive) {
      return receive < message.receive;
    });
    // Two channels of one number never meet: forward and backward ones
    // alternate.
    channels[index] = 2 * static_cast<uint32_t>(found - last.begin()) +
                      (direction == fb::Direction::Backward);
    if (found == last.end())
      last.push_back(message.receive);
    else
      *found = message.receive;
  }
  return channels;
}

namespace {

/// An axis and the coordinates along it of those who take part, ascending: what
/// distinguishes two sets of groups.
using Kind = std::pair<uint8_t, std::vector<uint32_t>>;

} // namespace

/// Returns the bytes that each kind of groups packs at most.
static std::map<Kind, uint64_t> findKinds(const fb::Plan &plan) {
  RankGrid mesh(plan);
  std::map<Kind, uint64_t> kinds;
  for (const fb::Program *program : *plan.programs())
    for (uint32_t i = 0; i < length(program->functions()); ++i) {
      const auto *steps = program->functions()->Get(i)->steps();
      for (uint32_t j = 0; j < length(steps); ++j)
        if (const auto *step = steps->Get(j)->step_as_CollectiveStep()) {
          std::vector<uint32_t> members = membersOf(mesh, *step);
          uint64_t packed = packedBytesOf(*step, members.size());
          uint64_t &most = kinds[{step->axis(), std::move(members)}];
          most = std::max(most, packed);
        }
    }
  return kinds;
}

/// Along all axes but the first one the ranks of a program have all
/// coordinates, and so one of them that of any group.
CommunicatorMemory plan::countCommunicators(const fb::Plan &plan,
                                            std::span<const Message> messages) {
  std::map<Kind, uint64_t> kinds = findKinds(plan);
  std::vector<uint32_t> channels = channelsOf(plan, messages);
  CommunicatorMemory most;
  for (uint32_t program = 0; program < plan.programs()->size(); ++program) {
    CommunicatorMemory made;
    for (const auto &[kind, packed] : kinds) {
      const auto &[axis, members] = kind;
      if (members.size() < 2 ||
          (axis == 0 &&
           !std::binary_search(members.begin(), members.end(), program)))
        continue;
      ++made.groups;
      made.scratch += packed;
    }
    std::set<std::tuple<uint32_t, uint32_t, uint32_t>> routes;
    for (size_t i = 0; i < messages.size(); ++i)
      if (messages[i].source == program || messages[i].target == program)
        routes.insert({messages[i].source, messages[i].target, channels[i]});
    made.routes = static_cast<uint32_t>(routes.size());
    if (made.estimate() > most.estimate())
      most = made;
  }
  return most;
}
