//===- AssignStages.cpp - Cut the loss into stages of equal cost ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Generators.h"
#include "plait/Schedule/StageCut.h"
#include "plait/Transforms/Names.h"
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

struct AssignStagesPass : plait::impl::AssignStagesPassBase<AssignStagesPass> {
  using AssignStagesPassBase::AssignStagesPassBase;

  void runOnOperation() override {
    auto function =
        getOperation().lookupSymbol<func::FuncOp>(nn::kLossFunction);
    dist::MeshOp mesh = dist::MeshOp::find(getOperation());
    if (!mesh || !function) {
      getOperation().emitError("has no mesh or no function @loss to cut");
      return signalPassFailure();
    }
    if (failed(place(mesh)) ||
        failed(assign(function, getPlacement(getOperation()).getStages())))
      signalPassFailure();
  }

  LogicalResult place(dist::MeshOp mesh);
  LogicalResult assign(func::FuncOp function, int64_t stages);
  LogicalResult tooManyStages(func::FuncOp function, int64_t count);
  LogicalResult checkGivenCut(func::FuncOp function, int64_t stages,
                              int64_t count);
};

} // namespace

/// Says in the module where virtual stages lie, as the schedule wants it.
LogicalResult AssignStagesPass::place(dist::MeshOp mesh) {
  Result<const schedule::Generator *> generator =
      schedule::findGenerator(schedule.getValue());
  if (!generator.ok())
    return getOperation().emitError(generator.status().message());
  if (chunks == 0)
    chunks = (*generator)->minChunks;
  if (Status status = schedule::checkChunks(**generator, chunks); !status.ok())
    return getOperation().emitError(status.message());
  auto arrangement = static_cast<pipe::Arrangement>((*generator)->placement);
  auto placement = pipe::PlacementAttr::getChecked(
      [&] { return getOperation().emitError(); }, &getContext(), arrangement,
      std::max<int64_t>(1, mesh.getAxisSize(kPipelineAxis)),
      int64_t(chunks.getValue()));
  if (!placement)
    return failure();
  getOperation()->setAttr(pipe::kPlacementAttr, placement);
  return success();
}

static int64_t costOf(Operation *op) {
  auto costed = dyn_cast<CostedOpInterface>(op);
  return costed ? costed.getFlops() : 0;
}

/// Whether the option, if it is given, cuts `count` layers into `stages`.
LogicalResult AssignStagesPass::checkGivenCut(func::FuncOp function,
                                              int64_t stages, int64_t count) {
  if (layers.empty())
    return success();
  if (static_cast<int64_t>(layers.size()) != stages)
    return function.emitError("is cut into ")
           << stages << " stages, but layers are given for " << layers.size();
  int64_t sum = 0;
  for (int64_t size : layers) {
    if (size < 1 || size > count)
      return function.emitError("gets a stage of ")
             << size << " layers, expected 1 to " << count;
    sum += size;
  }
  if (sum != count)
    return function.emitError("has ")
           << count << " layers, but " << sum << " are given";
  return success();
}

namespace {
/// The layers of a function. What is between two belongs to the one before.
struct Layers {
  std::map<int64_t, int64_t> costs; // by layer
  int64_t before = 0, after = 0;    // costs of what belongs to none
  llvm::DenseMap<Operation *, int64_t> layerOf;
};
} // namespace

static FailureOr<Layers> findLayers(func::FuncOp function) {
  Layers layers;
  int64_t last = -1;
  for (Operation &op : function.getBody().front())
    if (auto layer = op.getAttrOfType<IntegerAttr>(nn::kLayerAttr))
      last = std::max(last, layer.getInt());
  int64_t current = -1;
  for (Operation &op : function.getBody().front()) {
    if (auto layer = op.getAttrOfType<IntegerAttr>(nn::kLayerAttr)) {
      if (layer.getInt() < current)
        return op.emitError("belongs to layer ")
               << layer.getInt() << " but stands after layer " << current;
      current = layer.getInt();
      layers.costs[current] += costOf(&op);
    } else {
      (current < 0 ? layers.before : layers.after) += costOf(&op);
    }
    layers.layerOf[&op] =
        op.hasAttr(nn::kLayerAttr) || current < last ? current : last + 1;
  }
  if (layers.costs.empty())
    layers.costs[0] = 0;
  return layers;
}

LogicalResult AssignStagesPass::tooManyStages(func::FuncOp function,
                                              int64_t count) {
  int64_t ranks = getPlacement(getOperation()).getRanks();
  if (chunks == 1)
    return function.emitError("pp=")
           << ranks << " needs as many layers, but the model has " << count
           << "; the largest possible pp is " << count;
  return function.emitError("pp=")
         << ranks << " with " << chunks << " chunks a rank needs "
         << ranks * chunks << " layers, but the model has " << count;
}

LogicalResult AssignStagesPass::assign(func::FuncOp function, int64_t stages) {
  FailureOr<Layers> found = findLayers(function);
  if (failed(found))
    return failure();
  int64_t count = found->costs.size();
  if (stages > count)
    return tooManyStages(function, count);

  if (failed(checkGivenCut(function, stages, count)))
    return failure();
  std::vector<double> costs;
  SmallVector<int64_t> ids;
  for (auto [layer, cost] : found->costs) {
    ids.push_back(layer);
    costs.push_back(double(cost));
  }
  std::vector<int> sizes(layers.begin(), layers.end());
  if (sizes.empty())
    sizes = schedule::cutStages(
        costs, double(found->before), double(found->after),
        getPlacement(getOperation()).getProblem(/*microbatches=*/1));
  SmallVector<int64_t> firsts; // layers, by stage
  for (int64_t next = 0; int size : sizes) {
    firsts.push_back(ids[next]);
    next += size;
  }
  Builder builder(function.getContext());
  for (Operation &op : function.getBody().front()) {
    if (isa<nn::ReadOp, func::ReturnOp>(op))
      continue;
    int64_t stage = stages - 1;
    while (stage > 0 && found->layerOf[&op] < firsts[stage])
      --stage;
    op.setAttr(pipe::kStageAttr, builder.getI64IntegerAttr(stage));
  }
  return success();
}
