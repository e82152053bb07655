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

#include "FewLayers.h"
#include "ModelState.h"
#include "Planning.h"
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

/// Lowers the model as a compilation of the choice will, but for the layers
/// that are left out, with so many microbatches; null: it does not compile.
std::unique_ptr<LoweredModel>
ChoiceState::lower(const Configuration &choice, int64_t microbatches,
                   std::vector<int64_t> leftOut) const {
  // A copy: whether this is the choice is not known before its memory is.
  CompileOptions chosen = options;
  pinChoice(choice, training.precision, chosen);
  chosen.prove = chosen.prove && planning.compiles && leftOut.empty();
  chosen.pins.globalBatch = microbatches * choice.microBatch *
                            choice.mesh.batchParts() *
                            training.outer.countSites();
  Compilation::Input input = getInput();
  input.leftOut = std::move(leftOut);
  return lowerModel(std::move(chosen), input);
}

/// The memory of the choice as that of few layers says it, where they are all
/// computed again alike and no rank has several stages; nothing where it does
/// not.
std::optional<std::vector<planner::StageMemory>>
ChoiceState::followLayers(const Configuration &choice) {
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
  std::optional<FewLayers> few = FewLayers::find(*work, cut);
  if (!few)
    return std::nullopt;
  // That the whole model does not compile is said where it is lowered.
  ScopedDiagnosticHandler silent(&model->context,
                                 [](Diagnostic &) { return success(); });
  std::array<FewLayers::Placed, FewLayers::kDepths> depths;
  for (int depth = 0; depth < FewLayers::kDepths; ++depth) {
    Configuration fewer = choice;
    if (!choice.layers.empty())
      fewer.layers = few->getCut(depth);
    std::unique_ptr<LoweredModel> placed =
        lower(fewer, choice.microbatches(training), few->getLeftOut(depth));
    if (!placed)
      return std::nullopt;
    depths[depth].memory = std::move(placed->memory);
    for (auto program : placed->module->getOps<plan::ProgramOp>())
      depths[depth].live.push_back(findLive(program));
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
  auto memory = followLayers(choice);
  if (!memory)
    return false;
  planner::Estimate followed = estimate;
  setMemory(followed, std::move(*memory));
  bool refuses = lacks(0.99, followed.getNeeds(), cluster.device);
  if (refuses)
    estimate = std::move(followed);
  return refuses;
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
