//===- SplitPhases.cpp - Joint functions into forward, backward -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../ValueNames.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/StageFunctions.h"

#include "llvm/ADT/MapVector.h"

namespace plait {
#define GEN_PASS_DEF_SPLITPHASESPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {

/// Splits one joint function.
class Splitter {
public:
  explicit Splitter(func::FuncOp joint)
      : joint(joint), builder(joint), body(joint.getBody().front()) {}

  void run();

private:
  void nameValues();
  void splitResults();
  void createBackward();
  void moveOps();
  void finishForward();
  Value importValue(Value value);

  func::FuncOp joint, backward;
  OpBuilder builder;
  Block &body;
  llvm::DenseMap<Value, StringAttr> names;
  SmallVector<Value> forwardResults, backwardResults;
  SmallVector<Attribute> forwardNames, backwardNames;
  llvm::MapVector<Value, Value> imported; // joint value -> backward argument
};

} // namespace

void Splitter::nameValues() {
  for (BlockArgument argument : body.getArguments())
    names[argument] =
        joint.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kValueAttr);
}

/// Gradients are the backward pass's results, all else the forward pass's.
void Splitter::splitResults() {
  for (auto [index, value] :
       llvm::enumerate(body.getTerminator()->getOperands())) {
    auto name = joint.getResultAttrOfType<StringAttr>(index, kValueAttr);
    bool gradient = name.getValue().starts_with("d");
    (gradient ? backwardResults : forwardResults).push_back(value);
    (gradient ? backwardNames : forwardNames).push_back(name);
    if (!gradient)
      names.try_emplace(value, name);
  }
}

void Splitter::createBackward() {
  builder.setInsertionPointAfter(joint);
  backward = createStageFunction(builder, joint.getLoc(), "backward",
                                 *getStage(joint));
}

/// The backward function's name for a value of the forward pass.
Value Splitter::importValue(Value value) {
  auto [it, isNew] = imported.insert({value, Value()});
  if (isNew) {
    it->second =
        backward.getBody().front().addArgument(value.getType(), value.getLoc());
    StringAttr &name = names[value];
    if (!name) {
      int64_t count = llvm::count_if(forwardNames, [](Attribute attr) {
        return cast<StringAttr>(attr).getValue().starts_with("res");
      });
      name = builder.getStringAttr("res" + Twine(count));
      forwardResults.push_back(value);
      forwardNames.push_back(name);
    }
  }
  return it->second;
}

void Splitter::moveOps() {
  Block &target = backward.getBody().front();
  for (Operation &op : llvm::make_early_inc_range(body.without_terminator())) {
    if (!isBackward(&op))
      continue;
    op.moveBefore(&target, target.end());
    op.removeAttr(nn::kBackwardAttr);
    for (OpOperand &operand : op.getOpOperands())
      if (operand.get().getParentBlock() == &body)
        operand.set(importValue(operand.get()));
  }
  for (Value &result : backwardResults)
    if (result.getParentBlock() == &body)
      result = importValue(result);
  builder.setInsertionPointToEnd(&target);
  func::ReturnOp::create(builder, joint.getLoc(), backwardResults);
  backward.setFunctionType(builder.getFunctionType(
      target.getArgumentTypes(), ValueRange(backwardResults).getTypes()));
  for (auto [index, entry] : llvm::enumerate(imported))
    backward.setArgAttr(index, kValueAttr, names[entry.first]);
  for (auto [index, name] : llvm::enumerate(backwardNames))
    backward.setResultAttr(index, kValueAttr, name);
}

void Splitter::finishForward() {
  body.getTerminator()->setOperands(forwardResults);
  joint.setFunctionType(builder.getFunctionType(
      joint.getArgumentTypes(), ValueRange(forwardResults).getTypes()));
  SmallVector<DictionaryAttr> attributes;
  for (Attribute name : forwardNames)
    attributes.push_back(
        builder.getDictionaryAttr(builder.getNamedAttr(kValueAttr, name)));
  joint.setAllResultAttrs(attributes);
  llvm::BitVector gradients(joint.getNumArguments());
  for (unsigned index = 0; index < joint.getNumArguments(); ++index)
    if (joint.getArgAttrOfType<StringAttr>(index, kValueAttr)
            .getValue()
            .starts_with("dout"))
      gradients.set(index);
  (void)joint.eraseArguments(gradients);
  setPhase(joint, "forward");
}

void Splitter::run() {
  nameValues();
  splitResults();
  createBackward();
  moveOps();
  finishForward();
}

namespace {
struct SplitPhasesPass : plait::impl::SplitPhasesPassBase<SplitPhasesPass> {
  void runOnOperation() override {
    for (auto function :
         llvm::to_vector(getOperation().getOps<func::FuncOp>())) {
      if (!doesPhase(function, "joint"))
        continue;
      if (failed(checkValueNames(function)))
        return signalPassFailure();
      Splitter(function).run();
    }
  }
};
} // namespace
