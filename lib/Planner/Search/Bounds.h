//===- Bounds.h - Lower bounds of configurations ----------------*- C++ -*-===//
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

#include "Search/KeyHash.h"
#include "Simulator/BlockTime.h"
#include "Simulator/PartLists.h"
#include "Simulator/RankMemory.h"
#include "plait/Planner/Estimate.h"

#include <map>
#include <memory>
#include <mutex>
#include <tuple>

namespace plait::planner {

/// Estimates and bounds add up the same terms in another order.
inline constexpr double boundRounding = 1 - 1e-9;

/// The ranks that one replica of a mesh has, with all experts.
inline Mesh withOneReplica(Mesh mesh) {
  for (const AxisFacts &facts : kAxes)
    if (facts.splitsBatch() && !facts.splitsExperts)
      mesh[facts.axis] = 1;
  return mesh;
}

/// One microbatch through the whole model on one stage of tp x cp ranks.
struct Probe {
  double forward = 0, backwardInput = 0, backwardWeight = 0;
  double overhead = 0; // once a step
  int64_t layers = 0;
  // Seconds: of the fastest layer, of what stages behind one wait for before
  // they begin and once they are done, of what is no layer, and the most that a
  // stage does before the gradient is there.
  double layer = 0, passed = 0, before = 0, after = 0, early = 0;
  Elements parameters;
  StageMemory memory, layersMemory; // of all, and of the layers alone
  // Bytes that live for the length of one block: of the one that needs the
  // most, and of the layer that needs the least.
  double temporary = 0, layerTemporary = 0;
  // Bytes that only gradients of weights that run apart still need, of all
  // blocks and of the layers; 0 where layers may differ.
  double weights = 0, layersWeights = 0;
  double work() const { return forward + backwardInput + backwardWeight; }
  /// The least from the first forward pass of a microbatch to the gradient of
  /// its input.
  double chain(int stages) const {
    return forward + backwardInput - stages * early;
  }
};

/// Whether copies may take nothing, however long they are: they go on while
/// passes wait for what ZeRO 3 gathers, and halves of them for what ZeRO 2
/// reduces, which a probe knows nothing of.
inline bool copiesBesideGathers(const Configuration &configuration,
                                bool splits) {
  return configuration.zero >= (splits ? 2 : 3) &&
         offloadsActivations(configuration.offload);
}

/// One microbatch through the stages of a pipeline, as they are cut: whatever
/// the number of microbatches, of replicas and the ZeRO stage are, but for what
/// copiesBesideGathers() says of that.
struct StageProbe {
  std::vector<int> layers; // by virtual stage
  // By rank, in seconds: its work, and what it has to wait for once a step.
  std::vector<double> work, outside;
  std::vector<Holdings> holdings;       // that differ: most ranks hold the same
  std::vector<std::vector<int>> blocks; // of these, each one once
  std::vector<uint32_t> holds;          // which of these, by rank
  std::vector<InFlight> held;      // bytes of one microbatch, by rank and chunk
  std::vector<double> heldSeconds; // bytes times seconds that it holds them
  Elements parameters;             // of the rank that has the most
};

/// getProbe is for one thread, and so is forgetSteps; the others for any
/// number.
class Bounds {
public:
  Bounds(const Cluster &cluster, const Training &training)
      : cluster(cluster), training(training) {}

  /// Times that estimates of the same search share with bounds.
  BlockTimes &getBlockTimes() { return blockTimes; }
  PartLists &getPartLists() { return partLists; }

  /// Or what estimate() refuses it with. `splits`: gradients of weights run
  /// apart.
  const Result<Probe> &
  getProbe(const Work &work, const Configuration &configuration, bool splits);

  /// Seconds of a step that no cut of the layers beats, with the mesh, the
  /// microbatch and the schedule of `configuration`. The same for all schedules
  /// of several chunks that place the model's ends alike.
  double getSeconds(const Work &work, const Probe &probe,
                    const Configuration &configuration, bool splits) const;

  /// The same for any schedule: work evenly spread, no bubble.
  double getIdealSeconds(const Probe &probe,
                         const Configuration &configuration) const;

  /// Beside these, at least, with the ZeRO stage of `configuration`: the sum of
  /// gradients, the exchange of parameters and the optimizer of a step that
  /// takes less than `seconds`.
  double getStepSeconds(const Work &work, const Probe &probe,
                        const Configuration &configuration, double seconds);

  /// Seconds of a step that the streams of a rank are busy at least, with what
  /// it computes or with what the ZeRO stage of `configuration` has it exchange
  /// parameter by parameter; 0 where that is not known.
  double getStreamSeconds(const Work &work, const Probe &probe,
                          const Configuration &configuration);

  /// Forgets what getStepSeconds() has kept of limits, which change as a search
  /// goes on.
  void forgetSteps() { steps.clear(); }

  /// Bytes that some rank needs at least; `gathered` is what getGathered() says
  /// of the same mesh, or less.
  double getBytes(const Probe &probe, const Configuration &configuration,
                  double gathered = 0) const;

  /// Bytes that a rank with any of the layers has at least of what ZeRO 3
  /// gathers.
  double getGathered(const Work &work, Configuration configuration) const;

  /// Seconds of a step that the slowest rank takes at least, with the cut of
  /// the stages at hand and beside what getStepSeconds() says; 0 where that is
  /// not known. The same for all ZeRO stages, and no more with anything on
  /// hosts.
  double getCutStageSeconds(const Work &work,
                            const Configuration &configuration, bool splits);

  /// Whether every configuration like this one takes, with the cut of the
  /// stages at hand, longer than `seconds`, or more memory than there is.
  /// `bytes` is then what it takes at least, 0 where time is the reason.
  bool isBeaten(const Work &work, const Configuration &configuration,
                bool splits, double seconds, double &bytes);

private:
  std::shared_ptr<const StageProbe>
  getStageProbe(const Work &work, const Configuration &configuration,
                bool splits);
  std::shared_ptr<const StageProbe>
  makeStageProbe(const Work &work, const Configuration &configuration);
  double getCutSeconds(const Work &work, const Probe &probe,
                       const Configuration &configuration, bool splits) const;
  /// Counts, by rank, of what it holds by chunk at one moment after the other.
  using Held = std::shared_ptr<const std::vector<std::vector<InFlight>>>;
  Held getHeld(const Configuration &configuration);
  double getStepSeconds(const Elements &parameters, const Context &context,
                        double seconds);
  double makeStepSeconds(const Work &work, const Probe &probe,
                         const Configuration &configuration, double seconds);

  const Cluster &cluster;
  const Training &training;
  BlockTimes blockTimes;
  PartLists partLists;
  /// The key has, of a work, the ranks that share a sequence and a microbatch.
  /// A probe is made when it is asked for. Where activations lie is the last:
  /// it changes times of passes, as where the optimizer's state does not.
  using ProbeKey = std::tuple<const Work *, int, int64_t>;
  using Probes = std::unique_ptr<Result<Probe>>[3][4][2][memoryPlaceCount][2];
  const Result<Probe> &getProbeOf(const Work &work,
                                  const Configuration &configuration,
                                  Recompute kind, bool splits);
  double getFixedSeconds(double pipeline, const Context &context) const;
  bool takesLonger(double pipeline, const StageProbe &probe,
                   const Context &context, double limit);
  double getPipelineSeconds(const StageProbe &probe, const Context &context,
                            bool splits) const;
  bool isBeatenBy(const Work &work, const Configuration &configuration,
                  bool splits, double seconds, double &bytes, bool isMixture);
  Result<Probe> makeProbe(const Work &work, const Configuration &configuration,
                          Recompute kind, bool splits);
  Result<Probe> makeLeastProbe(const Work &work,
                               const Configuration &configuration, bool splits);
  std::map<ProbeKey, Probes> probes;
  std::pair<const ProbeKey, Probes> *latest = nullptr; // that was asked for
  using StageKey = std::tuple<const Work *, int, ContextParallel, int, int,
                              int64_t, Recomputation, schedule::Placement, bool,
                              std::vector<int>, MemoryPlace, int>;
  using HeldKey = std::tuple<std::string, int, int, int64_t>;
  std::mutex mutex; // of what follows
  HashMap<StageKey, std::shared_ptr<const StageProbe>> stageProbes;
  std::map<HeldKey, Held> heldBy;
  /// All that is read of a configuration: nothing of schedule, cut and
  /// recomputation.
  using StepKey = std::tuple<double, const Work *, Mesh, int64_t, int, Offload,
                             ContextParallel>;
  HashMap<StepKey, double> steps, leastSteps; // with a limit, and without
  /// Sums of what is exchanged: all that they depend on. -1: of any kind.
  using SumsKey = std::tuple<const Work *, Mesh, int, int>;
  static SumsKey getSumsKey(const Context &context, int kind);
  HashMap<SumsKey, PartSums> sums;
  PartSums getSums(const Context &context);
  HashMap<SumsKey, bool> divided; // what dividesAll() says, of any kind
  /// Whether ZeRO divides all parameters that it may divide.
  bool dividesAll(const Context &context);
};

/// Seconds of a sequence that ranks of tp exchange at least: those in which
/// they do nothing else, and all of them.
struct ExchangeBound {
  double exposed = 0, all = 0;
};

/// Returns that of `tensor` ranks, from the work of any degree.
ExchangeBound getExchangeBound(const Work &work, int tensor,
                               const Cluster &cluster,
                               const Training &training);

/// Seconds of a step that no configuration with `tensor` beats, from the work
/// of another tensor-parallel degree: arithmetic at the device's peak, every
/// byte moved once, and what is exchanged over tp.
double getTensorBound(const Work &work, int tensor, int ranks,
                      const Cluster &cluster, const Training &training);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SEARCH_BOUNDS_H
