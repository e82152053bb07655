//===- Inputs.cpp - What the arguments of the loss function are -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/Inputs.h"

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

static constexpr InputFacts kFacts[] = {
    {InputKind::Tokens, "tokens", "", false, 2},
    {InputKind::Targets, "targets", "", false, 2},
    {InputKind::Keys, "keys", "nn.keys", false, 1},
    {InputKind::Starts, "starts", "nn.starts", false, 2},
    {InputKind::Features, "features", "nn.features", true, 2},
    {InputKind::Context, "context", "nn.context", true, 1},
};

ArrayRef<InputFacts> nn::getInputFacts() { return kFacts; }

static FunctionOpInterface getLoss(BlockArgument argument) {
  return cast<FunctionOpInterface>(argument.getOwner()->getParentOp());
}

/// The kinds that the argument's attributes name.
static SmallVector<const InputFacts *, 2> findNamed(BlockArgument argument) {
  SmallVector<const InputFacts *, 2> found;
  for (const InputFacts &facts : kFacts)
    if (!facts.attribute.empty() &&
        getLoss(argument).getArgAttr(argument.getArgNumber(), facts.attribute))
      found.push_back(&facts);
  return found;
}

const InputFacts *nn::findInputFacts(BlockArgument argument) {
  if (argument.getArgNumber() < 2)
    return &kFacts[argument.getArgNumber()];
  SmallVector<const InputFacts *, 2> found = findNamed(argument);
  return found.size() == 1 ? found.front() : nullptr;
}

static SmallVector<BlockArgument>
findInputs(FunctionOpInterface loss,
           llvm::function_ref<bool(const InputFacts &)> isMeant) {
  SmallVector<BlockArgument> inputs;
  for (BlockArgument argument : loss.getArguments())
    if (const InputFacts *facts = findInputFacts(argument);
        facts && isMeant(*facts))
      inputs.push_back(argument);
  return inputs;
}

BlockArgument nn::findInput(FunctionOpInterface loss, InputKind kind) {
  auto inputs = findInputs(
      loss, [&](const InputFacts &facts) { return facts.kind == kind; });
  return inputs.empty() ? BlockArgument() : inputs.front();
}

/// A function of one block takes any argument.
BlockArgument nn::appendInput(FunctionOpInterface loss, InputKind kind,
                              Type type, StringRef name) {
  Builder builder(loss.getContext());
  const InputFacts &facts = kFacts[int(kind)];
  Attribute value = facts.isNamed ? Attribute(builder.getStringAttr(name))
                                  : Attribute(builder.getUnitAttr());
  DictionaryAttr says =
      builder.getDictionaryAttr(builder.getNamedAttr(facts.attribute, value));
  unsigned index = loss.getNumArguments();
  (void)loss.insertArgument(index, type, says, loss.getLoc());
  return loss.getArgument(index);
}

SmallVector<BlockArgument> nn::getFloatInputs(FunctionOpInterface loss) {
  return findInputs(loss,
                    [](const InputFacts &facts) { return facts.isNamed; });
}

/// An argument without a kind has the dimensions of tokens.
int64_t nn::countTokenDims(BlockArgument argument) {
  auto type = dyn_cast<RankedTensorType>(argument.getType());
  const InputFacts *facts = findInputFacts(argument);
  return std::min<int64_t>(type ? type.getRank() : 0,
                           facts ? facts->tokenDims : 2);
}

static StringAttr getName(BlockArgument argument, const InputFacts &facts) {
  return getLoss(argument).getArgAttrOfType<StringAttr>(argument.getArgNumber(),
                                                        facts.attribute);
}

StringRef nn::getInputName(BlockArgument input) {
  return getName(input, *findInputFacts(input)).getValue();
}

void nn::listInputAttributes(InFlightDiagnostic &error) {
  llvm::interleave(
      llvm::make_filter_range(
          kFacts, [](const InputFacts &x) { return !x.attribute.empty(); }),
      [&](const InputFacts &facts) {
        error << facts.attribute << (facts.isNamed ? " = \"NAME\"" : "");
      },
      [&]() { error << ", "; });
}

/// Looks at one argument behind tokens and targets.
static LogicalResult verifyInput(FunctionOpInterface loss,
                                 BlockArgument argument) {
  auto fail = [&]() {
    return loss.emitOpError("has argument ")
           << argument.getArgNumber() << " of type " << argument.getType();
  };
  const InputFacts *facts = findInputFacts(argument);
  if (!facts) {
    InFlightDiagnostic error = fail();
    error << ", which does not say what it is: expected one of ";
    listInputAttributes(error);
    return error;
  }
  StringAttr name = getName(argument, *facts);
  if (facts->isNamed && !plan::isLossName(name.getValue()))
    return fail() << " named " << name
                  << ", expected at most 32 letters, digits and underscores";
  auto type = dyn_cast<RankedTensorType>(argument.getType());
  auto ids = dyn_cast<RankedTensorType>(loss.getArgument(0).getType());
  ArrayRef<int64_t> first =
      ids ? ids.getShape().take_front(facts->tokenDims) : ArrayRef<int64_t>();
  Builder builder(loss.getContext());
  Type element =
      facts->isNamed ? Type(builder.getF32Type()) : Type(builder.getI32Type());
  if (!type || type.getElementType() != element || !type.hasStaticShape() ||
      type.getShape().take_front(first.size()) != first ||
      (!facts->isNamed && type.getRank() != facts->tokenDims))
    return fail() << ", expected " << element
                  << (facts->isNamed ? " and as its first dimensions "
                                     : " and as its dimensions ")
                  << (facts->tokenDims == 2 ? "batch and sequence"
                                            : "the batch")
                  << " of the tokens, " << ids;
  return success();
}

LogicalResult nn::verifyInputs(FunctionOpInterface loss) {
  SmallVector<BlockArgument> floats = getFloatInputs(loss);
  if (floats.size() > plan::kMostFloatInputs)
    return loss.emitOpError("has ")
           << floats.size() << " float inputs, expected at most "
           << plan::kMostFloatInputs;
  llvm::StringSet<> names;
  for (BlockArgument argument : loss.getArguments()) {
    if (argument.getArgNumber() < 2) {
      if (!findNamed(argument).empty())
        return loss.emitOpError("has argument ")
               << argument.getArgNumber() << " with "
               << findNamed(argument).front()->attribute
               << ", but the first two are tokens and targets";
      continue;
    }
    if (failed(verifyInput(loss, argument)))
      return failure();
    const InputFacts &facts = *findInputFacts(argument);
    // Names of float inputs have no dots.
    StringRef name = facts.isNamed ? getName(argument, facts).getValue()
                                   : StringRef(facts.attribute);
    if (!names.insert(name).second)
      return loss.emitOpError("has two ")
             << (facts.isNamed ? "float inputs named \"" : "arguments with \"")
             << name << "\"";
  }
  return success();
}

void nn::describeFloatInputs(FunctionOpInterface loss) {
  Builder builder(loss.getContext());
  SmallVector<Attribute> inputs;
  for (BlockArgument argument : getFloatInputs(loss)) {
    const InputFacts &facts = *findInputFacts(argument);
    bool isFeatures = facts.kind == InputKind::Features;
    auto type = cast<RankedTensorType>(argument.getType());
    inputs.push_back(builder.getDictionaryAttr(
        {builder.getNamedAttr(kName, getName(argument, facts)),
         builder.getNamedAttr(
             kOf, builder.getStringAttr(isFeatures ? kPositions : kSequences)),
         builder.getNamedAttr(
             kShape, builder.getDenseI64ArrayAttr(
                         type.getShape().drop_front(facts.tokenDims)))}));
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
