//===- Abilities.cpp - What training programs can run ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table. A row begins with what a program of its kind has and takes away
// what this one has not. Where a value of plait's stands for something that
// goes by another name there, docs/Abilities.md says so: zigzag is also
// Megatron's ring and torchtitan's head-tail balancing, ZeRO 2 and 3 are FSDP
// without and with resharding after the forward pass.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Abilities.h"

#include "Export/Text.h"
#include "plait/Configuration/CompressionFacts.h"
#include "plait/Schedule/Generators.h"

#include <algorithm>
#include <utility>

using namespace plait;
using namespace plait::planner;

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

using Row = std::pair<std::string, Abilities>;

/// Begins a row with what all named programs have in common: recomputation of
/// whole layers or of the inside of attention, no offload of activations, and
/// one group of replicas.
static Abilities makeProgram(const char *name, const char *version) {
  Abilities row;
  row.version = version;
  row.space.name = name;
  row.space.offload = {Offload::None};
  for (const AxisFacts &facts : kAxes)
    if (facts.copiesState())
      row.space.mesh[facts.axis] = {1};
  row.space.mesh[Axis::EP] = {1}; // not predicted
  row.space.expertExchange = {ExpertExchange::Tokens};
  row.mixesRecompute = row.recomputesBlocks = row.compresses = false;
  return row;
}

/// Narayanan et al. 2021.
static Abilities makeMegatron2021(const char *name, const char *version) {
  Abilities row = makeProgram(name, version);
  row.space.schedule = {"1f1b", "interleaved-1f1b"};
  row.space.zero = {0};
  row.space.recompute = {Recompute::None, Recompute::Full};
  row.space.sequenceParallel = {false};
  row.space.mesh[Axis::CP] = {1};
  row.cutsUnevenly = row.hasFlash = row.sumsInBf16 = false;
  row.fillsGroups = row.recomputesBlocks = true;
  return row;
}

/// Korthikanti et al. 2022.
static Abilities makeMegatron2022() {
  Abilities row = makeMegatron2021("megatron-2022", "Korthikanti et al. 2022");
  row.space.recompute = SearchSpace::all().recompute;
  row.space.sequenceParallel = {false, true};
  return row;
}

/// Its own FSDP has other habits than those that are predicted.
static Abilities makeMegatronCore() {
  Abilities row = makeProgram("megatron-core", "Megatron-Core 0.20");
  row.space.schedule = {"1f1b", "interleaved-1f1b"};
  row.space.zero = {0, 1};
  row.space.contextParallel = {ContextParallel::Heads, ContextParallel::Zigzag};
  row.space.offload = {Offload::None, Offload::Optimizer};
  row.fillsGroups = row.recomputesBlocks = row.offloadsShards = true;
  return row;
}

/// The fork that trained BLOOM: stages are cut unevenly by weight.
static Abilities makeMegatronDeepSpeed() {
  Abilities row = makeMegatron2021("megatron-deepspeed",
                                   "BigScience's Megatron-DeepSpeed, 2022");
  row.space.schedule = {"1f1b"};
  row.space.chunks = {1};
  row.space.zero = {0, 1};
  row.space.recompute = {Recompute::None, Recompute::Full};
  row.cutsUnevenly = true;
  row.recomputesBlocks = false;
  return row;
}

/// PyTorch's fully sharded data parallelism alone; ZeRO 0 is DDP. Selective
/// recomputation is torchtitan's.
static Abilities makeFsdp(const char *name, const char *version) {
  Abilities row = makeProgram(name, version);
  row.space.schedule = {"1f1b"};
  row.space.chunks = {1};
  row.space.zero = {0, 2, 3};
  row.space.recompute = SearchSpace::all().recompute;
  row.space.sequenceParallel = {false};
  row.space.mesh[Axis::CP] = {1};
  row.hasPipelines = row.hasTensor = false;
  return row;
}

/// Composer's recomputes whole layers.
static Abilities makeFsdp2023() {
  Abilities row = makeFsdp("fsdp-2023", "Composer with PyTorch 1.13");
  row.space.recompute = {Recompute::None, Recompute::Full};
  return row;
}

/// Any order of a step is read from a file. What is sharded is sharded over cp
/// as well.
static Abilities makeTorchtitan() {
  Abilities row = makeProgram("torchtitan", "torchtitan 0.3.0");
  std::erase_if(row.space.schedule, [](const std::string &name) {
    auto generator = schedule::findGenerator(name);
    return generator.ok() && (*generator)->searches;
  });
  row.space.zero = {2, 3};
  row.space.recompute = SearchSpace::all().recompute;
  row.space.contextParallel = {ContextParallel::Gather,
                               ContextParallel::Zigzag};
  row.space.mesh[Axis::Replicate] = SearchSpace::all().mesh[Axis::Replicate];
  row.sumsInBf16 = false;
  return row;
}

/// The abilities that its JSON has options for: pipelines are made in the
/// model's code.
static Abilities makeDeepSpeed() {
  Abilities row = makeProgram("deepspeed", "DeepSpeed 0.19.8");
  row.space.schedule = {"1f1b"};
  row.space.chunks = {1};
  row.space.recompute = {Recompute::None, Recompute::Full};
  row.space.sequenceParallel = {false};
  row.space.contextParallel = {ContextParallel::Heads};
  row.space.offload = {Offload::None, Offload::Optimizer};
  row.hasPipelines = row.combinesContext = false;
  row.offloadsShards = true;
  return row;
}

static std::vector<Row> makeTable() {
  std::vector<Row> table;
  for (Abilities row :
       {makeMegatron2021("megatron-2021", "Narayanan et al. 2021"),
        makeMegatron2022(), makeMegatronCore(), makeMegatronDeepSpeed(),
        makeFsdp("fsdp", "PyTorch 2.15"),
        makeFsdp("fsdp-compiled", "PyTorch 2.15"), makeFsdp2023(),
        makeTorchtitan(), makeDeepSpeed()})
    table.emplace_back(row.space.name, std::move(row));
  return table;
}

/// A framework without a row is plait, or one that a test has made.
const Abilities &planner::getAbilities(const Framework &framework) {
  static const Abilities all;
  static const std::vector<Row> table = makeTable();
  for (const auto &[name, row] : table)
    if (name == framework.name)
      return row;
  return all;
}

//===----------------------------------------------------------------------===//
// What no list of values says
//===----------------------------------------------------------------------===//

Status Abilities::checkMesh(const Mesh &mesh) const {
  auto refuse = [&](Axis axis, const char *what) {
    return fail(getFacts(axis).name, " is ", mesh[axis], ", but ", version, " ",
                what);
  };
  if (!hasPipelines && mesh[Axis::PP] > 1)
    return refuse(Axis::PP, "has no pipelines that options make");
  if (!hasTensor && mesh[Axis::TP] > 1)
    return refuse(Axis::TP, "has no tensor parallelism");
  bool hasContext = space.mesh[Axis::CP] != std::vector{1};
  if (!hasContext && mesh[Axis::CP] > 1)
    return refuse(Axis::CP, "has no context parallelism");
  if (space.mesh[Axis::EP] == std::vector{1} && mesh[Axis::EP] > 1)
    return refuse(Axis::EP, "is not predicted with experts over ranks");
  if (!combinesContext && mesh[Axis::CP] > 1 && mesh[Axis::TP] > 1)
    return refuse(Axis::CP, "has it without tp only");
  for (const AxisFacts &facts : kAxes)
    if (facts.copiesState() && mesh[facts.axis] > 1 &&
        space.mesh[facts.axis] == std::vector{1})
      return refuse(facts.axis, "has no groups that divide state");
  return Status::success();
}

/// Whether all virtual stages compute the same number of first layers again,
/// and of the others nothing.
static bool isBlock(const Recomputation &recompute) {
  const Recomputation::Stage &first = recompute.getStage(0);
  return first.selective == 0 &&
         std::ranges::all_of(
             recompute.stages,
             [&](const Recomputation::Stage &stage) { return stage == first; });
}

Status Abilities::checkStages(const std::vector<int> &layers,
                              const Recomputation &recompute) const {
  if (!cutsUnevenly && !isEven(layers))
    return fail("layers are ", print(layers), ", but ", version,
                " gives all stages as many");
  if (mixesRecompute || recompute.getUniform() ||
      (recomputesBlocks && isBlock(recompute)))
    return Status::success();
  return fail("recompute is ", print(recompute), ", but ", version,
              recomputesBlocks
                  ? " computes the first layers of all stages again, or all"
                  : " computes all layers again, or none");
}

Status Abilities::check(const Configuration &configuration,
                        const Training &training) const {
  PLAIT_RETURN_IF_ERROR(checkMesh(configuration.mesh));
  int stages = configuration.mesh[Axis::PP];
  if (fillsGroups && configuration.chunks > 1 &&
      configuration.microbatches(training) % stages != 0)
    return fail(configuration.microbatches(training),
                " microbatches are no multiple of pp ", stages,
                ", which the chunks of ", version, " need");
  if (offloadsShards && offloadsOptimizer(configuration.offload) &&
      configuration.zero == 0 && configuration.mesh.replicas() > 1)
    return fail("offload is ", print(configuration.offload), ", which ",
                version, " has with ZeRO only");
  PLAIT_RETURN_IF_ERROR(checkZero(training.compress, configuration.zero));
  for (const AxisFacts &facts : kAxes)
    if (int groups = configuration.mesh[facts.axis];
        training.compress.isOn() && facts.copiesState() && groups > 1)
      return fail("compress is ", print(training.compress),
                  ", which takes no groups of replicas, but ", facts.name,
                  " is ", groups);
  return checkStages(configuration.layers, configuration.recompute);
}

/// Sizes of a microbatch may be any, layers and mixtures are checked above, and
/// fields that have nothing to divide are not looked at.
bool Abilities::runs(const Configuration &configuration,
                     const Training &training) const {
  const Mesh &mesh = configuration.mesh;
  Configuration used = configuration;
  used.layers.clear();
  if (!used.recompute.getUniform())
    used.recompute = space.recompute.front();
  if (mesh[Axis::PP] == 1)
    used.schedule = space.schedule.front();
  if (mesh[Axis::CP] == 1)
    used.contextParallel = space.contextParallel.front();
  if (mesh.replicas() == 1)
    used.zero = space.zero.front();
  bool hasAll = check(configuration, training).ok();
  visitStrategy(
      [&](const Field &, const auto &values, const auto &value) {
        hasAll &=
            values.empty() || std::ranges::find(values, value) != values.end();
      },
      space, used);
  return hasAll;
}

/// A search for each layer's recomputation ends where programs cannot follow.
/// Kinds of offload can be pinned in any space, so that the search does not say
/// which there are.
Status Abilities::check(const Pins &pins) const {
  PLAIT_RETURN_IF_ERROR(checkMesh(pins.getMesh()));
  if (!mixesRecompute && pins.recompute && pins.recompute->isAuto)
    return fail("recompute is auto, but ", version,
                " does not choose for each layer by itself");
  if (pins.offload &&
      std::ranges::find(space.offload, *pins.offload) == space.offload.end())
    return fail("offload is ", print(*pins.offload), ", which ", version,
                " does not have");
  return checkStages(pins.layers.value_or(std::vector<int>()),
                     pins.recompute.value_or(Recomputation()));
}
