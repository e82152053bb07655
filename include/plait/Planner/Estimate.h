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
#include "plait/Planner/Work.h"
#include "plait/Support/Status.h"

namespace plait::planner {

/// Bytes of the most loaded rank of one stage, at its worst moment.
struct StageMemory {
  double parameters = 0, gradients = 0, optimizer = 0, activations = 0,
         workspace = 0;
  /// The device's own, beside peak(): Device::usableBytes() is without it.
  double reserved = 0;
  /// What lives from step to step.
  double resident() const { return parameters + gradients + optimizer; }
  double peak() const { return resident() + activations + workspace; }
};

/// Seconds of a step in which a rank waits for communication of a kind, on the
/// critical path.
struct Exposed {
  double tensor = 0, pipeline = 0, data = 0, context = 0, expert = 0;
};

/// Seconds of one microbatch on one virtual stage.
struct StageTime {
  double forward = 0, backwardInput = 0, backwardWeight = 0;
  double recompute = 0;                    // part of backwardInput
  double tensorForward = 0, tensorBackward = 0; // exposed, part of the above
};

struct Estimate {
  double iterationSeconds = 0;
  double tokensPerSecond = 0;
  double modelFlops = 0; // of a step, over all ranks
  double mfu = 0;        // against the device's peak for the precision
  double bubbleFraction = 0; // idle time of the pipeline / its span
  Exposed exposed;
  // iterationSeconds is their sum.
  double pipelineSeconds = 0, dataSeconds = 0, optimizerSeconds = 0,
         overheadSeconds = 0;
  double waitSeconds = 0; // part of dataSeconds: for the slowest replica
  double transferSeconds = 0; // one message between stages
  std::vector<StageTime> stages; // by virtual stage
  std::vector<StageMemory> memory; // by rank of the pipeline
  std::vector<int> layers;         // by virtual stage: what was cut

  double peakMemory() const {
    double peak = 0;
    for (const StageMemory &stage : memory)
      peak = stage.peak() > peak ? stage.peak() : peak;
    return peak;
  }
};

/// Predicts a step. Fails when the configuration makes no sense (the batch does
/// not divide, more virtual stages than layers, an unknown schedule, more ranks
/// than the cluster has); not fitting into memory is no failure: compare
/// peakMemory() with cluster.device.usableBytes(). `work` must be of the
/// configuration's tensor-parallel degree and sequence parallelism.
Result<Estimate> estimate(const Work &work, const Cluster &cluster,
                          const Training &training,
                          const Configuration &configuration);

} // namespace plait::planner

#endif // PLAIT_PLANNER_ESTIMATE_H
