//===- JointSearch.h - Cut, placement and order together --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where layers differ, and an embedding or a head are layers like others, the
// best cut depends on the order of the work, and the other way round: a stage
// that waits anyway may have more to do. This search decides which layers form
// a virtual stage, how many of these a rank holds, how they are placed and in
// which order a rank works, for the shortest step.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SCHEDULE_JOINTSEARCH_H
#define PLAIT_SCHEDULE_JOINTSEARCH_H

#include "plait/Schedule/Simulate.h"

#include <optional>
#include <string>

namespace plait::schedule {

/// One microbatch on one layer. Times in any unit, each in [0, 1e12]; memory in
/// another.
struct Layer {
  std::string name; // for reports
  double forward = 0, backwardInput = 0, backwardWeight = 0;
  /// Held from the start of the F to the end of the I; the share of MemoryModel
  /// that the weight gradient reads stays until its W.
  double activation = 0;
};

struct JointProblem {
  uint32_t stages = 1; // ranks of the pipeline
  uint32_t microbatches = 1;
  double transfer = 0; // as Costs::transfer
  MemoryModel memory;  // limit in the unit of Layer::activation; no sizes
  std::vector<Layer> layers;
  /// Virtual stages of a rank; none: any number.
  std::optional<uint32_t> chunks;

  /// Fails on values out of range and where there are fewer layers than virtual
  /// stages.
  Status check() const;
};

struct JointResult {
  /// Compute-only and sound, in the limit; `memory.sizes` are of the cut.
  Schedule schedule;
  std::vector<int> cut; // layers of each virtual stage
  Costs costs;          // of each virtual stage
};

/// The shortest that was found, by Timeline::makespan. Deterministic: what is
/// bounded is the number of actions that are looked at, which takes some
/// seconds. Fails when the problem does not check, and when no order was found
/// that keeps the memory limit.
Result<JointResult> searchJointly(const JointProblem &problem);

/// The best cut for the order of a generator; with its placement, and
/// `problem.chunks` or as few as it orders. Fails as generate() does.
Result<JointResult> searchCut(const JointProblem &problem,
                              const std::string &generator);

/// The result of an order that is given, cut as well as it was found to be.
/// Expects a sound compute-only schedule with no more virtual stages than
/// layers. Fails where no cut that was tried keeps the memory limit.
Result<JointResult> searchCut(const JointProblem &problem,
                              const Schedule &order);

/// No cut of the layers into stages of at least one, no placement that gives
/// every rank some and no order is faster. Expects problem.check() to hold; the
/// proof is in JointBound.cpp.
double boundMakespan(const JointProblem &problem);

/// Times and activations of the virtual stages of a cut.
struct StageSums {
  Costs costs;
  std::vector<double> activations;
};
StageSums sumStages(const JointProblem &problem, const std::vector<int> &cut);

} // namespace plait::schedule

#endif // PLAIT_SCHEDULE_JOINTSEARCH_H
