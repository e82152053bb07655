//===- AssignStages.cpp - Cut the loss into stages of equal cost ---*- C++
//-*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Transforms/Names.h"
#include "plait/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <limits>
#include <map>

namespace plait {
#define GEN_PASS_DEF_ASSIGNSTAGESPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {

/// The cost of a contiguous run of layers on one stage.
class LayerCosts {
public:
  LayerCosts(ArrayRef<int64_t> layers, int64_t before, int64_t after)
      : sums(layers.size() + 1, 0) {
    for (auto [index, cost] : llvm::enumerate(layers))
      sums[index + 1] = sums[index] + cost;
    for (size_t index = 1; index < sums.size(); ++index)
      sums[index] += before;
    sums.back() += after;
  }
  int64_t count() const { return sums.size() - 1; }
  /// Of the layers [begin, end), with what comes before the first layer and
  /// after the last.
  int64_t of(int64_t begin, int64_t end) const {
    return sums[end] - sums[begin];
  }

private:
  SmallVector<int64_t> sums;
};

/// The first layer of each stage, so that the most expensive stage is as cheap
/// as possible; among equals the earliest cuts. best(k, n) = min over c of
/// max(best(k - 1, c), cost(c, n)): O(stages · layers²).
SmallVector<int64_t> cutLayers(const LayerCosts &costs, int64_t stages) {
  int64_t layers = costs.count();
  constexpr int64_t infinite = std::numeric_limits<int64_t>::max();
  SmallVector<SmallVector<int64_t>> best(
      stages + 1, SmallVector<int64_t>(layers + 1, infinite));
  SmallVector<SmallVector<int64_t>> cut(stages + 1,
                                        SmallVector<int64_t>(layers + 1, 0));
  best[0][0] = 0;
  for (int64_t stage = 1; stage <= stages; ++stage)
    for (int64_t end = stage; end <= layers; ++end)
      for (int64_t begin = stage - 1; begin < end; ++begin) {
        if (best[stage - 1][begin] == infinite)
          continue;
        int64_t cost = std::max(best[stage - 1][begin], costs.of(begin, end));
        if (cost < best[stage][end]) {
          best[stage][end] = cost;
          cut[stage][end] = begin;
        }
      }
  SmallVector<int64_t> firsts(stages);
  for (int64_t stage = stages, end = layers; stage > 0; --stage)
    firsts[stage - 1] = end = cut[stage][end];
  return firsts;
}

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
    if (failed(assign(function,
                      std::max<int64_t>(1, mesh.getAxisSize(kPipelineAxis)))))
      signalPassFailure();
  }

  LogicalResult assign(func::FuncOp function, int64_t stages);
  FailureOr<SmallVector<int64_t>> getGivenCut(func::FuncOp function,
                                              int64_t stages, int64_t count);
};

} // namespace

static int64_t costOf(Operation *op) {
  auto costed = dyn_cast<CostedOpInterface>(op);
  return costed ? costed.getFlops() : 0;
}

/// The first layer of each stage as the option says; empty if it says nothing.
FailureOr<SmallVector<int64_t>>
AssignStagesPass::getGivenCut(func::FuncOp function, int64_t stages,
                              int64_t count) {
  SmallVector<int64_t> firsts;
  if (layers.empty())
    return firsts;
  if (static_cast<int64_t>(layers.size()) != stages)
    return function.emitError("is cut into ")
           << stages << " stages, but layers are given for " << layers.size();
  int64_t sum = 0;
  for (int64_t size : layers) {
    if (size < 1 || size > count)
      return function.emitError("gets a stage of ")
             << size << " layers, expected 1 to " << count;
    firsts.push_back(sum);
    sum += size;
  }
  if (sum != count)
    return function.emitError("has ")
           << count << " layers, but " << sum << " are given";
  return firsts;
}

LogicalResult AssignStagesPass::assign(func::FuncOp function, int64_t stages) {
  // What is between two layers belongs to the one before.
  std::map<int64_t, int64_t> layerCosts;
  llvm::DenseMap<Operation *, int64_t> layerOf;
  int64_t before = 0, after = 0, last = -1;
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
      layerCosts[current] += costOf(&op);
    } else {
      (current < 0 ? before : after) += costOf(&op);
    }
    layerOf[&op] =
        op.hasAttr(nn::kLayerAttr) || current < last ? current : last + 1;
  }
  if (layerCosts.empty())
    layerCosts[0] = 0;
  int64_t count = layerCosts.size();
  if (stages > count)
    return function.emitError("pp=")
           << stages << " needs as many layers, but the model has " << count
           << "; the largest possible pp is " << count;

  SmallVector<int64_t> costs, ids;
  for (auto [layer, cost] : layerCosts) {
    ids.push_back(layer);
    costs.push_back(cost);
  }
  FailureOr<SmallVector<int64_t>> given = getGivenCut(function, stages, count);
  if (failed(given))
    return failure();
  SmallVector<int64_t> firsts =
      given->empty() ? cutLayers(LayerCosts(costs, before, after), stages)
                     : *given;
  Builder builder(function.getContext());
  for (Operation &op : function.getBody().front()) {
    if (isa<nn::ReadOp, func::ReturnOp>(op))
      continue;
    int64_t stage = stages - 1;
    while (stage > 0 && layerOf[&op] < ids[firsts[stage]])
      --stage;
    op.setAttr(pipe::kStageAttr, builder.getI64IntegerAttr(stage));
  }
  return success();
}
