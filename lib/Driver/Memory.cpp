//===- Memory.cpp - Memory of lowered models ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From placed buffers to the planner's categories. The sum over categories is
// the arena, so that a report's rows add up; the peak of a category alone may
// be larger.
//
// A program has every action of a step, and placing it takes time and memory
// for all of them. Where only the memory is asked for, and there are many
// microbatches, a few numbers of them say how it goes on: a schedule repeats
// itself, so that ranks hold the same again, or, as under GPipe, as much more
// with every microbatch. That packing repeats itself as well cannot be known,
// but it can be seen: the second step of the line has to be the first.
//
//===----------------------------------------------------------------------===//

#include "Memory.h"

#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Transforms/Steps.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <array>
#include <map>

using namespace mlir;
using namespace plait;

/// The most bytes of a device in `category` that are live during one action. A
/// sweep over the actions at which buffers begin and end; n log n in the
/// buffers.
static int64_t findPeak(plan::ProgramOp program, plan::Category category,
                        bool isGPU) {
  std::map<int64_t, int64_t> change; // by action
  // Last actions are inclusive.
  for (auto buffer : program.getOps<plan::BufferOp>()) {
    if (buffer.getCategory() != category || (buffer.getHost() && isGPU))
      continue;
    change[buffer.getFirst()] += buffer.getBytes();
    change[buffer.getLast() + 1] -= buffer.getBytes();
  }
  int64_t live = 0, peak = 0;
  for (auto [action, bytes] : change)
    peak = std::max(peak, live += bytes);
  return peak;
}

/// What is resident lives all through the step, or is counted as if it did; the
/// rest of the arena is activations, as far as there are any, and workspace.
planner::StageMemory plait::findMemory(plan::ProgramOp program) {
  planner::StageMemory memory;
  TargetAttr target = getTarget(program->getParentOfType<ModuleOp>());
  bool isGPU = target && target.isGPU();
  auto find = [&](plan::Category category) {
    return double(findPeak(program, category, isGPU));
  };
  memory.parameters = find(plan::Category::Parameters);
  memory.gradients = find(plan::Category::Gradients);
  memory.optimizer = find(plan::Category::Optimizer);
  // Gradients may begin to live after activations have begun to die.
  double left = double(getDeviceBytes(program)) - memory.resident();
  memory.activations = std::min(find(plan::Category::Activations), left);
  memory.workspace = left - memory.activations;
  memory.host = isGPU ? double(program.getHostBytes()) : 0;
  return memory;
}

/// As many as the compiler takes about 7 GB for, at 20 to 60 KB each, and a
/// plan somewhat below the 2 GiB of its format. What is trained has fewer by
/// far: 405B on 16,384 devices has 16,384.
Status plait::checkStepSize(int64_t stages, int64_t microbatches) {
  constexpr int64_t most = int64_t(1) << 17;
  // More stages than that are more than layers, of which others tell.
  if (stages > most || microbatches <= most / stages)
    return Status::success();
  return fail("a step of ", microbatches, " microbatches on ", stages,
              stages == 1 ? " stage" : " stages", ", expected at most ",
              most / stages,
              ": give a larger --micro-batch or a smaller --global-batch");
}

namespace {

/// Numbers of microbatches that stand for all of a step; ascending.
using Counts = std::array<int64_t, 3>;

} // namespace

/// Whole rounds of the pipeline apart, and of as many as to divide no
/// alignment; with the remainder of all, so that steps end alike. None where
/// placing all takes no longer.
static std::optional<Counts> chooseCounts(int64_t ranks, int64_t microbatches) {
  constexpr int64_t least = 32; // microbatches; fewer take no time
  // Behind the beginning of every schedule.
  constexpr Counts rounds = {4, 5, 6};
  int64_t round = llvm::alignTo(least, ranks), rest = microbatches % round;
  Counts counts;
  int64_t sum = 0;
  for (size_t i = 0; i < counts.size(); ++i)
    sum += counts[i] = rounds[i] * round + rest;
  return sum < microbatches ? std::optional(counts) : std::nullopt;
}

/// The line through the memory of `placed` at `microbatches`; none where it is
/// no line.
static std::optional<std::vector<planner::StageMemory>>
continueLine(const std::array<std::vector<planner::StageMemory>, 3> &placed,
             const Counts &counts, int64_t microbatches) {
  using planner::StageMemory;
  double steps = double(microbatches - counts[2]) / (counts[2] - counts[1]);
  std::vector<StageMemory> stages = placed[2];
  for (size_t stage = 0; stage < stages.size(); ++stage)
    for (double StageMemory::*field :
         {&StageMemory::parameters, &StageMemory::gradients,
          &StageMemory::optimizer, &StageMemory::activations,
          &StageMemory::workspace, &StageMemory::host}) {
      double first = placed[0][stage].*field, second = placed[1][stage].*field,
             third = placed[2][stage].*field;
      // Whole bytes: no rounding.
      if (third - second != second - first)
        return std::nullopt;
      stages[stage].*field += steps * (third - second);
    }
  return stages;
}

FailureOr<PlacedMemory> plait::placeMemory(CompileOptions options,
                                           int64_t ranks,
                                           int64_t microbatches) {
  int64_t all = *options.pins.globalBatch;
  auto place = [&](int64_t count) -> FailureOr<PlacedMemory> {
    options.pins.globalBatch = all / microbatches * count;
    std::shared_ptr<LoweredModel> lowered = lowerModel(options);
    if (!lowered)
      return failure();
    return PlacedMemory{std::move(lowered->memory), count};
  };
  if (std::optional<Counts> counts = chooseCounts(ranks, microbatches)) {
    std::array<std::vector<planner::StageMemory>, 3> placed;
    for (size_t i = 0; i < placed.size(); ++i) {
      FailureOr<PlacedMemory> one = place((*counts)[i]);
      if (failed(one))
        return failure();
      placed[i] = std::move(one->stages);
    }
    if (auto stages = continueLine(placed, *counts, microbatches))
      return PlacedMemory{std::move(*stages), counts->back()};
  }
  return place(microbatches);
}
