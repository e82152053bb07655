//===- Automatic.cpp - The best schedule for costs and a memory limit -----===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Qi et al. (section 3.1 of "Zero Bubble Pipeline Parallelism", ICLR 2024) fill
// the time before the first backward with as many forwards as fit, then
// alternate F, I and W, put W into gaps, and run this for all settings of three
// choices. This search has the same shape and differs in what guides it:
//
//  - The forwards before the first backward are not filled up from the front
//    but planned for all ranks together. Where a whole number of them does not
//    fit the round trip, one rank in the middle runs one more and the ranks
//    before it all gain from that.
//  - A rank may wait rather than start a W too long for a gap as long as its
//    idle time stays within what a lower bound on the span leaves for it, spent
//    evenly: late in a step a delay on one rank delays all ranks before it.
//  - The search stops at the bound. On the twelve settings published in the
//    paper it gets there, mostly at once.
//
// In a V the rhythms of V-Half and V-Min guide the engine, within any limit:
// the first is the faster the more memory there is. Where neither ends within
// the limit, the engine without a rhythm does.

#include "ControllableMemory.h"
#include "Execute.h"
#include "WarmUp.h"
#include "ZeroBubble.h"
#include "plait/Schedule/Bound.h"

#include <algorithm>
#include <limits>

using namespace plait;
using namespace plait::schedule;

namespace {

/// One search. `best` is always a sound schedule within the limit, or empty
/// while nothing has been found; `bestSpan` is its span and only falls. Runs of
/// the engine are cut off at it, so that a setting that cannot win costs
/// little.
class Search {
public:
  Search(const Problem &problem, const GeneratorOptions &options);

  Schedule run();
  Schedule runV();

private:
  // By rank: forwards before the first input gradient.
  using Leads = std::vector<uint32_t>;

  std::vector<double> getAllowance(double span) const;
  std::vector<Leads> planLeads() const;
  bool atBound() const { return bestSpan <= bound * (1 + 1e-9); }
  void tryHandcrafted(uint32_t factor);
  void tryGreedy(const Leads &leads, double span, bool spread, bool inputFirst);
  void take(Schedule schedule);
  void take(GreedyResult result);

  const Problem &problem;
  const Costs &costs;
  const MemoryModel &memory;
  uint32_t capacity;
  double bound;
  double bestSpan = std::numeric_limits<double>::infinity();
  Schedule best;
};

} // namespace

Search::Search(const Problem &problem, const GeneratorOptions &options)
    : problem(problem), costs(options.costs), memory(options.memory),
      capacity(getCapacity(problem, memory)) {
  Result<Bound> result = boundSpan(problem, costs, memory);
  bound = result.ok() ? result->span : 0; // generate() has checked all of it
}

/// How long each rank may be idle in a schedule of `span`.
std::vector<double> Search::getAllowance(double span) const {
  std::vector<double> allowance;
  for (uint32_t rank = 0; rank < problem.stages; ++rank)
    allowance.push_back(span - getWork(problem, costs, rank));
  return allowance;
}

/// The least idle time before the first backward, what the bound leaves for it,
/// and as many forwards as the handcrafted H1 has.
std::vector<Search::Leads> Search::planLeads() const {
  auto plan = [&](double span) {
    return planWarmUp(problem, costs, capacity, getAllowance(span));
  };
  double work = getWork(problem, costs);
  // Enough for any warm-up: bisection needs an upper end that holds.
  double roundTrip = 2 * costs.transfer * problem.stages;
  for (uint32_t rank = 0; rank < problem.stages; ++rank)
    roundTrip += costs.forwardOf(rank) + costs.backwardInputOf(rank);
  double least = bisect(work, work + roundTrip, [&](double span) {
                   return plan(span).has_value();
                 }).second;
  std::vector<Leads> result;
  for (double span : {least, bound})
    if (std::optional<Leads> leads = plan(span))
      result.push_back(std::move(*leads));
  Leads &likeH1 = result.emplace_back();
  for (uint32_t rank = 0; rank < problem.stages; ++rank)
    likeH1.push_back(std::min(capacity, problem.stages - rank));
  // Uneven stages may leave a rank with more than the one before it sends.
  for (Leads &leads : result)
    for (uint32_t rank = 1; rank < problem.stages; ++rank)
      leads[rank] = std::min(leads[rank], leads[rank - 1]);
  return result;
}

/// H1 (factor 1) or H2 (factor 2), cut down to the memory limit.
void Search::tryHandcrafted(uint32_t factor) {
  Schedule schedule{problem, ""};
  for (uint32_t rank = 0; rank < problem.stages; ++rank) {
    uint32_t lead =
        std::min(capacity, factor * (problem.stages - rank) - (factor - 1));
    double delay = factor * rank;
    // The microbatches that are held whole come first; the memory that is left
    // bounds how many W may be delayed.
    if (memory.limit != 0 && memory.weightShare > 0)
      delay = std::min(delay, (memory.limit - lead) / memory.weightShare);
    schedule.ranks.push_back(delayWeights(problem.microbatches, lead, delay));
  }
  take(std::move(schedule));
}

/// Keeps the faster one.
void Search::take(Schedule schedule) {
  Result<Timeline> timeline = execute(schedule, costs);
  if (!timeline.ok() || timeline->span >= bestSpan)
    return;
  bestSpan = timeline->span;
  best = std::move(schedule);
}

void Search::take(GreedyResult result) {
  if (result.span >= bestSpan)
    return;
  bestSpan = result.span;
  best = {problem, "", std::move(result.ranks)};
}

/// One run of the engine with the idle time that a step of `span` leaves to
/// each rank. A span of 0 leaves none (W fill every gap), an infinite one any.
void Search::tryGreedy(const Leads &leads, double span, bool spread,
                       bool inputFirst) {
  take(runGreedy(problem, costs, memory,
                 {.leads = leads,
                  .allowance = getAllowance(span),
                  .spread = spread,
                  .inputFirst = inputFirst,
                  .cutoff = bestSpan}));
}

// In the order of how often each was the first to reach the bound on random
// problems. Handcrafted schedules are second because they cost least.
Schedule Search::run() {
  constexpr double always = std::numeric_limits<double>::infinity();
  std::vector<Leads> planned = planLeads();
  tryGreedy(planned.front(), bound, true, false);
  for (uint32_t factor = 1; factor <= 2 && !atBound(); ++factor)
    tryHandcrafted(factor);
  for (auto leads = planned.begin(); leads != planned.end(); ++leads) {
    // Little memory makes them equal: then only what depends on the best span
    // so far may end otherwise than before.
    bool isRepeated = std::find(planned.begin(), leads, *leads) != leads;
    struct Setting {
      double span;
      bool spread, inputFirst;
      bool isFixed = true;
    };
    for (auto [span, spread, inputFirst, isFixed] :
         {Setting{bound, false, false},
          {bound, true, true},
          {bestSpan, true, false, false},
          {0, false, false},
          {always, false, true}}) {
      if (atBound())
        return best;
      if (!isRepeated || !isFixed)
        tryGreedy(*leads, span, spread, inputFirst);
    }
  }
  return best;
}

/// 1. ZB-V as it is, where it keeps the limit.
/// 2. The rhythms of V-Half and V-Min, each with its own window and with one of
///    a whole period of six units.
/// 3. The engine without a rhythm, for limits that a rhythm gets stuck in.
///
/// Steps 2 and 3 come first without waits, then with as much waiting as the
/// bound leaves. It ends at the bound, which for two chunks is the work of the
/// busiest rank.
Schedule Search::runV() {
  Schedule turned = zeroBubbleV(problem);
  turned.memory = memory;
  if (memory.allows(peakActivations(turned)))
    take(std::move(turned));
  for (double span : {0.0, bound}) {
    for (Rhythm rhythm :
         {getHalfRhythm(problem.stages), getMinRhythm(problem.stages)})
      for (double window : {rhythm.window, 6.0}) {
        if (atBound())
          return std::move(best);
        rhythm.window = window;
        take(runRhythm(problem, costs, memory, rhythm,
                       {.allowance = getAllowance(span), .cutoff = bestSpan}));
      }
    take(runGreedy(problem, costs, memory,
                   {.allowance = getAllowance(span),
                    .inputFirst = true,
                    .cutoff = bestSpan}));
  }
  return std::move(best);
}

Schedule schedule::zeroBubbleAuto(const Problem &problem,
                                  const GeneratorOptions &options) {
  Search search(problem, options);
  return problem.chunks == 1 ? search.run() : search.runV();
}
