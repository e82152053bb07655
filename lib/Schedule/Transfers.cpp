//===- Transfers.cpp - From compute actions to a complete schedule --------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Makes a compute-only schedule executable: messages around the work, the waits
// that bound how many of them are unfinished, and what ends a step. The one
// thing that is decided here is the depth, how many messages a chunk may have
// under way in a direction: each takes a buffer, and too few make senders wait
// for readers. The least depth that costs no time is found by simulation.
//
//===----------------------------------------------------------------------===//

#include "Messages.h"
#include "plait/Schedule/Generators.h"

#include <algorithm>
#include <deque>

using namespace plait;
using namespace plait::schedule;

namespace {

/// Rewrites the list of one rank.
class TransferInserter {
public:
  TransferInserter(const Problem &problem, uint32_t rank, uint32_t depth)
      : problem(problem), rank(rank), depth(depth),
        unfinished(2 * size_t(problem.chunks)) {}

  std::vector<Action> run(const std::vector<Action> &compute) {
    for (const Action &action : compute) {
      auto direction = directionOf(action.kind);
      if (direction)
        insertRecv(action, *direction);
      result.push_back(action);
      if (direction)
        insertSend(action, *direction);
    }
    // What is still under way ends before the step does: buffers belong to the
    // step, and V2 wants every send waited for.
    for (std::deque<Action> &channel : unfinished)
      while (!channel.empty())
        insertWait(channel);
    result.push_back({ActionKind::Reduce});
    result.push_back({ActionKind::Optimizer});
    return std::move(result);
  }

private:
  /// A message is received right in front of the action that reads it. An
  /// earlier Recv would hold a buffer for longer and gain nothing, since Recv
  /// blocks.
  void insertRecv(const Action &action, Direction direction) {
    if (auto peer = peerOf(problem, rank, action.chunk, direction, true))
      result.push_back({ActionKind::Recv, action.chunk, action.microbatch,
                        direction, *peer});
  }

  /// Lets at most `depth` messages of a channel be unfinished: the oldest is
  /// waited for before the next one leaves, so that its buffer can be written
  /// again. The wait stands in front of the send and not behind the last one,
  /// to give the reader as long as possible.
  void insertSend(const Action &action, Direction direction) {
    auto peer = peerOf(problem, rank, action.chunk, direction, false);
    if (!peer)
      return;
    std::deque<Action> &channel =
        unfinished[2 * action.chunk + size_t(direction)];
    if (channel.size() == depth)
      insertWait(channel);
    Action send{ActionKind::Send, action.chunk, action.microbatch, direction,
                *peer};
    result.push_back(send);
    channel.push_back(send);
  }

  /// Waits for the oldest message of a channel.
  void insertWait(std::deque<Action> &channel) {
    result.push_back(channel.front());
    result.back().kind = ActionKind::WaitSend;
    channel.pop_front();
  }

  const Problem &problem;
  uint32_t rank, depth;
  std::vector<Action> result;
  std::vector<std::deque<Action>> unfinished; // by chunk and direction
};

} // namespace

/// Any depth from 1 on is sound as long as the simulation ends; the memory
/// model is that of the compute-only schedule, since buffers of messages are no
/// activations.
static Schedule insertAtDepth(const Schedule &schedule, uint32_t depth) {
  Schedule complete{schedule.problem, schedule.kind, {}, schedule.memory};
  for (uint32_t rank = 0; rank < schedule.ranks.size(); ++rank)
    complete.ranks.push_back(TransferInserter(schedule.problem, rank, depth)
                                 .run(schedule.ranks[rank]));
  return complete;
}

/// A complete schedule is returned as it is. Otherwise:
///
/// 1. The span of the compute-only schedule, in which messages need no buffers,
///    is what has to be met.
/// 2. The depth is doubled until a complete schedule meets it. At a depth of
///    all microbatches there is no wait in front of any send.
/// 3. Bisection finds the least depth in between, in 2 log2(m) simulations
///    altogether.
///
/// Times are those of even stages and free transfers, so that the result
/// depends on the order of the actions alone and not on measured costs: on
/// uneven stages a rank may still wait for a reader that is about to come.
Schedule schedule::insertTransfers(const Schedule &schedule) {
  if (!schedule.isComputeOnly())
    return schedule;
  // 1. What has to be met.
  Result<Timeline> timeline = simulate(schedule, Costs{});
  // Not sound, and so the result is not either: verify says why.
  if (!timeline.ok())
    return insertAtDepth(schedule, 1);
  auto isFree = [&](const Schedule &complete) {
    Result<Timeline> other = simulate(complete, Costs{});
    return other.ok() && other->span <= timeline->span * (1 + 1e-9);
  };
  // 2. Double. Some depth is free: with all waits at the end, nobody waits for
  // a reader.
  Schedule complete = insertAtDepth(schedule, 1);
  uint32_t low = 1, high = 1;
  while (high < schedule.problem.microbatches && !isFree(complete)) {
    low = high;
    high = std::min(2 * high, schedule.problem.microbatches);
    complete = insertAtDepth(schedule, high);
  }
  // 3. Bisect. Invariant: depth `low` costs time, `high` does not; `complete`
  // has `high`.
  while (low + 1 < high) {
    uint32_t middle = (low + high) / 2;
    Schedule shallower = insertAtDepth(schedule, middle);
    if (isFree(shallower)) {
      high = middle;
      complete = std::move(shallower);
    } else {
      low = middle;
    }
  }
  return complete;
}
