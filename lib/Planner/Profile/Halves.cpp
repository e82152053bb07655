//===- Halves.cpp - What halves of backward passes take -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where a schedule runs gradients of weights apart, pipe-split-phases decides
// what either half of a backward pass takes and makes, on types with shardings
// and before anything is fused. So that is where it is read off: at the ports
// of the functions that the pass has made.
//
//===----------------------------------------------------------------------===//

#include "Halves.h"

#include "Measure.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Transforms/StageFunctions.h"

using namespace mlir;
using namespace plait;
using pipe::ActionKind;
using pipe::PortKind;
using planner::Saved;

void plait::joinEmbedding(ModuleOp module) {
  auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunction);
  Builder builder(module.getContext());
  for (Operation &op : loss.getBody().front())
    if (auto stage = op.getAttrOfType<IntegerAttr>(pipe::kStageAttr);
        stage && stage.getInt() == 0)
      op.setAttr(pipe::kStageAttr, builder.getI64IntegerAttr(1));
}

/// Counts what a rank has of a tensor: blocks are as large as the largest.
static double countLocal(Value value) {
  dist::MeshOp mesh =
      dist::MeshOp::find(value.getParentRegion()->getParentOp());
  return countElements(
      mesh.getLocalType(cast<RankedTensorType>(value.getType())));
}

namespace {

/// Adds up tensors of a sequence.
struct Sum {
  Type activation;
  double batch;
  Saved saved = {};

  void add(Value value) {
    bool isActivation = getElementTypeOrSelf(value.getType()) == activation;
    (isActivation ? saved.elements : saved.fourByte) +=
        countLocal(value) / batch;
    ++saved.values;
  }
};

} // namespace

/// Adds the arguments of `function` that come from other passes.
static void addTaken(func::FuncOp function, Sum &sum, Sum &gradients) {
  for (auto [argument, port] :
       llvm::zip_equal(function.getArguments(), getPorts(function)))
    if (!port.isModelInput())
      (port.getKind() == PortKind::OutputGradient ? gradients : sum)
          .add(argument);
}

static void addMade(func::FuncOp function, Sum &sum) {
  Operation *terminator = function.getBody().front().getTerminator();
  for (auto [value, port] :
       llvm::zip_equal(terminator->getOperands(), getResultPorts(function)))
    if (port.getKind() == PortKind::Residual)
      sum.add(value);
}

std::vector<planner::Halves> plait::measureHalves(ModuleOp module,
                                                  int64_t blocks,
                                                  Type activation,
                                                  int64_t batch) {
  std::vector<planner::Halves> measured(blocks);
  for (auto [index, halves] : llvm::enumerate(measured)) {
    auto find = [&](ActionKind action) {
      return module.lookupSymbol<func::FuncOp>(
          getFunctionName(action, int64_t(index)));
    };
    func::FuncOp input = find(ActionKind::BackwardInput);
    func::FuncOp weight = find(ActionKind::BackwardWeight);
    if (!input || !weight)
      continue;
    const Sum none{activation, double(batch)};
    Sum inputs = none, weights = none, made = none, late = none, atOnce = none;
    addTaken(input, inputs, atOnce);
    addTaken(weight, weights, late);
    addMade(input, made);
    halves = {inputs.saved, weights.saved, made.saved, late.saved};
  }
  return measured;
}
