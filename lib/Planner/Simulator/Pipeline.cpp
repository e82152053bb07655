//===- Pipeline.cpp - Time of a pipeline schedule -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A pipeline's time from its order and the times of its stages. An order is
// made once by the schedule library, put into an array in which inputs come
// first, and kept for all configurations that have it; an estimate is one pass
// over that array. Steps of many microbatches are simulated for two smaller
// numbers, and the line through these is continued. It differs from
// schedule::simulate() in what it is for: no checks, no events by message, no
// allocation in later calls of run().
//
//===----------------------------------------------------------------------===//

#include "Pipeline.h"
#include "plait/Schedule/Generators.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <map>
#include <mutex>
#include <ranges>
#include <tuple>

using namespace plait;
using namespace plait::planner;
using schedule::Action;
using schedule::ActionKind;
using schedule::Problem;
using schedule::Schedule;

//===----------------------------------------------------------------------===//
// One order
//===----------------------------------------------------------------------===//

/// Puts a schedule into an order in which inputs come first. What verify() has
/// shown is not shown again: generated schedules do not deadlock.
class CompiledSchedule::Orderer {
public:
  Orderer(const Problem &problem, std::vector<Entry> &entries);

  void run(const std::vector<std::vector<Action>> &ranks);

private:
  /// The neighbours of a virtual stage in one direction: whose results it waits
  /// for, and the links by which these come and its own go.
  struct Neighbours {
    int32_t *input; // by microbatch; null: it waits for nobody
    int32_t *result;
    uint32_t from, to;
  };
  bool append(uint32_t rank, const Action &action);

  const Problem &problem;
  std::vector<Entry> &entries;
  std::vector<int32_t> results;              // indices of entries; -1: not yet
  std::vector<Neighbours> forward, backward; // by virtual stage
};

/// Ranks are looked up once a stage here and not once an action: divisions take
/// longer than the rest.
CompiledSchedule::Orderer::Orderer(const Problem &problem,
                                   std::vector<Entry> &entries)
    : problem(problem), entries(entries),
      results(2 * size_t(problem.virtualStages()) * problem.microbatches, -1) {
  uint32_t stages = problem.virtualStages();
  auto find = [&](uint32_t stage, bool isForward) {
    auto at = [&](uint32_t of) {
      return &results[(size_t(of) + (isForward ? 0 : stages)) *
                      problem.microbatches];
    };
    bool isFirst = stage == (isForward ? 0 : stages - 1);
    bool isLast = stage == (isForward ? stages - 1 : 0);
    uint32_t source = isForward ? stage - 1 : stage + 1;
    uint32_t target = isForward ? stage + 1 : stage - 1;
    uint32_t rank = problem.rankOf(stage);
    auto linkTo = [&](bool isEnd, uint32_t other) {
      return isEnd || problem.rankOf(other) == rank
                 ? problem.stages
                 : getLink(rank, problem.rankOf(other));
    };
    return Neighbours{isFirst ? nullptr : at(source), at(stage),
                      linkTo(isFirst, source), linkTo(isLast, target)};
  };
  for (uint32_t stage = 0; stage < stages; ++stage) {
    forward.push_back(find(stage, /*isForward=*/true));
    backward.push_back(find(stage, /*isForward=*/false));
  }
}

/// One action a rank in turn: neighbours in the array do not wait for each
/// other, which lets a processor overlap them.
void CompiledSchedule::Orderer::run(
    const std::vector<std::vector<Action>> &ranks) {
  std::vector<size_t> cursors(problem.stages, 0);
  for (bool progress = true; progress;) {
    progress = false;
    for (uint32_t rank = 0; rank < problem.stages; ++rank) {
      const std::vector<Action> &actions = ranks[rank];
      if (cursors[rank] == actions.size() ||
          !append(rank, actions[cursors[rank]]))
        continue;
      ++cursors[rank];
      progress = true;
    }
  }
}

/// Returns false where the input of `action` is not there yet.
/// Expects work only, no transfers: messages are the two flags of an entry. A
/// weight gradient depends on nothing but its place in the list, since its own
/// input gradient is on the same rank in front of it, and nobody waits for it.
bool CompiledSchedule::Orderer::append(uint32_t rank, const Action &action) {
  uint32_t stage = problem.stageOf(rank, action.chunk);
  Entry entry{rank, uint32_t(action.kind) * problem.virtualStages() + stage, -1,
              problem.stages, problem.stages};
  if (action.kind != ActionKind::BackwardWeight) {
    const Neighbours &at =
        (action.kind == ActionKind::Forward ? forward : backward)[stage];
    if (at.input && (entry.dependsOn = at.input[action.microbatch]) < 0)
      return false;
    entry.from = at.from;
    entry.to = at.to;
    at.result[action.microbatch] = int32_t(entries.size());
  }
  entries.push_back(entry);
  return true;
}

CompiledSchedule::CompiledSchedule(Schedule schedule)
    : problem(schedule.problem), ranks(std::move(schedule.ranks)) {
  for (const std::vector<Action> &list : ranks)
    actions += list.size();
  countInFlight();
}

const std::vector<CompiledSchedule::Entry> &
CompiledSchedule::getEntries() const {
  std::call_once(ordered, [&] {
    entries.reserve(actions);
    Orderer(problem, entries).run(ranks);
    ranks = {};
  });
  return entries;
}

/// Whether `a` holds at least as much of everything.
static bool dominates(const std::vector<InFlight> &a,
                      const std::vector<InFlight> &b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].whole < b[i].whole || a[i].weights < b[i].weights)
      return false;
  return true;
}

/// Keeps the moments that no other one covers: whatever chunks come to hold,
/// the fullest moment is one of them. Of hundreds of actions a rank few are
/// left. A schedule repeats itself, so the latest ones are asked first.
void CompiledSchedule::addMoment(uint32_t rank,
                                 const std::vector<InFlight> &counts) {
  std::vector<std::vector<InFlight>> &known = moments[rank];
  for (const std::vector<InFlight> &other : std::views::reverse(known))
    if (dominates(other, counts))
      return;
  std::erase_if(known, [&](const std::vector<InFlight> &other) {
    return dominates(counts, other);
  });
  known.push_back(counts);
}

/// A rank's memory can only be at its fullest behind a forward, which adds, or
/// behind an input gradient, which leaves what weight gradients need: which of
/// the two holds more depends on bytes, so that neither covers the other.
void CompiledSchedule::countInFlight() {
  moments.resize(problem.stages);
  for (uint32_t rank = 0; rank < problem.stages; ++rank) {
    std::vector<InFlight> counts(problem.chunks);
    const std::vector<Action> &list = ranks[rank];
    for (size_t i = 0; i < list.size(); ++i) {
      const Action &action = list[i];
      bool isForward = action.kind == ActionKind::Forward;
      bool isInput = action.kind == ActionKind::BackwardInput;
      bool isWeight = action.kind == ActionKind::BackwardWeight;
      splits |= isWeight;
      InFlight &count = counts[action.chunk];
      count.whole += isForward ? 1 : isWeight ? 0 : -1;
      count.weights += isInput - isWeight;
      // A forward covers what was held before it.
      bool isCovered =
          i + 1 < list.size() && list[i + 1].kind == ActionKind::Forward;
      if ((isForward || isInput) && !isCovered)
        addMoment(rank, counts);
    }
  }
}

/// Seconds by Entry::cost.
static void expandCosts(std::span<const StageCost> costs,
                        std::vector<double> &seconds) {
  size_t stages = costs.size();
  seconds.resize(4 * stages);
  for (size_t stage = 0; stage < stages; ++stage) {
    const StageCost &cost = costs[stage];
    seconds[stage] = cost.forward;
    seconds[stages + stage] = cost.backwardInput + cost.backwardWeight;
    seconds[2 * stages + stage] = cost.backwardInput;
    seconds[3 * stages + stage] = cost.backwardWeight;
  }
}

/// Seconds by Entry::cost that an action goes on for before its input is there.
static void expandEarly(std::span<const StageCost> costs,
                        std::vector<double> &seconds) {
  size_t stages = costs.size();
  seconds.assign(4 * stages, 0);
  for (size_t stage = 0; stage < stages; ++stage) {
    seconds[stage] = costs[stage].earlyForward;
    seconds[stages + stage] = seconds[2 * stages + stage] = costs[stage].early;
  }
}

/// Seconds by Entry::from and Entry::to.
static void expandLinks(TransferCost transfer, uint32_t ranks,
                        std::vector<double> &seconds) {
  seconds.resize(ranks + 1);
  for (uint32_t link = 0; link < ranks; ++link)
    seconds[link] = transfer.at(link, ranks);
  seconds[ranks] = 0;
}

namespace {

/// A time with and one without transfers, computed side by side: a processor
/// takes hardly longer for two than for one.
struct Times {
  double with = 0, without = 0;
};

} // namespace

/// One pass over the actions, in an order in which inputs come first: no
/// events, no queue. The planner calls this for each strategy, so that its
/// time is that of the search.
PipelineTime CompiledSchedule::run(std::span<const StageCost> costs,
                                   TransferCost transfer) const {
  // Kept between calls: an estimate allocates as little as possible.
  static thread_local std::vector<Times> ends, clocks;
  static thread_local std::vector<double> seconds, early, latency;
  const std::vector<Entry> &entries = getEntries();
  ends.resize(entries.size() + 1);
  clocks.assign(problem.stages, Times());
  expandCosts(costs, seconds);
  expandEarly(costs, early);
  expandLinks(transfer, problem.stages, latency);
  // What waits for nothing waits for the beginning: index -1.
  Times *results = ends.data() + 1;
  results[-1] = Times();
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry &entry = entries[i];
    const Times input = results[entry.dependsOn];
    Times &clock = clocks[entry.rank];
    double first = early[entry.cost], rest = seconds[entry.cost] - first;
    Times end;
    end.with =
        transfer.arrive(clock.with + first, input.with, latency[entry.from]) +
        rest;
    end.without = std::max(clock.without + first, input.without) + rest;
    results[i] = end;
    clock.with = end.with + (transfer.blocking ? latency[entry.to] : 0);
    clock.without = end.without;
  }
  PipelineTime time;
  for (const Times &clock : clocks) {
    time.seconds = std::max(time.seconds, clock.with);
    time.withoutTransfers = std::max(time.withoutTransfers, clock.without);
  }
  return time;
}

/// The same pass as run(), with what each event waited for last. Where the
/// input arrives just as the rank is free, the input is the cause. A blocking
/// transfer belongs to the gap behind its action.
std::vector<Event> CompiledSchedule::trace(std::span<const StageCost> costs,
                                           TransferCost transfer) const {
  std::vector<double> clocks(problem.stages, 0), seconds, early, latency;
  std::vector<int32_t> latest(problem.stages, -1);
  expandCosts(costs, seconds);
  expandEarly(costs, early);
  expandLinks(transfer, problem.stages, latency);
  const std::vector<Entry> &entries = getEntries();
  std::vector<Event> events(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry &entry = entries[i];
    Event &event = events[i];
    double input = entry.dependsOn < 0 ? 0 : events[entry.dependsOn].end;
    double &clock = clocks[entry.rank];
    event.rank = entry.rank;
    double first = early[entry.cost];
    double ready = transfer.arrive(clock + first, input, latency[entry.from]);
    event.start = ready - first;
    bool waits = entry.dependsOn >= 0 && ready <= input + latency[entry.from];
    event.cause = waits ? entry.dependsOn : latest[entry.rank];
    event.end = event.start + seconds[entry.cost];
    clock = event.end + (transfer.blocking ? latency[entry.to] : 0);
    latest[entry.rank] = int32_t(i);
  }
  return events;
}

//===----------------------------------------------------------------------===//
// Generated orders, kept
//===----------------------------------------------------------------------===//

/// Costs are rounded to parts of a forward, so that those which are nearly the
/// same share an order: coarse enough for a cache to be of use.
constexpr double roundingSteps = 8;

/// Rounds the costs that a schedule depends on, in multiples of a forward.
static schedule::Costs roundCosts(const StageCost &costs) {
  constexpr double steps = roundingSteps;
  auto round = [&](double seconds) {
    return std::round(seconds / costs.forward * steps) / steps;
  };
  schedule::Costs rounded;
  if (costs.forward <= 0)
    return rounded;
  rounded.backwardInput = round(costs.backwardInput);
  rounded.backwardWeight = round(costs.backwardWeight);
  return rounded;
}

/// Handcrafted schedules get no options at all, so that one order serves all
/// costs.
static schedule::GeneratorOptions
getGeneratorOptions(const schedule::Generator &generator,
                    const OrderGoal &goal) {
  schedule::GeneratorOptions options;
  if (generator.searches) {
    options.costs = roundCosts(goal.costs);
    // Up, to halves: what is left may not be more than the order knows of.
    options.memory.weightShare = std::ceil(goal.weightShare * 2) / 2;
    options.memory.limit = goal.limit;
  }
  return options;
}

/// Generates with the options that the cache uses, so that a timeline shows the
/// order that was predicted with.
Result<Schedule> planner::generateFor(const std::string &name,
                                      const Problem &problem,
                                      const OrderGoal &goal) {
  Result<const schedule::Generator *> generator = schedule::findGenerator(name);
  if (!generator.ok())
    return generator.status();
  return schedule::generate(name, problem,
                            getGeneratorOptions(**generator, goal));
}

namespace {

using CompiledResult = Result<std::shared_ptr<const CompiledSchedule>>;

/// Compiled schedules by everything that they depend on. Emptied when it has
/// grown to about 100 MB; orders that are in use stay alive.
class ScheduleCache {
public:
  CompiledResult get(const schedule::Generator &generator,
                     const Problem &problem, const OrderGoal &goal);

private:
  static constexpr size_t maximumEntries = size_t(1) << 22;
  using Key = std::tuple<const schedule::Generator *, uint32_t, uint32_t,
                         uint32_t, double, double, double, double>;
  /// An order, or that there is none, once it has been made.
  struct Order {
    std::once_flag made;
    CompiledResult result{std::shared_ptr<const CompiledSchedule>()};
  };
  void make(Order &order, const schedule::Generator &generator,
            const Problem &problem, const schedule::GeneratorOptions &options);

  std::mutex mutex;
  std::map<Key, std::shared_ptr<Order>> known;
  size_t entries = 0;
};

} // namespace

void ScheduleCache::make(Order &order, const schedule::Generator &generator,
                         const Problem &problem,
                         const schedule::GeneratorOptions &options) {
  Result<Schedule> schedule =
      schedule::generate(generator.name, problem, options);
  if (!schedule.ok()) {
    order.result = schedule.status();
    return;
  }
  auto compiled =
      std::make_shared<const CompiledSchedule>(std::move(*schedule));
  order.result = compiled;
  std::lock_guard<std::mutex> lock(mutex);
  if (entries + compiled->size() > maximumEntries) {
    known.clear();
    entries = 0;
  }
  entries += compiled->size();
}

/// The lock is held for look-ups only. Neighbours in a search ask for the same
/// order at the same time: the first one makes it, which takes long, and the
/// others wait for it.
CompiledResult ScheduleCache::get(const schedule::Generator &generator,
                                  const Problem &problem,
                                  const OrderGoal &goal) {
  schedule::GeneratorOptions options = getGeneratorOptions(generator, goal);
  Key key(&generator, problem.stages, problem.chunks, problem.microbatches,
          options.costs.backwardInput, options.costs.backwardWeight,
          options.memory.weightShare, options.memory.limit);
  std::shared_ptr<Order> order;
  {
    std::lock_guard<std::mutex> lock(mutex);
    std::shared_ptr<Order> &entry = known[key];
    if (!entry)
      entry = std::make_shared<Order>();
    order = entry;
  }
  std::call_once(order->made,
                 [&] { make(*order, generator, problem, options); });
  return order->result;
}

//===----------------------------------------------------------------------===//
// All numbers of microbatches
//===----------------------------------------------------------------------===//

namespace {

/// How many rounds of the pipeline stand for all of them.
struct Rounds {
  uint32_t small, large;
};

} // namespace

/// Returns as many as a schedule takes until it repeats itself. With times that
/// vary by a tenth from stage to stage, what is continued is off by 0.1 % on
/// average and by 3 % at most (interleaved, ZB-H2 on 16 ranks).
static Rounds getRounds(const schedule::Generator &generator,
                        const Problem &problem) {
  if (generator.splitsBackward)
    return {4, 5};
  return problem.chunks > 1 ? Rounds{2, 3} : Rounds{1, 2};
}

/// 1. Where there are more microbatches than the larger number of rounds and
///    one more, two problems stand for them, with the same remainder of a
///    round.
/// 2. Both orders come from the cache, by their few microbatches: an entry
///    serves all larger numbers with that remainder.
///    Where only memory is asked for, the smaller one is made if that grows.
/// 3. Whether ranks hold more with more microbatches follows from the
///    generator's memory bound: then what they hold is continued as well.
Result<PipelineModel> PipelineModel::get(const std::string &name,
                                         const Problem &problem,
                                         const OrderGoal &goal, Asked asked) {
  static ScheduleCache cache;
  Result<const schedule::Generator *> generator = schedule::findGenerator(name);
  if (!generator.ok())
    return generator.status();
  PipelineModel model;
  // 1. Fewer microbatches that stand for all.
  Problem large = problem, small = problem;
  uint32_t round = problem.stages;
  Rounds rounds = getRounds(**generator, problem);
  // The remainder stays: which ranks work on the last, partial round decides
  // how the step ends.
  if (problem.microbatches > uint64_t(rounds.large + 1) * round) {
    uint32_t rest = problem.microbatches % round;
    large.microbatches = rounds.large * round + rest;
    small.microbatches = rounds.small * round + rest;
  }
  // 2. Their orders.
  CompiledResult compiled = cache.get(**generator, large, goal);
  if (!compiled.ok())
    return compiled.status();
  model.large = model.small = *compiled;
  model.smallCount = small.microbatches;
  model.largeCount = large.microbatches;
  model.problem = model.large->getProblem();
  model.problem.microbatches = problem.microbatches;
  // 3. Memory. Then there is one fullest moment, that before the first
  // backward.
  auto bound = [&](const Problem &of) {
    return (*generator)->memoryBound(of, 0, 0);
  };
  model.grows = !(*generator)->searches && bound(problem) > bound(large);
  bool needsBoth = model.grows || asked == Asked::TimeAndMemory;
  if (needsBoth && model.smallCount != model.largeCount) {
    compiled = cache.get(**generator, small, goal);
    if (!compiled.ok())
      return compiled.status();
    model.small = *compiled;
  }
  return model;
}

PipelineModel::PipelineModel(const Schedule &schedule)
    : problem(schedule.problem),
      small(std::make_shared<const CompiledSchedule>(schedule)), large(small),
      smallCount(problem.microbatches), largeCount(problem.microbatches) {}

/// Returns the seconds of one microbatch on the rank that works longest.
static double getBusiest(const Problem &problem,
                         std::span<const StageCost> costs) {
  double busiest = 0;
  for (uint32_t rank = 0; rank < problem.stages; ++rank) {
    double work = 0;
    for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk) {
      const StageCost &cost = costs[problem.stageOf(rank, chunk)];
      work += cost.forward + cost.backwardInput + cost.backwardWeight;
    }
    busiest = std::max(busiest, work);
  }
  return busiest;
}

/// The line through two points, at a slope of no less than the busiest rank's
/// work. The time without messages is limited to that with them, since rounding
/// in the continuation could make it larger.
PipelineTime PipelineModel::run(std::span<const StageCost> costs,
                                TransferCost transfer) const {
  assert((smallCount == largeCount) == (small == large) &&
         "asked for memory alone");
  PipelineTime time = large->run(costs, transfer);
  if (smallCount == largeCount)
    return time;
  PipelineTime before = small->run(costs, transfer);
  double count = largeCount - smallCount;
  double rest = problem.microbatches - largeCount;
  // A schedule that has not settled yet may seem faster than its work.
  double least = getBusiest(problem, costs);
  auto extend = [&](double seconds, double secondsBefore) {
    return seconds + rest * std::max(least, (seconds - secondsBefore) / count);
  };
  time.seconds = extend(time.seconds, before.seconds);
  time.withoutTransfers = std::min(
      time.seconds, extend(time.withoutTransfers, before.withoutTransfers));
  return time;
}

/// Continued like the time, where it grows; linear, because every round adds as
/// many microbatches.
InFlight PipelineModel::inFlight(uint32_t rank, size_t moment,
                                 uint32_t chunk) const {
  InFlight count = large->getMoments(rank)[moment][chunk];
  if (smallCount == largeCount || !grows)
    return count;
  const InFlight &before = small->getMoments(rank)[0][chunk];
  double rounds =
      double(problem.microbatches - largeCount) / (largeCount - smallCount);
  count.whole += rounds * (count.whole - before.whole);
  count.weights += rounds * (count.weights - before.weights);
  return count;
}
