//===- Profile.cpp - A model's work, read off the IR ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Profile.h"

#include "FoldLayers.h"
#include "Measure.h"
#include "plait/Transforms/Names.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/Pipelines.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace plait;
using planner::ParameterGroup;
using planner::Saved;
using planner::Work;

/// What a profile does not depend on.
struct ModelProfile::Model {
  OwningOpRef<ModuleOp> module;
  FoldedBlocks folded;
  double parameters = 0; // of the whole model
  double flops = 0;      // forward and backward of the microbatch
  int64_t sequence = 0;
};

ModelProfile::~ModelProfile() = default;

static double countElements(Type type) {
  return cast<RankedTensorType>(type).getNumElements();
}

/// Floating-point operations of the forward pass that count towards model FLOP
/// utilisation: those of products and of attention over all keys.
static double countForwardFlops(func::FuncOp loss, const FoldedBlocks &folded) {
  double flops = 0;
  loss.walk([&](CostedOpInterface op) {
    if (op.getWorkShape().kind == WorkShape::Memory)
      return;
    auto block = op->getAttrOfType<IntegerAttr>(nn::kLayerAttr).getInt();
    flops += double(op.getFlops()) * folded.blocks[block].count;
  });
  return flops;
}

std::unique_ptr<ModelProfile> ModelProfile::create(MLIRContext &context,
                                                   const ModelSource &source) {
  std::unique_ptr<ModelProfile> profile(new ModelProfile(context));
  for (int64_t batch : {1, 2}) {
    FailureOr<OwningOpRef<ModuleOp>> module = source(batch);
    if (failed(module))
      return nullptr;
    auto model = std::make_unique<Model>();
    model->module = std::move(*module);
    auto loss = model->module->lookupSymbol<func::FuncOp>(nn::kLossFunction);
    for (auto parameter : model->module->getOps<nn::ParameterOp>())
      model->parameters += countElements(parameter.getType());
    model->sequence =
        cast<RankedTensorType>(loss.getArgumentTypes()[0]).getDimSize(1);
    model->folded = foldLayers(loss);
    model->flops = 3 * countForwardFlops(loss, model->folded);
    profile->models.push_back(std::move(model));
  }
  return profile;
}

//===----------------------------------------------------------------------===//
// One microbatch size
//===----------------------------------------------------------------------===//

/// Every block becomes a stage.
static void assignStages(func::FuncOp loss) {
  Builder builder(loss.getContext());
  for (Operation &op : loss.getBody().front().without_terminator()) {
    if (isa<nn::ReadOp>(op))
      continue;
    Attribute stage = op.getAttr(nn::kLayerAttr);
    // What a pass has added without saying where belongs to what it reads.
    for (Value operand : op.getOperands())
      if (Operation *source = operand.getDefiningOp(); !stage && source)
        stage = source->getAttr(pipe::kStageAttr);
    op.setAttr(pipe::kStageAttr, stage ? stage : builder.getI64IntegerAttr(0));
  }
}

/// Runs the compiler's phases up to kernels.
static LogicalResult lower(ModuleOp module, int64_t blocks, int tensorParallel,
                           bool sequenceParallel) {
  MLIRContext *context = module.getContext();
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  dist::MeshOp::create(
      builder, module.getLoc(), builder.getStringAttr("mesh"),
      builder.getStrArrayAttr({kPipelineAxis, kDataAxis, kTensorAxis}),
      builder.getDenseI64ArrayAttr({blocks, 1, tensorParallel}));
  PipelineOptions options;
  options.sequenceParallel = sequenceParallel;
  options.keep = {"nn.attention", "nn.attention_grad"};
  options.place = false;
  PassManager first(context), second(context);
  buildPhase(first, Phase::Shard, options);
  second.addPass(createOutlineStagesPass());
  buildPhase(second, Phase::Differentiate, options);
  buildPhase(second, Phase::Checkpoint, options);
  buildPhase(second, Phase::Partition, options);
  buildPhase(second, Phase::Lower, options);
  if (failed(first.run(module)))
    return failure();
  assignStages(module.lookupSymbol<func::FuncOp>(nn::kLossFunction));
  return second.run(module);
}

/// The parameters that a stage reads, by whether tp splits them.
static std::vector<ParameterGroup> findParameters(ModuleOp module,
                                                  func::FuncOp forward) {
  std::vector<ParameterGroup> groups;
  auto axis = StringAttr::get(module.getContext(), kTensorAxis);
  llvm::DenseSet<Attribute> seen;
  forward.walk([&](nn::ReadOp read) {
    auto parameter = module.lookupSymbol<nn::ParameterOp>(read.getSymbol());
    if (!parameter || !seen.insert(read.getSymbolAttr()).second)
      return;
    ParameterGroup group;
    group.elements = countElements(read.getType());
    auto sharding =
        dyn_cast_or_null<dist::ShardingAttr>(parameter.getShardingAttr());
    group.replicated = !sharding || sharding.findDim(axis) < 0;
    for (auto function : module.getOps<func::FuncOp>()) {
      auto phase = function->getAttrOfType<StringAttr>(pipe::kPhaseAttr);
      if (function != forward && phase && phase.getValue() == "forward")
        function.walk([&](nn::ReadOp other) {
          group.tied |= other.getSymbol() == read.getSymbol();
        });
    }
    groups.push_back(group);
  });
  return groups;
}

static std::vector<planner::Block> measure(ModuleOp module, int64_t blocks) {
  std::vector<planner::Block> measured;
  for (int64_t index = 0; index < blocks; ++index) {
    auto name = std::to_string(index);
    auto forward = module.lookupSymbol<func::FuncOp>("forward_" + name);
    auto backward = module.lookupSymbol<func::FuncOp>("backward_" + name);
    measured.push_back(measureBlock(forward, backward));
    measured.back().parameters = findParameters(module, forward);
  }
  return measured;
}

//===----------------------------------------------------------------------===//
// Two microbatch sizes
//===----------------------------------------------------------------------===//

/// What grows is the difference of the two, the rest is fixed.
static void separate(double &perSequence, double two, double *fixed = nullptr) {
  double one = perSequence;
  perSequence = two - one;
  if (fixed)
    *fixed += std::max(0.0, one - perSequence);
}

static void separate(Saved &saved, const Saved &two) {
  separate(saved.elements, two.elements);
  separate(saved.fourByte, two.fourByte);
}

static bool separate(planner::Operation &one, const planner::Operation &two) {
  using Scaled = planner::Operation::Scaled;
  if (one.kind != two.kind || one.collective != two.collective)
    return false;
  if (two.batch != one.batch)
    one.scaled = Scaled::Batch;
  else if (two.m != one.m)
    one.scaled = Scaled::M;
  else if (two.n != one.n)
    one.scaled = Scaled::N;
  else if (two.k != one.k)
    one.scaled = Scaled::K;
  separate(one.elementsPerSequence, two.elementsPerSequence,
           &one.elementsFixed);
  separate(one.fourBytePerSequence, two.fourBytePerSequence,
           &one.elementsFixed);
  separate(one.flopsPerSequence, two.flopsPerSequence);
  separate(one.collectivePerSequence, two.collectivePerSequence);
  return true;
}

static bool separate(planner::Block &one, const planner::Block &two) {
  if (one.operations.size() != two.operations.size())
    return false;
  for (size_t index = 0; index < one.operations.size(); ++index)
    if (!separate(one.operations[index], two.operations[index]))
      return false;
  separate(one.kept, two.kept);
  separate(one.input, two.input);
  separate(one.workspace, two.workspace);
  separate(one.output, two.output);
  return true;
}

ModelProfile::Entry ModelProfile::profile(int tensorParallel,
                                          bool sequenceParallel) {
  Entry entry;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    if (entry.reason.empty() &&
        diagnostic.getSeverity() == DiagnosticSeverity::Error)
      entry.reason = diagnostic.str();
    return success();
  });
  const FoldedBlocks &folded = models[0]->folded;
  std::vector<std::vector<planner::Block>> measured;
  for (auto &model : models) {
    OwningOpRef<ModuleOp> module = model->module->clone();
    if (failed(lower(*module, folded.blocks.size(), tensorParallel,
                     sequenceParallel)))
      return entry;
    measured.push_back(measure(*module, folded.blocks.size()));
  }
  Work work;
  work.tensorParallel = tensorParallel;
  work.sequenceParallel = sequenceParallel;
  work.totalParameters = models[0]->parameters;
  work.modelFlopsPerSequence = models[0]->flops;
  work.sequence = models[0]->sequence;
  for (auto [index, info] : llvm::enumerate(folded.blocks)) {
    planner::Block &block = measured[0][index];
    if (!separate(block, measured[1][index])) {
      entry.reason = "one and two sequences are sharded differently";
      return entry;
    }
    block.name = info.name;
    work.blocks.push_back(std::move(block));
    work.order.insert(work.order.end(), info.count, index);
    if (!info.isLayer)
      (index == 0 ? work.before : work.after) += 1;
  }
  entry.work = std::move(work);
  return entry;
}

const Work *ModelProfile::get(int tensorParallel, bool sequenceParallel,
                              std::string &reason) {
  auto [it, isNew] =
      known.try_emplace({tensorParallel, sequenceParallel}, Entry());
  if (isNew)
    it->second = profile(tensorParallel, sequenceParallel);
  reason = it->second.reason;
  return it->second.work ? &*it->second.work : nullptr;
}
