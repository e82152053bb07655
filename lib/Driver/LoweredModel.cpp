//===- LoweredModel.cpp - Memory of lowered models ------------------------===//
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
//===----------------------------------------------------------------------===//

#include "LoweredModel.h"

#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Transforms/Steps.h"

#include "llvm/ADT/StringSet.h"

#include <algorithm>
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
    if (buffer.getCategory() != category ||
        getFacts(buffer.getMemoryPlace()).isApart(!isGPU))
      continue;
    change[buffer.getFirst()] += buffer.getBytes();
    change[buffer.getLast() + 1] -= buffer.getBytes();
  }
  int64_t live = 0, peak = 0;
  for (auto [action, bytes] : change)
    peak = std::max(peak, live += bytes);
  return peak;
}

/// A tensor for each weight that is trained, which are those that have
/// gradients.
int64_t plait::countSiteBytes(plan::ProgramOp program) {
  Outer outer = getConfiguration(program->getParentOfType<ModuleOp>()).outer;
  int64_t tensors = outer.getStateBytes() / sizeof(float);

  constexpr StringRef value = " value", gradient = " gradient";
  llvm::StringSet<> trained;
  for (auto buffer : program.getOps<plan::BufferOp>())
    if (StringRef name = buffer.getSymName(); name.consume_back(gradient))
      trained.insert(name);
  int64_t bytes = 0;
  for (auto buffer : program.getOps<plan::BufferOp>())
    if (StringRef name = buffer.getSymName();
        name.consume_back(value) && trained.contains(name))
      bytes += tensors * llvm::alignTo(buffer.getBytes(), 64);
  return bytes;
}

/// Resident bytes live all through the step, or is counted as if it did; the
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
  // Placed behind all this.
  memory.optimizer += double(countSiteBytes(program));
  for (const MemoryPlaceFacts &facts : otherPlaces)
    if (facts.isApart(!isGPU))
      memory.offloaded[facts.place] =
          double(program.getPlaceBytes(facts.place));
  return memory;
}

/// Allows as many as the compiler takes about 7 GB for, at 20 to 60 KB each,
/// and a plan somewhat below the 2 GiB of its format. What is trained has fewer
/// by far: 405B on 16,384 devices has 16,384.
Status plait::checkStepSize(int64_t stages, int64_t microbatches) {
  constexpr int64_t most = int64_t(1) << 17;
  // More stages than that are more than layers, of which others tell.
  if (stages > most || microbatches <= most / stages)
    return Status::success();
  return fail("a step of ", microbatches, " microbatches on ", stages,
              stages == 1 ? " stage" : " stages", ", expected at most ",
              most / stages,
              ": give a larger `micro-batch` or a smaller `global-batch`");
}

std::vector<planner::StageMemory>
plait::continueMemory(const std::vector<planner::StageMemory> &fewer,
                      const std::vector<planner::StageMemory> &more,
                      double steps) {
  using planner::StageMemory;
  std::vector<StageMemory> stages = more;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    auto add = [&](auto get) {
      get(stages[stage]) += steps * (get(more[stage]) - get(fewer[stage]));
    };
    for (double StageMemory::*field :
         {&StageMemory::parameters, &StageMemory::gradients,
          &StageMemory::optimizer, &StageMemory::activations,
          &StageMemory::workspace})
      add([&](auto &memory) -> auto & { return memory.*field; });
    for (const MemoryPlaceFacts &facts : otherPlaces)
      add([&](auto &memory) -> auto & {
        return memory.offloaded[facts.place];
      });
  }
  return stages;
}
