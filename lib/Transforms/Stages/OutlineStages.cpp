//===- OutlineStages.cpp - Make a forward function per stage --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Cuts @loss at the boundaries of the virtual stages that AssignStages.cpp has
// chosen. Values that cross a boundary become results of one function and
// arguments of the next; transfers between ranks are the schedule's.
//
// Ops are copied and the loss erased at the end, which leaves it intact while
// boundaries are read off it. Sources, that is reads of parameters and
// constants, cross no boundary: a tied parameter is read by every stage that
// uses it, and its gradients are summed over those ranks at the end of a step.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/Inputs.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/NN/IR/NamedLosses.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/StageFunctions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"

namespace plait {
#define GEN_PASS_DEF_OUTLINESTAGESPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using pipe::PortAttr;
using pipe::PortKind;

namespace {

/// Builds the functions of all stages of one loss function.
class Outliner {
public:
  Outliner(func::FuncOp loss, int64_t stages)
      : loss(loss), stages(stages), builder(loss) {}

  LogicalResult run();

private:
  LogicalResult checkStages();
  int64_t stageOf(Operation *op) const;
  void findBoundaries();
  void buildStage(int64_t stage);
  SmallVector<PortAttr> addArguments(func::FuncOp function, int64_t stage,
                                     IRMapping &mapping);
  PortAttr getInputPort(BlockArgument argument);
  void cloneBody(int64_t stage, IRMapping &mapping);
  void cloneSources(Operation *user, IRMapping &mapping);
  SmallVector<PortAttr> addResults(int64_t stage, IRMapping &mapping);

  func::FuncOp loss;
  /// The key of what reads a parameter's value, or its copy to compute with.
  using SlotKey = std::pair<Attribute, nn::Slot>;
  static SlotKey keyOf(SlotOpInterface read) {
    return {read.getSymbolAttr(), read.getSlot()};
  }
  llvm::DenseMap<SlotKey, SmallVector<Value, 1>> reads;
  int64_t stages;
  OpBuilder builder;
  /// boundaries[i]: what stage i passes on to stage i + 1, in program order.
  SmallVector<SmallVector<Value>> boundaries;
  /// The ops of each stage, in program order, without sources.
  SmallVector<SmallVector<Operation *>> opsOf;
};

} // namespace

/// Reads of parameters and constants, which every stage makes for itself.
static bool isSource(Operation *op) {
  return op && op->getNumOperands() == 0 && op->getNumResults() == 1;
}

/// The stage of an op; the return belongs to the last.
int64_t Outliner::stageOf(Operation *op) const {
  return getStage(op).value_or(stages - 1);
}

/// Every op is on a stage that there is and reads from no later one.
LogicalResult Outliner::checkStages() {
  for (Operation &op : loss.getBody().front()) {
    if (isSource(&op))
      continue;
    // Left out by a pass or by hand, it would land on the last stage.
    if (!getStage(&op) && !op.hasTrait<OpTrait::IsTerminator>())
      return op.emitOpError("is on no stage, expected the attribute ")
             << pipe::kStageAttr;
    int64_t stage = stageOf(&op);
    if (stage >= stages)
      return op.emitOpError("is on stage ")
             << stage << ", expected 0 to " << stages - 1;
    for (Value operand : op.getOperands())
      if (Operation *source = operand.getDefiningOp();
          source && !isSource(source) && stageOf(source) > stage)
        return op.emitOpError("is on stage ")
               << stage << " but reads from stage " << stageOf(source);
  }
  return success();
}

/// A value that is read more than one stage later is passed through all stages
/// between: stages only exchange messages with their neighbours.
void Outliner::findBoundaries() {
  // That of the last stage stays empty: checkStages() has seen that nothing is
  // read behind it.
  boundaries.resize(stages);
  opsOf.resize(stages);
  for (Operation &op : loss.getBody().front()) {
    if (isSource(&op))
      continue;
    if (!isa<func::ReturnOp>(op))
      opsOf[stageOf(&op)].push_back(&op);
    // Arguments of the loss need no boundary: every stage that reads tokens or
    // targets is given them.
    for (Value result : op.getResults()) {
      int64_t last = stageOf(&op);
      for (Operation *user : result.getUsers())
        last = std::max(last, stageOf(user));
      for (int64_t stage = stageOf(&op); stage < last; ++stage)
        boundaries[stage].push_back(result);
    }
  }
}

/// Adds what stage `stage` takes, and maps values of the loss to it: of the
/// batch only what the stage reads, then all that the stage before passes on.
SmallVector<PortAttr> Outliner::addArguments(func::FuncOp function,
                                             int64_t stage,
                                             IRMapping &mapping) {
  Block *entry = &function.getBody().front();
  SmallVector<PortAttr> ports;
  // The order of the arguments is that of the ports of the stage before, by
  // index.
  auto add = [&](Value source, PortAttr port) {
    mapping.map(source, entry->addArgument(source.getType(), source.getLoc()));
    ports.push_back(port);
  };
  for (BlockArgument argument : loss.getArguments())
    if (llvm::any_of(argument.getUsers(),
                     [&](Operation *user) { return stageOf(user) == stage; }))
      add(argument, getInputPort(argument));
  if (stage > 0)
    for (auto [index, value] : llvm::enumerate(boundaries[stage - 1]))
      add(value, PortAttr::get(builder.getContext(), PortKind::Input, index));
  return ports;
}

/// Returns the port of an argument of the loss function. Float inputs are
/// numbered.
PortAttr Outliner::getInputPort(BlockArgument argument) {
  const nn::InputFacts &facts = *nn::findInputFacts(argument);
  SmallVector<BlockArgument> floats = nn::getFloatInputs(loss);
  return PortAttr::get(
      builder.getContext(), *pipe::symbolizePortKind(facts.word),
      facts.isNamed ? llvm::find(floats, argument) - floats.begin() : 0);
}

/// Copies the sources that `user` reads and the stage does not have yet.
void Outliner::cloneSources(Operation *user, IRMapping &mapping) {
  for (Value operand : user->getOperands()) {
    Operation *source = operand.getDefiningOp();
    if (!isSource(source) || mapping.contains(operand))
      continue;
    Operation *copy = builder.clone(*source);
    copy->removeAttr(pipe::kStageAttr);
    mapping.map(operand, copy->getResult(0));
    // A slot is read once.
    if (auto read = dyn_cast<SlotOpInterface>(source))
      for (Value other : reads.lookup(keyOf(read)))
        mapping.map(other, copy->getResult(0));
  }
}

/// Copies the ops of the stage, and the sources that they use.
void Outliner::cloneBody(int64_t stage, IRMapping &mapping) {
  for (Operation *op : opsOf[stage]) {
    cloneSources(op, mapping);
    builder.clone(*op, mapping)->removeAttr(pipe::kStageAttr);
  }
}

/// Ends the function. All but the last stage return what lies on their
/// boundary, which is what the next one takes, index by index; the last adds
/// the results of the loss to accumulators and returns nothing.
SmallVector<PortAttr> Outliner::addResults(int64_t stage, IRMapping &mapping) {
  SmallVector<Value> results;
  SmallVector<PortAttr> ports;
  if (stage + 1 < stages) {
    for (auto [index, value] : llvm::enumerate(boundaries[stage])) {
      results.push_back(mapping.lookup(value));
      ports.push_back(
          PortAttr::get(builder.getContext(), PortKind::Output, index));
    }
  } else {
    Operation *terminator = loss.getBody().front().getTerminator();
    cloneSources(terminator, mapping);
    for (auto [value, name] :
         llvm::zip_equal(terminator->getOperands(),
                         getAccumulators(nn::getNamedLosses(loss))))
      nn::AccumulateOp::create(builder, loss.getLoc(), mapping.lookup(value),
                               name, nn::Slot::Value);
  }
  func::ReturnOp::create(builder, loss.getLoc(), results);
  return ports;
}

/// Inserts the forward function of `stage` before the loss, so that functions
/// are in the order of stages.
void Outliner::buildStage(int64_t stage) {
  builder.setInsertionPoint(loss);
  func::FuncOp function = createStageFunction(builder, loss.getLoc(),
                                              pipe::ActionKind::Forward, stage);
  builder.setInsertionPointToStart(&function.getBody().front());
  IRMapping mapping;
  SmallVector<PortAttr> arguments = addArguments(function, stage, mapping);
  cloneBody(stage, mapping);
  setPorts(function, arguments, addResults(stage, mapping));
}

/// 1. Checks the stages, so that an error leaves the module as it was.
/// 2. Declares the accumulators of the step, and describes its float inputs.
/// 3. Finds what each stage has, what crosses each boundary, and all reads of
///    each parameter.
/// 4. Builds a function for each stage and erases the loss.
LogicalResult Outliner::run() {
  // First, so that an error leaves the module as it was.
  if (failed(nn::verifyInputs(loss)) || failed(checkStages()))
    return failure();
  auto scalar = RankedTensorType::get({}, builder.getF32Type());
  // Scalars in f32, one of each for the whole module; only the last stage adds
  // to them.
  for (StringRef name : getAccumulators(nn::getNamedLosses(loss)))
    nn::AccumulatorOp::create(builder, loss.getLoc(), name, scalar);
  nn::describeFloatInputs(loss);
  findBoundaries();
  for (auto read : loss.getOps<SlotOpInterface>())
    reads[keyOf(read)].push_back(read.getTensor());
  for (int64_t stage = 0; stage < stages; ++stage)
    buildStage(stage);
  loss.erase();
  return success();
}

namespace {
struct OutlineStagesPass
    : plait::impl::OutlineStagesPassBase<OutlineStagesPass> {
  void runOnOperation() override {
    auto loss = getOperation().lookupSymbol<func::FuncOp>(nn::kLossFunction);
    dist::MeshOp mesh = dist::MeshOp::find(getOperation());
    if (!loss || !mesh) {
      getOperation().emitOpError("has no mesh or no function @loss to outline");
      return signalPassFailure();
    }
    if (failed(Outliner(loss, getPlacement(getOperation()).getStages()).run()))
      signalPassFailure();
  }
};
} // namespace
