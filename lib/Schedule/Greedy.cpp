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
// With reserved places and without a window it ends with all work done: the
// oldest microbatch that is not finished is never held up. Its forward on a
// stage comes before all others there. A forward of chunk c leaves a place for
// each later chunk of the rank, so that a rank on which a chunk has not begun
// with that microbatch holds, once its weight gradients have run, nothing of
// that chunk and has a place for it. Leads that do not grow along the pipeline
// keep no rank waiting for a forward that the ranks before it hold back until
// they have an input gradient.

#include "Greedy.h"

#include <algorithm>
#include <bit>
#include <limits>

using namespace plait;
using namespace plait::schedule;

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// The next time at which each rank decides, and the earliest of them: a
/// tournament in a binary tree, each node of which has its winner. Setting a
/// time takes time logarithmic in the ranks at most.
class Agenda {
public:
  explicit Agenda(uint32_t ranks)
      : leaves(std::bit_ceil(ranks)), times(leaves, never),
        winners(2 * leaves) {
    for (uint32_t node = 2 * leaves; --node > 0;)
      winners[node] = node >= leaves ? node - leaves : winners[2 * node];
  }

  double operator[](uint32_t rank) const { return times[rank]; }

  void set(uint32_t rank, double time) {
    times[rank] = time;
    for (uint32_t node = (leaves + rank) / 2; node > 0; node /= 2) {
      uint32_t left = winners[2 * node], right = winners[2 * node + 1];
      uint32_t winner = times[left] <= times[right] ? left : right;
      // Neither was nor is the rank the first of these: nothing changes above.
      if (winner == winners[node] && winner != rank)
        return;
      winners[node] = winner;
    }
  }

  /// The lowest rank among those that decide first.
  uint32_t first() const { return winners[1]; }

private:
  uint32_t leaves;
  std::vector<double> times;     // by rank
  std::vector<uint32_t> winners; // by node; the root is 1
};

// No whole backwards: an I with its W at once is an order that the engine can
// choose, but never has to.
enum Work : uint8_t { F, I, W };
constexpr ActionKind kinds[] = {ActionKind::Forward, ActionKind::BackwardInput,
                                ActionKind::BackwardWeight};

/// A virtual stage.
struct Stage {
  uint32_t rank;                   // problem.rankOf, without its divisions
  double durations[3];             // F, I, W
  double size;                     // of what a microbatch holds
  uint32_t counts[3] = {0, 0, 0};  // started
  std::vector<double> arrivals[2]; // of inputs of F and I, by microbatch
};

struct Rank {
  double held = 0;      // of the activations
  uint32_t weights = 0; // chunks of microbatches between their I and their W
  size_t next = 0;      // in the order, if there is one
  double start = never; // of the first action
  double end = 0;       // of the last action
  double idle = 0;      // in between
  double work = 0;      // of all actions
};

/// An action that a rank may do next.
struct Candidate {
  double priority = never; // less is earlier
  uint32_t chunk = 0;
  Work work = F;
  double arrival = never;
};

/// One run. The state is what each rank holds and has done so far, how many of
/// each kind have started on each virtual stage, and when inputs arrive.
/// Microbatches start in order in each kind of each stage, so that a count says
/// which comes next. Memory is claimed when an F starts and given back when an
/// I or W starts: a rank does one thing at a time, so that nothing can ask for
/// it in between.
class Greedy {
public:
  Greedy(const Problem &problem, const Costs &costs, const MemoryModel &memory,
         const GreedyPolicy &policy);

  GreedyResult run();

private:
  bool findCandidates(uint32_t rank, double now);
  void decide(uint32_t rank, double now);
  void decideIdle(uint32_t rank, double now, double next, bool blocked);
  void start(uint32_t rank, uint32_t chunk, Work work, double now);
  void post(uint32_t stage, Work work, uint32_t microbatch, uint32_t from,
            double time);

  uint32_t getStage(uint32_t rank, uint32_t chunk) const {
    return stageOf[rank * problem.chunks + chunk];
  }
  bool hasPlace(uint32_t rank, uint32_t chunk) const;
  bool isNext(uint32_t rank, uint32_t chunk, Work work) const;
  bool allowsByLead(uint32_t rank, const Stage &stage, Work work) const;
  double getPriority(uint32_t stage, uint32_t chunk, Work work) const;
  Candidate getCandidate(uint32_t rank, uint32_t chunk, Work work) const;

  const Problem &problem;
  const MemoryModel &memory;
  const GreedyPolicy &policy;
  const uint32_t m;
  const double transfer;
  const double cutoff;
  double tolerance = 0; // times closer than this are equal
  bool isCutOff = false;
  std::vector<Stage> stages;
  /// The stage of each chunk of each rank, as problem.stageOf has it, without
  /// its divisions.
  std::vector<uint32_t> stageOf;
  std::vector<Rank> ranks;
  Agenda agenda;
  std::vector<Candidate> candidates; // of the rank that decides
  GreedyResult result;
};

} // namespace

/// Everything is at its beginning: the inputs of the first stage are there,
/// nothing else is, and rank 0 is the first to decide.
Greedy::Greedy(const Problem &problem, const Costs &costs,
               const MemoryModel &memory, const GreedyPolicy &policy)
    : problem(problem), memory(memory), policy(policy), m(problem.microbatches),
      // Sums of the same terms differ by their order.
      transfer(costs.transfer), cutoff(policy.cutoff * (1 + 1e-9)),
      stages(problem.virtualStages()), ranks(problem.stages),
      agenda(problem.stages) {
  result.ranks.resize(problem.stages);
  for (std::vector<Action> &actions : result.ranks)
    actions.reserve(3 * size_t(problem.chunks) * m);
  for (uint32_t index = 0; index < stages.size(); ++index) {
    Stage &stage = stages[index];
    stage.rank = problem.rankOf(index);
    double durations[] = {costs.forwardOf(index), costs.backwardInputOf(index),
                          costs.backwardWeightOf(index)};
    std::copy_n(durations, 3, stage.durations);
    stage.size = memory.sizeOf(problem, index);
    stage.arrivals[F].assign(m, index == 0 ? 0 : never);
    stage.arrivals[I].assign(m, never);
    // Sums of the same durations in another order differ by rounding, which
    // must not decide who goes first.
    for (double duration : durations) {
      tolerance = std::max(tolerance, 1e-9 * duration);
      ranks[stage.rank].work += m * duration;
    }
  }
  stageOf.reserve(stages.size());
  for (uint32_t rank = 0; rank < problem.stages; ++rank)
    for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk)
      stageOf.push_back(problem.stageOf(rank, chunk));
  agenda.set(0, 0);
}

/// The input of `stage` is there at `time`, and a transfer later if it comes
/// from another rank.
void Greedy::post(uint32_t stage, Work work, uint32_t microbatch, uint32_t from,
                  double time) {
  uint32_t rank = stages[stage].rank;
  time += rank == from ? 0 : transfer;
  stages[stage].arrivals[work][microbatch] = time;
  // A rank that waits looks again; one that works does so at its end anyway.
  double look = std::max(time, ranks[rank].end);
  if (look < agenda[rank])
    agenda.set(rank, look);
}

/// Puts the action into the list and lets the rank decide again at its end.
/// Keeps the account of idle time: the work of a rank and the idle time that it
/// cannot make up for any more bound its span from below, which ends a run that
/// cannot be below the cutoff.
void Greedy::start(uint32_t index, uint32_t chunk, Work work, double now) {
  Rank &rank = ranks[index];
  uint32_t position = getStage(index, chunk);
  Stage &stage = stages[position];
  uint32_t microbatch = stage.counts[work]++;
  if (rank.start == never)
    rank.start = now;
  else
    rank.idle += now - rank.end;
  isCutOff |= rank.work + rank.idle >= cutoff;
  rank.end = now + stage.durations[work];
  // A forward takes `size`; the input gradient leaves the weight share of it,
  // which the weight gradient frees.
  rank.held += stage.size * (work == F   ? 1
                             : work == I ? memory.weightShare - 1
                                         : -memory.weightShare);
  rank.next += work != W;
  rank.weights += (work == I) - (work == W);
  agenda.set(index, rank.end);
  result.ranks[index].push_back({kinds[work], chunk, microbatch});
  // On the last stage the F is the input of its own I. Nothing waits for the
  // first stage's I.
  if (work == F && position + 1 < stages.size())
    post(position + 1, F, microbatch, index, rank.end);
  else if (work == F)
    post(position, I, microbatch, index, rank.end);
  else if (work == I && position > 0)
    post(position - 1, I, microbatch, index, rank.end);
}

/// Whether one more forward of `chunk` leaves a place for each later one.
bool Greedy::hasPlace(uint32_t rank, uint32_t chunk) const {
  if (memory.limit == 0)
    return true;
  double held = ranks[rank].held;
  uint32_t end = policy.reserves ? problem.chunks : chunk + 1;
  for (; chunk < end; ++chunk)
    held += stages[getStage(rank, chunk)].size;
  return memory.allows(held);
}

/// Only the next F or I of a given order may start; without one anything may. W
/// are in no order and are not asked about.
bool Greedy::isNext(uint32_t rank, uint32_t chunk, Work work) const {
  if (!policy.order)
    return true;
  const std::vector<Action> &order = (*policy.order)[rank];
  size_t next = ranks[rank].next;
  return next < order.size() && order[next].chunk == chunk &&
         order[next].kind == kinds[work];
}

/// No more forwards than the lead are unanswered by an I, which bounds memory
/// as the warm-up was planned; and the first I comes only after as many
/// forwards as the lead, so that a rank does not end its warm-up early.
bool Greedy::allowsByLead(uint32_t rank, const Stage &stage, Work work) const {
  if (policy.leads.empty())
    return true;
  uint32_t lead = policy.leads[rank];
  if (work == F)
    return stage.counts[F] - stage.counts[I] < lead;
  return stage.counts[I] > 0 || stage.counts[F] >= std::min(lead, m);
}

/// Without a pattern: forwards of later chunks and input gradients of earlier
/// ones go first, because they are closer to where they free memory.
double Greedy::getPriority(uint32_t stage, uint32_t chunk, Work work) const {
  if (policy.pattern)
    return policy.pattern->getStart(work, stage, stages[stage].counts[work]);
  bool first = (work == I) == policy.inputFirst;
  double rest = work == I ? chunk : problem.chunks - 1 - chunk;
  return rest + (first ? 0 : problem.chunks);
}

/// The next F or I of a chunk, as far as it is known. A forward that lacks
/// memory is none.
Candidate Greedy::getCandidate(uint32_t rank, uint32_t chunk, Work work) const {
  uint32_t position = getStage(rank, chunk);
  const Stage &stage = stages[position];
  uint32_t next = stage.counts[work];
  if (next == m || !allowsByLead(rank, stage, work) ||
      !isNext(rank, chunk, work))
    return {};
  return {getPriority(position, chunk, work), chunk, work,
          stage.arrivals[work][next]};
}

/// Decides what to do when neither a forward nor an input gradient can start:
/// `next` is when one can, as far as is known, `blocked` that a forward lacks
/// memory.
void Greedy::decideIdle(uint32_t index, double now, double next, bool blocked) {
  Rank &rank = ranks[index];
  if (rank.weights == 0)
    return agenda.set(index, next);
  // The weight gradient that has waited longest, by microbatch: it is the one
  // that holds memory longest.
  uint32_t oldest = m, chunk = 0, left = 0;
  for (uint32_t i = 0; i < problem.chunks; ++i) {
    const Stage &stage = stages[getStage(index, i)];
    left = std::max(left, m - stage.counts[I]);
    if (stage.counts[W] < std::min(stage.counts[I], oldest))
      oldest = stage.counts[W], chunk = i;
  }
  double gap = next - now;
  double idle = policy.spread ? gap * std::max(1u, left) : gap;
  double weight = stages[getStage(index, chunk)].durations[W];
  // A weight gradient runs where it delays nothing, where waiting would use up
  // what the rank may idle, and where a forward is held up by memory, which
  // nothing else of this rank frees.
  bool fits = gap >= weight - tolerance;
  if (blocked || fits || rank.idle + idle > policy.allowance[index] + tolerance)
    return start(index, chunk, W, now);
  agenda.set(index, next);
}

/// Finds what the rank may do next, whether its input has arrived or not. A
/// forward without a place in memory is left out, and returned is whether that
/// is all that one lacks: an input gradient always has one.
bool Greedy::findCandidates(uint32_t index, double now) {
  candidates.clear();
  bool blocked = false;
  for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk)
    for (Work work : {F, I})
      if (Candidate other = getCandidate(index, chunk, work);
          work == I || hasPlace(index, chunk))
        candidates.push_back(other);
      else
        blocked |= other.arrival <= now + tolerance;
  return blocked;
}

/// 1. The earliest start that the pattern has among the candidates is found:
///    it may still be on its way, and what comes more than the window after it
///    must wait for it.
/// 2. Of the candidates that may start, have their input and are within the
///    window of that, the first by priority is started.
/// 3. Otherwise the rank fills the time or waits until the next input that is
///    known.
void Greedy::decide(uint32_t index, double now) {
  bool blocked = findCandidates(index, now);
  double next = never, first = never; // arrival; priority
  for (const Candidate &other : candidates)
    first = std::min(first, other.priority);
  Candidate best;
  for (const Candidate &other : candidates) {
    if (other.priority > first + policy.window)
      continue;
    if (other.arrival > now + tolerance)
      next = std::min(next, other.arrival);
    else if (other.priority < best.priority)
      best = other;
  }
  if (best.priority != never)
    return start(index, best.chunk, best.work, now);
  decideIdle(index, now, next, blocked);
}

/// Each decision starts an action or puts the rank off to a later time that is
/// known: time grows with the actions, times the chunks of a rank and the
/// logarithm of the ranks.
GreedyResult Greedy::run() {
  for (;;) {
    uint32_t rank = agenda.first();
    double now = agenda[rank];
    if (now == never || isCutOff)
      break;
    decide(rank, now);
  }
  for (const Rank &rank : ranks) {
    result.span = std::max(result.span, rank.end - rank.start);
    result.makespan = std::max(result.makespan, rank.end);
  }
  // Work is left that nothing can start: there is no such step.
  for (const Stage &stage : stages)
    if (stage.counts[W] < m)
      result.span = result.makespan = never;
  return std::move(result);
}

GreedyResult schedule::runGreedy(const Problem &problem, const Costs &costs,
                                 const MemoryModel &memory,
                                 const GreedyPolicy &policy) {
  return Greedy(problem, costs, memory, policy).run();
}
