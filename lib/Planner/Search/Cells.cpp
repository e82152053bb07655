//===- Cells.cpp - Cells of the search space ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Meshes become cells, and cells nodes, each with a time that none of its
// configurations beats. There are a hundred times as many cells as are ever
// expanded: a cell gets the cheapest bound first, further ones once it is the
// most promising, and its nodes after that. Where something lies on hosts is
// left to Offload.cpp.
//
//===----------------------------------------------------------------------===//

#include "Search/Explore.h"

#include <algorithm>
#include <limits>

using namespace plait;
using namespace plait::planner;

Configuration Explorer::toConfiguration(const Node &node) const {
  Configuration configuration;
  configuration.offload = node.offload;
  configuration.mesh = node.mesh;
  configuration.chunks = node.schedule->chunks;
  configuration.schedule = node.schedule->name;
  configuration.microBatch = node.microBatch;
  configuration.recompute = *node.recompute;
  configuration.contextParallel = node.contextParallel;
  configuration.sequenceParallel = node.work->sequenceParallel;
  configuration.expertExchange = node.work->expertExchange;
  configuration.layers = input.pins.layers.value_or(std::vector<int>());
  int stages = node.mesh[Axis::PP] * node.schedule->chunks;
  if (node.even)
    configuration.layers.assign(size_t(stages),
                                int(node.work->layers()) / stages);
  return configuration;
}

/// How many ways there are to cut the layers for a schedule: by cost, and
/// evenly.
static int countCuts(const Work &work, const Mesh &mesh,
                     const ScheduleChoice &schedule, const Pins &pins) {
  bool isEven = mesh[Axis::PP] > 1 && !pins.layers &&
                work.layers() % (mesh[Axis::PP] * schedule.chunks) == 0;
  return isEven ? 2 : 1;
}

/// Schedules that are alike share a cell: a probe is the same for all of them,
/// and its bound decides whether to look closer. Where there are several
/// chunks, the bound is the least.
void Explorer::addMesh(const Work &work, const Mesh &mesh) {
  Cell cell;
  cell.mesh = mesh;
  cell.work = &work;
  cell.members = int64_t(choices.getMicroBatches(mesh, input.training).size() *
                         choices.recompute.size()) *
                 int64_t(choices.getContextParallel(mesh[Axis::CP]).size());
  cell.index = enumerated;
  // Of those that are alike, the one with the most chunks, and all nodes.
  std::vector<std::pair<const ScheduleChoice *, int64_t>> classes;
  for (const ScheduleChoice *schedule :
       choices.getSchedules(mesh, work.mostStages())) {
    auto known = std::ranges::find_if(classes, [&](const auto &other) {
      return other.first->isLike(*schedule);
    });
    if (known == classes.end())
      known = classes.insert(known, {schedule, 0});
    else if (schedule->chunks > known->first->chunks)
      known->first = schedule;
    int cuts = countCuts(work, mesh, *schedule, input.pins);
    known->second += cuts;
    enumerated += cuts * cell.members;
  }
  for (auto [schedule, nodes] : classes) {
    cell.like = schedule;
    addCells(cell, nodes);
  }
}

/// All of a mesh and of schedules that are alike; `nodes`: how many each has.
void Explorer::addCells(Cell cell, int64_t nodes) {
  Node any{cell, cell.like};
  any.recompute = &choices.recompute.front();
  any.offload = choices.offload.front();
  Configuration configuration = toConfiguration(any);
  nodes *= int64_t(choices.getZeroStages(cell.mesh).size()) *
           int64_t(choices.offload.size());
  for (int64_t size : choices.getMicroBatches(cell.mesh, input.training)) {
    configuration.microBatch = cell.microBatch = size;
    for (const Recomputation &recompute : choices.recompute)
      for (ContextParallel kind :
           choices.getContextParallel(cell.mesh[Axis::CP])) {
        configuration.recompute = recompute;
        cell.recompute = &recompute;
        configuration.contextParallel = cell.contextParallel = kind;
        counts.considered += nodes;
        addCell(cell, configuration);
        ++cell.index;
      }
  }
}

/// Sets the work and the probe of a cell, and the cheapest bound of these.
/// False: it makes no sense.
bool Explorer::measure(Cell &cell, const Configuration &configuration) {
  cell.work = getWork(configuration);
  if (!cell.work)
    return false;
  noteExchange(*cell.work, configuration.sequences());
  const auto &probe =
      bounds.getProbe(*cell.work, configuration, cell.like->splits);
  if (!probe.ok()) {
    refusal = probe.status().message();
    return false;
  }
  cell.probe = &*probe;
  cell.seconds = bounds.getIdealSeconds(*cell.probe, configuration);
  if (idealSeconds == 0 || cell.seconds < idealSeconds)
    idealSeconds = cell.seconds;
  return true;
}

/// The bound of a cell whose work is not known yet.
double Explorer::getVagueSeconds(const Cell &cell,
                                 const Configuration &configuration) {
  return boundRounding * double(configuration.microbatches(input.training)) *
         getLeastWork(configuration, cell.like->splits) /
         configuration.mesh[Axis::PP];
}

/// Adds it with the cheapest bound, which tells most cells apart already; with
/// one that needs no profile where there is none.
void Explorer::addCell(Cell cell, const Configuration &configuration) {
  if (!isProfiled(configuration))
    cell.seconds = getVagueSeconds(cell, configuration);
  else if (!measure(cell, configuration))
    return;
  if (cell.seconds < std::min(fullSeconds, most))
    cells.add(cell);
}

/// Whether the bound on memory leaves a member, with some ZeRO stage and
/// something on hosts or nothing.
bool Explorer::mayFit(const Cell &cell, Configuration configuration) const {
  configuration.schedule = "1f1b"; // holds no more than any other
  for (int zero : choices.getZeroStages(cell.mesh))
    for (Offload offload : choices.offload) {
      configuration.zero = zero;
      configuration.offload = offload;
      if (bounds.getBytes(*cell.probe, configuration, cell.gathered) <=
          input.cluster.device.usableBytes())
        return true;
    }
  return false;
}

/// All of their nodes are too large, and none is left to be estimated.
void Explorer::reopenUnfit() {
  for (const Cell &cell : unfit)
    cells.add(cell);
  unfit.clear();
  opensUnfit = true;
  exploreInOrder(&Explorer::takeNext);
}

/// With the bounds that take longer, once a cell is the most promising one:
/// first those of its profile, then those of its ZeRO stages. One that is too
/// large is put aside.
void Explorer::narrow(Cell cell) {
  Node any{cell, cell.like};
  any.offload = choices.offload.front();
  Configuration configuration = toConfiguration(any);
  if (!cell.probe) {
    // What was profiled since may raise the bound.
    double least =
        isProfiled(configuration) ? 0 : getVagueSeconds(cell, configuration);
    bool isRaised = least > cell.seconds;
    cell.seconds = std::max(cell.seconds, least);
    if ((isRaised || measure(cell, configuration)) &&
        cell.seconds < fullSeconds)
      cells.add(cell);
    return;
  }
  cell.gathered = bounds.getGathered(*cell.work, configuration);
  if (!opensUnfit && !mayFit(cell, configuration)) {
    if (found.empty())
      unfit.push_back(cell);
    return;
  }
  cell.isNarrow = true;
  cell.seconds = bounds.getSeconds(*cell.work, *cell.probe, configuration,
                                   cell.like->splits);
  if (cell.seconds < threshold)
    addStep(cell, configuration);
  cells.add(cell);
}

/// Adds the bounds on what a step takes beside its pipeline: without anything
/// on hosts, and with whatever is there. Once something has been found, what is
/// not among the best without is left to exploreOffload().
void Explorer::addStep(Cell &cell, const Configuration &configuration) {
  constexpr double never = std::numeric_limits<double>::max();
  std::span<const Offload> kinds = choices.offload;
  StepBound plain = getStepBound(cell, configuration, kinds.first(1));
  StepBound any = getStepBound(cell, configuration, kinds);
  cell.step = plain.step;
  cell.streams = plain.streams;
  cell.leastStep = any.step;
  cell.leastStreams = any.streams;
  cell.leastSeconds = std::max(cell.seconds + any.step, any.streams);
  cell.hasStep = true;
  if (found.empty())
    cell.seconds = cell.leastSeconds;
  else
    cell.seconds = plain.mayFit
                       ? std::max(cell.seconds + plain.step, plain.streams)
                       : never;
}

/// Asks those ZeRO stages that may fit with one of `kinds` of offload. What
/// lies on hosts makes no step shorter: with several kinds the first of them,
/// which has the least there, says what a stage takes.
Explorer::StepBound
Explorer::getStepBound(const Cell &cell, Configuration configuration,
                       std::span<const Offload> kinds) const {
  constexpr double never = std::numeric_limits<double>::max();
  StepBound least{never, never};
  configuration.schedule = "1f1b"; // holds no more than any other
  auto fits = [&](Offload kind) {
    configuration.offload = kind;
    return bounds.getBytes(*cell.probe, configuration, cell.gathered) <=
           input.cluster.device.usableBytes();
  };
  for (int zero : choices.getZeroStages(cell.mesh)) {
    configuration.zero = zero;
    if (!std::ranges::any_of(kinds, fits))
      continue;
    configuration.offload = kinds.front();
    least.mayFit = true;
    least.step =
        std::min(least.step, bounds.getStepSeconds(*cell.work, *cell.probe,
                                                   configuration, never));
    least.streams =
        std::min(least.streams, bounds.getStreamSeconds(*cell.work, *cell.probe,
                                                        configuration));
  }
  return least.mayFit ? least : StepBound();
}

/// Indices are those that enumerating all schedules would give, so that ties do
/// not depend on when a cell is opened.
void Explorer::expand(const Cell &cell) {
  std::vector<const ScheduleChoice *> schedules =
      choices.getSchedules(cell.mesh, cell.work->mostStages());
  Node node{cell, schedules.front()};
  node.offload = choices.offload.front();
  if (!cell.hasStep)
    node.step =
        getStepBound(cell, toConfiguration(node), {&node.offload, 1}).step;
  for (const ScheduleChoice *schedule : schedules) {
    int cuts = countCuts(*cell.work, cell.mesh, *schedule, input.pins);
    if (schedule->isLike(*cell.like)) {
      node.schedule = schedule;
      node.family = getFamily(node);
      for (int cut = 0; cut < cuts; ++cut) {
        node.even = cut > 0;
        addNode(node);
        node.index += cell.members;
      }
    } else {
      node.index += cuts * cell.members;
    }
  }
}

int Explorer::getFamily(const Node &node) {
  if (!latestFamilies || latestFamilies->first != node.mesh)
    latestFamilies =
        &*familyIds.try_emplace(node.mesh, 2 * choices.schedules.size(), -1)
              .first;
  size_t schedule = size_t(node.schedule - choices.schedules.data());
  bool isOffloaded = node.offload != choices.offload.front();
  int &family = latestFamilies->second[2 * schedule + isOffloaded];
  if (family < 0) {
    family = int(best.size());
    best.emplace_back();
  }
  return family;
}

/// Keeps a node for the message of a search that finds nothing (Failure.h).
void Explorer::noteTooLarge(double bytes, const Node &node) {
  if (found.empty())
    tooLarge.push_back({bytes, node});
}

/// A node that the bound on time rules out is dropped. No ZeRO stage holds the
/// least in any case: what stage 3 gathers may be more than what it divides.
void Explorer::addNode(Node node) {
  Configuration configuration = toConfiguration(node);
  double usable = input.cluster.device.usableBytes();
  node.pipeline = std::max(node.pipeline,
                           bounds.getSeconds(*node.work, *node.probe,
                                             configuration, node.like->splits));
  node.seconds = std::max(node.pipeline + node.step, node.streams);
  double least = std::numeric_limits<double>::max(), bytes = 0;
  for (int zero : choices.getZeroStages(node.mesh)) {
    configuration.zero = zero;
    double own = bounds.getBytes(*node.probe, configuration, node.gathered);
    least = std::min(least, own);
    bytes = std::max(bytes, own);
  }
  if (bytes > usable || isFasterOffloaded(node))
    noteShort(node);
  if (node.seconds >= std::min({fullSeconds, ceiling, most}))
    return;
  if (least > usable) {
    noteTooLarge(least, node);
  } else if (node.schedule->searches) {
    searched.add(node);
  } else {
    open.add(node);
  }
}
