//===- Enumerate.h - The configurations of a space ------------ -*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SEARCH_ENUMERATE_H
#define PLAIT_LIB_PLANNER_SEARCH_ENUMERATE_H

#include "plait/Planner/Search.h"

#include <span>

namespace plait::planner {

/// Whether a device can copy all that is offloaded, and has more memory then.
bool makesRoom(Offload offload, const Device &device);

struct Abilities;

/// A schedule with as many chunks as it can order.
struct ScheduleChoice {
  std::string name;
  int chunks = 1;
  bool splits = false;   // gradients of weights run apart
  bool searches = false; // as schedule::Generator
  bool turns = false;    // embedding and head are on one rank

  /// Whether getSeconds of Bounds knows no difference but the chunks.
  bool isLike(const ScheduleChoice &other) const {
    return splits == other.splits && turns == other.turns;
  }
};

/// Space and pins, checked against each other.
class Choices {
public:
  static Result<Choices> get(const SearchSpace &space, const Pins &pins,
                             const Cluster &cluster, const Training &training);

  /// The row of the program that is searched for.
  const Abilities *abilities = nullptr;
  /// All devices, or as many as are pinned.
  int ranks = 1;
  /// Whether devices may be left idle: not where their number is pinned, and
  /// not where ranks share a processor, whose number is what was asked for.
  bool mayIdle = false;
  PerAxis<std::vector<int>> mesh; // of axes on demand, ascending
  std::vector<int> zero;          // ascending
  int zeroAlone = 0;              // where there is nothing to divide over
  bool joinsReplicas = false;     // as the framework says
  bool waitsForParts = false;     // passes do, for what ZeRO 2 and 3 divide
  int devicesPerNode = 1;
  /// Whether replicas compress what they send each other: one alone would send
  /// nothing, and round all the same. Only who pins it gets it.
  bool needsReplicas = false;
  std::vector<Recomputation> recompute;
  std::vector<bool> sequenceParallel;
  std::vector<ContextParallel> contextParallel;
  std::vector<ExpertExchange> expertExchange;
  /// The first is none, or all there is: the others are only tried where it
  /// does not fit (Explore.cpp).
  std::vector<Offload> offload;
  std::vector<ScheduleChoice> schedules;

  /// Degrees of tensor parallelism: those that are worth a profile in any
  /// case (powers of two inside a node, all of a small node's divisors, what is
  /// pinned), and those only where a bound says that they might win.
  std::vector<int> tensorsFirst, tensorsByBound;
  /// Those that are only possible with idle devices: inside of a node powers of
  /// two, or on few devices all, that do not divide `ranks`; or what is
  /// pinned.
  std::vector<int> tensorsWithIdle;

  /// All meshes of `ranks` with the degrees, of at most `stages` stages, that
  /// divide the batch and the sequence.
  std::vector<Mesh> getMeshes(const Degrees &degrees, int64_t stages,
                              const Training &training, const Pins &pins) const;
  /// The same of fewer ranks; those with more replicas first.
  std::vector<Mesh> getIdleMeshes(const Degrees &degrees, int64_t stages,
                                  const Training &training,
                                  const Pins &pins) const;
  /// Returns members of `schedules` for one mesh, with no more virtual stages
  /// than the model has pieces; for one stage those that stand for all.
  std::vector<const ScheduleChoice *> getSchedules(const Mesh &mesh,
                                                   int64_t stages) const;
  std::vector<int> getZeroStages(const Mesh &mesh) const;
  /// Without ranks that share a sequence one stands for all.
  std::span<const ContextParallel> getContextParallel(int context) const;
  /// Without ranks that split experts there are only tokens.
  std::vector<ExpertExchange> getExpertExchange(int experts) const;
  std::vector<int64_t> getMicroBatches(const Mesh &mesh,
                                       const Training &training) const;

private:
  /// Adds `one`, whose replicas are one group, and the same in several groups
  /// that have a copy of the state each, as far as they may be. Groups are
  /// along the axes of `rows` that copy state.
  void addMeshes(Mesh one, const Pins &pins, std::vector<Mesh> &meshes,
                 std::span<const AxisFacts> rows = kAxes) const;
  /// Adds `one` if its groups are allowed and sensible.
  void addMesh(const Mesh &one, const Pins &pins,
               std::vector<Mesh> &meshes) const;
  /// Fills `tensorsFirst` and `tensorsByBound`.
  void setTensors(const Pins &pins, const Cluster &cluster);

  /// The plainest that runs gradients of weights apart, or does not; null where
  /// there is none.
  const ScheduleChoice *findPlainest(bool splits) const;

  std::vector<int64_t> microBatches; // empty: all that divide
};

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SEARCH_ENUMERATE_H
