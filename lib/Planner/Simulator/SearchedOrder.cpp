//===- SearchedOrder.cpp - Orders for the memory that there is ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A schedule that is searched for may hold as much as it is allowed to. It is
// asked for with a few limits, which are the same whatever the device has, and
// the fastest order that fits is taken: so more memory never makes it slower,
// and an order that holds more than there is room for is not made at all.
//
//===----------------------------------------------------------------------===//

#include "Estimator.h"

#include <algorithm>
#include <limits>
#include <optional>

using namespace plait;
using namespace plait::planner;

/// Microbatches that a rank may hold, the most first: twice what 1F1B holds is
/// enough for no bubble (Qi et al. 2024), and below that halves down to one. As
/// many as there are is no limit.
static std::vector<uint32_t> getLimits(const schedule::Problem &problem) {
  std::vector<uint32_t> limits;
  auto add = [&](uint32_t limit) {
    limit = std::clamp(limit, 1u, problem.microbatches);
    if (limits.empty() || limits.back() > limit)
      limits.push_back(limit);
  };
  add(2 * problem.stages);
  for (uint32_t limit = problem.stages; limit > 0; limit /= 2)
    add(limit);
  return limits;
}

/// Seconds from the first forward of each virtual stage to what its first input
/// gradient needs, at least: all stages behind run one forward and one input
/// gradient. Messages are left out.
static std::vector<double> getRoundTrips(const std::vector<StageCost> &costs) {
  std::vector<double> trips(costs.size());
  double behind = 0;
  for (size_t stage = costs.size(); stage-- > 0;) {
    const StageCost &cost = costs[stage];
    trips[stage] = behind + cost.forward;
    behind += cost.forward + cost.backwardInput - cost.early;
  }
  return trips;
}

/// Seconds that `rank` is idle for want of memory, at least; lib/Schedule's
/// Bound.cpp has the proof for one chunk and nothing that is early.
///
/// 1. Before its first input gradient, which is of its last stage, a rank can
///    run forwards only, as many as it may hold, and what is early.
/// 2. From the start of its last forward to the input gradient of that there
///    are, beside these two, gradients of no more than it holds. With more
///    microbatches than it may hold that is after the first input gradient.
static double getIdleSeconds(uint32_t rank, const schedule::Problem &problem,
                             const std::vector<StageCost> &costs,
                             const std::vector<double> &trips,
                             const OrderGoal &goal) {
  uint32_t first = problem.stageOf(rank, 0);
  uint32_t last = problem.stageOf(rank, problem.chunks - 1);
  const StageCost &cost = costs[last];
  double between = 0, longest = 0; // forwards from one to the other; of one
  for (uint32_t stage = first; stage < last; ++stage)
    between += costs[stage].forward;
  for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk)
    longest = std::max(longest, costs[problem.stageOf(rank, chunk)].forward);
  double forwards = double(goal.limit) * problem.chunks * longest;
  double idle = std::max(0.0, between + trips[last] - forwards - cost.early);
  if (problem.chunks > 1 || problem.microbatches <= goal.limit ||
      goal.weightShare <= 0)
    return idle;
  double gradients =
      (goal.limit - 1) * std::max(cost.backwardInput + cost.backwardWeight,
                                  cost.backwardWeight / goal.weightShare);
  return idle +
         std::max(0.0, trips[last] - cost.forward - cost.early - gradients);
}

/// No order within the limit of `goal` takes less: a rank has its own work to
/// do, and to be idle, behind one forward pass of the stages in front.
static double getLeastSeconds(const schedule::Problem &problem,
                              const std::vector<StageCost> &costs,
                              TransferCost transfer, const OrderGoal &goal) {
  const std::vector<double> trips = getRoundTrips(costs);
  double least = 0, outside = 0;
  for (uint32_t rank = 0; rank < problem.stages; ++rank) {
    double work = 0;
    for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk) {
      const StageCost &cost = costs[problem.stageOf(rank, chunk)];
      work += cost.forward + cost.backwardInput + cost.backwardWeight;
    }
    double idle = getIdleSeconds(rank, problem, costs, trips, goal);
    least = std::max(least, outside + problem.microbatches * work + idle);
    outside += costs[problem.stageOf(rank, 0)].forward +
               transfer.at(rank, problem.stages);
  }
  return least;
}

/// Returns what the first rank takes with room for one microbatch: of each it
/// holds a stage's part from its forward until its input gradient is back. With
/// room for more it takes no less than that, divided by their number.
static double getHoldingSeconds(const schedule::Problem &problem,
                                const std::vector<StageCost> &costs) {
  double seconds = 0, round = 0;
  for (uint32_t stage = problem.virtualStages(); stage-- > 0;) {
    const StageCost &cost = costs[stage];
    // Work that needs no message may have been done before it comes.
    round += cost.forward + cost.backwardInput - cost.early;
    if (problem.rankOf(stage) == 0)
      seconds += round;
  }
  return seconds * problem.microbatches / problem.chunks;
}

/// How many whole microbatches the first rank, which holds the most, has room
/// for.
double Estimator::countRoom(const schedule::Problem &problem) const {
  std::vector<const StageBlocks *> held;
  double bytes = 0;
  for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk) {
    held.push_back(&stages[problem.stageOf(0, chunk)]);
    InFlight one = heldBytes(*held.back(), context, /*splits=*/true);
    bytes += std::max(one.whole, one.weights);
  }
  double room = context.cluster.device.usableBytes() -
                getMemory(HoldingsFinder(context).find(held), context).peak();
  return bytes > 0 ? room / bytes : std::numeric_limits<double>::max();
}

/// Orders that depend on costs are made for one kind of stage: from the middle,
/// which has neither embedding nor loss.
OrderGoal Estimator::getTypicalGoal() const {
  size_t middle = stages.size() / 2;
  const StageTime &time = result.stages[middle];
  OrderGoal goal;
  goal.costs = {time.forward, time.backwardInput, time.backwardWeight};
  InFlight held = heldBytes(stages[middle], context, /*splits=*/true);
  double most = std::max(held.whole, held.weights);
  goal.weightShare = most > 0 ? held.weights / most : 0;
  return goal;
}

/// Bounds both the rank with the most work and the first, which holds as many
/// as the largest of the limits that there is room for.
double Estimator::getLeastOrder(const schedule::Problem &problem) const {
  const double room = countRoom(problem);
  uint32_t most = 1; // tried in any case
  for (uint32_t limit : getLimits(problem))
    if (limit <= room)
      most = std::max(most, limit);
  const std::vector<StageCost> costs = getStageCosts();
  OrderGoal goal = getTypicalGoal();
  goal.limit = most;
  return std::max(getLeastSeconds(problem, costs, transfer, goal),
                  getHoldingSeconds(problem, costs) / most);
}

Result<double> Estimator::runLeastOrder() {
  PLAIT_RETURN_IF_ERROR(runStages());
  transfer = getTransfer(context);
  return getLeastOrder(getProblem()) / context.cluster.device.burst;
}

/// The fastest within the memory, or one that is slower than is asked for.
/// Where none fits, that which holds the least. What takes too much memory is
/// not timed, which takes a second order.
Result<OrderGoal> Estimator::searchOrder(const schedule::Problem &problem) {
  const std::vector<StageCost> costs = getStageCosts();
  const double holding = getHoldingSeconds(problem, costs);
  const double room = countRoom(problem);
  const Device &device = context.cluster.device;
  OrderGoal goal = getTypicalGoal();
  std::optional<OrderGoal> best, last;
  double shortest = std::numeric_limits<double>::max();
  Status none = Status::success(); // why there is no order so far
  auto take = [&](Asked asked) {
    Result<PipelineModel> model =
        PipelineModel::get(generator->name, problem, goal, asked);
    if (model.ok())
      pipeline = std::move(*model);
    else
      none = model.status();
    return model.ok();
  };
  for (uint32_t limit : getLimits(problem)) {
    goal.limit = limit;
    if (limit > room && limit > 1)
      continue;
    const double least = getLeastSeconds(problem, costs, transfer, goal);
    // Those that follow hold less, and take no less time than this.
    if (holding / limit >= shortest || least >= shortest * (1 - 1e-9))
      break;
    // Neither is any of them faster than is asked for.
    if (last &&
        std::max(holding / limit, least) >= context.cutoff * device.burst)
      break;
    if (!take(Asked::Memory))
      continue;
    last = goal;
    findMemory();
    if (result.peakMemory() > device.usableBytes() ||
        !take(Asked::TimeAndMemory))
      continue;
    double seconds = pipeline.run(costs, transfer).seconds;
    if (seconds >= shortest)
      continue;
    shortest = seconds;
    best = goal;
  }
  if (best)
    return *best;
  if (last)
    return *last;
  return none;
}

Result<std::optional<schedule::Schedule>>
planner::findOrder(const Work &work, const Cluster &cluster,
                   const Training &training,
                   const Configuration &configuration) {
  Result<const schedule::Generator *> generator =
      schedule::findGenerator(configuration.schedule);
  if (!generator.ok())
    return generator.status();
  std::optional<schedule::Schedule> order;
  if (!(*generator)->searches)
    return order;
  Context context{work, cluster, training, configuration};
  Estimator estimator(context);
  PLAIT_RETURN_IF_ERROR(estimator.run(Microbatches::All));
  order = estimator.getSchedule();
  return order;
}
