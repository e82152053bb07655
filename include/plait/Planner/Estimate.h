//===- Estimate.h - Time and memory of one configuration --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One implementation serves search, --predict and reports. The estimate adds up
// the costs of a stage's operations (Cost.h), runs the schedule with them
// (Schedule/Simulate.h), and adds what happens once a step.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_ESTIMATE_H
#define PLAIT_PLANNER_ESTIMATE_H

#include "plait/Planner/Cluster.h"
#include "plait/Planner/Configuration.h"
#include "plait/Planner/Exchange.h"
#include "plait/Planner/Work.h"
#include "plait/Schedule/Schedule.h"
#include "plait/Support/Status.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace plait::planner {

/// Bytes of the most loaded rank of one stage, at its worst moment.
struct StageMemory {
  double parameters = 0, gradients = 0, optimizer = 0, activations = 0,
         workspace = 0;
  /// The bytes that communicators take beyond what the device reserves.
  double communicators = 0;
  /// The device's own, beside peak(): Device::usableBytes() is without it.
  double reserved = 0;
  /// The bytes of other places for what is offloaded: no part of peak().
  PerPlace<double> offloaded;
  /// Returns the bytes that live from step to step.
  double resident() const { return parameters + gradients + optimizer; }
  double peak() const {
    return resident() + activations + workspace + communicators;
  }
  double getNeed(MemoryPlace place) const {
    return place == MemoryPlace::Arena ? peak() : offloaded[place];
  }
};

/// Seconds of a step in which a rank waits for communication along an axis and
/// does nothing else.
using Exposed = PerAxis<double>;

/// The parts of a step's seconds on the rank of the pipeline that computes
/// longest. The others have more bubble instead.
struct Breakdown {
  // Operations, with what collectives beside them cost them.
  double forward = 0, backward = 0;
  double recompute = 0; // forward again
  Exposed exposed;
  double bubble = 0; // no microbatch is there to work on
  double wait = 0;   // for the slowest replica
  double optimizer = 0, overhead = 0;
  // Of the work, which is forward, backward, recompute and optimizer: bound by
  // the device's memory, or between kernels (Cost.h).
  double memory = 0, launch = 0;

  /// The rest of the work: bound by arithmetic, or slowed by collectives beside
  /// it.
  double arithmetic() const {
    return forward + backward + recompute + optimizer - memory - launch;
  }

  /// Estimate::iterationSeconds, but for rounding.
  double sum() const {
    return forward + backward + recompute +
           std::accumulate(exposed.begin(), exposed.end(), 0.0) + bubble +
           wait + optimizer + overhead;
  }
};

/// Seconds of one microbatch on one virtual stage.
struct StageTime {
  double forward = 0, backwardInput = 0, backwardWeight = 0;
  // Parts of the above.
  double recompute = 0; // of the backward pass, without communication
  double tensorForward = 0, tensorBackward = 0; // exposed
  double contextForward = 0, contextBackward = 0;
  double expertsForward = 0, expertsBackward = 0;
  double memory = 0, launch = 0; // as in Breakdown, of the three passes
  // Waiting for copies to and from other places.
  double copiedForward = 0, copiedInput = 0, copiedWeight = 0;
  /// Seconds that a backward pass waits for what comes from another place, each
  /// tensor while what was read before it is used; where it is split, of either
  /// half, else all of them in the first.
  double fetchedInput = 0, fetchedWeight = 0;
  /// Seconds of a backward pass that what replicas exchange is not beside,
  /// since ranks of cp have waited for all of that.
  double drained = 0;
  /// Seconds with which a backward pass begins and that need no gradient: of
  /// what is computed again of its last block, on GPUs, which begin with it
  /// while the message with the gradient is on its way.
  double early = 0;

  double sum() const { return forward + backwardInput + backwardWeight; }
  /// Returns seconds from the beginning of the forward pass to the gradient of
  /// the input, with a backward pass that is in two parts or whole.
  double round(bool splits) const {
    return forward + backwardInput + (splits ? -early : backwardWeight);
  }
  /// Communication that nothing hides.
  double exposedForward() const {
    return tensorForward + contextForward + expertsForward;
  }
  double exposedBackward() const {
    return tensorBackward + contextBackward + expertsBackward;
  }
  double exposed() const { return exposedForward() + exposedBackward(); }
};

/// The first of `places` of which a device has less than is needed, if any.
inline std::optional<MemoryPlace>
findShort(const PerPlace<double> &needs, const Device &device,
          std::span<const MemoryPlaceFacts> places = memoryPlaces) {
  for (const MemoryPlaceFacts &facts : places) {
    double room = device.getRoom(facts.place);
    bool isKnown = facts.place == MemoryPlace::Arena || room > 0;
    if (isKnown && needs[facts.place] > room)
      return facts.place;
  }
  return std::nullopt;
}

struct Estimate {
  double iterationSeconds = 0;
  double tokensPerSecond = 0;
  double modelFlops = 0; // of a step, over all ranks
  double mfu = 0;        // against the device's peak for the precision
  /// The part of the time from the first forward pass to the last backward pass
  /// in which ranks neither compute nor communicate, on average.
  double bubbleFraction = 0;
  // iterationSeconds is their sum.
  double pipelineSeconds = 0, waitSeconds = 0, dataSeconds = 0,
         optimizerSeconds = 0, overheadSeconds = 0;
  Breakdown breakdown;             // the same sum by cause
  double transferSeconds = 0;      // one message between stages
  std::vector<StageTime> stages;   // by virtual stage
  std::vector<StageMemory> memory; // by rank of the pipeline
  std::vector<int> layers;         // by virtual stage: what was cut
  Recomputation recompute;         // never Auto
  /// Whether memory is what the compiler has placed, and so exact.
  bool isPlaced = false;

  /// The most bytes that a rank needs of each place.
  PerPlace<double> getNeeds() const {
    PerPlace<double> needs;
    for (const MemoryPlaceFacts &facts : memoryPlaces)
      for (const StageMemory &stage : memory)
        needs[facts.place] =
            std::max(needs[facts.place], stage.getNeed(facts.place));
    return needs;
  }
  double peakMemory() const { return getNeeds()[MemoryPlace::Arena]; }
  bool isTooLarge(const Device &device) const {
    return findShort(getNeeds(), device).has_value();
  }
};

/// Predicts a step. Where recomputation is Auto, each rank gets the fastest
/// choice for its layers with which it fits: first layers whole, cheap parts of
/// the next. That is exact for layers that are alike and one virtual stage a
/// rank; of several, the one that holds the most microbatches comes first. What
/// cannot fit computes all layers again. Fails when the configuration makes no
/// sense (the batch does not divide, more virtual stages than layers, an
/// unknown schedule, more ranks than the cluster has); not fitting into memory
/// is no failure: ask isTooLarge().
/// `work` must be of the configuration's tensor-parallel degree and sequence
/// parallelism.
Result<Estimate> estimate(const Work &work, const Cluster &cluster,
                          const Training &training,
                          const Configuration &configuration);

/// Lists, by rank of the pipeline, what a rank of the step that estimate()
/// predicts exchanges. Fails as that does.
Result<std::vector<ExchangeList>>
listExchanges(const Work &work, const Cluster &cluster,
              const Training &training, const Configuration &configuration);

/// The order of work that estimate() predicts `configuration` with, where its
/// schedule is searched for by the costs of the step and its name alone does
/// not say it; else none. Fails as estimate() does. Takes time and memory in
/// proportion to microbatches x virtual stages.
Result<std::optional<schedule::Schedule>>
findOrder(const Work &work, const Cluster &cluster, const Training &training,
          const Configuration &configuration);

} // namespace plait::planner

#endif // PLAIT_PLANNER_ESTIMATE_H
