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
#include <numeric>

using namespace mlir;
using namespace plait;

/// Sweeps over the actions at which buffers begin and end: linear in both.
std::vector<int64_t> plait::findLive(plan::ProgramOp program,
                                     std::optional<plan::Category> category) {
  TargetAttr target = getTarget(program->getParentOfType<ModuleOp>());
  bool isGPU = target && target.isGPU();
  std::vector<int64_t> live;
  // Last actions are inclusive.
  for (auto buffer : program.getOps<plan::BufferOp>()) {
    if ((category && buffer.getCategory() != *category) ||
        getFacts(buffer.getMemoryPlace()).isApart(!isGPU))
      continue;
    live.resize(std::max<size_t>(live.size(), buffer.getLast() + 2));
    live[buffer.getFirst()] += buffer.getBytes();
    live[buffer.getLast() + 1] -= buffer.getBytes();
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  return live;
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
    std::vector<int64_t> live = findLive(program, category);
    return live.empty() ? 0.0 : double(*llvm::max_element(live));
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

planner::StageMemory plait::continueMemory(const planner::StageMemory &fewer,
                                           const planner::StageMemory &more,
                                           double steps) {
  using planner::StageMemory;
  StageMemory memory = more;
  for (double StageMemory::*field :
       {&StageMemory::parameters, &StageMemory::gradients,
        &StageMemory::optimizer, &StageMemory::activations,
        &StageMemory::workspace})
    memory.*field += steps * (more.*field - fewer.*field);
  for (const MemoryPlaceFacts &facts : otherPlaces)
    memory.offloaded[facts.place] +=
        steps * (more.offloaded[facts.place] - fewer.offloaded[facts.place]);
  return memory;
}
