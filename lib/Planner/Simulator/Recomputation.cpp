//===- Recomputation.cpp - Choice of layers to recompute ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ranks of a pipeline do not share memory: each is fitted alone. Stages are cut
// for each kind of recomputation that fits on all layers, so that what is found
// is never slower than one kind for all of them.
//
//===----------------------------------------------------------------------===//

#include "Estimator.h"

#include <algorithm>
#include <limits>
#include <optional>

using namespace plait;
using namespace plait::planner;

/// Lists what Auto may choose from, the fastest first.
std::vector<Recompute> Estimator::getKinds() {
  bool cheapIsNothing = context.training.flashAttention &&
                        !context.recomputesCheap(Recompute::Selective);
  if (cheapIsNothing)
    return {Recompute::None, Recompute::Full};
  auto getSeconds = [&](Recompute kind) {
    double seconds = 0;
    for (int i = 0; i < int(work.layers()); ++i)
      seconds += timeBlocks(kind)[work.order[work.before + i]].sum();
    return seconds;
  };
  // What is cheap may take less time than to write and read it.
  if (getSeconds(Recompute::Selective) <= getSeconds(Recompute::None))
    return {Recompute::Selective, Recompute::Full};
  return {Recompute::None, Recompute::Selective, Recompute::Full};
}

/// Returns the most that some layer computes again of what is given in other
/// words.
static Recompute getMost(const Recomputation &recompute) {
  Recompute most = Recompute::None;
  for (const Recomputation::Stage &stage : recompute.stages)
    most = std::max(most, stage.full        ? Recompute::Full
                          : stage.selective ? Recompute::Selective
                                            : Recompute::None);
  return most;
}

/// A choice layer by layer has no single time for all layers: stages are cut as
/// if all computed again what some do.
void Estimator::cutGiven() { cut(getMost(configuration.recompute)); }

/// A given choice is taken. Auto tries each kind, with a cut for each, that
/// fits with all layers of that kind; then layers go back to less as far as
/// memory allows, and the fastest of what comes out is the answer. So whatever
/// was found with less memory is found with more. Where no kind fits, the last
/// one stays, all layers whole, and the caller sees that it is too large.
Status Estimator::recompute(Microbatches microbatches) {
  if (!configuration.recompute.isAuto) {
    cutGiven();
    return fillStages(configuration.recompute, microbatches);
  }
  std::vector<Recompute> kinds = getKinds();
  double shortest = std::numeric_limits<double>::max();
  std::pair<std::vector<int>, Recomputation> best;
  for (Recompute kind : kinds) {
    cut(kind);
    PLAIT_RETURN_IF_ERROR(fillStages(kind, microbatches));
    findMemory();
    if (result.peakMemory() > context.cluster.device.usableBytes())
      continue;
    // An order that is searched for would be searched for anew for each
    // mixture.
    if (kind != kinds.front() && !generator->searches)
      PLAIT_RETURN_IF_ERROR(fit(kind, microbatches));
    double seconds = pipeline.run(getStageCosts(), transfer).seconds;
    if (seconds >= shortest)
      continue;
    shortest = seconds;
    best = {result.layers, result.recompute};
  }
  if (best.first.empty())
    return Status::success();
  result.layers = std::move(best.first);
  return fillStages(best.second, microbatches);
}

/// All layers of a virtual stage are all of them, however many those are, and
/// one without layers is as its neighbour.
static Recomputation simplify(Recomputation recompute,
                              const std::vector<int> &layers) {
  std::vector<Recomputation::Stage> &stages = recompute.stages;
  size_t first = stages.size();
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    auto &[full, selective] = stages[stage];
    if (layers[stage] == 0) {
      stages[stage] = stage ? stages[stage - 1] : Recomputation::Stage();
      continue;
    }
    first = std::min(first, stage);
    bool isAll = full + selective >= layers[stage];
    if (isAll)
      (selective ? selective : full) = Recomputation::kAll;
  }
  for (size_t stage = 0; first < stages.size() && stage < first; ++stage)
    stages[stage] = stages[first];
  if (std::equal(stages.begin() + 1, stages.end(), stages.begin()))
    stages.resize(1);
  return recompute;
}

/// Expects that all layers fit with `kind`. Of many microbatches some are
/// simulated and the rest continued: a mixture may then seem slower.
Status Estimator::fit(Recompute kind, Microbatches microbatches) {
  double seconds = pipeline.run(getStageCosts(), transfer).seconds;
  // Ranks are fitted one by one, from what all layers of the kind hold: how
  // many microbatches are in flight follows from the order, which does not
  // change.
  Recomputation found;
  found.stages.resize(stages.size());
  Recompute least = getKinds().front();
  for (uint32_t rank = 0; rank < pipeline.getProblem().stages; ++rank)
    fitRank(rank, least, found);
  PLAIT_RETURN_IF_ERROR(
      fillStages(simplify(std::move(found), result.layers), microbatches));
  // The mixture fits, and takes no more time on each rank; it is kept where the
  // whole pipeline agrees.
  bool isBetter = pipeline.run(getStageCosts(), transfer).seconds <= seconds;
  return isBetter ? Status::success() : fillStages(kind, microbatches);
}

/// Virtual stages of a rank, in the order in which their layers recompute:
/// those that hold more microbatches at some moment first.
static std::vector<uint32_t> orderStages(uint32_t rank,
                                         const PipelineModel &pipeline) {
  const schedule::Problem &problem = pipeline.getProblem();
  std::vector<std::pair<double, uint32_t>> held;
  for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk) {
    double most = 0;
    for (size_t moment = 0; moment < pipeline.countMoments(rank); ++moment)
      most = std::max(most, pipeline.inFlight(rank, moment, chunk).whole);
    held.push_back({-most, problem.stageOf(rank, chunk)});
  }
  std::sort(held.begin(), held.end());
  std::vector<uint32_t> order;
  for (auto [most, stage] : held)
    order.push_back(stage);
  return order;
}

/// The layers of all virtual stages of a rank that compute again.
struct Estimator::RankLayers {
  int full = 0, selective = 0;
};

/// Has the first layers of `order` compute again whole, and so on.
void Estimator::applyTo(const std::vector<uint32_t> &order, RankLayers some,
                        Recomputation &found) {
  for (uint32_t stage : order) {
    Recomputation::Stage &kinds = found.stages[stage];
    // First those that are computed again whole, behind them those in part; a
    // stage takes as many as it has layers, the next one the rest.
    kinds.full = std::min(some.full, result.layers[stage]);
    kinds.selective =
        std::min(some.selective, result.layers[stage] - kinds.full);
    some.full -= kinds.full;
    some.selective -= kinds.selective;
    stages[stage] = makeStage(stage, kinds);
  }
}

/// The fewest of `rest` layers with which `fits` says so; none: not even all.
template <typename Fits>
static std::optional<int> findFewest(int rest, bool fromAll, Fits fits) {
  // Bisection: with more layers computed again a rank holds less, apart from
  // the step from none to one. Where what is cheap is also faster, all is the
  // best start, and nothing has to be looked for.
  int fewest = fromAll ? rest : 0;
  if (fits(fewest))
    return fewest;
  if (fewest == rest || !fits(rest))
    return std::nullopt;
  // One is more than none: what is computed again takes room, once.
  for (++fewest; fewest < rest;) {
    int middle = (fewest + rest) / 2;
    if (fits(middle))
      rest = middle;
    else
      fewest = middle + 1;
  }
  return fewest;
}

/// The fastest choice with which the rank fits, which all layers whole do.
void Estimator::fitRank(uint32_t rank, Recompute least, Recomputation &found) {
  const std::vector<uint32_t> order = orderStages(rank, pipeline);
  int layers = 0;
  for (uint32_t stage : order)
    layers += result.layers[stage];
  HoldingsFinder finder(context);
  auto fits = [&](RankLayers some) {
    applyTo(order, some, found);
    std::vector<const StageBlocks *> own = stagesOf(rank);
    return getMemory(rank, own, finder.find(own), pipeline, context).peak() <=
           context.cluster.device.usableBytes();
  };
  auto getSeconds = [&](RankLayers some) {
    applyTo(order, some, found);
    double seconds = 0;
    for (uint32_t stage : order)
      seconds += timeStage(stages[stage]).sum();
    return seconds;
  };
  bool cheapIsFast = least == Recompute::Selective;
  // What is known to fit, until something faster does.
  RankLayers best{layers, 0};
  double shortest = std::numeric_limits<double>::max();
  // For each number of layers that are computed again whole, the fewest others
  // that are in part: memory falls with both, time grows with the first.
  for (int full = 0; full <= layers; ++full) {
    int rest = layers - full;
    if (getSeconds({full, cheapIsFast ? rest : 0}) >= shortest)
      break; // and more of them take longer still
    std::optional<int> fewest = findFewest(
        rest, cheapIsFast, [&](int some) { return fits({full, some}); });
    double seconds = fewest ? getSeconds({full, *fewest}) : shortest;
    if (seconds >= shortest)
      continue;
    shortest = seconds;
    best = {full, *fewest};
  }
  applyTo(order, best, found);
}
