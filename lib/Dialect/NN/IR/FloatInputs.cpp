//===- FloatInputs.cpp - What a model takes beside tokens -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/FloatInputs.h"

#include "plait/Plan/FloatInputs.h"
#include "plait/Plan/Metrics.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace plait;
using namespace plait::nn;

/// The entry of the model's description, and those of each input there.
static constexpr llvm::StringLiteral kInputs = "inputs", kName = "name",
                                     kOf = "of", kShape = "shape",
                                     kPositions = "positions",
                                     kSequences = "sequences";

static bool isFloat(BlockArgument argument) {
  auto type = dyn_cast<RankedTensorType>(argument.getType());
  return type && isa<FloatType>(type.getElementType());
}

/// Null: it has none.
static StringAttr getName(BlockArgument argument, StringRef kind) {
  auto loss = cast<FunctionOpInterface>(argument.getOwner()->getParentOp());
  return loss.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kind);
}

SmallVector<BlockArgument> nn::getFloatInputs(FunctionOpInterface loss) {
  SmallVector<BlockArgument> inputs;
  for (BlockArgument argument : loss.getArguments())
    if (isFloat(argument))
      inputs.push_back(argument);
  return inputs;
}

bool nn::isOfPositions(BlockArgument argument) {
  return bool(getName(argument, kFeaturesAttr));
}

/// Keys have one dimension, and all other ids two; so is what has no name yet.
int64_t nn::countTokenDims(BlockArgument argument) {
  auto type = dyn_cast<RankedTensorType>(argument.getType());
  int64_t rank = type ? type.getRank() : 0;
  int64_t own = getName(argument, kContextAttr) ? 1 : 2;
  return std::min(rank, own);
}

/// Looks at one argument alone.
static LogicalResult verifyInput(FunctionOpInterface loss,
                                 BlockArgument argument) {
  auto fail = [&]() {
    return loss.emitOpError("has argument ")
           << argument.getArgNumber() << " of type " << argument.getType();
  };
  StringAttr features = getName(argument, kFeaturesAttr);
  StringAttr context = getName(argument, kContextAttr);
  StringAttr name = features ? features : context;
  if (!name || (features && context) || !plan::isLossName(name.getValue()))
    return fail() << " without a name, expected " << kFeaturesAttr
                  << " = \"NAME\" or " << kContextAttr
                  << " = \"NAME\" of at most 32 letters, digits and "
                     "underscores";
  auto type = cast<RankedTensorType>(argument.getType());
  auto ids = dyn_cast<RankedTensorType>(loss.getArgument(0).getType());
  ArrayRef<int64_t> first =
      ids ? ids.getShape().take_front(features ? 2 : 1) : ArrayRef<int64_t>();
  if (!type.getElementType().isF32() || !type.hasStaticShape() ||
      type.getShape().take_front(first.size()) != first)
    return fail() << ", expected f32 and as its first dimensions "
                  << (features ? "batch and sequence" : "the batch")
                  << " of the tokens, " << ids;
  return success();
}

LogicalResult nn::verifyFloatInputs(FunctionOpInterface loss) {
  SmallVector<BlockArgument> inputs = getFloatInputs(loss);
  if (inputs.size() > plan::kMostFloatInputs)
    return loss.emitOpError("has ")
           << inputs.size() << " float inputs, expected at most "
           << plan::kMostFloatInputs;
  llvm::StringSet<> names;
  for (BlockArgument argument : inputs) {
    if (failed(verifyInput(loss, argument)))
      return failure();
    StringAttr name = getName(argument, kFeaturesAttr);
    name = name ? name : getName(argument, kContextAttr);
    if (!names.insert(name.getValue()).second)
      return loss.emitOpError("has two float inputs named ") << name;
  }
  for (BlockArgument argument : loss.getArguments())
    if (!isFloat(argument) &&
        (getName(argument, kFeaturesAttr) || getName(argument, kContextAttr)))
      return loss.emitOpError("names argument ")
             << argument.getArgNumber() << " of type " << argument.getType()
             << ", which is no float input";
  return success();
}

void nn::describeFloatInputs(FunctionOpInterface loss) {
  Builder builder(loss.getContext());
  SmallVector<Attribute> inputs;
  for (BlockArgument argument : getFloatInputs(loss)) {
    bool isFeatures = isOfPositions(argument);
    auto type = cast<RankedTensorType>(argument.getType());
    inputs.push_back(builder.getDictionaryAttr(
        {builder.getNamedAttr(
             kName,
             getName(argument, isFeatures ? kFeaturesAttr : kContextAttr)),
         builder.getNamedAttr(
             kOf, builder.getStringAttr(isFeatures ? kPositions : kSequences)),
         builder.getNamedAttr(
             kShape, builder.getDenseI64ArrayAttr(
                         type.getShape().drop_front(isFeatures ? 2 : 1)))}));
  }
  if (inputs.empty())
    return;
  Operation *module = loss->getParentOp();
  NamedAttrList model(module->getAttrOfType<DictionaryAttr>(kModelAttr));
  model.set(kInputs, builder.getArrayAttr(inputs));
  module->setAttr(kModelAttr, model.getDictionary(builder.getContext()));
}

FailureOr<SmallVector<FloatInput>> nn::readFloatInputs(Operation *module) {
  SmallVector<FloatInput> inputs;
  auto model = module->getAttrOfType<DictionaryAttr>(kModelAttr);
  Attribute found = model ? model.get(kInputs) : Attribute();
  if (!found)
    return inputs;
  auto fail = [&]() {
    return module->emitOpError("has ")
           << kModelAttr << " with " << kInputs << " = " << found
           << ", expected at most " << plan::kMostFloatInputs
           << " of {name = \"NAME\", of = \"positions\", shape = array<i64: "
              "…>}";
  };
  auto list = dyn_cast<ArrayAttr>(found);
  if (!list || list.size() > plan::kMostFloatInputs)
    return fail();
  for (Attribute entry : list) {
    auto input = dyn_cast<DictionaryAttr>(entry);
    auto name = input ? input.getAs<StringAttr>(kName) : StringAttr();
    auto of = input ? input.getAs<StringAttr>(kOf) : StringAttr();
    auto shape =
        input ? input.getAs<DenseI64ArrayAttr>(kShape) : DenseI64ArrayAttr();
    if (!name || !of || !shape || !plan::isLossName(name.getValue()) ||
        (of != kPositions && of != kSequences) ||
        llvm::any_of(shape.asArrayRef(), [](int64_t x) { return x < 1; }))
      return fail();
    inputs.push_back({name, of == kPositions, shape});
  }
  return inputs;
}
