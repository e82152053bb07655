//===- Greedy.cpp - A split-backward schedule by simulation ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Ranks decide in the order of time. When a rank does, all actions that start
// before that are known, and with them all messages that arrive up to one
// action and one transfer later: a rank sees how long it would wait.
//
// It ends with all work done: the oldest microbatch that is not finished is
// never held up. Its forward comes before all others; its activation has been
// given memory before those of all others, and leads that do not grow along the
// pipeline keep no rank waiting for a forward that the ranks before it hold
// back until they have an input gradient.

#include "Greedy.h"

#include <algorithm>
#include <bit>
#include <limits>

using namespace plait;
using namespace plait::schedule;

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// The next time at which each rank decides, and the earliest of them: a
/// tournament in a binary tree.
class Agenda {
public:
  explicit Agenda(uint32_t ranks)
      : leaves(std::bit_ceil(ranks)), times(2 * leaves, never) {}

  double operator[](uint32_t rank) const { return times[leaves + rank]; }

  void set(uint32_t rank, double time) {
    uint32_t node = leaves + rank;
    times[node] = time;
    while (node > 1) {
      node /= 2;
      times[node] = std::min(times[2 * node], times[2 * node + 1]);
    }
  }

  /// The lowest rank among those that decide first.
  uint32_t first() const {
    uint32_t node = 1;
    while (node < leaves)
      node = 2 * node + (times[2 * node] <= times[2 * node + 1] ? 0 : 1);
    return node - leaves;
  }

private:
  uint32_t leaves;
  std::vector<double> times;
};

struct Rank {
  double durations[3]; // F, I, W
  uint32_t counts[3] = {0, 0, 0};
  uint32_t lead = 1;
  double start = never; // of the first action
  double end = 0;       // of the last action
  double idle = 0;      // in between
};

constexpr ActionKind kinds[] = {ActionKind::Forward, ActionKind::BackwardInput,
                                ActionKind::BackwardWeight};
enum Work : uint8_t { F, I, W };

class Greedy {
public:
  Greedy(const Problem &problem, const Costs &costs, const MemoryModel &memory,
         const GreedyPolicy &policy);

  GreedyResult run();

private:
  void decide(uint32_t rank, double now);
  void decideIdle(uint32_t rank, double now, double next, bool blocked);
  void start(uint32_t rank, Work work, double now);
  void post(uint32_t rank, Work work, uint32_t microbatch, double time);

  /// When the next F or I of a rank can start, as far as is known.
  double getArrival(uint32_t rank, Work work) const {
    uint32_t next = ranks[rank].counts[work];
    return next < m ? arrivals[work][size_t(rank) * m + next] : never;
  }

  const MemoryModel &memory;
  const GreedyPolicy &policy;
  const uint32_t p, m;
  const double transfer;
  double tolerance = 0; // times closer than this are equal
  std::vector<Rank> ranks;
  std::vector<double> arrivals[2]; // of inputs, by rank and microbatch
  Agenda agenda;
  GreedyResult result;
};

} // namespace

Greedy::Greedy(const Problem &problem, const Costs &costs,
               const MemoryModel &memory, const GreedyPolicy &policy)
    : memory(memory), policy(policy), p(problem.stages),
      m(problem.microbatches), transfer(costs.transfer), ranks(p), agenda(p) {
  for (std::vector<double> &times : arrivals)
    times.assign(size_t(p) * m, never);
  std::fill_n(arrivals[F].begin(), m, 0.0);
  result.ranks.resize(p);
  for (uint32_t rank = 0; rank < p; ++rank) {
    double durations[] = {costs.forwardOf(rank), costs.backwardInputOf(rank),
                          costs.backwardWeightOf(rank)};
    std::copy_n(durations, 3, ranks[rank].durations);
    ranks[rank].lead = policy.leads[rank];
    result.ranks[rank].reserve(3 * size_t(m));
    for (double duration : durations)
      tolerance = std::max(tolerance, 1e-9 * duration);
  }
  agenda.set(0, 0);
}

void Greedy::post(uint32_t rank, Work work, uint32_t microbatch, double time) {
  arrivals[work][size_t(rank) * m + microbatch] = time;
  // A rank that waits looks again; one that works does so at its end anyway.
  double look = std::max(time, ranks[rank].end);
  if (look < agenda[rank])
    agenda.set(rank, look);
}

void Greedy::start(uint32_t index, Work work, double now) {
  Rank &rank = ranks[index];
  uint32_t microbatch = rank.counts[work]++;
  if (rank.start == never)
    rank.start = now;
  else
    rank.idle += now - rank.end;
  rank.end = now + rank.durations[work];
  agenda.set(index, rank.end);
  result.ranks[index].push_back(kinds[work]);
  if (work == F && index + 1 < p)
    post(index + 1, F, microbatch, rank.end + transfer);
  else if (work == F)
    post(index, I, microbatch, rank.end);
  else if (work == I && index > 0)
    post(index - 1, I, microbatch, rank.end + transfer);
}

/// What to do when neither a forward nor an input gradient can start: `next` is
/// when one can, as far as is known, `blocked` that a forward lacks memory.
void Greedy::decideIdle(uint32_t index, double now, double next, bool blocked) {
  Rank &rank = ranks[index];
  bool pending = rank.counts[I] > rank.counts[W];
  if (!pending)
    return agenda.set(index, next);
  double gap = next - now;
  double idle = gap;
  if (policy.spread)
    idle *= std::max(1u, m - rank.counts[I]);
  bool fits = gap >= rank.durations[W] - tolerance;
  if (blocked || fits || rank.idle + idle > policy.allowance[index] + tolerance)
    return start(index, W, now);
  agenda.set(index, next);
}

void Greedy::decide(uint32_t index, double now) {
  Rank &rank = ranks[index];
  uint32_t whole = rank.counts[F] - rank.counts[I];
  double held = whole + memory.weightShare * (rank.counts[I] - rank.counts[W]);
  double forward = getArrival(index, F), input = getArrival(index, I);
  if (rank.counts[I] == 0 && rank.counts[F] < std::min(rank.lead, m))
    input = never; // not yet
  if (whole >= rank.lead)
    forward = never;
  bool blocked = forward <= now + tolerance && !memory.allows(held + 1);
  if (!memory.allows(held + 1))
    forward = never;

  bool canForward = forward <= now + tolerance;
  bool canInput = input <= now + tolerance;
  if (canInput && (policy.inputFirst || !canForward))
    return start(index, I, now);
  if (canForward)
    return start(index, F, now);
  decideIdle(index, now, std::min(forward, input), blocked);
}

GreedyResult Greedy::run() {
  for (;;) {
    uint32_t rank = agenda.first();
    double now = agenda[rank];
    if (now == never)
      break;
    decide(rank, now);
  }
  for (const Rank &rank : ranks)
    result.span = std::max(result.span, rank.end - rank.start);
  return std::move(result);
}

GreedyResult schedule::runGreedy(const Problem &problem, const Costs &costs,
                                 const MemoryModel &memory,
                                 const GreedyPolicy &policy) {
  return Greedy(problem, costs, memory, policy).run();
}
