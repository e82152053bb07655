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
#include "Updates.h"
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
  void update(const Held &entry, Value gradientScale, UpdateRule &rule);

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
// Updates
//===----------------------------------------------------------------------===//

void StepEnd::update(const Held &entry, Value gradientScale, UpdateRule &rule) {
  ParameterOp parameter = entry.parameter;
  auto type = cast<RankedTensorType>(parameter.getType());
  Value sum = read(entry, nn::Slot::Gradient);
  Value gradient =
      nn.mul(sum, nn.broadcast(gradientScale, type.getShape(), {}));
  auto readSlot = [&](nn::Slot slot) { return read(entry, slot); };
  Update updated =
      rule.apply({type.getShape(), gradient, parameter.getDecay(), readSlot});
  Value copy;
  if (entry.hasComputeCopy)
    copy = nn.cast(updated.value, builder.getBF16Type());
  flush();
  write(updated.value, entry, nn::Slot::Value);
  if (copy)
    write(copy, entry, nn::Slot::Compute);
  for (auto [index, state] : llvm::enumerate(updated.state))
    write(state, entry, nn::getStateSlot(index));
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
  std::unique_ptr<UpdateRule> rule =
      createUpdateRule(getConfiguration(module).optimizer, nn,
                       [&](StringRef name) { return step(name); });
  flush();
  nn::MetricOp::create(builder, nn.loc, loss, "Loss");
  nn::MetricOp::create(builder, nn.loc, norm, "GradNorm");
  nn::MetricOp::create(builder, nn.loc, count, "TokenCount");
  for (const Held &entry : held)
    if (entry.isHeldBy(rank))
      update(entry, scale, *rule);
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
        return (*adds.begin()).emitOpError("accumulates in @")
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
        return parameter.emitOpError("has a gradient but no sharding");
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
      getOperation().emitOpError("has no mesh");
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
