//===- PlaceChoice.cpp - What memory a choice takes -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The compiler places what the planner has chosen. A whole model takes it long:
// where few layers or few microbatches say the same, they are placed instead.
//
//===----------------------------------------------------------------------===//

#include "ModelState.h"
#include "Planning.h"
#include "plait/Planner/TakeOutLayers.h"
#include "plait/Schedule/Generators.h"

using namespace mlir;
using namespace plait;
using planner::Configuration;

/// Whether one microbatch is through before the next one begins, on one rank.
/// Then each is placed where the one before it was, since nothing else is live
/// at its time: a step of more only has larger inputs.
static bool runsOneByOne(const Configuration &choice) {
  Result<const schedule::Generator *> generator =
      schedule::findGenerator(choice.schedule);
  return choice.mesh[Axis::PP] == 1 && choice.chunks == 1 && generator.ok() &&
         (*generator)->memoryBound({1, 1, /*microbatches=*/2}, 0, 0) == 1;
}

/// The compiler knows no costs: what it would find is another order.
Status ChoiceState::findOrder(const Configuration &choice) {
  std::string reason;
  const planner::Work *work =
      profile->get(choice.degrees(), choice.sequences(), reason);
  if (!work)
    return fail(reason);
  Result<std::optional<schedule::Schedule>> found =
      planner::findOrder(*work, cluster, training, choice);
  if (found.ok())
    order = std::move(*found);
  return found.status();
}

/// Lowers the model, or `fewer` of its layers, as a compilation of the choice
/// will, with so many microbatches; null: it does not compile.
std::unique_ptr<LoweredModel> ChoiceState::lower(const Configuration &choice,
                                                 int64_t microbatches,
                                                 ModuleOp fewer) const {
  // A copy: whether this is the choice is not known before its memory is.
  CompileOptions chosen = options;
  pinChoice(choice, training.precision, chosen);
  chosen.prove = chosen.prove && planning.compiles && !fewer;
  chosen.pins.globalBatch = microbatches * choice.microBatch *
                            choice.mesh.batchParts() *
                            training.outer.countSites();
  Compilation::Input input = getInput();
  input.fewer = fewer;
  return lowerModel(std::move(chosen), input);
}

/// Finds depths that can stand for the choice: its layers are all computed
/// again alike, and no rank has several stages.
std::optional<FewLayers>
ChoiceState::findFewLayers(const Configuration &choice) {
  std::string reason;
  const planner::Work *work =
      profile->get(choice.degrees(), choice.sequences(), reason);
  std::vector<int> cut = choice.layers;
  if (cut.empty() && choice.mesh[Axis::PP] == 1 && work)
    cut = {int(work->layers())};
  if (!work || !source || choice.chunks != 1 ||
      !choice.recompute.getUniform() ||
      int(cut.size()) != choice.mesh[Axis::PP])
    return std::nullopt;
  return FewLayers::find(*work, cut);
}

/// Places a depth of the choice, whose layers are some of those of `deepest`;
/// nothing where it does not compile.
std::optional<FewLayers::Placed>
ChoiceState::placeLayers(const Configuration &choice, const FewLayers &few,
                         int depth, ModuleOp deepest) const {
  Configuration fewer = choice;
  if (!choice.layers.empty())
    fewer.layers = few.getCut(depth);
  OwningOpRef<ModuleOp> layers = deepest.clone();
  if (!takeOutLayers(*layers, few.getLeftOut(depth, FewLayers::kDepths - 1)))
    return std::nullopt;
  std::unique_ptr<LoweredModel> lowered =
      lower(fewer, choice.microbatches(training), *layers);
  if (!lowered)
    return std::nullopt;
  FewLayers::Placed placed{std::move(lowered->memory), {}};
  for (auto program : lowered->module->getOps<plan::ProgramOp>())
    placed.live.push_back(findLive(program));
  return placed;
}

/// The memory of the choice as that of few layers says it, where they can and
/// `refuses` has it. Two depths say what they do not refuse.
std::optional<std::vector<planner::StageMemory>> ChoiceState::followLayers(
    const Configuration &choice,
    llvm::function_ref<bool(std::vector<planner::StageMemory>)> refuses) {
  std::optional<FewLayers> few = findFewLayers(choice);
  if (!few)
    return std::nullopt;
  // That the whole model does not compile is said where it is lowered.
  ScopedDiagnosticHandler silent(&model->context,
                                 [](Diagnostic &) { return success(); });
  auto deepest = model->get(
      *source, choice.microBatch * choice.mesh.batchParts(), training.sequence);
  constexpr int last = FewLayers::kDepths - 1;
  if (failed(deepest) || !takeOutLayers(**deepest, few->getLeftOut(last)))
    return std::nullopt;
  std::array<FewLayers::Placed, FewLayers::kDepths> depths;
  for (int depth = 0; depth <= last; ++depth) {
    auto placed = placeLayers(choice, *few, depth, **deepest);
    if (!placed)
      return std::nullopt;
    depths[depth] = std::move(*placed);
    if (depth > 0 &&
        !refuses(few->extend(depths[depth - 1], depths[depth], depth)))
      return std::nullopt;
  }
  return few->follow(depths);
}

/// Whether a device lacks room for `share` of the needs.
static bool lacks(double share, PerPlace<double> needs,
                  const planner::Device &device) {
  for (const MemoryPlaceFacts &facts : memoryPlaces)
    needs[facts.place] *= share;
  return findShort(needs, device).has_value();
}

/// Replaces the memory of an estimate, which counts beside the arena what is
/// kept for the system and the communicators.
static void setMemory(planner::Estimate &estimate,
                      std::vector<planner::StageMemory> memory) {
  for (planner::StageMemory &stage : memory) {
    stage.reserved = estimate.memory.front().reserved;
    stage.communicators = estimate.memory.front().communicators;
  }
  estimate.memory = std::move(memory);
}

/// Whether few layers of a choice that may be too large say that it is, which
/// is then what is estimated. They are off by less than the hundredth that is
/// left for what they round up.
bool ChoiceState::refusesByLayers(const Configuration &choice,
                                  planner::Estimate &estimate) {
  if (!lacks(1.05, estimate.getNeeds(), cluster.device))
    return false;
  auto memory =
      followLayers(choice, [&](std::vector<planner::StageMemory> memory) {
        planner::Estimate followed = estimate;
        setMemory(followed, std::move(memory));
        return lacks(0.99, followed.getNeeds(), cluster.device);
      });
  if (memory)
    setMemory(estimate, std::move(*memory));
  return memory.has_value();
}

/// Replaces the estimated memory by the compiler's placement. Lowers the model
/// as the compilation will; where there is a compilation, it goes on from there
/// instead of lowering a second time.
///
/// 1. For a prediction alone, few microbatches stand for all where they run one
///    by one.
/// 2. Few layers refuse many that are clearly too large. What fits is lowered
///    whole, for its memory is promised to the byte.
Status ChoiceState::place(const Configuration &choice,
                          planner::Estimate &estimate) {
  model->messages.progress({"placing the memory of the choice"});
  PLAIT_RETURN_IF_ERROR(findOrder(choice));
  // 1. Microbatches. Inputs of as many are whole lines of memory.
  constexpr int64_t few = 64;
  int64_t all = choice.microbatches(training), some = all;
  if (!planning.compiles && all > 3 * few && runsOneByOne(choice))
    some = few + all % few;
  // 2. Layers.
  if (some == all && refusesByLayers(choice, estimate))
    return Status::success();
  std::unique_ptr<LoweredModel> placed = lower(choice, some), more;
  if (placed && some < all)
    more = lower(choice, some + few);
  if (!placed || (some < all && !more))
    return fail("the choice (", planner::print(choice), ") does not compile");
  std::vector<planner::StageMemory> memory = placed->memory;
  if (more)
    for (auto [rank, fewer] : llvm::enumerate(placed->memory))
      memory[rank] = continueMemory(fewer, more->memory[rank],
                                    double(all - some - few) / few);
  setMemory(estimate, std::move(memory));
  estimate.isPlaced = true;
  if (planning.compiles)
    lowered = std::move(placed);
  return Status::success();
}
