//===- Differentiate.cpp - Append the backward pass -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reverse-mode differentiation of every stage, after sharding, so that a
// gradient takes its primal's sharding.
//
// The gradients that the users of a value contribute may lie differently: a
// matmul whose operand was not split gives a partial sum. Contributions that
// lie alike are added first and moved once. The gradient of a reshard's result
// is moved straight to where its operand lies: the gradient of an all-gather
// is a reduce-scatter, that of an all-reduce nothing at all.
//
// A gradient that selects by comparing selects what the forward pass did: its
// comparisons are made there (ComparesFloats).
//
// The loss's own gradient, down to the first matmul, is known as soon as the
// loss is: it is computed in the forward pass, where it takes the place of the
// logits (LossGradient.h).
//
// Stages are differentiated from the last to the first, since a value that is
// passed on has a gradient where the next stage has one for it. What then turns
// out to lead to no parameter is taken away again, from the first to the last.
//
// What an op's gradient is made of, the op says itself
// (DifferentiableOpInterface); this file decides where gradients lie, in which
// order they are added and what is not needed. Later passes tell the two passes
// of a joint function apart by `nn.backward` alone.
//
//===----------------------------------------------------------------------===//

#include "../Sharding/FactorAxes.h"
#include "LossGradient.h"
#include "ParameterUses.h"
#include "StageGradients.h"
#include "plait/Dialect/NN/IR/Layers.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/StageFunctions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

namespace plait {
#define GEN_PASS_DEF_DIFFERENTIATEPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using dist::ShardingAttr;
using pipe::ActionKind;
using pipe::PortAttr;
using pipe::PortKind;

namespace {

/// Collects the ops that a builder creates.
struct Recorder : OpBuilder::Listener {
  SmallVector<Operation *> ops;
  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) override {
    ops.push_back(op);
  }
};

/// Differentiates one function in place.
class Differentiator {
public:
  /// Of the outputs, those have a gradient that `next`, the function of the
  /// next stage after differentiation, has one for; without it, all.
  Differentiator(func::FuncOp function, func::FuncOp next, dist::MeshOp mesh,
                 SymbolTableCollection &tables)
      : function(function), next(next), mesh(mesh), tables(tables),
        compresses(getConfiguration(function->getParentOfType<ModuleOp>())
                       .compress.isOn()),
        meshRef(FlatSymbolRefAttr::get(mesh.getSymNameAttr())),
        builder(function.getContext()) {
    builder.setListener(&recorder);
  }

  LogicalResult run();

private:
  void findActive();
  void seedOutputs();
  LogicalResult visit(Operation *op);
  ShardingAttr findCompressed(Value primal);
  void visitReshard(dist::ReshardOp op);
  LogicalResult visitAccess(SlotOpInterface op);
  LogicalResult visitRead(SlotOpInterface op);
  LogicalResult visitDifferentiable(Operation *op);
  SmallVector<Value> buildGradients(Operation *op, ArrayRef<Value> cotangents);
  Operation *keepComparisons(Operation *op, ArrayRef<Operation *> created,
                             ArrayRef<Value> cotangents);
  void contribute(Value primal, Value gradient);
  Value sum(Value primal);
  Value gradientOf(Value primal, bool staysPartial = false,
                   bool isSummed = false);
  Value seedOne(Value loss);
  SmallVector<PortAttr> returnInputGradients();
  /// Marks the ops created since the last call; they are part of `source`'s
  /// layer.
  void tagNewOps(Operation *source);

  func::FuncOp function, next;
  SmallVector<PortAttr> ports; // of the arguments, those to come included
  dist::MeshOp mesh;
  SymbolTableCollection &tables; // of all functions
  bool compresses;               // parts
  FlatSymbolRefAttr meshRef;
  Recorder recorder;
  OpBuilder builder;
  llvm::DenseSet<Value> active; // depends on a parameter or an input
  // By primal, in the order in which its users were visited: the order of the
  // additions, which rounding depends on.
  llvm::DenseMap<Value, SmallVector<Value>> contributions;
};

} // namespace

static bool isFloat(Value value) {
  return isa<FloatType>(getElementTypeOrSelf(value.getType()));
}

/// One walk forward: what no parameter and no input reaches needs no gradient,
/// whatever is done with it. Nor does what the model is given.
void Differentiator::findActive() {
  for (auto [argument, port] : llvm::zip_equal(function.getArguments(), ports))
    if (isFloat(argument) && !port.isModelInput())
      active.insert(argument);
  for (Operation &op : function.getBody().front()) {
    bool depends = nn::getSlotAccess(&op) == nn::SlotAccess::Read ||
                   llvm::any_of(op.getOperands(), [&](Value operand) {
                     return active.contains(operand);
                   });
    if (depends)
      for (Value result : op.getResults())
        if (isFloat(result))
          active.insert(result);
  }
}

/// A gradient counts as work of its primal's layer: recomputation and kernels
/// go by layers.
void Differentiator::tagNewOps(Operation *source) {
  NamedAttrList tags;
  tags.set(nn::kBackwardAttr, builder.getUnitAttr());
  if (Attribute layer = source ? source->getAttr(nn::kLayerAttr) : Attribute())
    tags.set(nn::kLayerAttr, layer);
  // Each tag that is set by itself makes a dictionary.
  DictionaryAttr all = tags.getDictionary(builder.getContext());
  for (Operation *op : recorder.ops)
    if (op->getRawDictionaryAttrs().empty())
      op->setDiscardableAttrs(all);
    else
      for (NamedAttribute tag : all)
        op->setAttr(tag.getName(), tag.getValue());
  recorder.ops.clear();
}

/// Nothing is added yet: whether contributions have to be moved before they are
/// added shows when all of them are there. Each has the element type of the
/// primal's gradient from here on.
void Differentiator::contribute(Value primal, Value gradient) {
  Type element = nn::getGradientElementType(primal);
  auto type = cast<RankedTensorType>(gradient.getType());
  if (type.getElementType() != element)
    gradient = nn::CastOp::create(builder, gradient.getLoc(),
                                  type.clone(element), gradient);
  contributions[primal].push_back(gradient);
}

/// Adds up what the users of `primal` contribute: as long as all lie alike, in
/// place; otherwise where the primal lies. Null if there is nothing.
Value Differentiator::sum(Value primal) {
  auto it = contributions.find(primal);
  if (it == contributions.end())
    return {};
  llvm::MapVector<Attribute, Value> groups;
  for (Value gradient : it->second) {
    Value &group = groups[ShardingAttr::of(gradient)];
    group = group ? nn::AddOp::create(builder, gradient.getLoc(),
                                      gradient.getType(), group, gradient)
                        .getResult()
                  : gradient;
  }
  // Still as they lie: whoever needs the sum elsewhere moves it once, perhaps
  // together with something else.
  if (groups.size() == 1)
    return groups.front().second;
  Value total;
  // A gradient is never partial because its primal is: each rank's part of a
  // sum has the whole sum's gradient.
  ShardingAttr wanted = ShardingAttr::of(primal).withoutPartial();
  for (auto [sharding, group] : groups) {
    Value moved = reshard(builder, group, wanted);
    total = total ? nn::AddOp::create(builder, moved.getLoc(), moved.getType(),
                                      total, moved)
                        .getResult()
                  : moved;
  }
  return total;
}

/// The gradient of `primal`, where it lies, partial if it may be; null: none.
/// That of rows which belong to one rank each is needed on that rank alone, and
/// a sum over dimensions takes it as it is.
Value Differentiator::gradientOf(Value primal, bool staysPartial,
                                 bool isSummed) {
  Value total = sum(primal);
  if (!total)
    return {};
  ShardingAttr given = ShardingAttr::of(total);
  ShardingAttr own = ShardingAttr::of(primal);
  ShardingAttr wanted = own.withoutPartial();
  bool isOwned =
      given.isOwned() &&
      (isSummed || (own.isOwned() && given.getPartial() == own.getPartial()));
  if (staysPartial || isOwned)
    wanted = wanted.withPartial(given.getPartial(), given.getReduction());
  return reshard(builder, total, wanted);
}

/// How the gradient of `primal` is added up, but for partial sums: as it lies,
/// or, of a parameter of which replicas compress the gradient, whole on each.
ShardingAttr Differentiator::findCompressed(Value primal) {
  auto read = primal.getDefiningOp<SlotOpInterface>();
  nn::ParameterOp parameter =
      read && compresses ? nn::findParameter(read, tables) : nn::ParameterOp();
  return parameter ? nn::getSharding(parameter,
                                     nn::Slot::getState(kErrorState.data()))
                   : ShardingAttr::of(primal);
}

/// The gradient goes from where it is straight to where the operand lies, not
/// by way of the result's sharding. Over an axis of which all ranks have the
/// whole it may stay a partial sum and be combined later, perhaps with others.
void Differentiator::visitReshard(dist::ReshardOp op) {
  Value total = sum(op.getResult());
  if (!total)
    return;
  // What the reshard did not touch stays partial.
  ShardingAttr input = findCompressed(op.getInput());
  SmallVector<StringAttr> kept;
  for (StringAttr axis : ShardingAttr::of(total).getPartial())
    if (input.findDim(axis) < 0 && !input.isPartialOver(axis))
      kept.push_back(axis);
  bool isOwned = kept.size() == ShardingAttr::of(total).getPartial().size() &&
                 ShardingAttr::of(total).isOwned();
  ShardingAttr wanted = input.withoutPartial().withPartial(
      kept, isOwned ? dist::Reduction::Owned : dist::Reduction::Sum);
  contribute(op.getInput(),
             moveGradient(builder, op.getInput(), total, wanted));
}

/// Gradients accumulate as partial sums over the ranks that hold the whole
/// parameter but worked on a part of the data; they are combined once, at the
/// end of the step. Where such ranks hold parts of the parameter, the gradient
/// has been scattered to them. That of a parameter which is worked on before it
/// meets the batch, as in tanh(w) · x, has been combined on its way and is
/// whole on all ranks: it accumulates as such.
LogicalResult Differentiator::visitRead(SlotOpInterface op) {
  Value total = sum(op.getTensor());
  if (!total)
    return success();
  // As the optimizer's state, where that is divided further than the value.
  ShardingAttr wanted = findCompressed(op.getTensor());
  nn::ParameterOp parameter = nn::findParameter(op, tables);
  if (parameter && parameter.getStateAttr())
    wanted = nn::getSharding(parameter, nn::Slot::Gradient);
  auto splitsTokens = [&](const AxisFacts &facts) {
    return facts.splitsTokens() && mesh.hasAxis(StringRef(facts.name));
  };
  if (llvm::any_of(kAxes, splitsTokens)) {
    // Whatever axes are partial stay so, but for those that split the
    // parameter: to lie in blocks over one, a sum over it has to be scattered.
    SmallVector<StringAttr> kept;
    for (StringAttr axis : ShardingAttr::of(total).getPartial())
      if (wanted.findDim(axis) < 0)
        kept.push_back(axis);
    wanted = wanted.withPartial(kept);
  }
  nn::AccumulateOp::create(builder, op.getLoc(),
                           moveGradient(builder, op.getTensor(), total, wanted),
                           op.getSymbol(), nn::Slot::Gradient);
  return success();
}

/// Visits come in reverse order of the function, so that all users of a result
/// have contributed before its op is asked. An op that no gradient reaches, or
/// that depends on nothing with one, need not be differentiable: masks and
/// positions are not.
LogicalResult Differentiator::visitDifferentiable(Operation *op) {
  bool reached = llvm::any_of(op->getResults(), [&](Value result) {
    return contributions.contains(result);
  });
  bool needed = llvm::any_of(op->getOperands(), [&](Value operand) {
    return active.contains(operand);
  });
  if (!reached || !needed)
    return success();
  auto differentiable = dyn_cast<DifferentiableOpInterface>(op);
  if (!differentiable)
    return op->emitError("'") << op->getName() << "' has no derivative";
  SmallVector<Value> cotangents;
  for (Value result : op->getResults())
    cotangents.push_back(
        gradientOf(result, movesElements(op), getFacts(op).repeats));
  // Only the first result of an op is meant for differentiation; the others
  // are there for the backward pass.
  for (auto [index, cotangent] : llvm::enumerate(cotangents))
    if ((index == 0) != bool(cotangent))
      return op->emitError("'") << op->getName() << "' has no derivative of "
                                << "result " << (cotangent ? index : 0);
  // What gradientOf() added belongs to this op, too; the recorder must be empty
  // for buildGradients().
  tagNewOps(op);
  for (auto [operand, gradient] :
       llvm::zip_equal(op->getOperands(), buildGradients(op, cotangents)))
    if (gradient && active.contains(operand))
      contribute(operand, gradient);
  return success();
}

/// The gradients of the operands of `op`, sharded, by ops that are tagged.
SmallVector<Value> Differentiator::buildGradients(Operation *op,
                                                  ArrayRef<Value> cotangents) {
  // 1. Let the op build its gradients, with plain types.
  Operation *before = builder.getInsertionPoint()->getPrevNode();
  SmallVector<Value> gradients =
      cast<DifferentiableOpInterface>(op).buildVJP(builder, cotangents);
  SmallVector<Operation *> created = std::move(recorder.ops);
  recorder.ops.clear();
  // 2. Comparisons of forward values move to the forward pass. Where nothing
  //    stood between `op` and the insertion point, they become what stands
  //    there.
  Operation *kept = keepComparisons(op, created, cotangents);
  if (before == op)
    before = kept;
  // 3. Each gradient should lie as its operand does; what the ops in between
  //    need follows from their factors.
  SmallVector<std::pair<Value, ShardingAttr>> seeds;
  for (auto [operand, gradient] : llvm::zip_equal(op->getOperands(), gradients))
    if (gradient)
      seeds.push_back({gradient, ShardingAttr::of(operand)});
  shardNewOps(created, seeds, meshRef);
  // Reshards that sharding inserted among the new ops belong to the layer too.
  for (Operation *added = op; added != kept;) {
    added = added->getNextNode();
    nn::inheritLayer(added, op);
  }
  // Recorded anew: reshards are created by builders that this one's listener
  // does not hear.
  for (Operation *added = before->getNextNode();
       added != &*builder.getInsertionPoint(); added = added->getNextNode())
    recorder.ops.push_back(added);
  tagNewOps(op);
  return gradients;
}

/// Moves the comparisons of forward values among the ops that were created for
/// the gradient of `op`, and what they read, behind `op`: there they belong to
/// the forward pass. Returns the last of them, or `op`.
Operation *Differentiator::keepComparisons(Operation *op,
                                           ArrayRef<Operation *> created,
                                           ArrayRef<Value> cotangents) {
  // What does not depend on a cotangent is made of forward values alone.
  llvm::SmallDenseSet<Operation *> fromGradients;
  for (Operation *added : created)
    if (llvm::any_of(added->getOperands(), [&](Value operand) {
          return llvm::is_contained(cotangents, operand) ||
                 fromGradients.contains(operand.getDefiningOp());
        }))
      fromGradients.insert(added);
  // From the last op to the first, so that what a comparison reads follows it.
  llvm::SmallDenseSet<Operation *> moved;
  for (Operation *added : llvm::reverse(created))
    if (!fromGradients.contains(added) &&
        (added->hasTrait<ComparesFloats>() ||
         llvm::any_of(added->getUsers(),
                      [&](Operation *user) { return moved.contains(user); })))
      moved.insert(added);
  Operation *last = op;
  // In the order of their creation, which keeps operands before users.
  for (Operation *added : created)
    if (moved.contains(added)) {
      added->moveAfter(last);
      last = added;
    }
  return last;
}

/// The gradient of the loss with respect to itself.
Value Differentiator::seedOne(Value loss) {
  ShardingAttr sharding = ShardingAttr::of(loss).withoutPartial();
  return nn::FillOp::create(builder, loss.getLoc(),
                            dist::withSharding(loss.getType(), sharding),
                            builder.getF32FloatAttr(1.0));
}

/// The loss is where differentiation starts: what is added to its sum. The
/// number of tokens is added up as well, but nothing is trained by it.
LogicalResult Differentiator::visitAccess(SlotOpInterface op) {
  if (op.getAccess() == nn::SlotAccess::Read)
    return visitRead(op);
  if (op.getSymbol() == kLossSum)
    contribute(op.getTensor(), seedOne(op.getTensor()));
  return success();
}

/// What an op is asked depends on what it is for the function: it moves a
/// value, it touches memory, or it computes.
LogicalResult Differentiator::visit(Operation *op) {
  if (auto reshardOp = dyn_cast<dist::ReshardOp>(op))
    visitReshard(reshardOp);
  else if (auto access = dyn_cast<SlotOpInterface>(op)) {
    if (failed(visitAccess(access)))
      return failure();
  } else if (failed(visitDifferentiable(op))) {
    return failure();
  }
  tagNewOps(op);
  return success();
}

/// Every output that has a gradient gets an argument for it.
void Differentiator::seedOutputs() {
  Block &body = function.getBody().front();
  for (auto [output, port] : llvm::zip_equal(
           body.getTerminator()->getOperands(), getResultPorts(function))) {
    int64_t index = port.getIndex();
    if (next && !findResult(next, PortKind::InputGradient, index))
      continue;
    auto type = dist::withSharding(output.getType(),
                                   ShardingAttr::of(output).withoutPartial());
    ports.push_back(
        PortAttr::get(builder.getContext(), PortKind::OutputGradient, index));
    contribute(output, body.addArgument(type, output.getLoc()));
  }
}

/// An input without a gradient has no result for it: the stage before finds out
/// by its absence (seedOutputs()). Returns the ports of all results.
SmallVector<PortAttr> Differentiator::returnInputGradients() {
  Block &body = function.getBody().front();
  SmallVector<Value> results(body.getTerminator()->getOperands());
  SmallVector<PortAttr> resultPorts = getResultPorts(function);
  for (auto [argument, port] : llvm::zip_equal(body.getArguments(), ports)) {
    if (port.getKind() != PortKind::Input)
      continue;
    Value gradient = gradientOf(argument);
    if (!gradient)
      continue;
    results.push_back(gradient);
    resultPorts.push_back(PortAttr::get(
        builder.getContext(), PortKind::InputGradient, port.getIndex()));
  }
  tagNewOps(nullptr);
  body.getTerminator()->setOperands(results);
  return resultPorts;
}

/// 1. Finds what depends on anything that could have a gradient.
/// 2. Gives outputs an argument for theirs.
/// 3. Visits the ops of the forward pass backwards, appending to the function.
/// 4. Returns the gradients of the inputs; the function is a joint one.
LogicalResult Differentiator::run() {
  Block &body = function.getBody().front();
  // 1. The forward ops are listed before the first gradient is appended.
  ports = getPorts(function);
  findActive();
  SmallVector<Operation *> forward;
  for (Operation &op : body.without_terminator())
    forward.push_back(&op);
  // 2.
  seedOutputs();
  builder.setInsertionPoint(body.getTerminator());
  // 3.
  for (Operation *op : llvm::reverse(forward))
    if (failed(visit(op)))
      return failure();
  // 4.
  setPorts(function, ports, returnInputGradients());
  setAction(function, ActionKind::Joint);
  return success();
}

//===----------------------------------------------------------------------===//
// All stages
//===----------------------------------------------------------------------===//

/// Takes away what has said that there is no gradient, for there is none: a
/// backward pass then reads frozen parameters again as it does others, where it
/// would keep what was gathered of them.
static void eraseStops(ModuleOp module) {
  module.walk([](Operation *op) {
    if (!op->hasTrait<StopsGradient>())
      return;
    op->replaceAllUsesWith(op->getOperands());
    op->erase();
  });
}

namespace {
struct DifferentiatePass
    : plait::impl::DifferentiatePassBase<DifferentiatePass> {
  /// Gradients lie where their primals do, so all of those must lie somewhere.
  LogicalResult checkSharded(func::FuncOp function) {
    auto check = [](Operation *op, TypeRange types) -> LogicalResult {
      for (Type type : types)
        if (!ShardingAttr::of(type))
          return op->emitOpError("has type ") << type << " without a sharding";
      return success();
    };
    if (failed(check(function, function.getArgumentTypes())))
      return failure();
    for (Operation &op : function.getBody().front())
      if (failed(check(&op, op.getResultTypes())))
        return failure();
    return success();
  }

  void runOnOperation() override {
    dist::MeshOp mesh = dist::MeshOp::find(getOperation());
    if (!mesh) {
      getOperation().emitOpError("has no mesh");
      return signalPassFailure();
    }
    // Each function is found by its stage, not by its name or position.
    JointFunctions functions;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (doesAction(function, ActionKind::Forward))
        functions[getStageFunction(function).getIndex()] = function;
    auto nextOf = [&](int64_t stage) {
      auto next = functions.find(stage + 1);
      return next == functions.end() ? func::FuncOp() : next->second;
    };
    // Backwards through the pipeline, then forwards; only after that is it
    // known which parameters are trained.
    SymbolTableCollection tables;
    for (auto [stage, function] : llvm::reverse(functions))
      if (failed(checkSharded(function)) ||
          failed(Differentiator(function, nextOf(stage), mesh, tables).run()))
        return signalPassFailure();
    for (auto [stage, function] : functions)
      dropUnusedGradients(function, nextOf(stage));
    bool inChunks = getConfiguration(getOperation()).lossChunks > 1;
    for (auto [stage, function] : functions)
      computeLossGradientEarly(function, inChunks);
    accumulateZeros(functions);
    dropUnusedState(getOperation());
    if (failed(checkTrains(functions)))
      return signalPassFailure();
    eraseStops(getOperation());
  }
};
} // namespace
