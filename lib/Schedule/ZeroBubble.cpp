//===- ZeroBubble.cpp - Handcrafted schedules with a split backward -------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The handcrafted schedules with split backwards: ZB-H1, ZB-H2 and ZB-V (Qi et
// al.), and DualPipe cut in half (DeepSeek, Sea AI Lab). Each is written down
// as the list of one rank, from its number and the microbatches alone, without
// executing anything: the phases are in the comments of the classes. Costs play
// no part, so that an order is the same for every model.
//
//===----------------------------------------------------------------------===//

#include "ZeroBubble.h"

#include <algorithm>
#include <tuple>

using namespace plait;
using namespace plait::schedule;

//===----------------------------------------------------------------------===//
// One chunk
//===----------------------------------------------------------------------===//

/// Linear in the microbatches. A lead or a delay above their number is taken
/// for that number.
std::vector<Action> schedule::delayWeights(uint32_t microbatches, uint32_t lead,
                                           uint32_t delay) {
  std::vector<Action> actions;
  actions.reserve(3 * size_t(microbatches));
  lead = std::min(lead, microbatches);
  delay = std::min(delay, microbatches);
  for (uint32_t m = 0; m < lead; ++m)
    actions.push_back({ActionKind::Forward, 0, m});
  for (uint32_t m = 0; m < microbatches; ++m) {
    actions.push_back({ActionKind::BackwardInput, 0, m});
    // Before the forward, which can use the memory.
    if (m >= delay)
      actions.push_back({ActionKind::BackwardWeight, 0, m - delay});
    if (m < microbatches - lead)
      actions.push_back({ActionKind::Forward, 0, m + lead});
  }
  for (uint32_t m = microbatches - delay; m < microbatches; ++m)
    actions.push_back({ActionKind::BackwardWeight, 0, m});
  return actions;
}

/// Has as many forwards in front as 1F1B, hence as much memory; weight
/// gradients come later by as many microbatches as ranks come before, so that
/// input gradients, which those wait for, go first.
Schedule schedule::zeroBubbleH1(const Problem &problem) {
  Schedule schedule{problem, ""};
  for (uint32_t rank = 0; rank < problem.stages; ++rank)
    schedule.ranks.push_back(
        delayWeights(problem.microbatches, problem.stages - rank, rank));
  return schedule;
}

/// Twice the forwards less one, which fill the time before the first backward
/// as well: with F, I and W equally long no rank waits between its first
/// action and its last, for about twice the memory.
Schedule schedule::zeroBubbleH2(const Problem &problem) {
  Schedule schedule{problem, ""};
  for (uint32_t rank = 0; rank < problem.stages; ++rank)
    schedule.ranks.push_back(delayWeights(
        problem.microbatches, 2 * (problem.stages - rank) - 1, 2 * rank));
  return schedule;
}

//===----------------------------------------------------------------------===//
// Two chunks in a V
//===----------------------------------------------------------------------===//

namespace {

/// The list of one rank. In four phases, each action having a slot in one:
///
///   0  forwards of chunk 0, until the first microbatch is back from the turn
///   1  chunk 1 and chunk 0 forwards in turn
///   2  chunk 1: forward, input and weight gradient
///   3  rounds of F0 I0 W0 F1 I1 W1; where microbatches run out, the rest of
///      the round stays in its order
///   4  weight gradients left out of the rounds without forwards, in which the
///      ranks before this one wait for input gradients
///
/// The phases are long enough for at least 2p - 1 microbatches. With fewer, the
/// slots of those that do not exist stay empty.
class VList {
public:
  VList(const Problem &problem, uint32_t rank)
      : problem(problem), rank(rank), p(problem.stages),
        padded(std::max<int64_t>(problem.microbatches, 2 * p - 1)) {}

  std::vector<Action> run() {
    slots.reserve(6 * size_t(problem.microbatches));
    for (int64_t m = 0; m < problem.microbatches; ++m) {
      addFirstChunk(m);
      addSecondChunk(m);
    }
    std::sort(slots.begin(), slots.end(), [](const Slot &a, const Slot &b) {
      return std::tie(a.phase, a.place) < std::tie(b.phase, b.place);
    });
    std::vector<Action> actions;
    actions.reserve(slots.size());
    for (const Slot &slot : slots)
      actions.push_back(slot.action);
    return actions;
  }

private:
  struct Slot {
    int64_t phase, place;
    Action action;
  };

  void add(int64_t phase, int64_t place, ActionKind kind, uint32_t chunk,
           int64_t microbatch) {
    slots.push_back({phase, place, {kind, chunk, uint32_t(microbatch)}});
  }

  void addFirstChunk(int64_t m) {
    int64_t alone = 2 * (p - rank) - 1; // phase 0
    if (m < alone)
      add(0, m, ActionKind::Forward, 0, m);
    else if (m < alone + rank)
      add(1, 2 * (m - alone) + 1, ActionKind::Forward, 0, m);
    else
      add(3, 6 * (m - alone - rank), ActionKind::Forward, 0, m);
    add(3, 6 * m + 1, ActionKind::BackwardInput, 0, m);
    int64_t drained = padded - p; // first round without forwards
    if (m < drained || m >= drained + rank)
      add(3, 6 * m + 2, ActionKind::BackwardWeight, 0, m);
    else
      add(4, 2 * m, ActionKind::BackwardWeight, 0, m);
  }

  void addSecondChunk(int64_t m) {
    if (m < rank)
      add(1, 2 * m, ActionKind::Forward, 1, m);
    else if (m < p)
      add(2, 3 * (m - rank), ActionKind::Forward, 1, m);
    else
      add(3, 6 * (m - p) + 3, ActionKind::Forward, 1, m);
    int64_t early = p - rank; // backwards of phase 2
    if (m < early) {
      add(2, 3 * m + 1, ActionKind::BackwardInput, 1, m);
      add(2, 3 * m + 2, ActionKind::BackwardWeight, 1, m);
      return;
    }
    add(3, 6 * (m - early) + 4, ActionKind::BackwardInput, 1, m);
    if (m < padded - rank)
      add(3, 6 * (m - early) + 5, ActionKind::BackwardWeight, 1, m);
    else
      add(4, 2 * m + 1, ActionKind::BackwardWeight, 1, m);
  }

  const Problem &problem;
  int64_t rank, p, padded;
  std::vector<Slot> slots;
};

} // namespace

template <typename List> static Schedule writeLists(const Problem &problem) {
  Schedule schedule{problem, ""};
  for (uint32_t rank = 0; rank < problem.stages; ++rank)
    schedule.ranks.push_back(List(problem, rank).run());
  return schedule;
}

Schedule schedule::zeroBubbleV(const Problem &problem) {
  return writeLists<VList>(problem);
}

//===----------------------------------------------------------------------===//
// DualPipe, cut in half
//===----------------------------------------------------------------------===//

namespace {

/// The list of one rank. For rank r, with b the ranks after it, and at least 2p
/// microbatches:
///
///   2b       times  F0
///   r + 1    times  F0 F1
///   b        times  I1 W1 F1
///   the rest of F0  F0 B1 F1 B0      forwards beside backwards
///   b        times  B1 F1 B0
///   r + 1    times  B1 B0            in the second half without their W
///   b        times  W I0             the oldest W there is
///   the rest        W
///
/// B is an I and its W. With fewer microbatches, those that do not exist are
/// left out: a microbatch waits for no later one.
class DualPipeList {
public:
  DualPipeList(const Problem &problem, uint32_t rank)
      : microbatches(problem.microbatches),
        padded(std::max(problem.microbatches, 2 * problem.stages)), rank(rank),
        behind(problem.stages - 1 - rank) {}

  std::vector<Action> run() {
    repeat(2 * behind, [&] { forward(0); });
    repeat(rank + 1, [&] { forward(0), forward(1); });
    repeat(behind, [&] { backward(1), forward(1); });
    repeat(padded - 2 * behind - (rank + 1),
           [&] { forward(0), backward(1), forward(1), backward(0); });
    repeat(behind, [&] { backward(1), forward(1), backward(0); });
    for (uint32_t i = 0; i < 2 * (rank + 1); ++i)
      (i <= rank) ? backward(1 - i % 2) : input(1 - i % 2);
    repeat(behind, [&] { weight(), input(0); });
    repeat(rank + 1, [&] { weight(); });
    return std::move(actions);
  }

private:
  template <typename Body> static void repeat(uint32_t times, Body body) {
    for (uint32_t i = 0; i < times; ++i)
      body();
  }
  void add(const Action &action) {
    if (action.microbatch < microbatches)
      actions.push_back(action);
  }
  void forward(uint32_t chunk) {
    add({ActionKind::Forward, chunk, forwards[chunk]++});
  }
  void input(uint32_t chunk) {
    add({ActionKind::BackwardInput, chunk, inputs[chunk]});
    pending.push_back({ActionKind::BackwardWeight, chunk, inputs[chunk]++});
  }
  void weight() { add(pending[weights++]); }
  void backward(uint32_t chunk) { input(chunk), weight(); }

  uint32_t microbatches, padded, rank, behind;
  uint32_t forwards[2] = {0, 0}, inputs[2] = {0, 0};
  std::vector<Action> pending; // W in the order of their I
  size_t weights = 0;
  std::vector<Action> actions;
};

} // namespace

Schedule schedule::dualPipeV(const Problem &problem) {
  return writeLists<DualPipeList>(problem);
}
