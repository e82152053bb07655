//===- Enumerate.cpp - The configurations of a space ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a search may choose from, as lists: a space restricted by pins, and for
// each mesh the schedules, microbatches, ZeRO stages and ways of context
// parallelism that make sense on it. Everything that is the same with one rank,
// one stage or one replica is enumerated once, so that equal configurations are
// not counted as several. Nothing here knows of time or memory; what is ruled
// out is ruled out by arithmetic.
//
//===----------------------------------------------------------------------===//

#include "Search/Enumerate.h"
#include "Simulator/PartLists.h"
#include "plait/Planner/Abilities.h"
#include "plait/Schedule/Generators.h"

#include <algorithm>
#include <bit>

using namespace plait;
using namespace plait::planner;

//===----------------------------------------------------------------------===//
// Space and pins
//===----------------------------------------------------------------------===//

static std::string toText(int value) { return std::to_string(value); }
static std::string toText(const Recomputation &value) { return print(value); }
static std::string toText(bool value) { return value ? "on" : "off"; }
static std::string toText(const std::string &value) { return value; }
static std::string toText(ContextParallel value) { return print(value); }
static std::string toText(ExpertExchange value) { return print(value); }
static std::string toText(Offload value) { return print(value); }

/// What is left of `choices`: all of them in order, or the pinned one, which
/// has to be one of them.
template <typename T>
static Status restrict(std::vector<T> &choices, const std::optional<T> &pin,
                       const char *name, const SearchSpace &space) {
  std::sort(choices.begin(), choices.end());
  choices.erase(std::unique(choices.begin(), choices.end()), choices.end());
  if (!pin)
    return Status::success();
  if (std::find(choices.begin(), choices.end(), *pin) == choices.end()) {
    std::string list;
    for (const T &choice : choices)
      list += (list.empty() ? "" : ", ") + toText(choice);
    return fail(name, " ", toText(*pin), " is not in the search space '",
                space.name, "', which has ", list);
  }
  choices = {*pin};
  return Status::success();
}

/// Auto stands for all kinds, layer by layer. It and what says more than a kind
/// can be pinned in any space: fitting layers takes a search several times as
/// long, so that it has to be asked for. No other pin asks for it: pins would
/// then find what a search without them leaves out.
static Status restrictRecompute(std::vector<Recomputation> &choices,
                                const std::optional<Recomputation> &pin,
                                const SearchSpace &space) {
  const Recomputation automatic = Recompute::Auto;
  bool isAuto =
      std::find(choices.begin(), choices.end(), automatic) != choices.end();
  bool isOne =
      pin ? pin->getUniform().value_or(Recompute::Auto) == Recompute::Auto
          : isAuto;
  if (!isOne)
    return restrict(choices, pin, "recompute", space);
  choices = {pin.value_or(automatic)};
  return Status::success();
}

bool planner::makesRoom(Offload offload, const Device &device) {
  auto helps = [&](MemoryPlace place) {
    return place == MemoryPlace::Arena ||
           (getFacts(place).isApart(device.isProcessor) &&
            device.places[place].bandwidth > 0);
  };
  return helps(offload.optimizer) && helps(offload.activations);
}

/// What is pinned can be in any space. Ranks of a processor have no other
/// memory, and what is not known cannot be costed. Nothing has to be a choice
/// where there is any: the search relies on it.
static Status restrictOffload(std::vector<Offload> &choices,
                              const std::optional<Offload> &pin,
                              const SearchSpace &space, const Cluster &cluster,
                              const Training &training) {
  PLAIT_RETURN_IF_ERROR(
      restrict(choices, std::optional<Offload>(), "offload", space));
  if (choices.size() > 1 && choices.front() != Offload::None)
    return fail("the search space '", space.name,
                "' has several kinds of offload, but not none");
  if (pin || !training.framework.searchesOffload)
    choices = {pin.value_or(choices.front())};
  // The first is what nothing else is searched beside.
  choices.erase(std::remove_if(choices.begin() + 1, choices.end(),
                               [&](Offload offload) {
                                 return !makesRoom(offload, cluster.device);
                               }),
                choices.end());
  return Status::success();
}

/// Each schedule with each number of chunks that it can order.
static Result<std::vector<ScheduleChoice>>
getScheduleChoices(const std::vector<std::string> &names,
                   const std::vector<int> &chunks) {
  std::vector<ScheduleChoice> choices;
  for (const std::string &name : names) {
    Result<const schedule::Generator *> generator =
        schedule::findGenerator(name);
    if (!generator.ok())
      return generator.status();
    const schedule::Generator &row = **generator;
    for (int count : chunks)
      if (uint32_t(count) >= row.minChunks && uint32_t(count) <= row.maxChunks)
        choices.push_back(
            {name, count, row.splitsBackward, row.searches,
             row.placement == schedule::Placement::VShape && count % 2 == 0});
  }
  // Names and chunks are never empty: a space has at least one of each.
  if (choices.empty())
    return fail("schedule ", names.front(), " cannot order ", chunks.front(),
                chunks.front() == 1 ? " chunk" : " chunks");
  return choices;
}

/// What is asked for, the product of a whole mesh, or all devices, in this
/// order. A mesh with an open size is completed from all devices.
static Result<int> getRanks(const Pins &pins, const Cluster &cluster) {
  int64_t ranks = pins.devices.value_or(cluster.devices());
  if (!pins.devices && pins.isMeshGiven())
    ranks = pins.getMesh().ranks();
  if (ranks < 1 || ranks > cluster.devices())
    return fail("the mesh has ", ranks, " ranks, the cluster ",
                cluster.devices(), " devices");
  return int(ranks);
}

/// Every degree costs a run of the compiler's passes, so that only those are
/// asked for in any case that are likely to win: inside of a node, powers of
/// two, or on small nodes all divisors. Others wait for a bound
/// (addFurtherTensors, addIdle). Linear in the ranks, which is little against
/// one profile.
void Choices::setTensors(const Pins &pins, const Cluster &cluster) {
  // Devices of a node whose divisors are all tried, and nodes that tp may span.
  constexpr int smallNode = 16, farthest = 8;
  // On more devices the degrees that divide them leave little to gain.
  constexpr int smallCluster = 32;
  int node = cluster.devicesPerNode;
  for (int tensor = 1; tensor <= (abilities->hasTensor ? ranks : 1); ++tensor) {
    if (pins.mesh[Axis::TP] && tensor != *pins.mesh[Axis::TP])
      continue;
    bool isPower = std::has_single_bit(unsigned(tensor));
    bool inside = tensor <= node && (node <= smallNode || isPower);
    // With all devices it divides nothing; with some left idle it may.
    if (ranks % tensor != 0) {
      bool isTried = inside && (isPower || ranks <= smallCluster);
      if (mayIdle && (pins.mesh[Axis::TP] || isTried))
        tensorsWithIdle.push_back(tensor);
      continue;
    }
    if (inside || pins.mesh[Axis::TP])
      tensorsFirst.push_back(tensor);
    else if (tensor <= farthest * node)
      tensorsByBound.push_back(tensor);
  }
}

/// Restricts each list of the space by its pin, in the order in which a user is
/// told of contradictions. Fails on a pin outside of the space, a schedule that
/// cannot order any of the chunks, and more ranks than devices. Microbatches
/// and mesh sizes are not checked here: whether they divide depends on the
/// mesh.
Result<Choices> Choices::get(const SearchSpace &space, const Pins &pins,
                             const Cluster &cluster, const Training &training) {
  Choices choices;
  choices.abilities = &getAbilities(training.framework);
  PLAIT_RETURN_IF_ERROR(choices.abilities->check(pins));
  Result<int> ranks = getRanks(pins, cluster);
  if (!ranks.ok())
    return ranks.status();
  choices.ranks = *ranks;
  // No devices may idle where a number of ranks was asked for, directly or by a
  // whole mesh. Nor on a processor: its ranks share it, so fewer ranks are
  // another cluster.
  choices.mayIdle = *ranks == cluster.devices() && !pins.devices &&
                    !pins.isMeshGiven() && !cluster.device.isProcessor;
  choices.joinsReplicas = training.framework.joinsReplicas;
  choices.waitsForParts = training.framework.dividesParameters &&
                          overlapsParts(training.framework, cluster.device);
  choices.devicesPerNode = cluster.devicesPerNode;
  choices.needsReplicas = training.compress.isOn() && !pins.mesh[Axis::DP];
  choices.zero = space.zero;
  choices.zeroAlone = pins.zero.value_or(0);
  choices.recompute = space.recompute;
  choices.sequenceParallel = space.sequenceParallel;
  choices.contextParallel = space.contextParallel;
  choices.expertExchange = space.expertExchange;
  choices.offload = space.offload;
  std::vector<std::string> names = space.schedule;
  std::vector<int> chunks = space.chunks;
  // Mesh sizes can be any.
  for (const AxisFacts &facts : kAxes) {
    std::vector<int> &sizes = choices.mesh[facts.axis];
    const std::optional<int> &pin = pins.mesh[facts.axis];
    sizes = pin ? std::vector{*pin} : space.mesh[facts.axis];
    std::ranges::sort(sizes);
  }
  PLAIT_RETURN_IF_ERROR(restrict(choices.zero, pins.zero, "zero", space));
  PLAIT_RETURN_IF_ERROR(
      restrictRecompute(choices.recompute, pins.recompute, space));
  PLAIT_RETURN_IF_ERROR(restrict(choices.sequenceParallel,
                                 pins.sequenceParallel, "sequence parallelism",
                                 space));
  PLAIT_RETURN_IF_ERROR(restrict(choices.contextParallel, pins.contextParallel,
                                 "context-parallel", space));
  PLAIT_RETURN_IF_ERROR(restrict(choices.expertExchange, pins.expertExchange,
                                 "expert-exchange", space));
  PLAIT_RETURN_IF_ERROR(
      restrictOffload(choices.offload, pins.offload, space, cluster, training));
  PLAIT_RETURN_IF_ERROR(restrict(names, pins.schedule, "schedule", space));
  PLAIT_RETURN_IF_ERROR(restrict(chunks, pins.chunks, "chunks", space));
  // Attention that keeps no scores has nothing of them to compute again.
  if (training.flashAttention && !training.framework.recomputesCheap &&
      choices.recompute.size() > 1)
    std::erase(choices.recompute, Recomputation(Recompute::Selective));
  Result<std::vector<ScheduleChoice>> schedules =
      getScheduleChoices(names, chunks);
  if (!schedules.ok())
    return schedules.status();
  choices.schedules = std::move(*schedules);
  choices.microBatches =
      pins.microBatch ? std::vector{*pins.microBatch} : space.microBatch;
  std::sort(choices.microBatches.begin(), choices.microBatches.end());
  choices.setTensors(pins, cluster);
  return choices;
}

//===----------------------------------------------------------------------===//
// Meshes
//===----------------------------------------------------------------------===//

static Mesh makeMesh(int pp, int dp, int cp, const Degrees &degrees) {
  Mesh mesh;
  mesh[Axis::PP] = pp;
  mesh[Axis::DP] = dp;
  mesh[Axis::EP] = degrees.experts;
  mesh[Axis::CP] = cp;
  mesh[Axis::TP] = degrees.tensor;
  return mesh;
}

/// Whether a group of `ranks` has whole nodes, 1, 4, 16 and so on, or an odd
/// multiple of that: what is in between gains little, and takes as long to look
/// at.
static bool fillsNodes(int64_t ranks, int devicesPerNode) {
  uint64_t nodes = uint64_t(ranks / devicesPerNode);
  return ranks % devicesPerNode == 0 && std::countr_zero(nodes) % 2 == 0;
}

void Choices::addMeshes(Mesh one, const Pins &pins, std::vector<Mesh> &meshes,
                        std::span<const AxisFacts> rows) const {
  auto row = std::ranges::find_if(rows, &AxisFacts::copiesState);
  if (row == rows.end())
    return addMesh(one, pins, meshes);
  int replicas = one[Axis::DP];
  for (int groups : mesh[row->axis]) {
    if (replicas % groups != 0)
      continue;
    one[row->axis] = groups;
    one[Axis::DP] = replicas / groups;
    addMeshes(one, pins, meshes, {row + 1, rows.end()});
  }
}

/// Groups that are not asked for fill nodes, whose links are the fast ones.
void Choices::addMesh(const Mesh &one, const Pins &pins,
                      std::vector<Mesh> &meshes) const {
  bool isAsked = std::ranges::all_of(kAxes, [&](const AxisFacts &facts) {
    return !facts.copiesState() || one[facts.axis] == 1 ||
           pins.mesh[facts.axis];
  });
  bool isSensible =
      isAsked ||
      (zero.back() > 0 && one.product(&AxisFacts::dividesState) > 1 &&
       fillsNodes(one.sharers() * one[Axis::TP], devicesPerNode));
  if (isSensible && one[Axis::DP] > (needsReplicas ? 1 : 0) &&
      pins.mesh[Axis::DP].value_or(one[Axis::DP]) == one[Axis::DP] &&
      abilities->checkMesh(one).ok())
    meshes.push_back(one);
}

/// By context, then by stages: the order is that of enumeration, which decides
/// between equal bounds. Stages that the pins or the model do not allow are
/// left out, and so are replicas that do not divide the batch.
std::vector<Mesh> Choices::getMeshes(const Degrees &degrees, int64_t stages,
                                     const Training &training,
                                     const Pins &pins) const {
  std::vector<Mesh> meshes;
  for (int cp : mesh[Axis::CP]) {
    int64_t inner = int64_t(degrees.tensor) * degrees.experts * cp;
    if (ranks % inner != 0 || training.sequence % cp != 0)
      continue;
    int rest = int(ranks / inner);
    for (int pp = 1; pp <= rest && pp <= stages; ++pp) {
      int dp = rest / pp;
      if (rest % pp == 0 &&
          training.globalBatch % (int64_t(dp) * degrees.experts) == 0 &&
          pins.mesh[Axis::PP].value_or(pp) == pp)
        addMeshes(makeMesh(pp, dp, cp, degrees), pins, meshes);
    }
  }
  return meshes;
}

/// Those of `ranks` devices are not among them: they have been searched. More
/// replicas first, since these need the least memory for each tp, cp and pp
/// (see Explorer::addSmallestIdle).
std::vector<Mesh> Choices::getIdleMeshes(const Degrees &degrees, int64_t stages,
                                         const Training &training,
                                         const Pins &pins) const {
  std::vector<Mesh> meshes;
  for (int cp : mesh[Axis::CP]) {
    if (training.sequence % cp != 0)
      continue;
    int64_t inner = int64_t(degrees.tensor) * degrees.experts * cp;
    int64_t rest = ranks / inner;
    for (int dp = int(std::min(rest, training.globalBatch)); dp >= 1; --dp) {
      if (training.globalBatch % (int64_t(dp) * degrees.experts) != 0)
        continue;
      for (int pp = 1; pp <= rest / dp && pp <= stages; ++pp)
        if (pins.mesh[Axis::PP].value_or(pp) == pp &&
            int64_t(pp) * dp * inner < ranks)
          addMeshes(makeMesh(pp, dp, cp, degrees), pins, meshes);
    }
  }
  return meshes;
}

const ScheduleChoice *Choices::findPlainest(bool splits) const {
  const ScheduleChoice *plainest = nullptr;
  auto key = [](const ScheduleChoice &choice) {
    return std::pair(choice.chunks, choice.searches);
  };
  for (const ScheduleChoice &choice : schedules)
    if (choice.splits == splits && (!plainest || key(choice) < key(*plainest)))
      plainest = &choice;
  return plainest;
}

/// Without stages behind each other schedules differ in no more than whether
/// gradients of weights run apart. Halves of a pass are no faster than the
/// whole, unless they wait for less of what ZeRO exchanges.
std::vector<const ScheduleChoice *>
Choices::getSchedules(const Mesh &mesh, int64_t stages) const {
  std::vector<const ScheduleChoice *> result;
  if (mesh[Axis::PP] == 1) {
    const ScheduleChoice *whole = findPlainest(false);
    const ScheduleChoice *halves = findPlainest(true);
    if (whole)
      result.push_back(whole);
    if (halves &&
        (!whole || (waitsForParts && getZeroStages(mesh).back() >= 2)))
      result.push_back(halves);
    return result;
  }
  for (const ScheduleChoice &choice : schedules)
    if (int64_t(choice.chunks) * mesh[Axis::PP] <= stages)
      result.push_back(&choice);
  return result;
}

/// Ascending, since space and pins were sorted. Those that do not divide are
/// left out silently; where none is left, explainFailure says so.
std::vector<int64_t> Choices::getMicroBatches(const Mesh &mesh,
                                              const Training &training) const {
  constexpr int64_t most = 128;
  int64_t sequences = training.globalBatch / mesh.batchParts();
  std::vector<int64_t> result;
  for (int64_t size : microBatches)
    if (sequences % size == 0)
      result.push_back(size);
  for (int64_t size = 1; microBatches.empty() && size <= most; ++size)
    if (sequences % size == 0)
      result.push_back(size);
  return result;
}

std::span<const ContextParallel>
Choices::getContextParallel(int context) const {
  std::span<const ContextParallel> all = contextParallel;
  return context == 1 ? all.first(1) : all;
}

std::vector<ExpertExchange> Choices::getExpertExchange(int experts) const {
  return experts == 1 ? std::vector{ExpertExchange::Tokens} : expertExchange;
}

std::vector<int> Choices::getZeroStages(const Mesh &mesh) const {
  // With one replica there is nothing to shard over.
  int64_t replicas =
      joinsReplicas ? mesh.sharers() : mesh.product(&AxisFacts::dividesState);
  if (replicas == 1)
    return {zeroAlone};
  // Without it groups are replicas like any others, which are one group.
  std::vector<int> stages = zero;
  if (mesh.product(&AxisFacts::copiesState) > 1 && stages.size() > 1)
    std::erase(stages, 0);
  return stages;
}
