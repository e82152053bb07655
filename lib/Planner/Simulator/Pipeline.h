//===- Pipeline.h - Time of a pipeline schedule -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A search asks for the same schedule with other costs again and again. Orders
// do not depend on costs: a schedule is generated once and kept. What ranks
// hold is read off it at once; where its time is asked for, it is put into an
// order in which every action comes after what it waits for, and an estimate is
// one pass over that array.
//
// A step of many microbatches repeats itself between its beginning and its end.
// With enough rounds of the pipeline (a round: as many microbatches as ranks),
// one simulates a few and a few more and continues the line.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SIMULATOR_PIPELINE_H
#define PLAIT_LIB_PLANNER_SIMULATOR_PIPELINE_H

#include "plait/Schedule/Schedule.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace plait::planner {

/// Seconds of one microbatch on one virtual stage.
struct StageCost {
  double forward = 0, backwardInput = 0, backwardWeight = 0;
  double early = 0;        // of a backward pass, before it needs its message
  double earlyForward = 0; // of a forward pass
};

/// Links between neighbours in the ring of a pipeline's ranks, by the rank in
/// front.
struct TransferCost {
  double seconds = 0;        // of a message between nodes, where there are any
  bool blocking = false;     // holds up its sender
  double inside = 0;         // seconds of a message inside of a node
  uint32_t ranksPerNode = 0; // of a pipeline; 0: `seconds` holds everywhere
  /// Whether a message moves when its receiver is there, which does nothing
  /// else meanwhile.
  bool occupies = false;

  /// Returns when a rank that is free at `clock` has what was sent at `sent`.
  double arrive(double clock, double sent, double latency) const {
    return occupies ? std::max(clock, sent) + latency
                    : std::max(clock, sent + latency);
  }
  double at(uint32_t link, uint32_t ranks) const {
    uint32_t next = link + 1 == ranks ? 0 : link + 1;
    bool sharesNode =
        ranksPerNode > 0 && link / ranksPerNode == next / ranksPerNode;
    return sharesNode ? inside : seconds;
  }
};

/// Returns the link between two ranks that are neighbours.
inline uint32_t getLink(uint32_t a, uint32_t b) {
  return std::max(a, b) - std::min(a, b) == 1 ? std::min(a, b) : std::max(a, b);
}

/// Seconds from the first forward to the end of the last action.
struct PipelineTime {
  double seconds = 0;
  double withoutTransfers = 0; // if messages took no time
};

/// When an entry of a compiled schedule runs.
struct Event {
  uint32_t rank = 0;
  double start = 0, end = 0; // seconds
  /// The index of the event that this one has waited for last; -1: none.
  int32_t cause = -1;
};

/// Microbatches of a chunk that a rank holds.
struct InFlight {
  double whole = 0;   // between the forward and the backward pass
  double weights = 0; // only what the gradients of weights still need
};

/// One generated order. Immutable but for what is made when it is first asked
/// for; shared between threads.
class CompiledSchedule {
public:
  explicit CompiledSchedule(schedule::Schedule schedule);

  /// `costs` by virtual stage.
  PipelineTime run(std::span<const StageCost> costs,
                   TransferCost transfer) const;
  /// The same, with all events; those of a rank are in the schedule's order.
  std::vector<Event> trace(std::span<const StageCost> costs,
                           TransferCost transfer) const;

  /// The moments at which `rank` may hold the most, each with what it holds by
  /// chunk: none that holds less of everything than another. Which of them
  /// takes the most memory depends on bytes.
  std::span<const std::vector<InFlight>> getMoments(uint32_t rank) const {
    return moments[rank];
  }
  const schedule::Problem &getProblem() const { return problem; }
  bool splitsBackward() const { return splits; }
  /// Actions; for the bound of a cache.
  size_t size() const { return actions; }

private:
  struct Entry {
    uint32_t rank, cost; // action kind x virtual stages + virtual stage
    int32_t dependsOn;   // an index before this one, or -1
    // By which input and output come and go; as many as ranks: neither does.
    uint32_t from, to;
  };
  class Orderer;

  const std::vector<Entry> &getEntries() const;
  void countInFlight();
  void addMoment(uint32_t rank, const std::vector<InFlight> &counts);

  schedule::Problem problem;
  size_t actions = 0;
  bool splits = false;
  /// A search rules most schedules out by what they hold. Those that are left
  /// are ordered once, and then only the order is kept.
  mutable std::once_flag ordered;
  mutable std::vector<std::vector<schedule::Action>> ranks;
  mutable std::vector<Entry> entries;
  std::vector<std::vector<std::vector<InFlight>>> moments; // by rank
};

/// The costs and bounds that an order is searched for with; other orders depend
/// on none of it.
struct OrderGoal {
  StageCost costs;          // of a typical stage; rounded
  double weightShare = 0.5; // left of a microbatch after its I, 0 to 1; rounded
  uint32_t limit = 0;       // microbatches that a rank may hold; 0: any number
};

/// The order of `name`. Fails as schedule::generate does.
Result<schedule::Schedule> generateFor(const std::string &name,
                                       const schedule::Problem &problem,
                                       const OrderGoal &goal);

/// The question to a model of a pipeline.
enum class Asked : uint8_t { Memory, TimeAndMemory };

/// A schedule for a problem of any number of microbatches.
class PipelineModel {
public:
  /// Fails as schedule::generate does. One that is asked for memory alone
  /// cannot run().
  static Result<PipelineModel> get(const std::string &name,
                                   const schedule::Problem &problem,
                                   const OrderGoal &goal,
                                   Asked asked = Asked::TimeAndMemory);
  /// Simulates all microbatches of `schedule`.
  explicit PipelineModel(const schedule::Schedule &schedule);
  PipelineModel() = default;

  /// Does what CompiledSchedule::run does.
  PipelineTime run(std::span<const StageCost> costs,
                   TransferCost transfer) const;
  /// Whether gradients of weights run apart.
  bool splitsBackward() const { return large->splitsBackward(); }
  /// How many moments CompiledSchedule::getMoments has.
  size_t countMoments(uint32_t rank) const {
    return large->getMoments(rank).size();
  }
  /// Returns what one of them holds of a chunk.
  InFlight inFlight(uint32_t rank, size_t moment, uint32_t chunk) const;
  /// Returns the problem with the generator's placement of virtual stages.
  const schedule::Problem &getProblem() const { return problem; }
  /// Returns the schedule of all microbatches, or of as many as are simulated.
  const CompiledSchedule &getSimulated() const { return *large; }

private:
  schedule::Problem problem;
  /// Equal where all microbatches are simulated.
  std::shared_ptr<const CompiledSchedule> small, large;
  uint32_t smallCount = 0, largeCount = 0;
  /// Whether what ranks hold grows with the number of microbatches.
  bool grows = false;
};

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SIMULATOR_PIPELINE_H
