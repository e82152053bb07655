//===- BuildOptimizer.cpp - The end of a step ---*- C++ -*-===//
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
//===----------------------------------------------------------------------===//

#include "../Sharding/FactorClasses.h"
#include "plait/Dialect/NN/IR/NNBuilder.h"
#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Transforms/Names.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/StageFunctions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

#include <map>

namespace plait {
#define GEN_PASS_DEF_BUILDOPTIMIZERPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using dist::ShardingAttr;
using nn::NNBuilder;
using nn::ParameterOp;
using pipe::ActionKind;

namespace {

struct Recorder : OpBuilder::Listener {
  SmallVector<Operation *> ops;
  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) override {
    if (isa<ShardableOpInterface>(op))
      ops.push_back(op);
  }
};

/// How the microbatches leave what they added up on a rank of the pipeline: as
/// partial sums over some axes. By symbol and rank.
using Accumulated = llvm::MapVector<Attribute, std::map<int64_t, ShardingAttr>>;

/// A parameter and how the ranks that hold it leave its gradient.
struct Held {
  ParameterOp parameter;
  std::map<int64_t, ShardingAttr> gradients;
  bool hasComputeCopy;

  bool isHeldBy(int64_t rank) const { return gradients.count(rank); }
};

/// Writes the functions of one rank of the pipeline, for all its stages.
class StepEnd {
public:
  StepEnd(ModuleOp module, dist::MeshOp mesh, int64_t rank, ArrayRef<Held> held,
          const Accumulated &accumulated)
      : mesh(mesh), placement(getPlacement(module)), rank(rank), held(held),
        accumulated(accumulated),
        meshRef(FlatSymbolRefAttr::get(mesh.getSymNameAttr())),
        builder(module.getBodyRegion()), nn(builder, module.getLoc()) {
    builder.setListener(&recorder);
  }

  void buildReduce(ModuleOp module);
  void buildOptimizer(ModuleOp module);

private:
  void beginFunction(ModuleOp module, ActionKind action);
  void endFunction();
  void flush();
  ShardingAttr whole() { return ShardingAttr::getReplicated(meshRef, 0); }
  Value read(const Held &entry, nn::Slot slot);
  void write(Value value, const Held &entry, nn::Slot slot);
  Value step(StringRef name);
  Value total(StringRef name);
  Value sumOverRanks(Value value, ArrayRef<int64_t> members = {});
  Value squaredNorm();
  Value clipFactor(Value norm);
  void update(const Held &entry, Value gradientScale);

  struct AdamScalars {
    Value beta1, rest1, beta2, rest2, epsilon, stepSize, inverseRoot2, keep;
  };
  AdamScalars computeScalars();
  AdamScalars adam;

  dist::MeshOp mesh;
  pipe::PlacementAttr placement;
  int64_t rank;
  ArrayRef<Held> held;
  const Accumulated &accumulated;
  FlatSymbolRefAttr meshRef;
  Recorder recorder;
  OpBuilder builder;
  NNBuilder nn;
};

} // namespace

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

void StepEnd::beginFunction(ModuleOp module, ActionKind action) {
  builder.setInsertionPointToEnd(module.getBody());
  func::FuncOp function =
      createStageFunction(builder, module.getLoc(), action, rank);
  builder.setInsertionPointToStart(&function.getBody().front());
}

void StepEnd::endFunction() {
  flush();
  func::ReturnOp::create(builder, nn.loc);
}

/// Gives the ops created so far their shardings.
void StepEnd::flush() {
  shardNewOps(recorder.ops, {}, meshRef);
  recorder.ops.clear();
}

/// Where `slot` lies: the value of which there is a copy is the optimizer's
/// own.
static ShardingAttr getSharding(const Held &entry, nn::Slot slot) {
  bool isMaster = slot == nn::Slot::Value && entry.hasComputeCopy;
  return nn::getSharding(entry.parameter, isMaster ? nn::Slot::Gradient : slot);
}

/// What the rank updates of `slot`.
Value StepEnd::read(const Held &entry, nn::Slot slot) {
  ParameterOp parameter = entry.parameter;
  auto type = dist::withSharding(parameter.getType(), getSharding(entry, slot));
  Value value = nn::ReadOp::create(builder, parameter.getLoc(), type,
                                   parameter.getSymName(), slot);
  return reshard(builder, value, getSharding(entry, nn::Slot::Gradient));
}

/// Stores what the rank has updated, for all that hold it.
void StepEnd::write(Value value, const Held &entry, nn::Slot slot) {
  ParameterOp parameter = entry.parameter;
  nn::WriteOp::create(builder, parameter.getLoc(),
                      reshard(builder, value, getSharding(entry, slot)),
                      parameter.getSymName(), slot);
}

Value StepEnd::step(StringRef name) {
  auto type = RankedTensorType::get({}, builder.getF32Type(), whole());
  return nn::StepScalarOp::create(builder, nn.loc, type, name);
}

/// A sum over the pipeline, or over some of its ranks.
Value StepEnd::sumOverRanks(Value value, ArrayRef<int64_t> members) {
  if (placement.getRanks() == 1)
    return value;
  flush();
  return dist::AllReduceOp::create(
      builder, nn.loc, value.getType(), value, meshRef,
      builder.getStringAttr(kPipelineAxis),
      dist::ReductionAttr::get(builder.getContext(), dist::Reduction::Sum),
      members.empty() ? DenseI64ArrayAttr()
                      : builder.getDenseI64ArrayAttr(members),
      builder.getUnitAttr());
}

/// An accumulator's total over all ranks; only that of the last stage has one.
Value StepEnd::total(StringRef name) {
  auto plain = RankedTensorType::get({}, builder.getF32Type());
  Value value;
  if (rank == placement.getRank(placement.getStages() - 1)) {
    auto symbol = FlatSymbolRefAttr::get(builder.getContext(), name);
    ShardingAttr sharding = accumulated.find(symbol)->second.at(rank);
    Value part =
        nn::ReadOp::create(builder, nn.loc, dist::withSharding(plain, sharding),
                           name, nn::Slot::Value);
    value = reshard(builder, part, whole());
  } else {
    value =
        nn::FillOp::create(builder, nn.loc, dist::withSharding(plain, whole()),
                           builder.getF32FloatAttr(0.0));
  }
  return sumOverRanks(value);
}

/// The square of the norm of the gradient sums, every parameter counted once:
/// by the first of the ranks that hold it.
Value StepEnd::squaredNorm() {
  llvm::MapVector<Attribute, Value> groups;
  for (const Held &entry : held) {
    if (entry.gradients.begin()->first != rank)
      continue;
    Value gradient = read(entry, nn::Slot::Gradient);
    Value sum = nn.sumAll(nn.mul(gradient, gradient));
    flush();
    Value &group = groups[ShardingAttr::of(sum)];
    group = group ? nn.add(group, sum) : sum;
  }
  flush();
  Value total;
  for (auto [sharding, group] : groups) {
    Value moved = reshard(builder, group, whole());
    total = total ? nn.add(total, moved) : moved;
  }
  if (!total)
    total = nn::FillOp::create(
        builder, nn.loc,
        RankedTensorType::get({}, builder.getF32Type(), whole()),
        builder.getF32FloatAttr(0.0));
  return sumOverRanks(total);
}

/// min(1, limit / (norm + 1e-6)) as torch.nn.utils.clip_grad_norm_ has it, or
/// 1 if the limit is 0.
Value StepEnd::clipFactor(Value norm) {
  Value limit = step("MaxGradNorm");
  Value ratio = nn.div(limit, nn.shift(norm, 1e-6));
  Value one = nn.fillLike(norm, 1.0);
  Value factor = nn.binary<nn::MinOp>(ratio, one);
  Value off = nn.unary<nn::IsZeroOp>(limit);
  Value on = nn.sub(one, off);
  Value active = nn.mul(factor, on);
  return nn.add(active, off);
}

//===----------------------------------------------------------------------===//
// AdamW
//===----------------------------------------------------------------------===//

StepEnd::AdamScalars StepEnd::computeScalars() {
  AdamScalars scalars;
  Value rate = step("LearningRate");
  scalars.beta1 = step("Beta1");
  scalars.beta2 = step("Beta2");
  scalars.epsilon = step("Epsilon");
  scalars.rest1 = nn.shift(nn.neg(scalars.beta1), 1.0);
  scalars.rest2 = nn.shift(nn.neg(scalars.beta2), 1.0);
  scalars.stepSize = nn.div(rate, step("BiasCorrection1"));
  Value root = nn.unary<nn::SqrtOp>(step("BiasCorrection2"));
  Value one = nn.fillLike(root, 1.0);
  scalars.inverseRoot2 = nn.div(one, root);
  Value shrink = nn.mul(rate, step("WeightDecay"));
  scalars.keep = nn.shift(nn.neg(shrink), 1.0);
  return scalars;
}

/// torch.optim.AdamW: m = β₁ m + (1 - β₁) g, v = β₂ v + (1 - β₂) g²,
/// w = (1 - η λ) w - η / (1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + ε).
void StepEnd::update(const Held &entry, Value gradientScale) {
  ParameterOp parameter = entry.parameter;
  auto type = cast<RankedTensorType>(parameter.getType());
  auto spread = [&](Value scalar) {
    return nn.broadcast(scalar, type.getShape(), {});
  };
  Value sum = read(entry, nn::Slot::Gradient);
  Value g = nn.mul(sum, spread(gradientScale));
  Value oldM = nn.mul(read(entry, nn::Slot::Moment1), spread(adam.beta1));
  Value newM = nn.mul(g, spread(adam.rest1));
  Value m = nn.add(oldM, newM);
  Value oldV = nn.mul(read(entry, nn::Slot::Moment2), spread(adam.beta2));
  Value square = nn.mul(g, g);
  Value newV = nn.mul(square, spread(adam.rest2));
  Value v = nn.add(oldV, newV);
  Value root = nn.mul(nn.unary<nn::SqrtOp>(v), spread(adam.inverseRoot2));
  Value denominator = nn.add(root, spread(adam.epsilon));
  Value w = read(entry, nn::Slot::Value);
  if (parameter.getDecay())
    w = nn.mul(w, spread(adam.keep));
  Value direction = nn.div(m, denominator);
  Value delta = nn.mul(direction, spread(adam.stepSize));
  w = nn.sub(w, delta);
  Value copy;
  if (entry.hasComputeCopy)
    copy = nn.cast(w, builder.getBF16Type());
  flush();
  write(w, entry, nn::Slot::Value);
  if (copy)
    write(copy, entry, nn::Slot::Compute);
  write(m, entry, nn::Slot::Moment1);
  write(v, entry, nn::Slot::Moment2);
}

//===----------------------------------------------------------------------===//
// The two functions
//===----------------------------------------------------------------------===//

void StepEnd::buildReduce(ModuleOp module) {
  beginFunction(module, ActionKind::Reduce);
  for (const Held &entry : held) {
    if (!entry.isHeldBy(rank))
      continue;
    Value gradient = read(entry, nn::Slot::Gradient);
    gradient.setType(
        dist::withSharding(gradient.getType(), entry.gradients.at(rank)));
    gradient =
        reshard(builder, gradient, getSharding(entry, nn::Slot::Gradient));
    SmallVector<int64_t> members(llvm::make_first_range(entry.gradients));
    if (members.size() > 1)
      gradient = sumOverRanks(gradient, members);
    write(gradient, entry, nn::Slot::Gradient);
  }
  endFunction();
}

void StepEnd::buildOptimizer(ModuleOp module) {
  beginFunction(module, ActionKind::Optimizer);
  Value lossSum = total(kLossSum);
  Value count = total(kTokenCount);
  Value inverse = nn.div(nn.fillLike(count, 1.0), count);
  Value loss = nn.mul(lossSum, inverse);
  Value root = nn.unary<nn::SqrtOp>(squaredNorm());
  Value norm = nn.mul(root, inverse);
  Value clip = clipFactor(norm);
  Value scale = nn.mul(clip, inverse);
  adam = computeScalars();
  flush();
  nn::MetricOp::create(builder, nn.loc, loss, "Loss");
  nn::MetricOp::create(builder, nn.loc, norm, "GradNorm");
  nn::MetricOp::create(builder, nn.loc, count, "TokenCount");
  for (const Held &entry : held)
    if (entry.isHeldBy(rank))
      update(entry, scale);
  endFunction();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
struct BuildOptimizerPass
    : plait::impl::BuildOptimizerPassBase<BuildOptimizerPass> {
  FailureOr<Accumulated> findAccumulated() {
    Accumulated found;
    llvm::MapVector<std::pair<Attribute, int64_t>,
                    SmallVector<nn::AccumulateOp>>
        sums; // by symbol and rank
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      std::optional<int64_t> rank = getRank(function);
      auto adds = function.getOps<nn::AccumulateOp>();
      if (!rank && !adds.empty())
        return (*adds.begin()).emitError("accumulates in @")
               << function.getSymName() << ", which belongs to no stage";
      for (nn::AccumulateOp op : adds)
        sums[{op.getSymbolAttr(), *rank}].push_back(op);
    }
    for (auto &[key, adds] : sums)
      found[key.first].try_emplace(key.second, alignSharding(adds));
    return found;
  }

  /// Functions of one rank add to one buffer: what some of them leave partial
  /// and others do not is summed up before it is added.
  ShardingAttr alignSharding(ArrayRef<nn::AccumulateOp> adds) {
    ShardingAttr common =
        ShardingAttr::of(nn::AccumulateOp(adds[0]).getInput());
    SmallVector<StringAttr> axes(common.getPartial());
    for (nn::AccumulateOp add : adds)
      llvm::erase_if(axes, [&](StringAttr axis) {
        return !ShardingAttr::of(add.getInput()).isPartialOver(axis);
      });
    common = common.withoutPartial().withPartial(axes);
    for (nn::AccumulateOp add : adds) {
      OpBuilder builder(add);
      add.getInputMutable().assign(reshard(builder, add.getInput(), common));
    }
    return common;
  }

  /// What StepEnd relies on.
  LogicalResult check(const Accumulated &accumulated, ArrayRef<Held> held) {
    pipe::PlacementAttr placement = getPlacement(getOperation());
    int64_t last = placement.getStages() - 1;
    for (StringRef name : {kLossSum, kTokenCount}) {
      auto it = accumulated.find(FlatSymbolRefAttr::get(&getContext(), name));
      if (it == accumulated.end() || !it->second.count(placement.getRank(last)))
        return getOperation().emitError("stage ")
               << last << " does not accumulate @" << name;
    }
    for (const Held &entry : held) {
      ParameterOp parameter = entry.parameter;
      if (!parameter.getShardingAttr())
        return parameter.emitError("has a gradient but no sharding");
    }
    return success();
  }

  /// The parameters that have gradients, in the order of the module.
  SmallVector<Held> findHeld(const Accumulated &accumulated) {
    llvm::DenseSet<Attribute> copied;
    getOperation().walk([&](nn::ReadOp read) {
      if (read.getSlot() == nn::Slot::Compute)
        copied.insert(read.getSymbolAttr());
    });
    SmallVector<Held> held;
    for (auto parameter : getOperation().getOps<ParameterOp>()) {
      auto symbol = FlatSymbolRefAttr::get(parameter.getSymNameAttr());
      auto it = accumulated.find(symbol);
      if (it != accumulated.end())
        held.push_back({parameter, it->second, copied.contains(symbol)});
    }
    return held;
  }

  void runOnOperation() override {
    dist::MeshOp mesh = dist::MeshOp::find(getOperation());
    if (!mesh) {
      getOperation().emitError("has no mesh");
      return signalPassFailure();
    }
    FailureOr<Accumulated> accumulated = findAccumulated();
    if (failed(accumulated))
      return signalPassFailure();
    SmallVector<Held> held = findHeld(*accumulated);
    if (failed(check(*accumulated, held)))
      return signalPassFailure();
    int64_t ranks = getPlacement(getOperation()).getRanks();
    for (int64_t rank = 0; rank < ranks; ++rank) {
      StepEnd end(getOperation(), mesh, rank, held, *accumulated);
      end.buildReduce(getOperation());
      end.buildOptimizer(getOperation());
    }
  }
};
} // namespace
