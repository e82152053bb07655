//===- Bounds.h - What no configuration can beat -------------- -*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A probe is the whole model on one stage, for one microbatch: its time is what
// the stages of any pipeline have to share, however the layers are cut, and so
// are its bytes. All bounds follow from probes; the proofs are in Bounds.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SEARCH_BOUNDS_H
#define PLAIT_LIB_PLANNER_SEARCH_BOUNDS_H

#include "plait/Planner/Estimate.h"

#include <map>
#include <memory>
#include <mutex>
#include <tuple>

namespace plait::planner {

/// One microbatch through the whole model on one stage of tp x cp ranks.
struct Probe {
  double forward = 0, backwardInput = 0, backwardWeight = 0;
  double overhead = 0; // once a step
  StageMemory memory;
  double work() const { return forward + backwardInput + backwardWeight; }
};

/// One microbatch through the stages of a pipeline, as they are cut.
struct StageProbe {
  Estimate estimate;
  // By rank, in seconds: its work, and what it has to wait for once a step.
  std::vector<double> work, outside;
};

/// getProbe and getSeconds are for one thread; isBeaten for any number.
class Bounds {
public:
  Bounds(const Cluster &cluster, const Training &training)
      : cluster(cluster), training(training) {}

  /// Null where estimate() refuses. `splits`: gradients of weights run apart.
  const Probe *getProbe(const Work &work, const Configuration &configuration,
                        bool splits);

  /// What estimate() said when getProbe last returned null.
  const std::string &getRefusal() const { return refusal; }

  /// Seconds of a step that no cut of the layers beats, with the mesh, the
  /// microbatch and the schedule of `configuration`.
  double getSeconds(const Probe &probe, const Configuration &configuration,
                    bool splits);

  /// The same for any schedule: work evenly spread, no bubble.
  double getIdealSeconds(const Probe &probe,
                         const Configuration &configuration);

  /// Bytes that some rank needs at least.
  double getBytes(const Probe &probe, const Configuration &configuration) const;

  /// With the cut of the stages at hand: whether every configuration like this
  /// one takes longer than `seconds`, or more memory than there is. `bytes` is
  /// then what it takes at least, 0 where time is the reason.
  bool isBeaten(const Work &work, const Configuration &configuration,
                bool splits, double seconds, double &bytes);

private:
  std::shared_ptr<const StageProbe>
  getStageProbe(const Work &work, const Configuration &configuration,
                bool splits);
  void keepWhole(StageProbe &probe, const Work &work,
                 Configuration configuration, const Training &step) const;
  /// Part of the pipeline's time that is added for slow replicas.
  double getWaitShare(int data);

  const Cluster &cluster;
  const Training &training;
  /// Any work that has been probed: waiting for replicas does not depend on it.
  const Work *anyWork = nullptr;
  using Key =
      std::tuple<const Work *, int, ContextParallel, int64_t, Recompute, bool>;
  const Probe *getProbeOf(const Work &work, const Configuration &configuration,
                          Recompute kind, bool splits);
  bool isBeatenBy(const Work &work, const Configuration &configuration,
                  bool splits, double seconds, double &bytes);
  std::map<Key, std::optional<Probe>> probes;
  std::map<int, double> waitShares;
  using StageKey =
      std::tuple<const Work *, int, ContextParallel, int, int, int, int,
                 int64_t, Recomputation, std::string, std::vector<int>>;
  std::mutex mutex; // of stageProbes
  std::map<StageKey, std::shared_ptr<const StageProbe>> stageProbes;
  std::string refusal;
};

/// Seconds of a step that no configuration with `tensor` beats, from the work
/// of another tensor-parallel degree: arithmetic at the device's peak, every
/// byte moved once, and what the forward pass exchanges over tp.
double getTensorBound(const Work &work, int tensor, int ranks,
                      const Cluster &cluster, const Training &training);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SEARCH_BOUNDS_H
