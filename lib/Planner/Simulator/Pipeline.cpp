//===- Pipeline.cpp - How long a schedule takes ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Pipeline.h"
#include "plait/Schedule/Generators.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
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

/// Where each action's result is found once it has an index.
class CompiledSchedule::Results {
public:
  explicit Results(const Problem &problem)
      : microbatches(problem.microbatches),
        forward(size_t(problem.virtualStages()) * microbatches, -1),
        backward(forward) {}

  int32_t &of(bool isForward, uint32_t stage, uint32_t microbatch) {
    return (isForward ? forward : backward)[size_t(stage) * microbatches +
                                            microbatch];
  }

private:
  size_t microbatches;
  std::vector<int32_t> forward, backward;
};

CompiledSchedule::CompiledSchedule(const Schedule &schedule)
    : problem(schedule.problem) {
  order(schedule);
  countInFlight(schedule);
}

/// One action a rank in turn: neighbours in the array do not wait for each
/// other, which lets a processor overlap them. What verify() has shown is not
/// shown again: generated schedules do not deadlock.
void CompiledSchedule::order(const Schedule &schedule) {
  Results results(problem);
  std::vector<size_t> cursors(problem.stages, 0);
  for (bool progress = true; progress;) {
    progress = false;
    for (uint32_t rank = 0; rank < problem.stages; ++rank) {
      const std::vector<Action> &actions = schedule.ranks[rank];
      if (cursors[rank] == actions.size() ||
          !append(rank, actions[cursors[rank]], results))
        continue;
      ++cursors[rank];
      progress = true;
    }
  }
}

/// Returns false where the input of `action` is not there yet.
bool CompiledSchedule::append(uint32_t rank, const Action &action,
                              Results &results) {
  uint32_t stage = problem.stageOf(rank, action.chunk);
  uint32_t last = problem.virtualStages() - 1;
  bool isForward = action.kind == ActionKind::Forward;
  bool isWeight = action.kind == ActionKind::BackwardWeight;
  bool isFirst = isWeight || stage == (isForward ? 0 : last);
  bool isLast = isWeight || stage == (isForward ? last : 0);
  uint32_t source = isForward ? stage - 1 : stage + 1;
  uint32_t target = isForward ? stage + 1 : stage - 1;
  int32_t input =
      isFirst ? -1 : results.of(isForward, source, action.microbatch);
  if (!isFirst && input < 0)
    return false;
  if (!isWeight)
    results.of(isForward, stage, action.microbatch) = int32_t(entries.size());
  Entry entry;
  entry.rank = rank;
  entry.cost = uint32_t(action.kind) * problem.virtualStages() + stage;
  entry.dependsOn = input;
  entry.crosses = !isFirst && problem.rankOf(source) != rank;
  entry.sends = !isLast && problem.rankOf(target) != rank;
  entries.push_back(entry);
  return true;
}

void CompiledSchedule::countInFlight(const Schedule &schedule) {
  peaks.resize(size_t(problem.stages) * problem.chunks);
  std::vector<InFlight> counts(problem.chunks);
  double share = schedule.memory.weightShare;
  for (uint32_t rank = 0; rank < problem.stages; ++rank) {
    std::fill(counts.begin(), counts.end(), InFlight());
    double total = 0, peak = 0;
    for (const Action &action : schedule.ranks[rank]) {
      InFlight &count = counts[action.chunk];
      total -= count.whole + share * count.weights;
      count.whole += action.kind == ActionKind::Forward;
      count.whole -= action.kind == ActionKind::Backward ||
                     action.kind == ActionKind::BackwardInput;
      count.weights += action.kind == ActionKind::BackwardInput;
      count.weights -= action.kind == ActionKind::BackwardWeight;
      total += count.whole + share * count.weights;
      if (total <= peak)
        continue;
      peak = total;
      std::copy(counts.begin(), counts.end(),
                peaks.begin() + ptrdiff_t(rank) * problem.chunks);
    }
  }
}

double CompiledSchedule::run(std::span<const StageCost> costs,
                             TransferCost transfer) const {
  // Kept between calls: an estimate allocates as little as possible.
  static thread_local std::vector<double> ends, clocks, seconds;
  ends.resize(entries.size() + 1);
  clocks.assign(problem.stages, 0);
  size_t stages = costs.size();
  seconds.resize(4 * stages); // by Entry::cost
  for (size_t stage = 0; stage < stages; ++stage) {
    const StageCost &cost = costs[stage];
    seconds[stage] = cost.forward;
    seconds[stages + stage] = cost.backwardInput + cost.backwardWeight;
    seconds[2 * stages + stage] = cost.backwardInput;
    seconds[3 * stages + stage] = cost.backwardWeight;
  }
  const double latency[] = {0, transfer.seconds};
  const double held[] = {0, transfer.blocking ? transfer.seconds : 0};
  // What waits for nothing waits for the beginning: index -1.
  double *results = ends.data() + 1;
  results[-1] = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry &entry = entries[i];
    double start = std::max(clocks[entry.rank], results[entry.dependsOn] +
                                                    latency[entry.crosses]);
    results[i] = start + seconds[entry.cost];
    clocks[entry.rank] = results[i] + held[entry.sends];
  }
  return *std::max_element(clocks.begin(), clocks.end());
}

//===----------------------------------------------------------------------===//
// All numbers of microbatches
//===----------------------------------------------------------------------===//

using CompiledResult = Result<std::shared_ptr<const CompiledSchedule>>;

/// Of a schedule that depends on costs: multiples of a forward, in steps that
/// make costs that are nearly the same share an order.
static schedule::Costs roundCosts(const StageCost &costs) {
  constexpr double steps = 8;
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

/// The order of `name` for `problem`, generated on first use.
static CompiledResult getCompiled(const std::string &name,
                                  const Problem &problem,
                                  const StageCost &costs) {
  using Key = std::tuple<std::string, uint32_t, uint32_t, uint32_t, double,
                         double>;
  static std::mutex mutex;
  static std::map<Key, std::shared_ptr<const CompiledSchedule>> cache;
  Result<const schedule::Generator *> generator =
      schedule::findGenerator(name);
  if (!generator.ok())
    return generator.status();
  schedule::GeneratorOptions options;
  if ((*generator)->searches) {
    options.costs = roundCosts(costs);
    // Twice what 1F1B holds is enough for no bubble (Qi et al. 2024).
    options.memory.limit = 2 * problem.stages;
  }
  Key key(name, problem.stages, problem.chunks, problem.microbatches,
          options.costs.backwardInput, options.costs.backwardWeight);
  std::lock_guard<std::mutex> lock(mutex);
  auto found = cache.find(key);
  if (found != cache.end())
    return found->second;
  Result<Schedule> schedule = schedule::generate(name, problem, options);
  if (!schedule.ok())
    return schedule.status();
  auto compiled = std::make_shared<const CompiledSchedule>(*schedule);
  cache.emplace(std::move(key), compiled);
  return CompiledResult(std::move(compiled));
}

Result<PipelineModel> PipelineModel::get(const std::string &name,
                                         const Problem &problem,
                                         const StageCost &costs) {
  PipelineModel model;
  Problem large = problem, small = problem;
  uint32_t round = problem.stages;
  if (problem.microbatches > 3 * round) {
    large.microbatches = 2 * round + problem.microbatches % round;
    small.microbatches = large.microbatches - round;
  }
  CompiledResult compiled = getCompiled(name, large, costs);
  if (!compiled.ok())
    return compiled.status();
  model.large = *compiled;
  compiled = getCompiled(name, small, costs);
  if (!compiled.ok())
    return compiled.status();
  model.small = *compiled;
  model.smallCount = small.microbatches;
  model.largeCount = large.microbatches;
  model.problem = model.large->getProblem();
  model.problem.microbatches = problem.microbatches;
  return model;
}

PipelineTime PipelineModel::run(std::span<const StageCost> costs,
                                TransferCost transfer) const {
  PipelineTime time;
  time.seconds = large->run(costs, transfer);
  if (smallCount != largeCount) {
    double step = (time.seconds - small->run(costs, transfer)) /
                  (largeCount - smallCount);
    time.seconds += step * (problem.microbatches - largeCount);
  }
  double work = 0;
  for (const StageCost &cost : costs)
    work += cost.forward + cost.backwardInput + cost.backwardWeight;
  work *= problem.microbatches;
  if (time.seconds > 0)
    time.idle = 1 - work / (time.seconds * problem.stages);
  return time;
}

InFlight PipelineModel::inFlight(uint32_t rank, uint32_t chunk) const {
  InFlight count = large->inFlight(rank)[chunk];
  if (smallCount == largeCount)
    return count;
  const InFlight &before = small->inFlight(rank)[chunk];
  double rounds = double(problem.microbatches - largeCount) /
                  (largeCount - smallCount);
  count.whole += rounds * (count.whole - before.whole);
  count.weights += rounds * (count.weights - before.weights);
  return count;
}
