//===- BuildOptimizer.cpp - The end of a step and its beginning -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Gradients are sums over all targets of the global batch; dividing by their
// number happens here, once, so that the result does not depend on how the
// batch was cut into microbatches and ranks.
//
// A pack has a shape on a rank and none on the mesh, so the end of a step is
// written with the types of one rank's blocks, and with its collectives.
//
// What parameters have in common is found by ParameterUses.h, which of them are
// laid side by side was decided by nn-pack-parameters, and the arithmetic of an
// update is Updates.h's. This file puts them in order: for each rank of the
// pipeline one function that reduces gradients and one that computes loss, norm
// and updates. Where ranks update parts of what they compute with whole, a
// third one, the first of the next step, brings the parts together: behind the
// update nothing would be left to compute beside that.
//
//===----------------------------------------------------------------------===//

#include "../Collectives/LowerReshard.h"
#include "../Sharding/FactorAxes.h"
#include "StepEnd.h"
#include "plait/Configuration/CompressionFacts.h"
#include "plait/Dialect/NN/IR/NamedLosses.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Plan/Communicators.h"
#include "plait/Transforms/Passes.h"

namespace plait {
#define GEN_PASS_DEF_BUILDOPTIMIZERPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using dist::ShardingAttr;
using nn::NNBuilder;
using nn::Slot;
using pipe::ActionKind;

//===----------------------------------------------------------------------===//
// Reading and writing
//===----------------------------------------------------------------------===//

/// The functions have neither arguments nor results: all they work on are
/// slots.
void StepEnd::beginFunction(ActionKind action) {
  builder.setInsertionPointToEnd(module.getBody());
  func::FuncOp function =
      createStageFunction(builder, module.getLoc(), action, rank);
  builder.setInsertionPointToStart(&function.getBody().front());
}

LogicalResult StepEnd::endFunction() {
  func::ReturnOp::create(builder, module.getLoc());
  return success(canMove);
}

/// `block` of a tensor that is `whole` on the mesh, by collectives.
Value StepEnd::move(Value block, RankedTensorType whole, ShardingAttr from,
                    ShardingAttr to) {
  FailureOr<Value> moved =
      lowerReshard(builder, block.getLoc(), block, whole, from, to, mesh);
  canMove &= succeeded(moved);
  return canMove ? *moved : block;
}

/// What the rank has of `slot`: of a parameter, its block by `sharding`.
Value StepEnd::readSlot(StepUnit &unit, Slot slot, ShardingAttr sharding) {
  auto type = unit.pack ? unit.pack.getSlotType(slot)
                        : unit.get().getBlock(mesh, sharding);
  return nn::ReadOp::create(builder, unit.getLoc(), type, unit.getSymbol(),
                            slot);
}

/// Unlike write(): as it is, without bringing it to where the slot lies.
void StepEnd::writeSlot(Value value, StepUnit &unit, Slot slot) {
  nn::WriteOp::create(builder, unit.getLoc(), value, unit.getSymbol(), slot);
}

/// What the rank updates of `slot`. Of a divided pack these are some rows.
Value StepEnd::read(StepUnit &unit, Slot slot) {
  if (unit.isDivided() && slot == Slot::Gradient)
    slot = Slot::Reduced;
  ShardingAttr sharding = unit.get().getSharding(slot);
  Value value = readSlot(unit, slot, sharding);
  if (!unit.pack)
    return move(value, unit.get().getType(), sharding, unit.get().getState());
  if (!unit.isDivided() || unit.pack.isDivided(slot))
    return value;
  return takeRows(value, unit);
}

/// Takes the rows that this rank updates of what all hold: no message needed.
Value StepEnd::takeRows(Value whole, StepUnit &unit) {
  return dist::SliceOp::create(
      builder, unit.getLoc(), unit.pack.getSlotType(Slot::Reduced), whole,
      meshRef, unit.pack.getAxesAttr(), builder.getI64IntegerAttr(0));
}

/// Gathers the rows that ranks have updated, from the minor axis on, so that
/// what goes furthest is least.
Value StepEnd::gatherRows(Value rows, StepUnit &unit) {
  auto axes = unit.pack.getDividingAxes();
  for (StringAttr axis : llvm::reverse(axes)) {
    auto type = cast<RankedTensorType>(rows.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[0] *= mesh.getAxisSize(axis);
    rows = dist::AllGatherOp::create(builder, unit.getLoc(), type.clone(shape),
                                     rows, meshRef, axis,
                                     builder.getI64IntegerAttr(0));
  }
  return rows;
}

/// Stores what the rank has updated, for all that hold it.
void StepEnd::write(Value value, StepUnit &unit, Slot slot) {
  if (!unit.pack) {
    auto whole = unit.get().getType().clone(getElementTypeOrSelf(value));
    value =
        move(value, whole, unit.get().getState(), unit.get().getSharding(slot));
  } else if (unit.isDivided() && !unit.pack.isDivided(slot)) {
    value = gatherRows(value, unit);
  }
  writeSlot(value, unit, slot);
}

/// Stores what an update has made. GPUs launch small gathers together that
/// follow one another (plan::batchGathers), so that those of parameters come
/// behind the updates of as many.
void StepEnd::writeUpdated(Value value, StepUnit &unit, Slot slot) {
  if (unit.pack || unit.get().getState() == unit.get().getSharding(slot)) {
    write(value, unit, slot);
    return;
  }
  auto type = cast<RankedTensorType>(value.getType());
  uint64_t bytes =
      type.getNumElements() * type.getElementTypeBitWidth() / CHAR_BIT;
  if (heldBytes + bytes > plan::kMostBatched)
    writeHeld();
  held.push_back({value, unit, slot});
  heldBytes += bytes;
  if (heldBytes > plan::kMostBatched)
    writeHeld();
}

void StepEnd::writeHeld() {
  for (Held &one : held)
    write(one.block, one.unit, one.slot);
  held.clear();
  heldBytes = 0;
}

/// A number that the runtime sets for each step, such as the learning rate.
Value StepEnd::step(StringRef name) {
  return nn::StepScalarOp::create(builder, nn.loc, scalar, name);
}

//===----------------------------------------------------------------------===//
// Sums over ranks
//===----------------------------------------------------------------------===//

/// Over pp the sum is `ordered`: other programs take part in it, so that it
/// must neither be merged with an equal one nor dropped.
Value StepEnd::sumOver(StringAttr axis, Value value,
                       ArrayRef<int64_t> members) {
  bool isPipeline = axis == kPipelineAxis;
  return dist::AllReduceOp::create(
      builder, nn.loc, value.getType(), value, meshRef, axis,
      dist::ReductionAttr::get(builder.getContext(), dist::Reduction::Sum),
      members.empty() ? DenseI64ArrayAttr()
                      : builder.getDenseI64ArrayAttr(members),
      isPipeline ? builder.getUnitAttr() : UnitAttr());
}

/// A sum over the pipeline, or over some of its ranks.
Value StepEnd::sumOverRanks(Value value, ArrayRef<int64_t> members) {
  if (placement.getRanks() == 1)
    return value;
  return sumOver(builder.getStringAttr(kPipelineAxis), value, members);
}

/// An accumulator's total over all ranks; only that of the last stage has one.
Value StepEnd::total(StringRef name) {
  if (rank != placement.getRank(placement.getStages() - 1))
    return sumOverRanks(nn::FillOp::create(builder, nn.loc, scalar,
                                           builder.getF32FloatAttr(0.0)));
  auto symbol = FlatSymbolRefAttr::get(builder.getContext(), name);
  ShardingAttr sharding = uses.accumulated.find(symbol)->second.at(rank);
  Value part =
      nn::ReadOp::create(builder, nn.loc, scalar, name, nn::Slot::Value);
  return sumOverRanks(
      move(part, scalar, sharding, ShardingAttr::getReplicated(meshRef, 0)));
}

//===----------------------------------------------------------------------===//
// The norm
//===----------------------------------------------------------------------===//

/// The squares of what the rank updates of a gradient.
Value StepEnd::sumSquares(StepUnit &unit) {
  nn.loc = unit.getLoc();
  Value gradient = read(unit, Slot::Gradient);
  Value squares = nn.mul(gradient, gradient);
  // Rows side by side, then their sums: a single reduction would be one core's
  // work.
  bool hasRows = unit.pack || unit.get().isMatrix();
  Value sum = nn.sumAll(hasRows ? nn.sumRows(squares) : squares);
  nn.loc = module.getLoc();
  return sum;
}

/// The axes along which ranks update other parts of it: those that split it,
/// and those that divide its pack. A set, by name: whether ep splits a pack's
/// members or divides the pack makes no difference to sums.
ArrayAttr StepEnd::getCountedAxes(StepUnit &unit) {
  SmallVector<StringAttr> axes = unit.get().getSplitAxes(mesh);
  if (unit.isDivided())
    llvm::append_range(axes, unit.pack.getDividingAxes());
  llvm::sort(axes, [](StringAttr a, StringAttr b) {
    return a.getValue() < b.getValue();
  });
  // The rows of the pack are what is split where its values are blocks.
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return builder.getArrayAttr(SmallVector<Attribute>(axes.begin(), axes.end()));
}

/// The square of the norm of the gradient sums, every parameter counted once:
/// by the first of the ranks that hold it. A balance counts nowhere.
Value StepEnd::squaredNorm() {
  // One collective for each set of axes, however many parameters they split:
  // numbers are added before they are sent.
  llvm::MapVector<ArrayAttr, Value> parts;
  for (StepUnit &unit : units) {
    if (unit.get().gradients.begin()->first != rank ||
        unit.get().parameter.getBalance())
      continue;
    Value squares = sumSquares(unit);
    Value &sum = parts[getCountedAxes(unit)];
    sum = sum ? nn.add(sum, squares) : squares;
  }
  Value total;
  for (auto &[axes, sum] : parts) {
    for (auto axis : axes.getAsRange<StringAttr>())
      sum = sumOver(axis, sum);
    total = total ? nn.add(total, sum) : sum;
  }
  // A rank without parameters of its own takes part in the sum all the same.
  if (!total)
    total = nn::FillOp::create(builder, nn.loc, scalar,
                               builder.getF32FloatAttr(0.0));
  return sumOverRanks(total);
}

//===----------------------------------------------------------------------===//
// Updates
//===----------------------------------------------------------------------===//

/// Whether the next step begins with what is copied of `unit`. From the host
/// the values would have to come a second time for that.
bool StepEnd::isGathered(StepUnit &unit) {
  return unit.dividesCopy() && !offloadsOptimizer(configuration.offload);
}

/// The type of a parameter as all ranks' blocks make it up: with the padding of
/// the last ones, where it is split unevenly. That is zero, and rows and
/// columns of zeros change nothing about a matrix.
RankedTensorType StepEnd::getPadded(ParameterUse &use) {
  RankedTensorType block = use.getBlock(mesh, use.getState());
  SmallVector<int64_t> shape;
  for (auto [extent, axes] :
       llvm::zip_equal(block.getShape(), use.getState().getDims()))
    shape.push_back(extent * mesh.getBlocks(axes));
  return block.clone(shape);
}

/// One unit: its gradient times the common factor, the rule's arithmetic, and
/// everything stored again. Nothing is masked: rules leave zeros in padding.
void StepEnd::update(StepUnit &unit, Value gradientScale) {
  ParameterUse &use = unit.get();
  nn.loc = unit.getLoc();
  Value sum = read(unit, Slot::Gradient);
  ArrayRef<int64_t> shape = cast<ShapedType>(sum.getType()).getShape();
  Value gradient = nn.mul(sum, nn.broadcast(gradientScale, shape, {}));
  auto readOld = [&](Slot slot) { return read(unit, slot); };
  auto whole = ShardingAttr::getReplicated(meshRef, use.getType().getRank());
  auto gather = [&](Value block) {
    return move(block, getPadded(use), use.getState(), whole);
  };
  auto scatter = [&](Value all) {
    return move(all, getPadded(use), whole, use.getState());
  };
  Update updated = rules[RuleKey(use.parameter, optimizer)]->apply(
      {shape, gradient, use.parameter.getDecay(), readOld,
       use.getType().getShape(), use.getColumns(), gather, scatter});
  Value copy;
  if (use.hasCopy && !isGathered(unit))
    copy = nn.cast(updated.value, builder.getBF16Type());
  writeUpdated(updated.value, unit, Slot::Value);
  if (copy)
    writeUpdated(copy, unit, Slot::Compute);
  for (auto [name, state] : llvm::zip(use.optimizer->states, updated.state))
    write(state, unit, Slot::getState(name));
  nn.loc = module.getLoc();
}

//===----------------------------------------------------------------------===//
// The functions
//===----------------------------------------------------------------------===//

/// All ranks that take part in a collective have to enter theirs in one order:
/// that of the packs and of the module's parameters, which they share.
LogicalResult StepEnd::buildReduce() {
  beginFunction(ActionKind::Reduce);
  if (sendsMomentum(configuration.compress))
    momentum = readMomentumFactors();
  // Groups are cut into packs so that what is there first is reduced first, and
  // the last layers' gradients are.
  auto isCut = [&](StepUnit &unit) {
    bool rounds = !reducedType.isF32() || configuration.compress.isOn();
    return unit.isDivided() || (unit.pack && rounds);
  };
  for (StepUnit &unit : llvm::reverse(units))
    if (isCut(unit))
      reduce(unit);
  for (StepUnit &unit : units)
    if (!isCut(unit))
      reduce(unit);
  return endFunction();
}

/// 1. Loss and number of tokens of the global batch.
/// 2. The norm of the mean gradient, and the factor that clips it.
/// 3. What is told of the step.
/// 4. The update of every unit; members of a pack one by one where they come
///    from the host or are matrices.
LogicalResult StepEnd::buildOptimizer() {
  beginFunction(ActionKind::Optimizer);
  // 1.
  Value lossSum = total(kLossSum);
  Value count = total(kTokenCount);
  Value inverse = nn.div(nn.fillLike(count, 1.0), count);
  Value loss = nn.mul(lossSum, inverse);
  // 2. The norm of the sums, divided once, is that of the mean.
  Value root = nn.unary<nn::SqrtOp>(squaredNorm());
  Value norm = nn.mul(root, inverse);
  Value clip = clipFactor(nn, norm, step("MaxGradNorm"));
  // Gradients are sums over all targets of the global batch: the mean is taken
  // with the clipping, in one product, and the norm is the mean's.
  Value scale = nn.mul(clip, inverse);
  for (StepUnit &unit : units) {
    RuleKey key(unit.get().parameter, optimizer);
    if (auto &rule = rules[key]; !rule)
      rule = createUpdateRule(
          optimizer, nn, [&](StringRef name) { return step(name); }, key,
          sendsMomentum(configuration.compress));
  }
  // 3.
  nn::MetricOp::create(builder, nn.loc, loss, "Loss");
  nn::MetricOp::create(builder, nn.loc, norm, "GradNorm");
  nn::MetricOp::create(builder, nn.loc, count, "TokenCount");
  for (StringRef name : nn::getNamedLosses(module)) {
    Value sum = total(nn::getNamedLossSymbol(name));
    nn::MetricOp::create(builder, nn.loc, nn.mul(sum, inverse), name);
  }
  // 4.
  for (StepUnit &unit : units) {
    // What comes from the host comes a piece at a time: an undivided pack is
    // all that is alike on the rank, and no piece. Nor is one of matrices.
    bool isPiece =
        unit.isDivided() ||
        (!offloadsOptimizer(configuration.offload) && !unit.get().isMatrix());
    if (!unit.pack || isPiece) {
      update(unit, scale);
      continue;
    }
    for (ParameterUse *member : unit.members) {
      StepUnit alone{{}, {member}};
      update(alone, scale);
    }
  }
  writeHeld();
  return endFunction();
}

/// Gathered as bf16, half of the bytes, in the order in which the forward pass
/// reads parameters. All parts are rounded before the first is sent, so that on
/// a processor, which computes in one stream, none waits for those before it.
LogicalResult StepEnd::buildGather() {
  if (llvm::none_of(units, [&](StepUnit &unit) { return isGathered(unit); }))
    return success();
  beginFunction(ActionKind::Gather);
  SmallVector<std::pair<StepUnit *, Value>> parts;
  for (StepUnit &unit : units) {
    nn.loc = unit.getLoc();
    if (isGathered(unit))
      parts.push_back(
          {&unit, nn.cast(read(unit, Slot::Value), builder.getBF16Type())});
  }
  for (auto [unit, part] : parts)
    write(part, *unit, Slot::Compute);
  nn.loc = module.getLoc();
  return endFunction();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
struct BuildOptimizerPass
    : plait::impl::BuildOptimizerPassBase<BuildOptimizerPass> {
  /// What StepEnd relies on.
  LogicalResult check(ParameterUses &uses) {
    pipe::PlacementAttr placement = getPlacement(getOperation());
    int64_t last = placement.getStages() - 1;
    for (StringRef name : getAccumulators(nn::getNamedLosses(getOperation()))) {
      auto it =
          uses.accumulated.find(FlatSymbolRefAttr::get(&getContext(), name));
      if (it == uses.accumulated.end() ||
          !it->second.count(placement.getRank(last)))
        return getOperation().emitError("stage ")
               << last << " does not accumulate @" << name;
    }
    return success();
  }

  /// What some functions of a rank leave partial and others do not is summed up
  /// before it is added.
  void alignAccumulates(ParameterUses &uses) {
    for (auto add : nn::findAccesses(getOperation(), nn::SlotAccess::Add)) {
      int64_t rank = *getRank(add->getParentOfType<func::FuncOp>());
      OpBuilder builder(add);
      ShardingAttr wanted =
          uses.accumulated.find(add.getSymbolAttr())->second.at(rank);
      add->replaceUsesOfWith(add.getTensor(),
                             add.getSlot() == Slot::Gradient
                                 ? sumGradient(builder, add.getTensor(), wanted)
                                 : reshard(builder, add.getTensor(), wanted));
    }
  }

  /// Has micro-batches add to what is fed back where it stands for gradients.
  void addToErrors(std::map<int64_t, SmallVector<StepUnit>> &units,
                   dist::MeshOp mesh) {
    TrainingConfiguration configuration = getConfiguration(getOperation());
    std::set<std::pair<int64_t, StringRef>> added; // by rank and parameter
    for (auto &[rank, own] : units)
      for (StepUnit &unit : own)
        if (unit.addsToError(mesh, rank, configuration))
          for (ParameterUse *member : unit.members)
            added.insert({rank, member->parameter.getSymName()});
    for (auto add : nn::findAccesses(getOperation(), nn::SlotAccess::Add)) {
      int64_t rank = *getRank(add->getParentOfType<func::FuncOp>());
      if (added.count({rank, add.getSymbol()}))
        add.setSlot(Slot::getState(kErrorState));
    }
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    dist::MeshOp mesh = dist::MeshOp::find(module);
    if (!mesh) {
      module.emitOpError("has no mesh");
      return signalPassFailure();
    }
    FailureOr<ParameterUses> uses = ParameterUses::find(module);
    if (failed(uses) || failed(check(*uses)))
      return signalPassFailure();
    // Before anything is written: reduce functions are written for what all
    // functions of a rank leave in common.
    alignAccumulates(*uses);
    auto units = findStepUnits(module, *uses, mesh);
    if (failed(units))
      return signalPassFailure();
    addToErrors(*units, mesh);
    int64_t ranks = getPlacement(module).getRanks();
    for (int64_t rank = 0; rank < ranks; ++rank) {
      StepEnd end(module, mesh, rank, *uses, (*units)[rank]);
      if (failed(end.buildReduce()) || failed(end.buildOptimizer()) ||
          failed(end.buildGather()))
        return signalPassFailure();
    }
  }
};
} // namespace
