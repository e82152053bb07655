//===- NNDropout.cpp - All of nn.dropout ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Whether an element is kept is a hash of its sequence's key, the dropout's
// site and the element's indices in the whole tensor
// (plait/Support/DropoutMask.h): no mask is stored, and any partition and any
// repetition of the op draws the same one. All that the op needs for this is
// here, in one file.
//
//===----------------------------------------------------------------------===//

#include "EmittedWords.h"

#include <limits>

using namespace mlir;
using namespace plait;
using namespace plait::nn;

//===----------------------------------------------------------------------===//
// Constraints
//===----------------------------------------------------------------------===//

/// Serves nn.dropout, which always has the three, and for attention, which has
/// all or none.
LogicalResult nn::verifyDropout(Operation *op, Value keys, int64_t batch,
                                FloatAttr probability, IntegerAttr site) {
  if (!keys && !probability && !site)
    return success();
  if (!keys || !probability || !site)
    return op->emitOpError("has one of dropout's keys, probability and site, "
                           "expected all or none");
  auto type = cast<RankedTensorType>(keys.getType());
  if (type.getShape() != ArrayRef(batch))
    return op->emitOpError("has dropout keys ")
           << type << ", expected one for each of " << batch << " sequences";
  double value = probability.getValueAsDouble();
  if (!(value >= 0.0 && value < 1.0))
    return op->emitOpError("has probability ")
           << value << ", expected at least 0 and below 1";
  if (site.getInt() < 0 || site.getInt() > std::numeric_limits<int32_t>::max())
    return op->emitOpError("has site ")
           << site.getInt() << ", expected at least 0 and below 2^31";
  return success();
}

LogicalResult DropoutOp::verify() {
  // (C1)
  RankedTensorType type = getInput().getType();
  if (type.getRank() == 0)
    return emitOpError("has input ") << type << ", expected a batch dimension";
  // (C1) to (C3)
  if (failed(verifyDropout(*this, getKeys(), type.getDimSize(0),
                           getProbabilityAttr(), getSiteAttr())))
    return failure();
  // (C4)
  if (!getBegins())
    return success();
  bool fits = static_cast<int64_t>(getBegins()->size()) == type.getRank();
  for (auto [dim, begin] : llvm::enumerate(*getBegins()))
    fits &= isa<UnitAttr>(begin) || (dim && isa<BeginAttr>(begin));
  if (fits)
    return success();
  return emitOpError("has begins ")
         << *getBegins() << ", expected unit, then #nn.begin or unit for each "
         << "further one of " << type.getRank() << " dimensions";
}

/// Elements are kept whatever their hash.
static bool keepsAll(double probability) {
  return getMaskThreshold(probability) > std::numeric_limits<uint32_t>::max();
}

/// Goes by the threshold and not by the probability: one so small that no hash
/// is dropped is none, too.
OpFoldResult DropoutOp::fold(FoldAdaptor) {
  return keepsAll(getProbability().convertToDouble()) ? getInput() : Value();
}

//===----------------------------------------------------------------------===//
// Without
//===----------------------------------------------------------------------===//

void DropoutOp::removeDropout() {
  replaceAllUsesWith(getInput());
  erase();
}

//===----------------------------------------------------------------------===//
// Sharding, gradient
//===----------------------------------------------------------------------===//

FactorRule DropoutOp::getFactorRule() {
  FactorRule rule = elementwiseRule(*this);
  // Keys run along the batch alone.
  rule.operands[1].truncate(1);
  for (Factor &factor : llvm::drop_begin(rule.factors))
    factor.isCounted = true;
  return rule;
}

BeginAttr DropoutOp::getBegin(int64_t dim) {
  ArrayAttr begins = getBeginsAttr();
  return begins ? dyn_cast<BeginAttr>(begins[dim]) : BeginAttr();
}

/// Dimension 0 has none: each sequence has its key, wherever it is.
void DropoutOp::setBegin(int64_t dim, BeginAttr begin) {
  if (dim == 0)
    return;
  SmallVector<Attribute> begins(getInput().getType().getRank(),
                                UnitAttr::get(getContext()));
  // Called once a split factor: what was noted for others stays.
  if (ArrayAttr known = getBeginsAttr())
    begins.assign(known.begin(), known.end());
  begins[dim] = begin;
  setBeginsAttr(ArrayAttr::get(getContext(), begins));
}

void DropoutOp::localizeFactor(int factor, ArrayRef<RankTerm> begin,
                               int64_t limit) {
  setBegin(factor, localize(getBegin(factor), getContext(), begin, limit));
}

void DropoutOp::orderFactor(int factor, ChunkOrder order) {
  setBegin(factor, BeginAttr::get(getContext(), order));
}

/// Linear: the gradient goes through the same mask.
SmallVector<Value> DropoutOp::buildVJP(OpBuilder &builder,
                                       ArrayRef<Value> cotangents) {
  return {DropoutOp::create(builder, getLoc(),
                            dist::plainType(cotangents[0].getType()),
                            cotangents[0], getKeys(), getProbabilityAttr(),
                            getSiteAttr(), getBeginsAttr()),
          Value()};
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

// The site is handed to the kernel: layers share one, though their masks
// differ.
StringRef DropoutOp::getCallAttrName() { return kSiteAttr; }
// A hash a dimension: loops must not run over two of them at once.
bool DropoutOp::computesIndices() { return true; }

Value DropoutOp::emitElement(ElementContext &context, ValueRange operands) {
  double probability = getProbability().convertToDouble();
  if (keepsAll(probability))
    return operands[0];
  EmittedWords words{context};
  // Dimension 0 is in the key; along a row all but the last step are the same
  // and leave the loop.
  Value hash = extendMaskHash(words, operands[1], context.getCallValue());
  for (int64_t dim = 1; dim < getInput().getType().getRank(); ++dim) {
    hash =
        extendMaskHash(words, hash, emitPosition(context, dim, getBegin(dim)));
  }
  Value threshold = words.constant(getMaskThreshold(probability));
  Value kept = arith::CmpIOp::create(
      context.builder, context.loc, arith::CmpIPredicate::ult, hash, threshold);
  Builder &builder = context.builder;
  Value scale =
      context.getConstant(builder.getF32FloatAttr(getMaskScale(probability)));
  Value scaled = words.emit<arith::MulFOp>(operands[0], scale);
  Value zero = context.getConstant(builder.getF32FloatAttr(0.0f));
  return arith::SelectOp::create(context.builder, context.loc, kept, scaled,
                                 zero);
}
