//===- Search.h - Picking a configuration -----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Finds the fastest configuration of a space that fits into memory, as
// estimate() predicts it. Branch and bound: every family of configurations gets
// a time that none of its members can beat and bytes that none can do without;
// the most promising are estimated first, and what cannot win any more is left
// out. Nothing is sampled, so the pick is the exact optimum of the space under
// the model; see docs/Planner.md.
//
// The same input gives the same result, byte for byte but for wall-clock
// seconds: work is handed to threads in rounds of fixed size. Of the runners-up
// that are within `robustBand` of the fastest the simplest is picked: nothing
// on hosts, then fewest axes of the mesh, then schedule::Generator::simplicity,
// then fewest chunks; the notes say so. Equal times are decided by less on
// hosts, then by fewer ranks of tp, then of pp, then by the configuration in
// words.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_SEARCH_H
#define PLAIT_PLANNER_SEARCH_H

#include "plait/Planner/Cluster.h"
#include "plait/Planner/Configuration.h"
#include "plait/Planner/Estimate.h"
#include "plait/Planner/Work.h"
#include "plait/Support/Status.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace plait::planner {

/// The choices that there are. Every list but `microBatch`, `layers` and those
/// of the mesh has at least one entry; order and duplicates do not matter. Of
/// `layers` nothing is read: stages are cut by cost, and evenly where that is
/// possible. Those of `microBatch` that divide a replica's share of the batch
/// are tried; empty: all that do, up to 128. `offload` has none among several.
struct SearchSpace : StrategySpace {
  std::string name = "plainest"; // for messages
  /// Sizes of axes that are there on demand; of the others any that divide.
  PerAxis<std::vector<int>> mesh;

  /// The plainest strategy alone.
  SearchSpace();
  /// Everything that can be compiled: all schedules, chunks up to 8, ZeRO 0 to
  /// 3, all kinds of recomputation and of offload, context up to 64.
  static SearchSpace all();
};

/// The choices that are made beforehand. Mesh sizes and microbatches may be
/// any; the others have to be in the space. `layers` needs that of pp.
struct Pins : StrategyPins {
  PerAxis<std::optional<int>> mesh;
  /// Ranks to use. Without it all devices of the cluster, or the product of the
  /// mesh where isMeshGiven().
  std::optional<int> devices;

  /// Whether any size of the mesh is decided, and whether all are but for axes
  /// that are there on demand.
  bool isMeshPinned() const;
  bool isMeshGiven() const;
  /// The sizes that are decided, and 1 for the others.
  Mesh getMesh() const;
};

/// Reads "tp=4,pp=2": pp, dp, ep, cp, tp and the fields of a strategy but
/// `layers`; sp is short for sequence-parallel. Fails on an unknown name, a
/// value out of range and on a name that occurs twice.
Result<Pins> parsePins(const std::string &text);
/// The inverse; empty when nothing is pinned.
std::string print(const Pins &pins);

/// "pp 8, dp 8, tp 8, 1f1b, micro-batch 1, recompute full": what is not at its
/// default.
std::string print(const Configuration &configuration);

/// A configuration that was not picked, and what it loses.
struct Alternative {
  /// The difference that makes it a variant, "recompute full" or "tp 4, pp 16".
  std::string change;
  Configuration configuration;
  Estimate estimate;
  bool fits = true;
  /// One line: "4.1 % slower: bubble 12.0 % against 3.0 %", "needs 91.2 GB on
  /// stage 0, has 79.1 GB".
  std::string why;
};

struct SearchCounts {
  int64_t considered = 0; // configurations of the space that make sense
  int64_t estimated = 0;  // by estimate()
  int64_t pruned = 0;     // the others: a bound has ruled them out
  int profiles = 0;       // degrees asked of WorkSource::get
  double seconds = 0;     // wall-clock, calls of WorkSource::get left out
  double perSecond() const { return seconds > 0 ? considered / seconds : 0; }
};

/// How far apart the predictions of two configurations of one task have to be
/// for the order to be worth something: of published runs, half of the pairs
/// have a ratio that is as close to the predicted one, and eight in ten one
/// within `robustMost` (`plait-bench-published`, docs/Accuracy.md).
inline constexpr double robustBand = 0.04, robustMost = 0.08;

struct SearchResult {
  /// Complete: `layers` are those of the estimate.
  Configuration configuration;
  Estimate estimate;
  /// The work that estimate() was given; belongs to the WorkSource.
  const Work *work = nullptr;
  /// The best of each other combination of mesh and schedule, best first; exact
  /// like the pick. At most 10.
  std::vector<Alternative> runnersUp;
  /// The pick with one thing changed, whether in the space or not.
  std::vector<Alternative> variants;
  /// Devices that the pick leaves idle, and then the best that uses all of
  /// them, where one fits.
  int idleDevices = 0;
  std::optional<Alternative> allDevices;
  bool hasExperts = false; // the model, in some layer
  /// Why a tensor-parallel degree was not tried, one line each, and what a
  /// simpler schedule was preferred to.
  std::vector<std::string> notes;
  SearchCounts counts;
  /// No configuration of the space that fits is faster under the model: the
  /// optimum of all that are estimated to fit and have not been placed in vain.
  double lowerBoundSeconds = 0;
  /// No stage cut and no schedule, in the space or not, makes a mesh of the
  /// space faster: the devices' work, evenly spread, without a bubble.
  double idealSeconds = 0;

  /// How many of the runners-up are within the band of the pick.
  int countWithinBand() const;

  /// How far the pick may be from the best of the space, in percent.
  double withinPercent() const {
    return lowerBoundSeconds > 0
               ? 100 * (estimate.iterationSeconds / lowerBoundSeconds - 1)
               : 0;
  }
};

/// Replaces the memory of an estimate by what a configuration takes in truth;
/// leaves it as it is where that cannot be told. A failure ends the search.
using Placement =
    std::function<Status(const Configuration &configuration, Estimate &)>;

/// A configuration that is estimated to fit, but by `place` does not, is
/// excluded, and with it other cuts and replicas of the same that would be as
/// much too large; the bound counts those. A pick that is returned has been
/// placed last.
///
/// Fails when pins and space contradict each other or the model; when no mesh
/// divides devices, layers and batch (the message names the nearest that do);
/// and when nothing fits into memory: then it says which stage is short of how
/// much, what takes the most, and the smallest change that was found to fit.
Result<SearchResult> search(WorkSource &source, const Cluster &cluster,
                            const Training &training, const SearchSpace &space,
                            const Pins &pins = {}, const Placement &place = {});

/// Finds the seconds of the fastest configuration that is estimated to fit,
/// and nothing else of it; nothing where none takes less than `most`. Takes a
/// fraction of what search() does, which has runners-up to find. Fails when
/// pins and space contradict each other.
Result<std::optional<double>> findLeastSeconds(WorkSource &source,
                                               const Cluster &cluster,
                                               const Training &training,
                                               const SearchSpace &space,
                                               const Pins &pins, double most);

/// One line of a comparison: a part of the time or of the memory, in seconds
/// or bytes.
struct Difference {
  std::string part;
  double pick = 0, other = 0;
  bool isBytes = false;
};

/// Answers --why-not.
struct WhyNot {
  Alternative other;                   // the best under the pins
  std::vector<Difference> differences; // the first is the whole step
};

/// Searches once more, under `pins`, and compares what comes out with `pick`.
/// Fails with the reason why there is no such configuration.
Result<WhyNot> whyNot(const SearchResult &pick, WorkSource &source,
                      const Cluster &cluster, const Training &training,
                      const SearchSpace &space, const Pins &pins);

} // namespace plait::planner

#endif // PLAIT_PLANNER_SEARCH_H
