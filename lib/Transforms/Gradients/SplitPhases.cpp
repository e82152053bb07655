//===- SplitPhases.cpp - Joint functions into forward, backward -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A joint function is cut once, into forward and backward, or twice: the
// backward pass into what the previous stage waits for (input gradients) and
// what only the end of the step does (weight gradients; see WeightGradients.h).
//
// Values that cross a cut need a buffer that outlives the function. One that
// has a port already, an input or an output, keeps it, and both functions are
// bound to the same buffer; all others become residuals, numbered through all
// functions of a stage. Reads of parameters and constants do not cross: each
// function makes its own. For the backward pass nn-checkpoint has copied them,
// for weight gradients copySources() does.
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Generators.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/StageFunctions.h"
#include "plait/Transforms/WeightGradients.h"

#include "llvm/ADT/MapVector.h"

namespace plait {
#define GEN_PASS_DEF_SPLITPHASESPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using pipe::ActionKind;
using pipe::PortAttr;
using pipe::PortKind;

namespace {

/// Moves a part of a function's ops and results into a new function of the same
/// stage, behind it, with residuals for what crosses.
class Cutter {
public:
  /// `later` does `action`; residuals are numbered from `residuals` on.
  Cutter(func::FuncOp function, ActionKind action, int64_t &residuals)
      : function(function), action(action), residuals(residuals),
        builder(function), body(function.getBody().front()),
        ports(getPorts(function)) {}

  /// Moves `ops`, which nothing that stays depends on, the results for which
  /// `isLater` holds, and the arguments that only these read. Returns the new
  /// function.
  func::FuncOp run(ArrayRef<Operation *> ops,
                   llvm::function_ref<bool(PortAttr)> isLater);

private:
  void splitResults(llvm::function_ref<bool(PortAttr)> isLater);
  void moveOps(ArrayRef<Operation *> ops);
  void finishEarlier();
  Value importValue(Value value);

  func::FuncOp function, later;
  ActionKind action;
  int64_t &residuals;
  OpBuilder builder;
  Block &body;
  SmallVector<PortAttr> ports; // of the arguments
  SmallVector<Value> results, laterResults;
  SmallVector<PortAttr> resultPorts, laterResultPorts;
  llvm::DenseMap<Value, PortAttr> portOf; // of what may cross
  llvm::MapVector<Value, Value> imported; // to an argument of the new function
};

} // namespace

/// Notes the ports of arguments and staying results before anything moves: what
/// crosses by them must not become a residual.
void Cutter::splitResults(llvm::function_ref<bool(PortAttr)> isLater) {
  for (auto [argument, port] : llvm::zip_equal(body.getArguments(), ports))
    portOf[argument] = port;
  for (auto [value, port] : llvm::zip_equal(body.getTerminator()->getOperands(),
                                            getResultPorts(function))) {
    bool moves = isLater(port);
    (moves ? laterResults : results).push_back(value);
    (moves ? laterResultPorts : resultPorts).push_back(port);
    // The gradient of an input is sent away: its buffer is not for keeping.
    if (!moves && port.getKind() != PortKind::InputGradient)
      portOf.try_emplace(value, port);
  }
}

/// The new function's name for a value of the old one.
Value Cutter::importValue(Value value) {
  auto [it, isNew] = imported.insert({value, Value()});
  if (isNew) {
    it->second =
        later.getBody().front().addArgument(value.getType(), value.getLoc());
    // Inputs and outputs have a port already, whose buffer both functions are
    // given; anything else becomes a residual.
    PortAttr &port = portOf[value];
    if (!port) {
      port =
          PortAttr::get(builder.getContext(), PortKind::Residual, residuals++);
      results.push_back(value);
      resultPorts.push_back(port);
    }
  }
  return it->second;
}

void Cutter::moveOps(ArrayRef<Operation *> ops) {
  Block &target = later.getBody().front();
  // Moved before operands are renamed: those that then still come from the old
  // body are what crosses, those among the moved ops are not.
  for (Operation *op : ops)
    op->moveBefore(&target, target.end());
  for (Operation *op : ops)
    for (OpOperand &operand : op->getOpOperands())
      if (operand.get().getParentBlock() == &body)
        operand.set(importValue(operand.get()));
  // A result may be handed on as it is, such as an argument's gradient.
  for (Value &result : laterResults)
    if (result.getParentBlock() == &body)
      result = importValue(result);
  builder.setInsertionPointToEnd(&target);
  func::ReturnOp::create(builder, function.getLoc(), laterResults);
  SmallVector<PortAttr> arguments;
  for (auto &[value, argument] : imported)
    arguments.push_back(portOf[value]);
  setPorts(later, arguments, laterResultPorts);
}

/// Residuals have been added to the results by now.
void Cutter::finishEarlier() {
  body.getTerminator()->setOperands(results);
  // Arguments that only what has moved reads, such as the gradients of
  // outputs.
  for (auto [argument, port] : llvm::zip_equal(body.getArguments(), ports))
    if (imported.contains(argument) && argument.use_empty())
      port = {};
  body.eraseArguments(
      [&](BlockArgument argument) { return !ports[argument.getArgNumber()]; });
  llvm::erase(ports, PortAttr());
  setPorts(function, ports, resultPorts);
}

/// 1. Divides the results.
/// 2. Creates the later function, right behind.
/// 3. Moves the ops and imports what they read.
/// 4. Gives the earlier function its results, residuals included.
func::FuncOp Cutter::run(ArrayRef<Operation *> ops,
                         llvm::function_ref<bool(PortAttr)> isLater) {
  splitResults(isLater);
  builder.setInsertionPointAfter(function);
  later = createStageFunction(builder, function.getLoc(), action,
                              getStageFunction(function).getIndex());
  moveOps(ops);
  finishEarlier();
  return later;
}

//===----------------------------------------------------------------------===//
// Forward and backward
//===----------------------------------------------------------------------===//

/// Cuts at the marks of differentiation, which are of no use afterwards: the
/// function says which pass it is. The joint function becomes the forward one.
static func::FuncOp splitBackward(func::FuncOp joint, int64_t &residuals) {
  SmallVector<Operation *> ops;
  for (Operation &op : joint.getBody().front().without_terminator())
    if (isBackward(&op)) {
      ops.push_back(&op);
      op.removeAttr(nn::kBackwardAttr);
    }
  func::FuncOp backward =
      Cutter(joint, ActionKind::Backward, residuals)
          .run(ops, [](PortAttr port) {
            return port.getKind() == PortKind::InputGradient;
          });
  setAction(joint, ActionKind::Forward);
  return backward;
}

//===----------------------------------------------------------------------===//
// Input and weight gradients
//===----------------------------------------------------------------------===//

/// Every function makes parameters' values and constants for itself: copies
/// those that `ops` share with others, and adds the copies.
static void copySources(Block &body, llvm::DenseSet<Operation *> &delayed) {
  for (Operation &op : llvm::make_early_inc_range(body.without_terminator())) {
    if (op.getNumOperands() != 0 || delayed.contains(&op) ||
        llvm::none_of(op.getUsers(),
                      [&](Operation *user) { return delayed.contains(user); }))
      continue;
    Operation *copy = OpBuilder(&op).clone(op);
    op.replaceUsesWithIf(
        copy, [&](OpOperand &use) { return delayed.contains(use.getOwner()); });
    delayed.insert(copy);
  }
}

/// Delayed ops are moved in the order that they have, in which operands come
/// before users; sources are copied first, so that no parameter's value becomes
/// a residual.
static void splitGradients(func::FuncOp backward, int64_t &residuals) {
  Block &body = backward.getBody().front();
  SmallVector<Operation *> ops = findWeightGradients(backward);
  llvm::DenseSet<Operation *> delayed(ops.begin(), ops.end());
  copySources(body, delayed);
  ops.clear();
  for (Operation &op : body.without_terminator())
    if (delayed.contains(&op))
      ops.push_back(&op);
  Cutter(backward, ActionKind::BackwardWeight, residuals)
      .run(ops, [](PortAttr) { return false; });
  setAction(backward, ActionKind::BackwardInput);
}

namespace {
struct SplitPhasesPass : plait::impl::SplitPhasesPassBase<SplitPhasesPass> {
  using SplitPhasesPassBase::SplitPhasesPassBase;

  /// Whether the schedule that is given, or will be generated, does.
  bool splitsBackward() {
    if (pipe::ScheduleOp given = pipe::findSchedule(getOperation())) {
      Result<schedule::Schedule> order = pipe::getSchedule(given);
      return order.ok() && schedule::splitsBackward(*order);
    }
    auto generator =
        schedule::findGenerator(getConfiguration(getOperation()).schedule);
    return generator.ok() && (*generator)->splitsBackward;
  }

  void runOnOperation() override {
    bool splitWeights = splitsBackward();
    for (auto function :
         llvm::to_vector(getOperation().getOps<func::FuncOp>())) {
      if (!doesAction(function, ActionKind::Joint))
        continue;
      int64_t residuals = 0;
      func::FuncOp backward = splitBackward(function, residuals);
      if (splitWeights)
        splitGradients(backward, residuals);
    }
  }
};
} // namespace
