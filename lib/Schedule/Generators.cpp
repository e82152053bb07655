//===- Generators.cpp - Named pipeline schedules --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Generators.h"
#include "Messages.h"

#include <algorithm>

using namespace plait;
using namespace plait::schedule;

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

static constexpr Generator generators[] = {
    {"gpipe", "all forwards, then all backwards", 1, gpipe,
     [](const Problem &problem, uint32_t) { return problem.microbatches; }},
    {"1f1b", "alternate one forward and one backward after a short warm-up", 1,
     oneFOneB,
     [](const Problem &problem, uint32_t rank) {
       return std::min(problem.microbatches, problem.stages - rank);
     }},
};

std::span<const Generator> schedule::getGenerators() { return generators; }

Result<const Generator *> schedule::findGenerator(std::string_view name) {
  std::string known;
  for (const Generator &generator : generators) {
    if (generator.name == name)
      return &generator;
    known += known.empty() ? "" : ", ";
    known += generator.name;
  }
  return fail("unknown schedule '", name, "', expected one of ", known);
}

Result<Schedule> schedule::generate(std::string_view name,
                                    const Problem &problem) {
  Result<const Generator *> generator = findGenerator(name);
  if (!generator.ok())
    return generator.status();
  PLAIT_RETURN_IF_ERROR(problem.check());
  if (problem.chunks > (*generator)->maxChunks)
    return fail("schedule ", name, " orders at most ", (*generator)->maxChunks,
                " chunk(s) per rank, got ", problem.chunks);
  Schedule schedule = (*generator)->generate(problem);
  schedule.kind = name;
  return schedule;
}

//===----------------------------------------------------------------------===//
// Generators
//===----------------------------------------------------------------------===//

/// The schedule in which rank r runs warmUp(r) forwards, then alternates a
/// forward and a backward until no forward is left, then drains.
template <typename WarmUp>
static Schedule alternate(const Problem &problem, WarmUp warmUp) {
  Schedule schedule{problem, "", {}};
  for (uint32_t rank = 0; rank < problem.stages; ++rank) {
    std::vector<Action> &actions = schedule.ranks.emplace_back();
    actions.reserve(2 * size_t(problem.microbatches));
    uint32_t lead = std::min(warmUp(rank), problem.microbatches);
    for (uint32_t m = 0; m < lead; ++m)
      actions.push_back({ActionKind::Forward, 0, m});
    for (uint32_t m = 0; m < problem.microbatches; ++m) {
      if (m + lead < problem.microbatches)
        actions.push_back({ActionKind::Forward, 0, m + lead});
      actions.push_back({ActionKind::Backward, 0, m});
    }
  }
  return schedule;
}

Schedule schedule::gpipe(const Problem &problem) {
  return alternate(problem, [&](uint32_t) { return problem.microbatches; });
}

Schedule schedule::oneFOneB(const Problem &problem) {
  return alternate(problem,
                   [&](uint32_t rank) { return problem.stages - rank - 1; });
}

//===----------------------------------------------------------------------===//
// Transfers
//===----------------------------------------------------------------------===//

namespace {

/// Rewrites the list of one rank.
class TransferInserter {
public:
  TransferInserter(const Problem &problem, uint32_t rank)
      : problem(problem), rank(rank) {}

  std::vector<Action> run(const std::vector<Action> &compute) {
    for (const Action &action : compute) {
      auto direction = directionOf(action.kind);
      if (direction)
        insertRecv(action, *direction);
      result.push_back(action);
      if (direction)
        insertSend(action, *direction);
    }
    insertWait(Direction::Forward);
    insertWait(Direction::Backward);
    result.push_back({ActionKind::Reduce});
    result.push_back({ActionKind::Optimizer});
    return std::move(result);
  }

private:
  void insertRecv(const Action &action, Direction direction) {
    if (auto peer = peerOf(problem, rank, action.chunk, direction, true))
      result.push_back({ActionKind::Recv, action.chunk, action.microbatch,
                        direction, *peer});
  }

  void insertSend(const Action &action, Direction direction) {
    auto peer = peerOf(problem, rank, action.chunk, direction, false);
    if (!peer)
      return;
    insertWait(direction);
    Action send{ActionKind::Send, action.chunk, action.microbatch, direction,
                *peer};
    result.push_back(send);
    unfinished[size_t(direction)] = send;
  }

  void insertWait(Direction direction) {
    std::optional<Action> &send = unfinished[size_t(direction)];
    if (!send)
      return;
    send->kind = ActionKind::WaitSend;
    result.push_back(*send);
    send.reset();
  }

  const Problem &problem;
  uint32_t rank;
  std::vector<Action> result;
  std::optional<Action> unfinished[2]; // the last Send, by direction
};

} // namespace

Schedule schedule::insertTransfers(const Schedule &schedule) {
  if (!schedule.isComputeOnly())
    return schedule;
  Schedule complete{schedule.problem, schedule.kind, {}};
  for (uint32_t rank = 0; rank < schedule.ranks.size(); ++rank)
    complete.ranks.push_back(
        TransferInserter(schedule.problem, rank).run(schedule.ranks[rank]));
  return complete;
}
