//===- Profile.cpp - A model's work, read off the IR ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A model's work on one rank, read off the compiler's passes:
//
// 1. The model is imported for a few sequences and folded, so that each kind of
//    layer is there once (FoldLayers.cpp).
// 2. Each block becomes a stage of its own; the phases up to kernels run on
//    that, for the mesh of one rank a block and the degree of tp that is asked
//    for.
// 3. What came out is measured, function by function (Measure.cpp).
// 4. The same at twice the microbatch tells what grows with it from what does
//    not.
//
// A context is for one thread. So there are workers, each with a context and
// copies of the models: one measures the larger microbatch while another one
// does all else, or they share what a search will ask for (Answers.cpp). Costs
// have no trace of which context they are of.
//
// Blocks that were met before, split in the same way, are not measured again.
//
// Both are sharded as the whole model is for the sequences asked for.
// What a profile says is then what will be compiled: there is no second
// description of a transformer. It takes as long as compiling the folded model,
// whatever the depth and the cluster.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Profile.h"

#include "BlockKey.h"
#include "Halves.h"
#include "Measure.h"
#include "Models.h"
#include "Parameters.h"
#include "Separator.h"
#include "plait/Configuration/CompressionFacts.h"
#include "plait/Configuration/Optimizers.h"
#include "plait/Dialect/NN/IR/Layers.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Dialect/Plait/IR/ExpertChunks.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Planner/DescribeCluster.h"
#include "plait/Planner/Habits.h"
#include "plait/Transforms/Chunks.h"
#include "plait/Transforms/FoldedModel.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/Pipelines.h"
#include "plait/Transforms/StageFunctions.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

#include <algorithm>
#include <future>
#include <thread>

using namespace mlir;
using namespace plait;
using planner::Work;

ModelProfile::ModelProfile(MLIRContext &context, BatchSource source,
                           Precision precision,
                           std::optional<planner::Cluster> cluster,
                           Compression compress, EpilogueKind epilogues,
                           const planner::Framework &framework)
    : context(context), source(std::move(source)), precision(precision),
      cluster(std::move(cluster)), compress(std::move(compress)),
      epilogues(epilogues), framework(framework) {
  // The larger of two microbatches goes to another one in any case.
  constexpr unsigned fewest = 2, most = 8;
  workers.resize(std::clamp(std::thread::hardware_concurrency(), fewest, most));
  workers.front() = std::make_unique<Worker>(context);
}
ModelProfile::~ModelProfile() = default;

std::unique_ptr<ModelProfile> ModelProfile::create(
    MLIRContext &context, BatchSource source, Precision precision,
    std::optional<planner::Cluster> cluster, Compression compress,
    EpilogueKind epilogues, const planner::Framework &framework) {
  // The model is imported at once, so that one that cannot be read fails here,
  // with its diagnostic, and not in the middle of a search.
  std::unique_ptr<ModelProfile> profile(new ModelProfile(
      context, std::move(source), precision, std::move(cluster),
      std::move(compress), epilogues, framework));
  return profile->getModel(kSmall) ? std::move(profile) : nullptr;
}

/// What the compiler computes in: it has one format of 16 bits.
Precision ModelProfile::getWidth() const {
  return precision == Precision::FP32 ? Precision::FP32 : Precision::BF16;
}

//===----------------------------------------------------------------------===//
// One microbatch size
//===----------------------------------------------------------------------===//

/// Every block becomes a stage. From here on layers are told as where a model
/// is compiled.
static void assignStages(func::FuncOp loss) {
  Builder builder(loss.getContext());
  for (Operation &op : loss.getBody().front().without_terminator()) {
    // A parameter that several blocks read belongs to none.
    if (nn::getSlotAccess(&op) == nn::SlotAccess::Read)
      continue;
    Attribute stage = op.getAttr(nn::kBlockAttr);
    // What a pass has added without saying where belongs to what it reads.
    for (Value operand : op.getOperands())
      if (Operation *source = operand.getDefiningOp(); !stage && source)
        stage = source->getAttr(pipe::kStageAttr);
    op.setAttr(pipe::kStageAttr, stage ? stage : builder.getI64IntegerAttr(0));
  }
  for (Operation &op : loss.getBody().front())
    op.removeAttr(nn::kBlockAttr);
}

/// Whether a parameter is pinned to an axis: then the mesh has to have it.
static bool isPinnedTo(ModuleOp module, const AxisFacts &facts) {
  auto axis = StringAttr::get(module.getContext(), facts.name);
  return llvm::any_of(module.getOps<nn::ParameterOp>(), [&](auto parameter) {
    dist::ShardingAttr sharding = nn::getSharding(parameter);
    return sharding && sharding.findDim(axis) >= 0;
  });
}

/// Runs the compiler's phases up to the choice of shardings, which is that of
/// the whole model for so many sequences, and makes every block a stage.
LogicalResult ModelProfile::shard(ModuleOp module, const Model &model,
                                  const Mesh &mesh, double sequences) {
  const FoldedBlocks &folded = model.folded;
  dist::MeshOp::add(module, mesh, [&](const AxisFacts &facts) {
    return isPinnedTo(module, facts);
  });
  // What is given may be wrong, shardings above all.
  if (failed(verify(module)))
    return failure();
  auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunction);
  Builder builder(module.getContext());
  SmallVector<int64_t> counts;
  for (const FoldedBlocks::Block &block : folded.blocks)
    counts.push_back(block.count);
  loss->setAttr(kLayerCountsAttr, builder.getDenseI64ArrayAttr(counts));
  loss->setAttr(kSequencesAttr, builder.getF64FloatAttr(sequences));
  if (failed(run(module, Phase::Shard)))
    return failure();
  assignStages(loss);
  return success();
}

static Type getActivation(MLIRContext *context, Precision precision) {
  return precision == Precision::BF16 ? Type(BFloat16Type::get(context))
                                      : Type(Float32Type::get(context));
}

/// A forward and a backward function for each of `blocks`, by the names that
/// the stage pass gives them. Parameters need the module.
static std::vector<planner::Block> measureBlocks(ModuleOp module,
                                                 ArrayRef<int64_t> blocks,
                                                 Precision precision,
                                                 const Sums &sums) {
  std::vector<planner::Block> measured;
  Type activation = getActivation(module.getContext(), precision);
  for (int64_t index : blocks) {
    auto find = [&](pipe::ActionKind action) {
      return module.lookupSymbol<func::FuncOp>(getFunctionName(action, index));
    };
    func::FuncOp forward = find(pipe::ActionKind::Forward);
    func::FuncOp backward = find(pipe::ActionKind::Backward);
    measured.push_back(measureBlock(forward, backward, activation));
    measured.back().parameters =
        findParameters(module, forward, backward, sums);
  }
  return measured;
}

/// The first block of each key that is not known.
template <typename Known>
static SmallVector<int64_t> findNew(const std::vector<BlockKey> &keys,
                                    const Known &known) {
  SmallVector<int64_t> found;
  for (auto [index, key] : llvm::enumerate(keys))
    if (!known.contains(key) && std::find(keys.begin(), keys.begin() + index,
                                          key) == keys.begin() + index)
      found.push_back(int64_t(index));
  return found;
}

//===----------------------------------------------------------------------===//
// Two microbatch sizes
//===----------------------------------------------------------------------===//

/// Returns the part of a configuration that all profiles share.
TrainingConfiguration
ModelProfile::getConfiguration(const planner::Degrees &degrees) const {
  TrainingConfiguration configuration;
  configuration.sequenceParallel = degrees.sequenceParallel;
  configuration.expertExchange = degrees.exchange;
  configuration.precision = getWidth();
  configuration.epilogues = epilogues;
  // Which parameters are matrices is said for optimizers that ask.
  configuration.optimizer =
      llvm::find_if(getOptimizers(), [](const Optimizer &optimizer) {
        return optimizer.updatesMatrices();
      })->name;
  // Its cost has two forms, of which the estimate picks one.
  configuration.attention = AttentionKind::Flash;
  return configuration;
}

/// Copies `whole`, the module of `model` in one of the contexts, and splits it
/// as it is where a rank has `sequences`.
FailureOr<ModelProfile::Sharded>
ModelProfile::shardFor(double sequences, ModuleOp whole, const Model &model,
                       const planner::Degrees &degrees) {
  Sharded sharded;
  sharded.module = whole.clone();
  // A rank for each block and each part of it.
  Mesh mesh;
  mesh[Axis::PP] = int(model.folded.blocks.size());
  mesh[Axis::EP] = degrees.experts;
  mesh[Axis::TP] = degrees.tensor;
  setConfiguration(*sharded.module, getConfiguration(degrees));
  setProfile(*sharded.module);
  if (cluster)
    setCluster(*sharded.module,
               describeCluster(whole.getContext(), *cluster, cluster->name,
                               precision, mesh));
  if (failed(shard(*sharded.module, model, mesh, sequences)))
    return failure();
  if (compress.isOn())
    for (auto parameter : sharded.module->getOps<nn::ParameterOp>())
      if (dist::ShardingAttr sharding = nn::getSharding(parameter);
          sharding &&
          failed(checkChunks(parameter, sharding,
                             dist::MeshOp::find(*sharded.module), compress)))
        return failure();
  // Types are unique in their context.
  auto add = [&](Type type) {
    sharded.types.push_back(type.getAsOpaquePointer());
  };
  sharded.module->walk([&](Operation *op) {
    sharded.types.push_back(op->getName().getAsOpaquePointer());
    llvm::for_each(op->getResultTypes(), add);
    if (auto parameter = dyn_cast<nn::ParameterOp>(op))
      sharded.types.push_back(parameter.getShardingAttr().getAsOpaquePointer());
  });
  return sharded;
}

/// Returns the model with forward and backward passes in one, which do not
/// depend on recomputation; null where that cannot be.
OwningOpRef<ModuleOp>
ModelProfile::differentiate(Sharded &sharded,
                            const TrainingConfiguration &configuration) {
  OwningOpRef<ModuleOp> module = sharded.module->clone();
  setConfiguration(*module, configuration);
  auto unit = UnitAttr::get(module->getContext());
  if (framework.keepsEachResult)
    (*module)->setAttr(kKeepsEachResultAttr, unit);
  if (framework.splitsColumnSums && cluster && !cluster->device.isProcessor)
    (*module)->setAttr(kSplitsColumnSumsAttr, unit);
  if (failed(run(*module, {Phase::Stage, Phase::Differentiate})))
    return nullptr;
  return module;
}

/// Leaves of attention what GPUs' library computes of it, and kernels behind
/// (AttentionTraits.h): decomposed without a target, it would be whole.
static void splitSinks(ModuleOp module) {
  SmallVector<nn::AttentionOp> found;
  do {
    found.clear();
    module.walk([&](nn::AttentionOp op) {
      if (op.getSinks())
        found.push_back(op);
    });
    for (nn::AttentionOp op : found) {
      OpBuilder builder(op);
      op->replaceAllUsesWith(op.decompose(builder));
      op->erase();
    }
  } while (!found.empty());
}

/// Returns those of `blocks` that are layers: nothing else is computed again.
static SmallVector<int64_t> findLayers(const FoldedBlocks &folded,
                                       ArrayRef<int64_t> blocks) {
  SmallVector<int64_t> layers;
  llvm::copy_if(blocks, std::back_inserter(layers),
                [&](int64_t index) { return folded.blocks[index].isLayer; });
  return layers;
}

/// Measures `blocks` of one rank with `recompute`, of which `joint` is changed
/// to have only those.
FailureOr<std::vector<planner::Block>>
ModelProfile::measure(ModuleOp joint, ArrayRef<int64_t> blocks,
                      const Sums &sums, const planner::Degrees &degrees,
                      Recompute recompute) {
  keepBlocks(joint, blocks);
  TrainingConfiguration configuration = getConfiguration(degrees);
  configuration.recompute = recompute;
  OwningOpRef<ModuleOp> module = joint.clone();
  setConfiguration(*module, configuration);
  if (failed(run(*module, {Phase::Checkpoint, Phase::Partition})))
    return failure();
  if (joint->hasAttr(kSplitsColumnSumsAttr)) // for GPUs
    splitSinks(*module);
  if (failed(run(*module, Phase::Lower)))
    return failure();
  return measureBlocks(*module, blocks, getWidth(), sums);
}

/// Measures `blocks` of `model`, of which `joint` is changed to have only
/// those.
FailureOr<ModelProfile::Sizes>
ModelProfile::measure(ModuleOp joint, const Model &model,
                      ArrayRef<int64_t> blocks, const Sums &sums,
                      const planner::Degrees &degrees) {
  auto plain = measure(joint, blocks, sums, degrees, Recompute::None);
  SmallVector<int64_t> layers = findLayers(model.folded, blocks);
  auto cheap = measure(joint, layers, sums, degrees, Recompute::Selective);
  if (failed(plain) || failed(cheap))
    return failure();
  Sizes measured{*plain, std::move(*plain)};
  for (auto [index, block] : llvm::zip_equal(layers, *cheap))
    measured.cheap[llvm::find(blocks, index) - blocks.begin()] =
        std::move(block);
  return measured;
}

/// Measures `blocks` of `model`, the larger one, by `whole`, which is it in the
/// context of a worker. `reason` gets the first error.
FailureOr<ModelProfile::Sizes> ModelProfile::measureLarge(
    ModuleOp whole, const Model &model, ArrayRef<int64_t> blocks,
    double sequences, const planner::Degrees &degrees, std::string &reason) {
  ScopedDiagnosticHandler handler(
      whole.getContext(),
      [&](Diagnostic &diagnostic) { return keepFirst(diagnostic, reason); });
  auto sharded = shardFor(sequences, whole, model, degrees);
  if (failed(sharded))
    return failure();
  OwningOpRef<ModuleOp> joint =
      differentiate(*sharded, getConfiguration(degrees));
  if (!joint)
    return failure();
  return measure(*joint, model, blocks, findSums(*joint), degrees);
}

/// Adds what `blocks` of `keys`, measured at both sizes, take at any.
LogicalResult ModelProfile::addBlocks(Degree &degree,
                                      const std::vector<BlockKey> &keys,
                                      ArrayRef<int64_t> blocks, Sizes small,
                                      const Sizes &large) {
  Separator separator(kSmall, kLarge, getWidth() == Precision::BF16 ? 2 : 1);
  for (auto [i, index] : llvm::enumerate(blocks)) {
    Measured made{std::move(small.plain[i]), std::move(small.cheap[i])};
    if (!separator.separate(made.plain, large.plain[i])) {
      degree.refusal = "the shardings of small and large microbatches differ";
      return failure();
    }
    // Else nothing is known of what is cheap to compute again.
    if (!separator.separate(*made.cheap, large.cheap[i]))
      made.cheap.reset();
    degree.blocks.emplace(keys[index], std::move(made));
  }
  return success();
}

/// Finds what the halves of backward passes take, by block, of the smaller
/// microbatch: all of it grows with the sequences. Empty where that cannot be.
std::vector<ModelProfile::HalvesByKind>
ModelProfile::findHalves(Degree &degree, Sharded &sharded,
                         const planner::Degrees &degrees) {
  const FoldedBlocks &folded = getModel(kSmall)->folded;
  if (!folded.blocks.front().isLayer && folded.blocks.size() > 1)
    joinEmbedding(*sharded.module);
  TrainingConfiguration configuration = getConfiguration(degrees);
  configuration.schedule = "zb-h1"; // any that runs them apart
  OwningOpRef<ModuleOp> joint = differentiate(sharded, configuration);
  if (!joint)
    return {};
  std::vector<BlockKey> keys =
      describeBlocks(*joint, findSums(*joint), int64_t(folded.blocks.size()));
  SmallVector<int64_t> blocks = findNew(keys, degree.halves);
  SmallVector<int64_t> left = blocks;
  std::vector<HalvesByKind> made(keys.size());
  for (Recompute recompute :
       {Recompute::None, Recompute::Selective, Recompute::Full}) {
    if (left.empty())
      break;
    keepBlocks(*joint, left);
    configuration.recompute = recompute;
    OwningOpRef<ModuleOp> module = joint->clone();
    setConfiguration(*module, configuration);
    if (failed(run(*module, Phase::Checkpoint)))
      return {};
    std::vector<planner::Halves> halves =
        measureHalves(*module, int64_t(keys.size()),
                      getActivation(joint->getContext(), getWidth()), kSmall);
    for (int64_t index : left)
      made[index][size_t(recompute)] = halves[index];
    left = findLayers(folded, left);
  }
  for (int64_t index : blocks)
    degree.halves.emplace(keys[index], made[index]);
  for (auto [found, key] : llvm::zip_equal(made, keys))
    found = degree.halves.at(key);
  return made;
}

/// The work of blocks, in the model's order.
Work ModelProfile::assemble(const std::vector<Measured> &blocks,
                            const std::vector<HalvesByKind> &halves) {
  const Model &model = *getModel(kSmall);
  Work work;
  work.totalParameters = model.parameters;
  work.modelFlopsPerSequence = model.flops;
  work.sequence = model.sequence;
  work.order.assign(model.folded.order.begin(), model.folded.order.end());
  bool knowsCheap = true;
  for (auto [index, info] : llvm::enumerate(model.folded.blocks)) {
    if (!info.isLayer)
      (index == 0 ? work.before : work.after) += 1;
    auto add = [&](planner::Block block, Recompute kind,
                   std::vector<planner::Block> &to) {
      block.name = info.name;
      block.halves = halves[index][size_t(kind)];
      block.halvesAgain = halves[index][size_t(Recompute::Full)];
      to.push_back(std::move(block));
    };
    const Measured &measured = blocks[index];
    add(measured.plain, Recompute::None, work.blocks);
    knowsCheap &= measured.cheap.has_value();
    if (knowsCheap)
      add(*measured.cheap, Recompute::Selective, work.cheapBlocks);
  }
  if (!knowsCheap)
    work.cheapBlocks.clear();
  return work;
}

/// Measures those of `keys`, which are the blocks of `joint`, that are not
/// known, and finds the halves of all, of `small`; empty where that cannot be.
/// The larger size is for `second`, in a thread of its own unless that is who
/// measures all else.
std::vector<ModelProfile::HalvesByKind>
ModelProfile::measureNew(Degree &degree, Worker &second,
                         const std::vector<BlockKey> &keys, ModuleOp joint,
                         const Sums &sums, Sharded &small, double sequences,
                         const planner::Degrees &degrees) {
  SmallVector<int64_t> blocks = findNew(keys, degree.blocks);
  if (blocks.empty())
    return findHalves(degree, small, degrees);
  int64_t batch = kLarge * degrees.experts;
  ModuleOp whole = getModule(second, batch);
  if (!whole)
    return {};
  const Model &model = *getModel(batch);
  std::string reason;
  auto policy =
      &second == degree.worker ? std::launch::deferred : std::launch::async;
  auto large = std::async(policy, [&] {
    return measureLarge(whole, model, blocks, sequences, degrees, reason);
  });
  auto first = measure(joint, *getModel(kSmall), blocks, sums, degrees);
  std::vector<HalvesByKind> halves = findHalves(degree, small, degrees);
  auto other = large.get();
  if (degree.refusal.empty())
    degree.refusal = reason;
  if (failed(first) || failed(other) ||
      failed(addBlocks(degree, keys, blocks, std::move(*first), *other)))
    return {};
  return halves;
}

/// Measures a model only if it has not been split like that before, and of it
/// only the blocks that are not known.
const Work *ModelProfile::solve(Degree &degree, Worker &second,
                                double sequences,
                                const planner::Degrees &degrees) {
  int64_t batch = kSmall * degrees.experts;
  ModuleOp whole = getModule(*degree.worker, batch);
  if (!whole)
    return nullptr;
  auto small = shardFor(sequences, whole, *getModel(batch), degrees);
  if (failed(small))
    return nullptr;
  for (const auto &[types, work] : degree.works)
    if (types == small->types)
      return work.get();
  OwningOpRef<ModuleOp> joint =
      differentiate(*small, getConfiguration(degrees));
  if (!joint)
    return nullptr;
  Sums sums = findSums(*joint);
  std::vector<BlockKey> keys = describeBlocks(
      *joint, sums, int64_t(getModel(kSmall)->folded.blocks.size()));
  std::vector<HalvesByKind> halves = measureNew(
      degree, second, keys, *joint, sums, *small, sequences, degrees);
  if (halves.empty())
    return nullptr;
  std::vector<Measured> blocks;
  for (const BlockKey &key : keys)
    blocks.push_back(degree.blocks.at(key));
  Work work = assemble(blocks, halves);
  work.splitsLoss = sums.partial.contains(
      FlatSymbolRefAttr::get(joint->getContext(), kLossSum));
  work.tensorParallel = degrees.tensor;
  work.expertParallel = degrees.experts;
  work.sequenceParallel = degrees.sequenceParallel;
  work.expertExchange = degrees.exchange;
  work = planner::adoptHabits(std::move(work), framework, precision);
  degree.works.emplace_back(std::move(small->types),
                            std::make_unique<const Work>(std::move(work)));
  return degree.works.back().second.get();
}
