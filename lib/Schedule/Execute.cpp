//===- Execute.cpp - Runs the lists of a schedule together ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The engine behind verify (does it end?) and simulate (when?). Every rank
// works through its list until an action waits for an event that has not
// happened; the event wakes it. Events have exactly one waiter, so that each
// action is looked at at most twice.

#include "Execute.h"
#include "Messages.h"
#include "plait/Schedule/Verify.h"

#include <algorithm>

using namespace plait;
using namespace plait::schedule;

namespace {

constexpr double never = -1;

/// A message from one virtual stage to the next in a direction was posted, or
/// has been received.
struct Event {
  enum Kind : uint8_t { Posted, Received } kind;
  Direction direction;
  uint32_t source; // virtual stage
  uint32_t microbatch;
};

/// One execution of a schedule for which verifyLists() holds: chunks,
/// microbatches and peers are in range, each message is sent and received once.
/// So every event happens at most once and is awaited by one rank, and a single
/// slot for each rank says what it waits for. Ranks need not be run in the
/// order of time: an action's end follows from its rank's clock and its input's
/// time alone, both of which are final when it is looked at.
class Engine {
public:
  Engine(const Schedule &schedule, const Costs &costs)
      : schedule(schedule), problem(schedule.problem), costs(costs),
        computeOnly(schedule.isComputeOnly()),
        times(4 * size_t(problem.virtualStages()) * problem.microbatches,
              never),
        rankOf(problem.virtualStages()), cursors(problem.stages, 0),
        clocks(problem.stages, 0), waitingFor(problem.stages) {
    for (uint32_t stage = 0; stage < rankOf.size(); ++stage)
      rankOf[stage] = problem.rankOf(stage);
  }

  Result<Timeline> run();
  std::optional<Blocked> findBlocked();

private:
  void runAll();
  /// Four rows, of posted and received in both directions, each by virtual
  /// stage and microbatch: an event is looked up without a search.
  size_t indexOf(const Event &event) const {
    size_t row = 2 * event.kind + size_t(event.direction);
    return (row * problem.virtualStages() + event.source) *
               problem.microbatches +
           event.microbatch;
  }
  const Action &current(uint32_t rank) const {
    return schedule.ranks[rank][cursors[rank]];
  }

  std::optional<Event> inputOf(uint32_t rank, const Action &action) const;
  std::optional<Event> outputOf(uint32_t rank, const Action &action) const;
  uint32_t getWaiter(const Event &event) const;
  double getDuration(uint32_t rank, const Action &action) const;
  void advance(uint32_t rank);
  void signal(const Event &event, double time);
  Status describeDeadlock() const;
  void summarise();

  const Schedule &schedule;
  const Problem &problem;
  const Costs &costs;
  bool computeOnly;
  std::vector<double> times;    // by indexOf(event)
  std::vector<uint32_t> rankOf; // problem.rankOf, without its divisions
  std::vector<size_t> cursors;
  std::vector<double> clocks;
  std::vector<std::optional<Event>> waitingFor;
  std::vector<uint32_t> runnable;
  Timeline timeline;
};

} // namespace

/// Returns what `action` waits for before it ends (transfers) or starts
/// (compute).
std::optional<Event> Engine::inputOf(uint32_t rank,
                                     const Action &action) const {
  uint32_t stage = problem.stageOf(rank, action.chunk);
  if (action.kind == ActionKind::WaitSend)
    return Event{Event::Received, action.direction, stage, action.microbatch};
  std::optional<Direction> direction;
  if (action.kind == ActionKind::Recv)
    direction = action.direction;
  else if (action.isCompute())
    direction = directionOf(action.kind);
  if (!direction)
    return std::nullopt;
  auto source = sourceOf(problem, stage, *direction);
  // Where lists have transfers, the Recv in front has waited already; where
  // they have none, the action itself waits for the message.
  bool received =
      action.isCompute() && !computeOnly && source && rankOf[*source] != rank;
  if (!source || received)
    return std::nullopt;
  return Event{Event::Posted, *direction, *source, action.microbatch};
}

/// Returns what happens when `action` ends.
std::optional<Event> Engine::outputOf(uint32_t rank,
                                      const Action &action) const {
  uint32_t stage = problem.stageOf(rank, action.chunk);
  if (action.kind == ActionKind::Send)
    return Event{Event::Posted, action.direction, stage, action.microbatch};
  if (action.kind == ActionKind::Recv)
    return Event{Event::Received, action.direction,
                 *sourceOf(problem, stage, action.direction),
                 action.microbatch};
  auto direction = action.isCompute() ? directionOf(action.kind) : std::nullopt;
  if (!direction)
    return std::nullopt;
  auto target = targetOf(problem, stage, *direction);
  if (!target || (!computeOnly && rankOf[*target] != rank))
    return std::nullopt;
  return Event{Event::Posted, *direction, stage, action.microbatch};
}

/// The rank that an event may wake. A posted message wakes its reader; that it
/// was received, the sender, who may wait for its buffer.
uint32_t Engine::getWaiter(const Event &event) const {
  if (event.kind == Event::Received)
    return rankOf[event.source];
  return rankOf[*targetOf(problem, event.source, event.direction)];
}

/// Messages and what happens once a step hold their rank for no time of
/// their own: what they cost beside the pipeline, the planner adds (Step.cpp).
double Engine::getDuration(uint32_t rank, const Action &action) const {
  uint32_t stage = problem.stageOf(rank, action.chunk);
  switch (action.kind) {
  case ActionKind::Forward:
    return costs.forwardOf(stage);
  case ActionKind::Backward:
    return costs.backwardInputOf(stage) + costs.backwardWeightOf(stage);
  case ActionKind::BackwardInput:
    return costs.backwardInputOf(stage);
  case ActionKind::BackwardWeight:
    return costs.backwardWeightOf(stage);
  default:
    return 0;
  }
}

/// Records the event also where nobody waits yet: the reader finds it when it
/// gets there. A rank that waits for another event stays asleep, since its list
/// is in order.
void Engine::signal(const Event &event, double time) {
  times[indexOf(event)] = time;
  uint32_t waiter = getWaiter(event);
  std::optional<Event> &awaited = waitingFor[waiter];
  if (!awaited || indexOf(*awaited) != indexOf(event))
    return;
  awaited.reset();
  runnable.push_back(waiter);
}

/// Runs `rank` until it is done or blocked.
void Engine::advance(uint32_t rank) {
  for (; cursors[rank] < schedule.ranks[rank].size(); ++cursors[rank]) {
    const Action &action = current(rank);
    double ready = clocks[rank];
    if (auto input = inputOf(rank, action)) {
      double time = times[indexOf(*input)];
      // The cursor stays on the action, which is looked at again when the event
      // has happened.
      if (time == never) {
        waitingFor[rank] = input;
        return;
      }
      // A message takes its time between being posted and being there; that it
      // was received, the sender knows at once.
      bool crosses =
          input->kind == Event::Posted && rankOf[input->source] != rank;
      ready = std::max(ready, time + (crosses ? costs.transfer : 0));
    }
    // A transfer is shown for as long as its rank waits in it, work from when
    // it can start.
    double start = action.isCompute() ? ready : clocks[rank];
    clocks[rank] = ready + getDuration(rank, action);
    timeline.ranks[rank].push_back({start, clocks[rank]});
    if (auto output = outputOf(rank, action))
      signal(*output, clocks[rank]);
  }
}

/// Names the lowest rank that waits and what the rank that it waits for is
/// doing: one link of the circle, from which a reader can follow the others. In
/// lists that verifyLists() has passed that rank has not finished, since what
/// is waited for stands in its list.
Status Engine::describeDeadlock() const {
  auto describe = [&](uint32_t rank) {
    std::string text = "rank " + std::to_string(rank);
    if (cursors[rank] == schedule.ranks[rank].size())
      return text + ", which has finished";
    return text + ", action " + std::to_string(cursors[rank]) + " (" +
           print(current(rank)) + ")";
  };
  auto waiting = std::find_if(waitingFor.begin(), waitingFor.end(),
                              [](const auto &event) { return event; });
  if (waiting == waitingFor.end())
    return Status::success();
  const Event &event = **waiting;
  uint32_t other =
      event.kind == Event::Posted
          ? rankOf[event.source]
          : rankOf[*targetOf(problem, event.source, event.direction)];
  return fail("deadlock: ", describe(waiting - waitingFor.begin()),
              " waits for ", describe(other));
}

/// A rank's span goes from its first to its last work: messages at the ends can
/// overlap with the steps before and after. The makespan counts all.
void Engine::summarise() {
  for (uint32_t rank = 0; rank < problem.stages; ++rank) {
    const std::vector<Action> &actions = schedule.ranks[rank];
    double first = never, last = 0;
    for (size_t i = 0; i < actions.size(); ++i) {
      if (!actions[i].isCompute())
        continue;
      if (first == never)
        first = timeline.ranks[rank][i].start;
      last = timeline.ranks[rank][i].end;
    }
    timeline.span = std::max(timeline.span, last - first);
    timeline.makespan = std::max(timeline.makespan, clocks[rank]);
  }
  if (timeline.span > 0)
    timeline.bubbleRate =
        (timeline.span - getWork(problem, costs)) / timeline.span;
}

/// Runs whatever can run until nothing can: either all lists have ended, or
/// every rank that has not waits for one that does. Time and memory are linear
/// in the actions. Ranks are pushed in reverse, so that the first stage, which
/// all others wait for, is popped first.
void Engine::runAll() {
  timeline.ranks.resize(problem.stages);
  for (uint32_t rank = problem.stages; rank-- > 0;) {
    timeline.ranks[rank].reserve(schedule.ranks[rank].size());
    runnable.push_back(rank);
  }
  while (!runnable.empty()) {
    uint32_t rank = runnable.back();
    runnable.pop_back();
    advance(rank);
  }
}

Result<Timeline> Engine::run() {
  runAll();
  PLAIT_RETURN_IF_ERROR(describeDeadlock());
  summarise();
  return std::move(timeline);
}

/// The same execution without a sentence about it, for callers that have a
/// better way to say where an action is.
std::optional<Blocked> Engine::findBlocked() {
  runAll();
  for (uint32_t rank = 0; rank < problem.stages; ++rank)
    if (waitingFor[rank])
      return Blocked{rank, cursors[rank]};
  return std::nullopt;
}

Result<Timeline> schedule::execute(const Schedule &schedule,
                                   const Costs &costs) {
  return Engine(schedule, costs).run();
}

std::optional<Blocked> schedule::findBlocked(const Schedule &schedule) {
  return Engine(schedule, Costs()).findBlocked();
}

/// Checks what execute() expects, in the order in which the later checks need
/// the earlier.
Result<Timeline> schedule::simulate(const Schedule &schedule,
                                    const Costs &costs) {
  PLAIT_RETURN_IF_ERROR(schedule.problem.check());
  PLAIT_RETURN_IF_ERROR(costs.check(schedule.problem));
  PLAIT_RETURN_IF_ERROR(verifyLists(schedule));
  return execute(schedule, costs);
}
