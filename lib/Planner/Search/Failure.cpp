//===- Failure.cpp - Explanation of failed searches -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Why a search has found nothing, in one line, and what would help. The reasons
// are told in the order in which they rule things out: the degree of tensor
// parallelism, the mesh, the microbatch, memory. What would help is never
// guessed: each change is searched with, and only named where something fits.
// All of this runs after a search that has failed, so that its time matters
// less than a message that is right.
//
//===----------------------------------------------------------------------===//

#include "Search/Failure.h"
#include "Search/Parts.h"
#include "plait/Planner/Abilities.h"

#include <algorithm>
#include <functional>

using namespace plait;
using namespace plait::planner;

namespace {

/// Looks for a change to the input under which something fits.
class Remedies {
public:
  explicit Remedies(const SearchInput &input) : input(input) {}

  /// "--recompute full (12.3 s a step), or --cluster h100:2x8 (16 devices)";
  /// empty: none was found.
  std::string find();

private:
  // Returns false where it changes nothing, which needs no search.
  using Change = std::function<bool(SearchSpace &, Pins &)>;

  std::optional<Leaf> explore(const SearchSpace &space, const Pins &pins,
                              const Cluster &cluster) const;
  bool tryChange(const char *option, const Change &change);
  void tryOptions();
  bool doesFit(int nodes) const;
  void tryDevices();

  const SearchInput &input;
  // The sentence so far.
  std::string found;
};

} // namespace

/// A whole search with the changed input, since the message tells how long a
/// step then takes. Profiles are the source's, which keeps those it has made.
std::optional<Leaf> Remedies::explore(const SearchSpace &space,
                                      const Pins &pins,
                                      const Cluster &cluster) const {
  SearchInput changed{input.source, cluster, input.training, space, pins};
  Result<Choices> choices = Choices::get(space, pins, cluster, input.training);
  if (!choices.ok())
    return std::nullopt;
  Knowledge knowledge(changed);
  Explorer explorer(changed, *choices, knowledge);
  explorer.run();
  // The best of the families is what the message names.
  std::vector<Leaf> families = explorer.getFamilies();
  if (families.empty())
    return std::nullopt;
  return families.front();
}

/// `change` returns false where it changes nothing.
bool Remedies::tryChange(const char *option, const Change &change) {
  SearchSpace space = input.space;
  Pins pins = input.pins;
  if (!change(space, pins))
    return false;
  std::optional<Leaf> leaf = explore(space, pins, input.cluster);
  if (!leaf)
    return false;
  found = std::string(option) + " (" + print(leaf->configuration) + ": " +
          printSeconds(leaf->seconds) + " a step)";
  return true;
}

/// Makes `value` possible where it was not: it is admitted into the space, and
/// a pin to something else is lifted. False where it was possible all along, so
/// that it cannot be what was missing, and where it is none of `abilities`,
/// what the program that is searched for has.
template <typename T>
static bool makePossible(std::vector<T> &choices, std::optional<T> &pin,
                         T value, const std::vector<T> &abilities) {
  auto has = [&value](const std::vector<T> &list) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  bool isThere = has(choices);
  if (pin == value || (!pin && isThere) || (!isThere && !has(abilities)))
    return false;
  pin.reset();
  if (!isThere)
    choices.push_back(value);
  return true;
}

/// From what costs least to what changes most.
void Remedies::tryOptions() {
  const SearchSpace &able = getAbilities(input.training.framework).space;
  auto sequence = [&able](SearchSpace &space, Pins &pins) {
    return makePossible(space.sequenceParallel, pins.sequenceParallel, true,
                        able.sequenceParallel);
  };
  // A space has all sizes that divide: only a pin can rule the small ones out.
  auto microBatch = [](SearchSpace &, Pins &pins) {
    bool large = pins.microBatch.value_or(1) > 1;
    pins.microBatch.reset();
    return large;
  };
  auto schedule = [&able](SearchSpace &space, Pins &pins) {
    return makePossible(space.schedule, pins.schedule, std::string("1f1b"),
                        able.schedule);
  };
  auto tryRecompute = [&](Recompute kind) {
    std::string option = "`recompute` " + print(kind);
    return tryChange(option.c_str(), [&](SearchSpace &space, Pins &pins) {
      bool changes = makePossible(space.recompute, pins.recompute,
                                  Recomputation(kind), able.recompute);
      pins.recompute = kind; // a space may leave the choice to Auto
      return changes;
    });
  };
  // A given cut fits one number of stages only, so its pin is lifted as well.
  auto mesh = [](SearchSpace &, Pins &pins) {
    bool isPinned = pins.isMeshPinned();
    pins.mesh = {};
    pins.layers.reset();
    return isPinned;
  };
  auto tryZero = [&](int stage) {
    std::string option = "`zero` " + std::to_string(stage);
    return tryChange(option.c_str(), [&](SearchSpace &space, Pins &pins) {
      return makePossible(space.zero, pins.zero, stage, able.zero);
    });
  };
  auto tryOffload = [&](Offload offload) {
    std::string option = "`offload` " + print(offload);
    return makesRoom(offload, input.cluster.device) &&
           tryChange(option.c_str(), [&](SearchSpace &space, Pins &pins) {
             bool changes = makePossible(space.offload, pins.offload, offload,
                                         able.offload);
             pins.offload = offload;
             return changes;
           });
  };
  // Stops at the first change that helps: the message names one change and not
  // a list.
  tryChange("`sequence-parallel`", sequence) ||
      tryChange("a smaller `micro-batch`", microBatch) ||
      tryChange("`schedule` 1f1b", schedule) ||
      tryRecompute(Recompute::Selective) || tryRecompute(Recompute::Full) ||
      tryChange("another `mesh`", mesh) || tryZero(1) || tryZero(2) ||
      tryZero(3) || std::ranges::any_of(getOffloads().subspan(1), tryOffload);
}

/// Whether something fits on `nodes` nodes.
bool Remedies::doesFit(int nodes) const {
  Pins pins = input.pins;
  pins.devices.reset();
  pins.mesh[Axis::DP]
      .reset(); // what a larger cluster has more of, if nothing else
  Cluster larger = input.cluster;
  larger.nodes = nodes;
  SearchInput changed{input.source, larger, input.training, input.space, pins};
  Result<Choices> choices =
      Choices::get(input.space, pins, larger, input.training);
  Knowledge knowledge(changed);
  return choices.ok() &&
         Explorer(changed, *choices, knowledge).runUntilSomethingFits();
}

/// The fewest nodes: up to 256 times as many, by doubling and halving, since
/// devices may be left idle. More ranks of one processor share its memory, and
/// more processors are no answer.
void Remedies::tryDevices() {
  constexpr int doublings = 8;
  const Cluster &cluster = input.cluster;
  if (cluster.device.isProcessor)
    return;
  // Invariant: nothing fits on `tooFew` nodes; something does on `enough`, once
  // that is not 0. Halving is right because whatever fits on some nodes fits on
  // more, the rest of them idle.
  int64_t tooFew = cluster.nodes, enough = 0;
  for (int i = 0; i < doublings && enough == 0; ++i)
    if (doesFit(int(2 * tooFew)))
      enough = 2 * tooFew;
    else
      tooFew *= 2;
  if (enough == 0)
    return;
  while (enough - tooFew > 1) {
    int64_t middle = (tooFew + enough) / 2;
    (doesFit(int(middle)) ? enough : tooFew) = middle;
  }
  std::string size = cluster.withSize(int(enough), cluster.devicesPerNode);
  found += (found.empty() ? "" : ", or ") + std::string("`cluster` ") + size +
           " (" + std::to_string(enough * cluster.devicesPerNode) + " devices)";
}

/// Options and devices are independent answers: both are told where both are
/// there.
std::string Remedies::find() {
  tryOptions();
  tryDevices();
  return std::move(found);
}

//===----------------------------------------------------------------------===//
// What rules everything out
//===----------------------------------------------------------------------===//

/// Names the configuration that needs the least, how much it is short of, and
/// what it needs the most for. Where not even an estimate was made, the last
/// refusal is the reason.
static Status explainShortage(const SearchInput &input, Explorer &explorer) {
  std::optional<Leaf> smallest = explorer.findSmallest();
  if (!smallest)
    return fail(explorer.refusal.empty() ? "no configuration makes sense"
                                         : explorer.refusal);
  const Configuration &configuration = smallest->configuration;
  Result<Estimate> estimate =
      planner::estimate(*explorer.getWork(configuration), input.cluster,
                        input.training, configuration);
  if (!estimate.ok())
    return estimate.status();
  Alternative alternative;
  alternative.fits = false;
  alternative.estimate = std::move(*estimate);
  const Device &device = input.cluster.device;
  PerPlace<double> needs = alternative.estimate.getNeeds();
  MemoryPlace place = findShort(needs, device).value_or(MemoryPlace::Arena);
  double shortage = needs[place] - device.getRoom(place);
  std::string remedies = Remedies(input).find();
  return fail("nothing fits into memory: even ", print(configuration), " ",
              explainLoss({}, alternative, input.cluster), ": ",
              printBytes(shortage), " short; ",
              remedies.empty() ? "no change of options or cluster was found "
                                 "that fits"
                               : "what fits: " + remedies);
}

/// How many ranks or sequences more or less make a mesh possible; 0: none near.
static int64_t findNearest(int64_t from, int step,
                           const std::function<bool(int64_t)> &isPossible) {
  constexpr int64_t farthest = 4096;
  for (int64_t i = 1; i <= farthest && from + i * step > 0; ++i)
    if (isPossible(from + i * step))
      return from + i * step;
  return 0;
}

/// Whether something fits when the input is changed like that.
static bool doesFit(const SearchInput &input, const Cluster &cluster,
                    const Training &training) {
  SearchInput changed{input.source, cluster, training, input.space, input.pins};
  Result<Choices> choices =
      Choices::get(input.space, input.pins, cluster, training);
  Knowledge knowledge(changed);
  return choices.ok() &&
         Explorer(changed, *choices, knowledge).runUntilSomethingFits();
}

/// Whether a mesh divides ranks and batch, without asking what it needs.
static bool hasMesh(const SearchInput &input, const Choices &choices,
                    const Training &training, const Explorer &explorer) {
  for (const auto &[key, work] : explorer.getWorks())
    if (!choices.getMeshes(key, work->mostStages(), training, input.pins)
             .empty())
      return true;
  return false;
}

/// Looks for the nearest batch below and above, and for fewer ranks of a
/// processor, that some mesh divides. Arithmetic finds candidates; a search
/// says which of them fit, and only those are told.
static Status explainMesh(const SearchInput &input, const Choices &choices,
                          const Explorer &explorer) {
  auto batch = [&](int64_t sequences) {
    Training training = input.training;
    training.globalBatch = sequences;
    return hasMesh(input, choices, training, explorer);
  };
  // As many ranks of a processor as are asked for.
  auto ranks = [&](int64_t ranks) {
    // Only the number of ranks changes. The degrees of tp stay, which is enough
    // to tell whether some mesh divides.
    Choices fewer = choices;
    fewer.ranks = int(ranks);
    return hasMesh(input, fewer, input.training, explorer);
  };
  std::string nearest;
  // What divides has to fit, too.
  auto add = [&](const std::string &what, const Cluster &cluster,
                 const Training &training) {
    if (doesFit(input, cluster, training))
      nearest += (nearest.empty() ? "; possible: " : ", ") + what;
  };
  for (int step : {-1, 1}) {
    Training training = input.training;
    training.globalBatch = findNearest(training.globalBatch, step, batch);
    if (training.globalBatch > 0)
      add("`global-batch` " + std::to_string(training.globalBatch),
          input.cluster, training);
  }
  // Devices of a cluster are what they are, and may be left idle anyway. Of a
  // processor any number of ranks can be asked for.
  int64_t fewer = input.cluster.device.isProcessor && input.cluster.nodes == 1
                      ? findNearest(choices.ranks, -1, ranks)
                      : 0;
  std::string size = input.cluster.withSize(1, int(fewer));
  if (Result<Cluster> cluster = parseCluster(size); fewer > 0 && cluster.ok())
    add("`cluster` " + size, *cluster, input.training);
  std::string pins = print(input.pins);
  return fail("no mesh of ", choices.ranks, " ranks",
              pins.empty() ? "" : " with " + pins,
              " divides a global batch of ", input.training.globalBatch,
              choices.needsReplicas
                  ? " among two replicas, and one alone sends nothing that "
                    "`compress` " +
                        print(input.training.compress) + " would make less"
                  : "",
              nearest);
}

/// In the order in which the explorer gets stuck; each case relies on the ones
/// before having passed:
///
/// 1. No degree of tp divides the ranks, or the model cannot be split into any.
/// 2. No mesh divides ranks, batch and sequence.
/// 3. No microbatch divides a replica's share.
/// 4. Everything was refused by an estimate, or needs too much memory.
Status planner::explainFailure(const SearchInput &input, const Choices &choices,
                               Explorer &explorer) {
  if (explorer.splits == 0 && explorer.getNotes().empty())
    return fail("tp ", input.pins.mesh[Axis::TP].value_or(1),
                " does not divide ", choices.ranks, " ranks");
  if (explorer.splits == 0)
    return fail("the model cannot be split as asked: ",
                explorer.getNotes().front());
  if (explorer.meshes == 0)
    return explainMesh(input, choices, explorer);
  if (explorer.counts.considered == 0 && explorer.refusal.empty()) {
    std::optional<int64_t> given = input.pins.microBatch;
    return fail(given ? "micro-batch " + std::to_string(*given) +
                            " does not divide"
                      : "no micro-batch of the search space divides",
                " the sequences of a replica: a global batch of ",
                input.training.globalBatch, " on ", choices.ranks, " ranks");
  }
  return explainShortage(input, explorer);
}

Status planner::explainPlacement(const Configuration &configuration,
                                 const Estimate &estimate,
                                 const Cluster &cluster) {
  PerPlace<double> needs = estimate.getNeeds();
  MemoryPlace place =
      findShort(needs, cluster.device).value_or(MemoryPlace::Arena);
  std::string of = place == MemoryPlace::Arena
                       ? ""
                       : " of " + std::string(getFacts(place).words);
  return fail("the choice (", print(configuration), ") needs ",
              int64_t(needs[place]), " bytes", of, ", a device of ",
              cluster.name, " has ", int64_t(cluster.device.getRoom(place)),
              "; nothing smaller was found");
}
