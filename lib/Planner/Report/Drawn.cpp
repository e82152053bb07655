//===- Drawn.cpp - Selection of what timelines draw -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The step that drawings show. A page of all actions of a large step would be
// too large to read or to load, so that fewer microbatches are simulated; a
// note below the drawing says how much of the middle is left out.
//
//===----------------------------------------------------------------------===//

#include "Report/Drawn.h"
#include "Search/Parts.h"

#include <algorithm>

using namespace plait;
using namespace plait::planner;

/// How much of the step is shown, below each drawing.
std::string Drawn::note() const {
  if (microbatches == all)
    return "";
  return std::to_string(microbatches) + " of the step's " +
         std::to_string(all) + " microbatches; where the line is dashed, " +
         printSeconds(omitted()) + " are left out";
}

/// At least three rounds of the pipeline, however many actions that are: fewer
/// would not show the rhythm between the beginning and the end. The batch is as
/// much smaller; everything else is the pick's.
Result<Drawn> planner::simulateDrawn(const ReportInput &input,
                                     int64_t actions) {
  const Configuration &configuration = input.result.configuration;
  Drawn drawn;
  drawn.all = configuration.microbatches(input.training);
  // A forward and at most two backward actions a microbatch.
  int64_t each =
      3 * int64_t(configuration.mesh[Axis::PP]) * configuration.chunks;
  int64_t rounds = 3 * int64_t(configuration.mesh[Axis::PP]);
  drawn.microbatches = std::min(drawn.all, std::max(rounds, actions / each));
  Training training = input.training;
  training.globalBatch = drawn.microbatches * configuration.microBatch *
                         configuration.mesh.batchParts();
  Result<Timeline> timeline = simulateTimeline(
      *input.result.work, input.cluster, training, configuration);
  if (!timeline.ok())
    return timeline.status();
  drawn.timeline = std::move(*timeline);
  drawn.seconds = input.result.estimate.iterationSeconds;
  return std::move(drawn);
}
