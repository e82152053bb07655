//===- AssignStages.cpp - Cut the loss into stages of equal cost ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Decides which virtual stage every op of the loss belongs to, and where
// virtual stages lie. The balance itself is found by schedule::cutStages;
// OutlineStages.cpp makes a function of each stage.
//
// Only attributes are added, so that a cut can be read and changed in a dump.
// Costs are FLOPs, since no cluster need be known here; a planner that knows
// one gives the cut in seconds as `layers`, and the pass obeys.
//
//===----------------------------------------------------------------------===//

#include "../WriteProblem.h"
#include "plait/Dialect/NN/IR/Layers.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Schedule/Generators.h"
#include "plait/Schedule/StageCut.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/StageFunctions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>

namespace plait {
#define GEN_PASS_DEF_ASSIGNSTAGESPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {

/// The layers of a function. What is between two belongs to the one before.
struct Layers {
  /// FLOPs; the order of the map is that of the layers in the function.
  std::map<int64_t, int64_t> costs; // by layer
  /// Costs of what belongs to none, where there is something.
  std::optional<double> before, after;
  llvm::DenseMap<Operation *, int64_t> layerOf;
};

struct AssignStagesPass : plait::impl::AssignStagesPassBase<AssignStagesPass> {
  using AssignStagesPassBase::AssignStagesPassBase;

  void runOnOperation() override {
    auto function =
        getOperation().lookupSymbol<func::FuncOp>(nn::kLossFunction);
    dist::MeshOp mesh = dist::MeshOp::find(getOperation());
    if (!mesh || !function) {
      getOperation().emitOpError("has no mesh or no function @loss to cut");
      return signalPassFailure();
    }
    configuration = getConfiguration(getOperation());
    if (failed(place(mesh)) ||
        failed(assign(function, getPlacement(getOperation()).getStages())))
      signalPassFailure();
  }

  LogicalResult place(dist::MeshOp mesh);
  /// Sets the virtual stage of every op but reads of parameters, which
  /// each stage makes for itself.
  LogicalResult assign(func::FuncOp function, int64_t stages);
  LogicalResult tooManyStages(func::FuncOp function, const Layers &layers);
  /// Writes what there is to cut, and the cut.
  LogicalResult tell(func::FuncOp function, const Layers &layers,
                     ArrayRef<double> costs, ArrayRef<int> sizes);
  LogicalResult checkGivenCut(func::FuncOp function, int64_t stages,
                              const Layers &found);

  TrainingConfiguration configuration;
};

} // namespace

/// Says in the module where virtual stages lie, as the schedule wants it.
LogicalResult AssignStagesPass::place(dist::MeshOp mesh) {
  // A schedule written by hand brings its placement along: stages have to be
  // cut for that.
  if (pipe::ScheduleOp given = pipe::findSchedule(getOperation())) {
    getOperation()->setAttr(pipe::kPlacementAttr, given.getPlacement());
    int64_t ranks = mesh.getAxisSize(Axis::PP);
    if (given.getPlacement().getRanks() == ranks)
      return success();
    return given.emitOpError("is for ")
           << given.getPlacement() << ", but the mesh has " << ranks
           << " ranks on " << kPipelineAxis;
  }
  Result<const schedule::Generator *> generator =
      schedule::findGenerator(configuration.schedule);
  if (!generator.ok())
    return getOperation().emitError(generator.status().message());
  Result<uint32_t> chunks =
      schedule::chooseChunks(**generator, configuration.chunks);
  if (!chunks.ok())
    return getOperation().emitError(chunks.status().message());
  auto arrangement = static_cast<pipe::Arrangement>((*generator)->placement);
  auto placement = pipe::PlacementAttr::getChecked(
      [&] { return getOperation().emitError(); }, &getContext(), arrangement,
      mesh.getAxisSize(Axis::PP), int64_t(*chunks));
  if (!placement)
    return failure();
  getOperation()->setAttr(pipe::kPlacementAttr, placement);
  return success();
}

/// FLOPs of the forward pass: the backward pass is in proportion, and what
/// moves memory alone is about so in every layer.
static int64_t costOf(Operation *op) {
  auto costed = dyn_cast<CostedOpInterface>(op);
  return costed ? costed.getFlops() : 0;
}

/// Whether `layers` of the configuration, if it says so, cut the model into
/// `stages`.
LogicalResult AssignStagesPass::checkGivenCut(func::FuncOp function,
                                              int64_t stages,
                                              const Layers &found) {
  int64_t count = found.costs.size();
  const std::vector<int> &layers = configuration.layers;
  if (layers.empty())
    return success();
  if (static_cast<int64_t>(layers.size()) != stages)
    return function.emitError("@loss is cut into ")
           << stages << " stages, but layers are given for " << layers.size();
  int64_t sum = 0;
  for (auto [stage, size] : llvm::enumerate(layers)) {
    // What comes before and after the layers may be a stage of its own.
    bool hasEnd = (stage == 0 && found.before) ||
                  (static_cast<int64_t>(stage) + 1 == stages && found.after);
    int64_t least = hasEnd && stages > 1 ? 0 : 1;
    if (size < least || size > count)
      return function.emitError("@loss gets a stage of ")
             << size << " layers, expected " << least << " to " << count;
    sum += size;
  }
  if (sum != count)
    return function.emitError("@loss has ")
           << count << " layers, but " << sum << " are given";
  return success();
}

/// Layers are told by the attribute of ops and have to come in order. Ops
/// without it between two layers count for the earlier one; those before the
/// first and after the last are ends, which can be stages of their own.
static FailureOr<Layers> findLayers(func::FuncOp function) {
  Layers layers;
  int64_t last = -1;
  // The last layer first: what stands without a layer counts for the layer
  // before it only if another one follows.
  for (Operation &op : function.getBody().front())
    last = std::max(last, nn::getLayer(&op).value_or(-1));
  int64_t current = -1;
  for (Operation &op : function.getBody().front()) {
    if (auto layer = nn::getLayer(&op)) {
      if (*layer < current)
        return op.emitOpError("belongs to layer ")
               << *layer << " but stands after layer " << current;
      current = *layer;
      layers.costs[current] += costOf(&op);
    } else if (0 <= current && current < last) {
      layers.costs[current] += costOf(&op);
    } else if (op.getNumOperands() != 0 &&
               !op.hasTrait<OpTrait::IsTerminator>()) {
      // What has no inputs belongs to its users.
      std::optional<double> &end = current < 0 ? layers.before : layers.after;
      end = end.value_or(0) + costOf(&op);
    }
    // Behind the last layer is a place of its own: the end is the last
    // stage's, also where that has no layer.
    layers.layerOf[&op] =
        op.hasAttr(nn::kLayerAttr) || current < last ? current : last + 1;
  }
  if (layers.costs.empty()) { // all of it is one
    layers.costs[0] = layers.before.value_or(0);
    layers.before.reset();
  }
  return layers;
}

/// Emits why the model cannot be cut into that many stages, in the terms the
/// user gave: the axis and, if there are several, chunks a rank.
LogicalResult AssignStagesPass::tooManyStages(func::FuncOp function,
                                              const Layers &layers) {
  pipe::PlacementAttr placement = getPlacement(getOperation());
  int64_t ranks = placement.getRanks();
  int64_t count = layers.costs.size();
  int64_t most = count + layers.before.has_value() + layers.after.has_value();
  if (placement.getChunks() == 1)
    return function.emitError("pp=")
           << ranks << " is too much for a model of " << count
           << " layers; the largest possible pp is " << most;
  return function.emitError("pp=")
         << ranks << " with " << placement.getChunks() << " chunks a rank is "
         << placement.getStages()
         << " stages, which is too much for a model of " << count
         << " layers: it can be cut into " << most;
}

LogicalResult AssignStagesPass::tell(func::FuncOp function,
                                     const Layers &layers,
                                     ArrayRef<double> costs,
                                     ArrayRef<int> sizes) {
  pipe::PlacementAttr placement = getPlacement(getOperation());
  llvm::json::Array rankOfStage;
  std::vector<double> ranks(placement.getRanks());
  for (int64_t stage = 0, next = 0, e = sizes.size(); stage < e; ++stage) {
    double &load = ranks[placement.getRank(stage)];
    rankOfStage.push_back(placement.getRank(stage));
    load += stage == 0 ? layers.before.value_or(0) : 0;
    load += stage + 1 == e ? layers.after.value_or(0) : 0;
    for (int64_t end = next + sizes[stage]; next < end; ++next)
      load += costs[next];
  }
  return writeProblem(
      function, problemFile,
      llvm::json::Object{{"ranks", placement.getRanks()},
                         {"rank_of_stage", std::move(rankOfStage)},
                         {"layers", llvm::json::Array(costs)},
                         {"before", layers.before},
                         {"after", layers.after},
                         {"is_given", !configuration.layers.empty()},
                         {"solution", llvm::json::Array(sizes)},
                         {"slowest_rank", *llvm::max_element(ranks)}});
}

/// 1. Finds the layers and checks that they suffice.
/// 2. Takes the given numbers of layers, or cuts so that costs are balanced.
/// 3. Turns numbers of layers into the first layer of each stage.
/// 4. Gives each op the last stage that begins at or before its layer.
LogicalResult AssignStagesPass::assign(func::FuncOp function, int64_t stages) {
  FailureOr<Layers> found = findLayers(function);
  if (failed(found))
    return failure();
  // 1.
  int64_t count = found->costs.size();
  if (stages > count + found->before.has_value() + found->after.has_value())
    return tooManyStages(function, *found);

  if (failed(checkGivenCut(function, stages, *found)))
    return failure();
  std::vector<double> costs;
  SmallVector<int64_t> ids;
  for (auto [layer, cost] : found->costs) {
    ids.push_back(layer);
    costs.push_back(double(cost));
  }
  // 2. The cut is independent of the number of microbatches.
  std::vector<int> sizes = configuration.layers;
  if (sizes.empty())
    sizes = schedule::cutStages(
        costs, found->before, found->after,
        getPlacement(getOperation()).getProblem(/*microbatches=*/1));
  if (!problemFile.empty() && failed(tell(function, *found, costs, sizes)))
    return failure();
  // 3. A stage without layers begins where the next one does.
  SmallVector<int64_t> firsts;   // layers, by stage
  ids.push_back(ids.back() + 1); // what comes after the layers
  for (int64_t next = 0; int size : sizes) {
    firsts.push_back(ids[next]);
    next += size;
  }
  // 4.
  Builder builder(function.getContext());
  for (Operation &op : function.getBody().front()) {
    if (nn::getSlotAccess(&op) == nn::SlotAccess::Read ||
        isa<func::ReturnOp>(op))
      continue;
    int64_t stage = stages - 1;
    // From the last stage backwards: of stages that begin at the same layer,
    // the last one has it and the others are empty but for an end.
    while (stage > 0 && found->layerOf[&op] < firsts[stage])
      --stage;
    op.setAttr(pipe::kStageAttr, builder.getI64IntegerAttr(stage));
  }
  return success();
}
