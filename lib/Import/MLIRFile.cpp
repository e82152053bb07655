//===- MLIRFile.cpp - Models that are written as IR ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Models that are given as MLIR: written by hand, or what an earlier
// compilation has left. Parsing verifies each op; here is verified what the
// phases expect of a whole module: the loss function's type and the description
// of the model.
//
//===----------------------------------------------------------------------===//

#include "plait/Import/HuggingFace.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Plan/Files.h"

using namespace mlir;
using namespace plait;

/// Whether `type` is from two tensor<b x s x i32>, and perhaps a tensor<b x
/// i32>, and perhaps one more of the first, to two tensor<f32>.
static bool isLoss(FunctionType type) {
  if (type.getNumInputs() < 2 || type.getNumResults() != 2 ||
      type.getInput(0) != type.getInput(1) ||
      type.getResult(0) != type.getResult(1))
    return false;
  // Keys have the batch dimension alone; starts have the tokens' type.
  auto ids = dyn_cast<RankedTensorType>(type.getInput(0));
  ArrayRef<Type> more = type.getInputs().drop_front(2);
  if (ids && !more.empty() &&
      more.front() == RankedTensorType::get(ids.getShape().take_front(),
                                            ids.getElementType()))
    more = more.drop_front(); // keys
  if (!more.empty() && more.front() == ids)
    more = more.drop_front(); // starts
  if (!more.empty())
    return false;
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
              "tensor<f32>), with dropout a further argument, tensor<Bxi32>, "
              "and with a document mask tensor<BxSxi32>";
  return success();
}

/// Reports and the planner read these; a config has them, a person has to write
/// them, hence the example in the message.
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
  if (getPhase(*module) == Phase::Import && failed(checkLoss(*module)))
    return failure();
  if (failed(checkModelAttr(*module)))
    return failure();
  return module;
}
