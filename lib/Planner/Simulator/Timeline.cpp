//===- Timeline.cpp - A predicted step, action by action ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step drawn out: every action of every rank with its time, the critical path
// of actions, and memory from action to action. It runs the estimator with all
// microbatches in place of a few, and takes the events from the same compiled
// order, so that what is shown adds up to what is predicted.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Timeline.h"
#include "Estimator.h"

#include <algorithm>

using namespace plait;
using namespace plait::planner;
using schedule::ActionKind;

const char *planner::getActivityName(Activity activity) {
  switch (activity) {
  case Activity::Forward:
    return "forward";
  case Activity::Backward:
    return "backward";
  case Activity::BackwardInput:
    return "backward-input";
  case Activity::BackwardWeight:
    return "backward-weight";
  case Activity::Wait:
    return "wait";
  case Activity::Reduce:
    return "reduce";
  case Activity::Optimizer:
    return "optimizer";
  case Activity::Overhead:
    return "overhead";
  }
  return "";
}

namespace {

/// One timeline of an estimator that has run with all microbatches. Work goes
/// in first, so that an action's position is the same in the schedule's list
/// and in `timeline.ranks`; then what follows the pipeline.
class TimelineBuilder {
public:
  TimelineBuilder(const Context &context, Estimator &estimator,
                  const schedule::Schedule &schedule)
      : context(context), estimator(estimator), schedule(schedule) {}

  Timeline run();

private:
  void addActions();
  void markCritical(const std::vector<Event> &events,
                    const std::vector<uint32_t> &positions);
  void addStep();
  void addMemory(uint32_t rank);
  std::vector<InFlight> getHeld(uint32_t rank) const;

  const Context &context;
  Estimator &estimator;
  const schedule::Schedule &schedule;
  Timeline timeline;
};

} // namespace

/// Knows work alone: a compiled schedule has nothing else.
static Activity getActivity(ActionKind kind) {
  switch (kind) {
  case ActionKind::Backward:
    return Activity::Backward;
  case ActionKind::BackwardInput:
    return Activity::BackwardInput;
  case ActionKind::BackwardWeight:
    return Activity::BackwardWeight;
  default:
    return Activity::Forward;
  }
}

/// Events of a rank come in the order of its list, so that the n-th event of a
/// rank is its n-th action: names and microbatches are read off the schedule.
/// Times are stretched like the estimate's where ranks share a processor.
void TimelineBuilder::addActions() {
  const CompiledSchedule &compiled = estimator.getPipeline().getSimulated();
  std::vector<Event> events =
      compiled.trace(estimator.getStageCosts(), estimator.getTransferCost());
  // A compiled schedule knows nothing of processors that ranks share.
  double stretch = estimator.getStretch();
  timeline.ranks.resize(schedule.ranks.size());
  std::vector<uint32_t> positions; // in its rank's list, by event
  positions.reserve(events.size());
  for (const Event &event : events) {
    std::vector<TimelineAction> &actions = timeline.ranks[event.rank].actions;
    const schedule::Action &action = schedule.ranks[event.rank][actions.size()];
    positions.push_back(uint32_t(actions.size()));
    actions.push_back({getActivity(action.kind), false, action.chunk,
                       action.microbatch, stretch * event.start,
                       stretch * event.end});
  }
  markCritical(events, positions);
}

/// Goes from the last end back to the beginning.
void TimelineBuilder::markCritical(const std::vector<Event> &events,
                                   const std::vector<uint32_t> &positions) {
  auto endsEarlier = [](const Event &a, const Event &b) {
    return a.end < b.end;
  };
  auto last = std::max_element(events.begin(), events.end(), endsEarlier);
  if (last == events.end())
    return;
  // Each event names the one that it has waited for last, on its rank or on
  // another: one chain, linear in its length.
  for (int32_t i = int32_t(last - events.begin()); i >= 0; i = events[i].cause)
    timeline.ranks[events[i].rank].actions[positions[i]].isCritical = true;
}

/// Adds what follows the pipeline, at the same time on all ranks.
void TimelineBuilder::addStep() {
  const Estimate &estimate = timeline.estimate;
  // In the order in which the estimate adds them up.
  const std::pair<Activity, double> parts[] = {
      {Activity::Wait, estimate.waitSeconds},
      {Activity::Reduce, estimate.dataSeconds},
      {Activity::Optimizer, estimate.optimizerSeconds},
      {Activity::Overhead, estimate.overheadSeconds}};
  // Behind the pipeline of the slowest rank, even where a rank is done before:
  // all wait for each other to add up gradients.
  double start = estimate.pipelineSeconds;
  for (auto [activity, seconds] : parts) {
    // What a configuration does not have is no action.
    if (seconds <= 0)
      continue;
    double end = start + seconds;
    for (RankTimeline &rank : timeline.ranks)
      rank.actions.push_back({activity, true, 0, 0, start, end});
    start = end;
  }
}

/// The figures that estimates count memory by, of one microbatch, by chunk.
std::vector<InFlight> TimelineBuilder::getHeld(uint32_t rank) const {
  std::vector<InFlight> held;
  for (const StageBlocks *stage : estimator.stagesOf(rank))
    held.push_back(heldBytes(*stage, context, /*splits=*/true));
  return held;
}

/// A sample at each start and end of work. Memory is taken when a forward
/// starts and given back when a backward ends; the workspace is there while
/// something runs. The estimate's activations are replaced by the largest
/// sample, which is of all microbatches. What is outside of the pipeline
/// changes nothing.
void TimelineBuilder::addMemory(uint32_t rank) {
  const std::vector<InFlight> held = getHeld(rank);
  RankTimeline &line = timeline.ranks[rank];
  StageMemory &largest = timeline.estimate.memory[rank];
  // What is there all the time.
  StageMemory idle = largest;
  idle.activations = idle.workspace = 0;
  double activations = 0, peak = 0;
  auto addSample = [&](double seconds, double workspace) {
    // What ends when something else starts is never seen.
    if (!line.memory.empty() && line.memory.back().seconds == seconds)
      line.memory.pop_back();
    line.memory.push_back({seconds, idle});
    line.memory.back().bytes.activations = activations;
    line.memory.back().bytes.workspace = workspace;
    peak = std::max(peak, activations);
  };
  addSample(0, 0);
  for (const TimelineAction &action : line.actions) {
    // The parts of the step behind the pipeline begin here, and hold nothing
    // more.
    if (action.activity > Activity::BackwardWeight)
      break;
    const InFlight &chunk = held[action.chunk];
    // Taken before the action runs, because its results need room from the
    // beginning.
    if (action.activity == Activity::Forward)
      activations += chunk.whole;
    addSample(action.start, largest.workspace);
    // Given back when it has run. An input gradient leaves what weights'
    // gradients read.
    if (action.activity == Activity::Backward)
      activations -= chunk.whole;
    if (action.activity == Activity::BackwardInput)
      activations += chunk.weights - chunk.whole;
    if (action.activity == Activity::BackwardWeight)
      activations -= chunk.weights;
    // Sums of many terms: what is left of the last one is rounding.
    activations = std::max(activations, 0.0);
    addSample(action.end, 0);
  }
  largest.activations = peak;
}

/// The estimate is moved out of the estimator after its pipeline has been
/// traced, which needs the stages, and before the parts that need its sums.
Timeline TimelineBuilder::run() {
  addActions();
  timeline.estimate = std::move(estimator.getResult());
  addStep();
  for (uint32_t rank = 0; rank < timeline.ranks.size(); ++rank)
    addMemory(rank);
  return std::move(timeline);
}

Result<Timeline> planner::simulateTimeline(const Work &work,
                                           const Cluster &cluster,
                                           const Training &training,
                                           const Configuration &configuration) {
  Context context{work, cluster, training, configuration};
  Estimator estimator(context);
  PLAIT_RETURN_IF_ERROR(estimator.run(Microbatches::All));
  return TimelineBuilder(context, estimator, estimator.getSchedule()).run();
}
