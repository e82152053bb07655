//===- Models.cpp - The models that a profile is made of ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Models of several sizes, folded, each imported or copied once; and what is
// asked of the model itself, however it is split.
//
//===----------------------------------------------------------------------===//

#include "Models.h"

#include "Measure.h"
#include "plait/Analysis/ModelFlops.h"
#include "plait/Dialect/NN/IR/Layers.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Plan/Attention.h"

#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/Parser/Parser.h"

using namespace mlir;
using namespace plait;

/// The model for microbatches of `batch` sequences, imported on first use.
ModelProfile::Model *ModelProfile::getModel(int64_t batch) {
  // Kept: each degree of tp asks for the same sizes again.
  std::unique_ptr<Model> &model = models[batch];
  if (model)
    return model.get();
  FailureOr<OwningOpRef<ModuleOp>> module = source(batch);
  if (failed(module))
    return nullptr;
  model = std::make_unique<Model>();
  model->module = std::move(*module);
  auto loss = model->module->lookupSymbol<func::FuncOp>(nn::kLossFunction);
  for (auto parameter : model->module->getOps<nn::ParameterOp>())
    model->parameters += countElements(parameter.getType());
  model->sequence =
      cast<RankedTensorType>(loss.getArgumentTypes()[0]).getDimSize(1);
  model->folded = foldLayers(loss);
  // An op of a folded layer stands for as many as the layer does.
  auto countAlike = [&](Operation *op) {
    return model->folded.blocks[*nn::getLayer(op)].count;
  };
  model->flops = countModelFlops(loss, countAlike) / batch;
  llvm::raw_string_ostream stream(model->bytes);
  if (failed(writeBytecodeToFile(*model->module, stream))) {
    model->module->emitError("the model cannot be copied for another thread");
    model.reset();
  }
  return model.get();
}

ModelProfile::Worker::Worker(const DialectRegistry &registry)
    : own(std::make_unique<MLIRContext>(registry,
                                        MLIRContext::Threading::DISABLED)),
      context(*own) {
  own->loadAllAvailableDialects();
}

/// Runs phases without the verifier: a profile is thrown away, and the pick's
/// compilation verifies each phase.
LogicalResult ModelProfile::Worker::run(ModuleOp module,
                                        ArrayRef<Phase> phases) {
  auto [entry, isNew] = managers.try_emplace(phases.vec(), &context);
  PassManager &passes = entry->second;
  if (isNew) {
    passes.enableVerifier(false);
    for (Phase phase : phases)
      buildKernels(passes, phase);
  }
  return passes.run(module);
}

/// Runs phases by the worker whose module it is.
LogicalResult ModelProfile::run(ModuleOp module, ArrayRef<Phase> phases) {
  auto own = llvm::find_if(workers, [&](const auto &worker) {
    return worker && &worker->context == module.getContext();
  });
  return (*own)->run(module, phases);
}

/// Returns the worker of a number, made on first use.
ModelProfile::Worker &ModelProfile::getWorker(size_t index) {
  std::unique_ptr<Worker> &worker = workers[index % workers.size()];
  if (!worker)
    worker = std::make_unique<Worker>(context.getDialectRegistry());
  return *worker;
}

/// Returns the model in a worker's context, copied on first use; null where it
/// cannot be imported or copied, which diagnostics have said.
ModuleOp ModelProfile::getModule(Worker &worker, int64_t batch) {
  Model *model = getModel(batch);
  if (!model || !worker.own)
    return model ? *model->module : ModuleOp();
  OwningOpRef<ModuleOp> &copy = worker.copies[batch];
  if (!copy)
    copy = parseSourceString<ModuleOp>(
        model->bytes,
        ParserConfig(&worker.context, /*verifyAfterParse=*/false));
  return *copy;
}

/// The factor by which rows belong to one rank each is that of experts.
int64_t ModelProfile::countExperts() {
  int64_t least = 0;
  getModel(kSmall)->module->walk([&](ShardableOpInterface op) {
    for (const Factor &factor : op.getFactorRule().factors)
      if (factor.ownsRows)
        least = least ? std::min(least, factor.size) : factor.size;
  });
  return least;
}

/// The imported model is in f32, so that the op cannot be asked itself. Meshes
/// divide neither heads nor, but for cp, sequences.
Status ModelProfile::checkFusedAttention(int architecture) {
  Status status;
  getModel(kSmall)->module->walk([&](CostedOpInterface op) {
    WorkShape shape = op.getWorkShape();
    if (shape.kind == WorkShape::Attention)
      status = plan::checkGpuAttention(plan::fb::DType::BF16, shape.queries,
                                       shape.headSize, architecture);
    return status.ok() ? WalkResult::advance() : WalkResult::interrupt();
  });
  return status;
}

AttentionTraits ModelProfile::findAttentionTraits() {
  return nn::findAttentionTraits(*getModel(kSmall)->module);
}
