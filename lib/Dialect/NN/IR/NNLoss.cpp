//===- NNLoss.cpp - Verification of the loss function ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A model that breaks one of these rules would train, on something else than
// its author means: a store would depend on the mesh, an id outside of a table
// has a row of zeros, and a parameter that goes nowhere is most likely a name
// mistaken for another.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/Inputs.h"
#include "plait/Dialect/NN/IR/Layers.h"
#include "plait/Dialect/NN/IR/NamedLosses.h"
#include "plait/Dialect/NN/IR/Parameters.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace plait;
using namespace plait::nn;

namespace {

/// Verifies one loss function.
class LossVerifier {
public:
  LossVerifier(FunctionOpInterface loss, int64_t vocab)
      : loss(loss), vocab(vocab) {}

  LogicalResult verify();

private:
  // Each takes one rule; (L1) and (L3) look at one op, (L2) and (L4) at the
  // function.
  LogicalResult verifyEffects(Operation &op);
  LogicalResult verifyWhole(Operation &op);
  LogicalResult verifyIndices(Operation &op);
  LogicalResult verifyUses(BlockArgument argument, StringRef name,
                           StringRef user, bool (*isMeant)(OpOperand &));
  LogicalResult verifySelection(Operation &op, Value ids, Value from,
                                int64_t dim);
  LogicalResult verifyResults();
  llvm::SetVector<Operation *> findReads(Value result);

  FunctionOpInterface loss;
  int64_t vocab;
  SymbolTableCollection tables;
};

} // namespace

/// (L1)
LogicalResult LossVerifier::verifyEffects(Operation &op) {
  if (op.hasTrait<OpTrait::IsTerminator>())
    return success();
  auto read = dyn_cast<ReadOp>(op);
  // Ops that are not known count as having effects.
  if (!read && !isMemoryEffectFree(&op))
    return op.emitOpError("stores or has effects that are not known, but @")
           << kLossFunction << " only computes";
  if (!read)
    return success();
  // Gradients and moments are of a step, not of the model.
  bool isValue =
      read.getSlot() == Slot::Value || read.getSlot() == Slot::Compute;
  if (isValue && findParameter(read, tables))
    return success();
  return op.emitOpError("reads the ")
         << read.getSlot().getName() << " of " << read.getSymbolAttr()
         << ", but @" << kLossFunction << " reads values of parameters only";
}

/// (L1)
/// Who decides how values are split asks each op, and gives a `begin` to those
/// that count: an op of which it can ask nothing would leave its result without
/// a sharding, and a `begin` of the model's would be of a mesh that it does not
/// know.
LogicalResult LossVerifier::verifyWhole(Operation &op) {
  if (op.hasTrait<OpTrait::IsTerminator>() || isa<ReadOp>(op))
    return success();
  auto composed = dyn_cast<DecomposableOpInterface>(op);
  if (!isa<ShardableOpInterface>(op) &&
      !(composed && composed.decomposesEarly()))
    return op.emitOpError("does not say how it splits over ranks, as each op "
                          "of @")
           << kLossFunction << " has to";
  BeginAttr found;
  op.getAttrDictionary().walk([&](BeginAttr begin) {
    if (!begin.getTerms().empty())
      found = begin;
  });
  if (!found)
    return success();
  return op.emitOpError("computes what a rank has, from ")
         << found << " on, but @" << kLossFunction << " computes whole tensors";
}

/// `ids` select along dimension `dim` of `from` (L3).
LogicalResult LossVerifier::verifySelection(Operation &op, Value ids,
                                            Value from, int64_t dim) {
  auto fromType = cast<RankedTensorType>(from.getType());
  int64_t extent = fromType.getDimSize(dim);
  // Positions: their number is known.
  if (auto iota = ids.getDefiningOp<IotaOp>()) {
    // Ids along one dimension: as many positions as it is long.
    int64_t count = iota.getType().getDimSize(iota.getAlong());
    if (count > extent)
      return op.emitOpError("selects ") << count << " positions from "
                                        << fromType << ", which has " << extent;
    return success();
  }
  // Tokens and targets are arguments, and below the vocabulary. Of what an op
  // has computed nothing is known, so that nothing is claimed.
  if (!isa<BlockArgument>(ids) || extent >= vocab)
    return success();
  return op.emitOpError("selects from ") << fromType << ", which has " << extent
                                         << " entries for a vocabulary of "
                                         << vocab << " (" << kModelAttr << ")";
}

/// (L3), for the ops that take indices.
LogicalResult LossVerifier::verifyIndices(Operation &op) {
  if (auto embedding = dyn_cast<EmbeddingOp>(op))
    return verifySelection(op, embedding.getIds(), embedding.getTable(), 0);
  auto rank = [](Value value) {
    return cast<RankedTensorType>(value.getType()).getRank();
  };
  if (auto pick = dyn_cast<PickOp>(op))
    return verifySelection(op, pick.getIds(), pick.getInput(),
                           rank(pick.getInput()) - 1);
  if (auto entropy = dyn_cast<SoftmaxCrossEntropyOp>(op))
    return verifySelection(op, entropy.getTargets(), entropy.getLogits(),
                           rank(entropy.getLogits()) - 1);
  return success();
}

/// Finds what `value` is computed from. Cross-entropy counts the targets
/// without looking at the logits.
static ValueRange findInputs(OpResult value) {
  auto entropy = dyn_cast<SoftmaxCrossEntropyOp>(value.getOwner());
  if (entropy && value == entropy.getCount())
    return entropy->getOperands().slice(1, 1);
  return value.getOwner()->getOperands();
}

/// The reads that `result` depends on.
llvm::SetVector<Operation *> LossVerifier::findReads(Value result) {
  // Grows while it is walked; ends at arguments and reads.
  llvm::SetVector<Value> slice;
  llvm::SetVector<Operation *> reads;
  slice.insert(result);
  for (size_t index = 0; index < slice.size(); ++index) {
    auto value = dyn_cast<OpResult>(slice[index]);
    if (!value)
      continue;
    if (isa<ReadOp>(value.getOwner()))
      reads.insert(value.getOwner());
    for (Value input : findInputs(value))
      slice.insert(input);
  }
  return reads;
}

/// (L2)
LogicalResult LossVerifier::verifyResults() {
  Operation *terminator = loss.getFunctionBody().front().getTerminator();
  Value count = terminator->getOperand(1);
  // Loss and count exchanged would still be two numbers: what tells them apart
  // is that counting takes no parameter.
  for (Operation *read : findReads(count))
    return read->emitOpError("reaches the number of targets, but @")
           << kLossFunction << " returns the loss first and the number second, "
           << "which depends on no parameter";
  // A constant can be judged here; what is counted is known when a step runs.
  auto fill = count.getDefiningOp<FillOp>();
  if (fill && fill.getAmount().convertToDouble() <= 0.0)
    return fill.emitOpError(
        "is the number of targets, which has to be positive");
  // A warning only: a model may well keep what it does not train. What it says
  // that it does not train is meant so.
  llvm::DenseSet<Attribute> used;
  for (Operation *read : findReads(terminator->getOperand(0)))
    used.insert(cast<ReadOp>(read).getSymbolAttr());
  for (auto parameter : loss->getParentRegion()->front().getOps<ParameterOp>())
    if (!used.contains(FlatSymbolRefAttr::get(parameter.getSymNameAttr())) &&
        parameter.getRateFactor() != 0)
      parameter.emitWarning("@")
          << parameter.getSymName() << " is not trained: the loss that @"
          << kLossFunction << " returns does not depend on it";
  if (used.empty())
    return loss.emitOpError("returns a loss that depends on no parameter");
  return success();
}

/// All ops with dropout take its keys as their last operand.
static bool isDropoutKey(OpOperand &use) {
  Operation *op = use.getOwner();
  return op->hasAttr(kSiteAttr) &&
         use.getOperandNumber() + 1 == op->getNumOperands();
}

/// Tells by its position among the operands, which the optional ones change.
static bool isAttentionStart(OpOperand &use) {
  auto attention = dyn_cast<AttentionOp>(use.getOwner());
  return attention && attention.getStarts() &&
         use.getOperandNumber() ==
             attention.getStartsMutable().begin()->getOperandNumber();
}

/// (L4)
LogicalResult LossVerifier::verifyUses(BlockArgument argument, StringRef name,
                                       StringRef user,
                                       bool (*isMeant)(OpOperand &)) {
  if (!argument)
    return success();
  for (OpOperand &use : argument.getUses())
    if (!isMeant(use))
      return use.getOwner()->emitOpError("uses argument ")
             << argument.getArgNumber() << " of @" << kLossFunction << ", the "
             << name << ", which only " << user << " does";
  return success();
}

/// Op by op first, so that an error names the op that is wrong and not the
/// result that it spoils.
LogicalResult LossVerifier::verify() {
  // All passes walk one block.
  if (!llvm::hasSingleElement(loss.getFunctionBody()))
    return loss.emitOpError("has several blocks, expected one");
  for (Operation &op : loss.getFunctionBody().front())
    if (failed(verifyEffects(op)) || failed(verifyWhole(op)) ||
        failed(verifyIndices(op)))
      return failure();
  if (failed(verifyUses(findInput(loss, InputKind::Keys), "keys", "dropout",
                        isDropoutKey)) ||
      failed(verifyUses(findInput(loss, InputKind::Starts),
                        "starts of documents", "attention", isAttentionStart)))
    return failure();
  return failure(failed(verifyInputs(loss)) ||
                 failed(verifyNamedLosses(loss)) || failed(verifyResults()));
}

LogicalResult nn::verifyLoss(FunctionOpInterface loss, int64_t vocab) {
  return LossVerifier(loss, vocab).verify();
}

//===----------------------------------------------------------------------===//
// Discardable attributes
//===----------------------------------------------------------------------===//

/// No other attribute may begin with `nn.`: one that is misspelt by hand would
/// else be passed over in silence.
LogicalResult NNDialect::verifyOperationAttribute(Operation *op,
                                                  NamedAttribute attribute) {
  if (attribute.getName() == kLayerAttr || attribute.getName() == kBlockAttr) {
    auto layer = dyn_cast<IntegerAttr>(attribute.getValue());
    if (layer && layer.getType().isInteger(64) && layer.getInt() >= 0)
      return success();
    return op->emitOpError("has ")
           << attribute.getName().strref() << " = " << attribute.getValue()
           << ", expected the index of a layer, an i64 of at least 0";
  }
  if (attribute.getName() == kBackwardAttr &&
      isa<UnitAttr>(attribute.getValue()))
    return success();
  if (attribute.getName() == kUnsavedAttr && isa<ParameterOp>(op) &&
      isa<UnitAttr>(attribute.getValue()))
    return success();
  return op->emitOpError("has attribute ")
         << attribute.getName() << " = " << attribute.getValue()
         << ", expected " << kLayerAttr << " = i or " << kBackwardAttr;
}

LogicalResult NNDialect::verifyRegionArgAttribute(Operation *op,
                                                  unsigned region,
                                                  unsigned argument,
                                                  NamedAttribute attribute) {
  for (const InputFacts &facts : getInputFacts())
    if (attribute.getName() == facts.attribute &&
        (facts.isNamed ? isa<StringAttr>(attribute.getValue())
                       : isa<UnitAttr>(attribute.getValue())))
      return success();
  InFlightDiagnostic error = op->emitOpError("has attribute ")
                             << attribute.getName() << " = "
                             << attribute.getValue() << " on argument "
                             << argument << ", expected ";
  listInputAttributes(error);
  return error;
}

LogicalResult NNDialect::verifyRegionResultAttribute(Operation *op,
                                                     unsigned region,
                                                     unsigned result,
                                                     NamedAttribute attribute) {
  if (attribute.getName() == kNamedLossAttr &&
      isa<StringAttr>(attribute.getValue()))
    return success();
  return op->emitOpError("has attribute ")
         << attribute.getName() << " = " << attribute.getValue()
         << " on result " << result << ", expected " << kNamedLossAttr
         << " = \"NAME\"";
}
