//===- MLIRFile.cpp - Models that are written as IR ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Models that are given as MLIR: written by hand or by another front end, or
// what an earlier compilation has left. Parsing verifies each op; here is
// verified what the phases expect of a whole module: the loss function's type
// and the description of the model. What a model does not say of itself is
// found: its layers, its vocabulary, a name.
//
//===----------------------------------------------------------------------===//

#include "FindLayers.h"
#include "plait/Import/HuggingFace.h"
#include "plait/Import/ModelSource.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "plait/Dialect/NN/IR/Inputs.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Plan/Files.h"

using namespace mlir;
using namespace plait;

/// Whether `type` is from two tensor<b x s x i32>, and perhaps other inputs, to
/// two or more tensor<f32>.
static bool isLoss(FunctionType type) {
  if (type.getNumInputs() < 2 || type.getNumResults() < 2 ||
      type.getInput(0) != type.getInput(1) ||
      !llvm::all_equal(type.getResults()))
    return false;
  auto ids = dyn_cast<RankedTensorType>(type.getInput(0));
  auto scalar = dyn_cast<RankedTensorType>(type.getResult(0));
  return ids && scalar && ids.getRank() == 2 && ids.hasStaticShape() &&
         ids.getElementType().isInteger(32) && !ids.getEncoding() &&
         scalar.getRank() == 0 && scalar.getElementType().isF32();
}

/// By name: a module may have other functions.
static LogicalResult checkLoss(ModuleOp module) {
  auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunction);
  if (!loss || loss.isExternal())
    return module.emitError("module has no function @")
           << nn::kLossFunction
           << " from tokens and targets to the loss and the number of targets";
  if (!isLoss(loss.getFunctionType()))
    return loss.emitError("function @")
           << nn::kLossFunction << " is " << loss.getFunctionType()
           << ", expected (tensor<BxSxi32>, tensor<BxSxi32>) -> (tensor<f32>, "
              "tensor<f32>); other inputs are arguments behind these, and "
              "named losses further results, tensor<f32>";
  return nn::verifyInputs(loss);
}

/// How many ids there are, as far as what tokens and targets select from has
/// entries for them; 0: they select from nothing.
static int64_t findVocabulary(func::FuncOp loss) {
  int64_t vocabulary = 0;
  for (BlockArgument ids : loss.getArguments().take_front(2))
    for (Operation *op : ids.getUsers()) {
      auto selection = dyn_cast<SelectionOpInterface>(op);
      if (!selection)
        continue;
      int64_t entries = selection.getSelection().getEntries();
      vocabulary = vocabulary ? std::min(vocabulary, entries) : entries;
    }
  return vocabulary;
}

/// The layers that ops belong to; a model without any is one.
static int64_t countLayers(func::FuncOp loss) {
  llvm::SmallDenseSet<Attribute> layers;
  loss.walk([&](Operation *op) {
    if (Attribute layer = op->getAttr(nn::kLayerAttr))
      layers.insert(layer);
  });
  return std::max<int64_t>(1, layers.size());
}

/// Adds to a model's description what its author has left out.
static void describeModel(ModuleOp module, StringRef path) {
  auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunction);
  auto given = module->getAttrOfType<DictionaryAttr>(nn::kModelAttr);
  Builder builder(module.getContext());
  NamedAttrList entries(given);
  auto add = [&](StringRef name, Attribute value) {
    if (!entries.get(name))
      entries.set(name, value);
  };
  add("layers", builder.getI64IntegerAttr(countLayers(loss)));
  add("model_type", builder.getStringAttr("nn"));
  add("name", builder.getStringAttr(getModelName(path)));
  if (int64_t vocabulary = findVocabulary(loss))
    add("vocab", builder.getI64IntegerAttr(vocabulary));
  module->setAttr(nn::kModelAttr, entries.getDictionary(module.getContext()));
}

/// Reports and the planner read these. What is given may be wrong, and the
/// vocabulary may be missing still, hence the example in the message.
static LogicalResult checkModelAttr(ModuleOp module) {
  auto model = module->getAttrOfType<DictionaryAttr>(nn::kModelAttr);
  for (StringRef name : {"vocab", "layers"}) {
    auto value = model ? model.getAs<IntegerAttr>(name) : IntegerAttr();
    if (!value || !value.getType().isInteger(64) || value.getInt() < 1)
      return module.emitError("module attribute ")
             << nn::kModelAttr << " needs an entry " << name
             << " of at least 1, as in {layers = 12 : i64, model_type = "
                "\"gpt2\", name = \"gpt2\", vocab = 50257 : i64}";
  }
  for (StringRef name : {"model_type", "name"})
    if (!model.getAs<StringAttr>(name))
      return module.emitError("module attribute ")
             << nn::kModelAttr << " needs a string " << name;
  return success();
}

/// Finds the layers of a model whose author has labelled none, and describes
/// it.
static void completeModel(ModuleOp module, StringRef path) {
  auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunction);
  WalkResult labelled = loss.walk([](Operation *op) {
    return op->hasAttr(nn::kLayerAttr) ? WalkResult::interrupt()
                                       : WalkResult::advance();
  });
  // Of several blocks the phase that begins says what is wrong with them.
  if (!labelled.wasInterrupted() && llvm::hasSingleElement(loss.getBody()))
    findLayers(loss);
  describeModel(module, path);
}

/// The dialects have to be loaded before parsing: ops of a dialect that is not
/// known are a parse error. The error names file and line, since locations of
/// parsed ops do.
FailureOr<OwningOpRef<ModuleOp>> plait::importMLIR(MLIRContext &context,
                                                   StringRef path) {
  context.loadDialect<PlaitDialect, nn::NNDialect, dist::DistDialect,
                      func::FuncDialect>();
  Status readable = checkInput(path.str(), "model");
  if (!readable.ok())
    return emitError(UnknownLoc::get(&context)) << readable.message();
  // Parsing verifies, and says what is wrong.
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(path, &context);
  if (!module)
    return failure();
  // What an earlier compilation has left is checked by the phase that goes on.
  if (getPhase(*module) == Phase::Import) {
    if (failed(checkLoss(*module)))
      return failure();
    completeModel(*module, path);
  }
  if (failed(checkModelAttr(*module)))
    return failure();
  return module;
}
