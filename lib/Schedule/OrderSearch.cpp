//===- OrderSearch.cpp - Improves an order and its cut --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A pipeline's step is a job shop: ranks are machines, a microbatch is a job.
// What shortens a schedule of one is to exchange neighbours on the critical
// path (van Laarhoven, Aarts and Lenstra, "Job Shop Scheduling by Simulated
// Annealing", 1992). Two things are different here. W wait for nothing but
// their I and move about freely; and how long an action takes is a choice as
// well: the cut.
//
// Microbatches are equal, so that each stage takes them in order.
//
//===----------------------------------------------------------------------===//

#include "OrderSearch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

using namespace plait;
using namespace plait::schedule;

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// An action as (kind, virtual stage, microbatch), in this order. Kinds are F,
/// I, W, and B where a whole backward is given: a number makes an index.
using Op = uint32_t;

/// One annealing, over one order and one cut. The order is a list of Ops a
/// rank, the cut a number of layers a virtual stage; a move changes one of
/// them, a simulation measures it, and a refused move is undone. Invariants
/// between moves: every list is in a legal order, all ranks keep the memory
/// limit, `positions` is the inverse of `ranks`, and `times` and `sizes` are
/// those of `cut`. The results of a simulation (`ends`, `clocks`) may be those
/// of a move that was undone.
class Annealer {
public:
  Annealer(const JointProblem &problem, const Candidate &start,
           const OrderSearchOptions &options);

  Candidate run();
  Candidate advanceWeights();
  double measure();

private:
  enum Kind : uint32_t { F, B, I, W };
  static_assert(uint32_t(ActionKind::Forward) == F &&
                uint32_t(ActionKind::Backward) == B &&
                uint32_t(ActionKind::BackwardInput) == I &&
                uint32_t(ActionKind::BackwardWeight) == W);

  /// A change that can be taken back.
  struct Move {
    enum { None, Work, Layers } kind = None;
    uint32_t rank = 0, from = 0, to = 0; // positions, or donor and receiver
  };

  /// The kind is outermost: `op / m` is the index of kind and stage, in
  /// `times`, and `op - m` what the same microbatch does one stage earlier.
  Op makeOp(uint32_t kind, uint32_t stage, uint32_t microbatch) const {
    return (kind * stages + stage) * m + microbatch;
  }
  uint32_t kindOf(Op op) const { return op / m / stages; }
  uint32_t stageOf(Op op) const { return op / m % stages; }

  void fillFacts();
  void fillTimes();
  double simulate();
  void advance(uint32_t rank);
  bool keepsLimit(uint32_t rank) const;
  bool keepsLimit() const;
  bool isOrdered(Op first, Op second) const;
  void findCritical();
  Move pickMove();
  Move pickCritical();
  Move pickAny();
  Move pickLayer();
  bool apply(const Move &move);
  void undo(const Move &move);
  void rotate(uint32_t rank, uint32_t from, uint32_t to);
  uint32_t draw(size_t count) { return uint32_t(random() % count); }
  double drawUnit() { return double(random() >> 11) * 0x1p-53; }
  Candidate toCandidate() const;

  const JointProblem &problem;
  const OrderSearchOptions &options;
  Problem shape;
  uint32_t stages, m;
  std::mt19937_64 random;

  std::vector<int> cut;
  std::vector<std::vector<Op>> ranks;
  std::vector<double> sums[4];      // of the layers in front: F, I, W, memory
  std::vector<double> times, sizes; // by kind and stage; by stage
  std::vector<uint32_t> rankOf;

  /// The facts that do not change: looked up, because a simulation takes hardly
  /// longer than a division an action.
  struct Fact {
    int32_t input = -1; // an Op that has to end on another stage; -1: none
    uint32_t time = 0;  // index
    double transfer = 0;
  };
  std::vector<Fact> facts;

  // Of the last simulation, in the unit of the layers' times. By Op the end,
  // negative until it has run; by rank the end of its last action.
  std::vector<double> ends, clocks;
  // By Op: the rank that is stopped in front of it; -1: none. One is enough:
  // what one stage makes, one other stage waits for.
  std::vector<int32_t> waiters;
  std::vector<uint32_t> cursors, runnable;
  double makespan = 0;
  uint64_t visits = 0;

  /// Pairs of neighbours on the critical path: rank, position of the second.
  std::vector<std::pair<uint32_t, uint32_t>> critical;
  // By Op: where in its rank's list it is.
  std::vector<uint32_t> positions;
};

} // namespace

/// Turns actions into Ops and looks up all that stays the same. Running sums
/// over the layers make the time of a stage a difference of two, whatever the
/// cut.
Annealer::Annealer(const JointProblem &problem, const Candidate &start,
                   const OrderSearchOptions &options)
    : problem(problem), options(options), shape(start.problem),
      stages(shape.virtualStages()), m(shape.microbatches),
      random(options.seed), cut(start.cut), ranks(shape.stages) {
  for (uint32_t stage = 0; stage < stages; ++stage)
    rankOf.push_back(shape.rankOf(stage));
  for (uint32_t rank = 0; rank < shape.stages; ++rank)
    for (const Action &action : start.ranks[rank])
      ranks[rank].push_back(makeOp(uint32_t(action.kind),
                                   shape.stageOf(rank, action.chunk),
                                   action.microbatch));
  for (std::vector<double> &sum : sums)
    sum.push_back(0);
  for (const Layer &layer : problem.layers) {
    double parts[] = {layer.forward, layer.backwardInput, layer.backwardWeight,
                      layer.activation};
    for (size_t i = 0; i < 4; ++i)
      sums[i].push_back(sums[i].back() + parts[i]);
  }
  times.resize(4 * size_t(stages));
  sizes.resize(stages);
  ends.resize(4 * size_t(stages) * m);
  waiters.resize(ends.size());
  positions.resize(ends.size());
  fillFacts();
  for (const std::vector<Op> &list : ranks)
    for (uint32_t i = 0; i < list.size(); ++i)
      positions[list[i]] = i;
  fillTimes();
}

/// Finds what an action waits for on another stage: an F for that of the stage
/// in front, a backward for that of the stage behind. What it waits for on its
/// own stage is in its rank's list, which isOrdered() keeps in order.
void Annealer::fillFacts() {
  std::vector<bool> exists(ends.size(), false);
  for (const std::vector<Op> &list : ranks)
    for (Op op : list)
      exists[op] = true;
  facts.resize(ends.size());
  for (Op op = 0; op < facts.size(); ++op) {
    Fact &fact = facts[op];
    uint32_t kind = kindOf(op), stage = stageOf(op);
    fact.time = op / m;
    if (kind == F && stage > 0) {
      fact.input = int32_t(op - m);
    } else if ((kind == B || kind == I) && stage + 1 < stages) {
      // Who has a whole backward may follow one that is split.
      Op whole = makeOp(B, stage + 1, op % m);
      fact.input =
          int32_t(exists[whole] ? whole : makeOp(I, stage + 1, op % m));
    }
    if (fact.input >= 0 && rankOf[stageOf(Op(fact.input))] != rankOf[stage])
      fact.transfer = problem.transfer;
  }
}

/// After the cut has changed.
void Annealer::fillTimes() {
  size_t next = 0;
  for (uint32_t stage = 0; stage < stages; ++stage) {
    size_t first = next;
    next += size_t(cut[stage]);
    auto get = [&](size_t part) {
      return sums[part][next] - sums[part][first];
    };
    times[F * stages + stage] = get(0);
    times[I * stages + stage] = get(1);
    times[W * stages + stage] = get(2);
    times[B * stages + stage] = get(1) + get(2);
    sizes[stage] = get(3);
  }
}

//===----------------------------------------------------------------------===//
// Simulation
//===----------------------------------------------------------------------===//

/// Earliest times for the order as it is. A rank is left where an input is
/// missing and looked at again when that has run, so that an action is visited
/// at most twice: time and memory grow with the actions. Infinite where the
/// order waits in a circle.
double Annealer::simulate() {
  std::fill(ends.begin(), ends.end(), -1); // has not run
  for (const std::vector<Op> &list : ranks)
    visits += list.size();
  std::fill(waiters.begin(), waiters.end(), -1);
  cursors.assign(shape.stages, 0);
  clocks.assign(shape.stages, 0);
  for (uint32_t rank = shape.stages; rank-- > 0;)
    runnable.push_back(rank);
  while (!runnable.empty()) {
    uint32_t rank = runnable.back();
    runnable.pop_back();
    advance(rank);
  }
  makespan = 0;
  for (uint32_t rank = 0; rank < shape.stages; ++rank) {
    makespan = std::max(makespan, clocks[rank]);
    if (cursors[rank] < ranks[rank].size())
      makespan = never;
  }
  return makespan;
}

/// Runs `rank` until it is done or waits.
void Annealer::advance(uint32_t rank) {
  const std::vector<Op> &list = ranks[rank];
  double clock = clocks[rank];
  uint32_t &cursor = cursors[rank];
  for (; cursor < list.size(); ++cursor) {
    Op op = list[cursor];
    const Fact &fact = facts[op];
    if (fact.input >= 0) {
      double arrival = ends[fact.input];
      if (arrival < 0) {
        waiters[fact.input] = int32_t(rank);
        break;
      }
      clock = std::max(clock, arrival + fact.transfer);
    }
    clock += times[fact.time];
    ends[op] = clock;
    if (waiters[op] >= 0 && uint32_t(waiters[op]) != rank)
      runnable.push_back(uint32_t(waiters[op]));
  }
  clocks[rank] = clock;
}

/// The memory that a rank holds follows from its order alone, not from times,
/// so that this comes before a simulation and needs none. Only a forward takes
/// memory: an input gradient frees all of it but the weight share, and the
/// weight gradient that.
bool Annealer::keepsLimit(uint32_t rank) const {
  if (problem.memory.limit == 0)
    return true;
  double share = problem.memory.weightShare, held = 0;
  for (Op op : ranks[rank]) {
    double size = sizes[stageOf(op)];
    switch (kindOf(op)) {
    case F:
      held += size;
      if (!problem.memory.allows(held))
        return false;
      break;
    case B:
      held -= size;
      break;
    case I:
      held -= (1 - share) * size;
      break;
    default:
      held -= share * size;
    }
  }
  return true;
}

bool Annealer::keepsLimit() const {
  for (uint32_t rank = 0; rank < shape.stages; ++rank)
    if (!keepsLimit(rank))
      return false;
  return true;
}

double Annealer::measure() { return keepsLimit() ? simulate() : never; }

//===----------------------------------------------------------------------===//
// Moves
//===----------------------------------------------------------------------===//

/// Whether `first` has to stay in front of `second` on their rank: what one
/// microbatch does on a stage, and one kind of action there.
bool Annealer::isOrdered(Op first, Op second) const {
  return stageOf(first) == stageOf(second) &&
         (first % m == second % m || kindOf(first) == kindOf(second));
}

/// Finds those of the last simulation, which ended.
void Annealer::findCritical() {
  critical.clear();
  uint32_t rank =
      uint32_t(std::max_element(clocks.begin(), clocks.end()) - clocks.begin());
  int64_t op = ranks[rank].empty() ? -1 : int64_t(ranks[rank].back());
  // Backwards from what ends last. An action that begins when the one in front
  // of it ends waits for it, and the two could be exchanged; one that begins
  // later waits for its input, and the path goes on where that is made. No
  // exchange elsewhere shortens the step by itself. The tolerance is for sums
  // that are rounded otherwise.
  while (op >= 0) {
    uint32_t stage = stageOf(Op(op));
    rank = rankOf[stage];
    uint32_t position = positions[op];
    double start = ends[op] - times[facts[op].time];
    bool isLate =
        position > 0 && ends[ranks[rank][position - 1]] >= start * (1 - 1e-12);
    if (isLate) {
      critical.push_back({rank, position});
      op = ranks[rank][position - 1];
    } else {
      op = facts[op].input;
    }
  }
}

/// Two neighbours on the critical path, or one of them further along.
Annealer::Move Annealer::pickCritical() {
  if (critical.empty())
    return {};
  auto [rank, position] = critical[draw(critical.size())];
  return {Move::Work, rank, position - 1, position};
}

/// An action anywhere, a short way up or down.
Annealer::Move Annealer::pickAny() {
  uint32_t rank = draw(shape.stages);
  if (!critical.empty() && draw(2))
    rank = critical[draw(critical.size())].first;
  uint32_t count = uint32_t(ranks[rank].size());
  if (count < 2)
    return {};
  uint32_t from = draw(count), reach = 1 + draw(std::min(count - 1, 8u));
  uint32_t to = draw(2) ? std::min(from + reach, count - 1)
                        : from - std::min(from, reach);
  return {Move::Work, rank, from, to};
}

/// A layer from one stage to another, mostly near.
/// A cut names how many layers a stage has, one after the other: with a layer
/// from stage 1 to stage 4, stages 2 and 3 keep as many but other ones. Half
/// of the draws are neighbours, where nothing else moves.
Annealer::Move Annealer::pickLayer() {
  if (stages < 2)
    return {};
  uint32_t from = draw(stages), to = draw(stages);
  if (draw(2))
    to = from + 1 < stages && (from == 0 || draw(2)) ? from + 1 : from - 1;
  if (from == to || cut[from] < 2)
    return {};
  return {Move::Layers, 0, from, to};
}

Annealer::Move Annealer::pickMove() {
  uint32_t dice = draw(100);
  // Most moves are on the critical path, where they can help at once;
  // without the others the search stays where the path cannot change.
  if (options.movesLayers && (dice < 15 || !options.movesWork))
    return pickLayer();
  return dice < 70 ? pickCritical() : pickAny();
}

/// Takes the action at `from` out and puts it in at `to`; those in between move
/// by one. rotate(to, from) is the inverse, which is all that undo needs.
void Annealer::rotate(uint32_t rank, uint32_t from, uint32_t to) {
  auto begin = ranks[rank].begin();
  if (from < to)
    std::rotate(begin + from, begin + from + 1, begin + to + 1);
  else
    std::rotate(begin + to, begin + from, begin + from + 1);
  for (uint32_t i = std::min(from, to); i <= std::max(from, to); ++i)
    positions[ranks[rank][i]] = i;
}

/// Whether that was allowed; changes nothing otherwise.
bool Annealer::apply(const Move &move) {
  if (move.kind == Move::None)
    return false;
  if (move.kind == Move::Layers) {
    // Other layers have other activations, on all stages in between.
    --cut[move.from], ++cut[move.to];
    fillTimes();
    if (keepsLimit())
      return true;
    undo(move);
    return false;
  }
  // The action must not pass any that it has to stay behind or in front of.
  // Actions in between keep their order, so that no other pair needs to be
  // looked at. A list that is legal may still deadlock with the others': the
  // simulation tells.
  const std::vector<Op> &list = ranks[move.rank];
  for (uint32_t i = std::min(move.from, move.to);
       i <= std::max(move.from, move.to); ++i)
    if (i != move.from && isOrdered(list[move.from], list[i]))
      return false;
  rotate(move.rank, move.from, move.to);
  if (keepsLimit(move.rank))
    return true;
  undo(move);
  return false;
}

/// Exact, as sums of times are recomputed from the cut and not adjusted.
void Annealer::undo(const Move &move) {
  if (move.kind == Move::Layers) {
    ++cut[move.from], --cut[move.to];
    fillTimes();
  } else {
    rotate(move.rank, move.to, move.from);
  }
}

//===----------------------------------------------------------------------===//
// Annealing
//===----------------------------------------------------------------------===//

/// Makes a candidate of the state at the last simulation, whose makespan it
/// carries.
Candidate Annealer::toCandidate() const {
  Candidate candidate{shape, cut, {}, makespan};
  for (const std::vector<Op> &list : ranks) {
    std::vector<Action> &actions = candidate.ranks.emplace_back();
    for (Op op : list)
      actions.push_back(
          {ActionKind(kindOf(op)), shape.chunkOf(stageOf(op)), op % m});
  }
  return candidate;
}

/// 1. The start is measured. One that does not end or does not keep the limit
///    is returned as infinite.
/// 2. The temperature (`heat`) begins at a share of the makespan and falls with
///    the visits, which are the budget.
/// 3. Moves are drawn, applied and simulated; Metropolis' rule says which stay.
///    The critical path is looked for again whenever one did.
/// 4. It ends when the budget is used up, at the bound, or when no move has
///    been allowed for long: a problem with one order and one cut.
///
/// The best that was met is kept apart, since the walk may leave it.
Candidate Annealer::run() {
  // When the other ranks end breaks ties, so that there is a slope.
  auto getCost = [&] {
    double sum = 0;
    for (double clock : clocks)
      sum += clock;
    return makespan + 0.02 * sum / double(clocks.size());
  };
  if (measure() == never)
    return {shape, cut, {}, never};
  Candidate best = toCandidate();
  double cost = getCost();
  findCritical();
  // From most of a percent of the step down to next to nothing; where there are
  // too few moves for that to cool, from little.
  double moves = double(options.visits) / double(visits); // of one simulation
  double enough = 200 * double(visits);
  const double hot = 0.008 * makespan * std::min(1.0, moves / enough);
  const double cold = std::min(hot, 0.00005 * makespan);
  uint64_t idle = 0; // moves in a row that were not allowed
  while (visits < options.visits && best.makespan > options.bound &&
         idle < 10000) {
    Move move = pickMove();
    if (!apply(move)) {
      ++idle;
      continue;
    }
    idle = 0;
    double done = double(visits) / double(options.visits);
    double heat = hot * std::pow(cold / hot, done);
    double next = simulate() == never ? never : getCost();
    // Metropolis' rule: what is worse by d is taken with probability exp(-d /
    // heat), and heat falls geometrically with the work that is done.
    if (next > cost && drawUnit() >= std::exp((cost - next) / heat)) {
      undo(move);
      continue;
    }
    cost = next;
    if (makespan < best.makespan * (1 - 1e-12))
      best = toCandidate();
    findCritical();
  }
  return best;
}

/// A simulation for each weight gradient, which is the square of the actions:
/// done once, at the end. From the front, since one that has moved leaves room
/// for the next.
Candidate Annealer::advanceWeights() {
  const double most = measure() * (1 + 1e-12);
  for (uint32_t rank = 0; rank < shape.stages; ++rank)
    for (uint32_t from = 0; from < ranks[rank].size(); ++from) {
      Op op = ranks[rank][from];
      if (kindOf(op) != W)
        continue;
      uint32_t to = positions[makeOp(I, stageOf(op), op % m)] + 1;
      Move move{Move::Work, rank, from, to};
      if (to < from && apply(move) && simulate() > most)
        undo(move);
    }
  simulate();
  return toCandidate();
}

Candidate schedule::advanceWeights(const JointProblem &problem,
                                   const Candidate &candidate) {
  return Annealer(problem, candidate, {}).advanceWeights();
}

Candidate schedule::improveOrder(const JointProblem &problem,
                                 const Candidate &start,
                                 const OrderSearchOptions &options) {
  return Annealer(problem, start, options).run();
}

double schedule::measureOrder(const JointProblem &problem,
                              const Candidate &candidate) {
  return Annealer(problem, candidate, {}).measure();
}
