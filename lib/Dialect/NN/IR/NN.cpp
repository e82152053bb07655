//===- NN.cpp - The nn dialect: verifiers and folds ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What an op means and its numbered constraints are in the NN*Ops.td files;
// here are the verifiers, each check tagged with its constraint, and the folds.
// What TableGen makes of those files, and attributes, are in NNDialect.cpp.
// What ops do in training is in other files: factor rules and costs
// (NNSharding.cpp), gradients, decompositions, the arithmetic of kernels
// (NNElements.cpp). Constraints of loss functions and of packs, which take more
// than one op, have files of their own.
//
// Shapes are global or local: verifiers check what holds for both, since
// partitioning changes types in place.
//
//===----------------------------------------------------------------------===//

#include "Constraints.h"
#include "plait/Dialect/NN/IR/Parameters.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;
using namespace plait;
using namespace plait::nn;

LogicalResult nn::verifyShape(Operation *op, const char *what, Value value,
                              ArrayRef<int64_t> expected) {
  if (!value || shapeOf(value) == expected)
    return success();
  std::string text;
  llvm::raw_string_ostream out(text);
  llvm::interleave(expected, out, "x");
  return op->emitOpError("has ") << what << " " << value.getType()
                                 << ", expected the shape [" << text << "]";
}

/// Compares element types alone.
LogicalResult nn::verifySum(Operation *op, Value term, Value sum) {
  Type from = getElementTypeOrSelf(term), to = getElementTypeOrSelf(sum);
  if (to == from || to.isF32())
    return success();
  return op->emitOpError("has result ")
         << sum.getType() << ", expected elements of f32 or of "
         << term.getType();
}

LogicalResult nn::verifyInOrder(Operation *op, BeginAttr begin) {
  if (!begin || !begin.isReordered())
    return success();
  return op->emitOpError("has ")
         << begin << ", expected elements in their own order";
}

/// A reordered block has no first row.
LogicalResult nn::verifyRowLimit(Operation *op, BeginAttr begin,
                                 int64_t limit) {
  // A limit counts from the beginning of the whole, which only a block has to
  // be told.
  if (limit < 0 || (limit > 0 && !begin))
    return op->emitOpError("has limit ")
           << limit << ", expected 0, or a positive one with begin";
  return verifyInOrder(op, begin);
}

//===----------------------------------------------------------------------===//
// Contractions
//===----------------------------------------------------------------------===//

LogicalResult MatmulOp::verify() {
  if (failed(verifyContraction(*this)))
    return failure();
  // (C4)
  return verifySum(*this, getLhs(), getResult());
}

//===----------------------------------------------------------------------===//
// Embeddings and losses
//===----------------------------------------------------------------------===//

/// Forward and backward: the one reads rows of a table, the other adds rows to
/// one.
static LogicalResult verifyEmbedding(Operation *op, Value table, Value ids,
                                     Value rows) {
  // (C1)
  if (shapeOf(table).size() != 2)
    return op->emitOpError("has table ")
           << table.getType() << ", expected two dimensions";
  SmallVector<int64_t> expected(shapeOf(ids));
  expected.push_back(shapeOf(table)[1]);
  return verifyShape(op, "rows", rows, expected);
}

Selection EmbeddingOp::getSelection() {
  return {getIds(), getTable(), 0, getBeginAttr(), int64_t(getLimit())};
}

LogicalResult EmbeddingOp::verify() {
  if (failed(verifyEmbedding(*this, getTable(), getIds(), getResult())))
    return failure();
  // (C2)
  return verifyRowLimit(*this, getBeginAttr(), getLimit());
}

LogicalResult EmbeddingGradOp::verify() {
  if (failed(verifyEmbedding(*this, getResult(), getIds(), getGradient())))
    return failure();
  // (C2)
  if (failed(verifyRowLimit(*this, getBeginAttr(), getLimit())))
    return failure();
  // (C3)
  return verifySum(*this, getGradient(), getResult());
}

Selection PickOp::getSelection() {
  return {getIds(), getInput(), getInput().getType().getRank() - 1,
          getBeginAttr()};
}

LogicalResult PickOp::verify() {
  // (C1)
  SmallVector<int64_t> expected(shapeOf(getIds()));
  if (shapeOf(getInput()).empty())
    return emitOpError("has input of rank 0, expected at least 1");
  expected.push_back(shapeOf(getInput()).back());
  if (failed(verifyShape(*this, "input", getInput(), expected)))
    return failure();
  if (failed(verifyShape(*this, "result", getResult(), expected)))
    return failure();
  // (C3)
  return verifyInOrder(*this, getBeginAttr());
}

LogicalResult ValidOp::verify() {
  // (C1)
  return verifyShape(*this, "result", getResult(), shapeOf(getIds()));
}

LogicalResult ConvertOp::verify() {
  // (C1)
  Type from = getElementTypeOrSelf(getInput()),
       to = getElementTypeOrSelf(getResult());
  if ((from.isF32() && to.isInteger(32)) || (from.isInteger(32) && to.isF32()))
    return success();
  return emitOpError("converts ")
         << from << " to " << to << ", expected i32 and f32, or the reverse";
}

LogicalResult IotaOp::verify() {
  // (C1)
  if (getAlong() >= shapeOf(getResult()).size())
    return emitOpError("counts along dimension ")
           << static_cast<int64_t>(getAlong()) << " of a tensor of rank "
           << shapeOf(getResult()).size();
  return success();
}

/// Loss and count are f32 whatever the logits are.
void SoftmaxCrossEntropyOp::build(OpBuilder &builder, OperationState &state,
                                  Value logits, Value targets, int32_t ignore) {
  auto scalar = RankedTensorType::get({}, builder.getF32Type());
  build(builder, state, {scalar, scalar}, logits, targets,
        builder.getI32IntegerAttr(ignore));
}

Selection SoftmaxCrossEntropyOp::getSelection() {
  return {getTargets(), getLogits(), getLogits().getType().getRank() - 1,
          BeginAttr()};
}

LogicalResult SoftmaxCrossEntropyOp::verify() {
  // (C1)
  ArrayRef<int64_t> logits = shapeOf(getLogits());
  if (logits.empty() || logits.drop_back() != shapeOf(getTargets()))
    return emitOpError("has logits ")
           << getLogits().getType() << " for targets "
           << getTargets().getType();
  return success();
}

//===----------------------------------------------------------------------===//
// Normalisation, rotary embedding
//===----------------------------------------------------------------------===//

/// (C2)
/// Of an epsilon or a base of frequencies: zero would divide by zero or take
/// its logarithm.
static LogicalResult verifyPositive(Operation *op, const char *what,
                                    APFloat value) {
  if (!value.isFinite() || value.isNegative() || value.isZero())
    return op->emitOpError("has ") << what << ' ' << value.convertToDouble()
                                   << ", which is not positive";
  return success();
}

LogicalResult LayerNormOp::verify() {
  // (C1)
  ArrayRef<int64_t> input = shapeOf(getInput());
  if (input.empty())
    return emitOpError("has input of rank 0, expected at least 1");
  if (failed(verifyShape(*this, "output", getOut(), input)) ||
      failed(verifyShape(*this, "weight", getWeight(), input.take_back())) ||
      failed(verifyShape(*this, "bias", getBias(), input.take_back())) ||
      failed(verifyShape(*this, "mean", getMean(), input.drop_back())) ||
      failed(verifyShape(*this, "rstd", getRstd(), input.drop_back())))
    return failure();
  return verifyPositive(*this, "epsilon", getEpsilon());
}

LogicalResult RMSNormOp::verify() {
  // (C1)
  ArrayRef<int64_t> input = shapeOf(getInput());
  if (input.empty())
    return emitOpError("has input of rank 0, expected at least 1");
  if (failed(verifyShape(*this, "output", getOut(), input)) ||
      failed(verifyShape(*this, "weight", getWeight(), input.take_back())) ||
      failed(verifyShape(*this, "rstd", getRstd(), input.drop_back())))
    return failure();
  return verifyPositive(*this, "epsilon", getEpsilon());
}

/// (C3): frequencies are divided by the factor, and blended between the two
/// others.
static LogicalResult verifyScaling(Operation *op, RopeScalingAttr scaling) {
  if (!scaling)
    return success();
  double factor = scaling.getFactor().getValueAsDouble();
  double low = scaling.getLow().getValueAsDouble();
  double high = scaling.getHigh().getValueAsDouble();
  bool isBlend = low > 0 && low < high && std::isfinite(high);
  if (factor > 0 && std::isfinite(factor) && isBlend &&
      scaling.getOriginal() > 0)
    return success();
  return op->emitOpError("has scaling ")
         << scaling << ", expected positive numbers, low below high";
}

/// (C4)
static LogicalResult verifyYarn(Operation *op, YarnAttr yarn,
                                RopeScalingAttr scaling) {
  if (!yarn)
    return success();
  auto isPositive = [](FloatAttr number) {
    return number.getValueAsDouble() > 0 && number.getValue().isFinite();
  };
  double first = yarn.getFirst().getValueAsDouble();
  double last = yarn.getLast().getValueAsDouble();
  if (!isPositive(yarn.getFactor()) || !isPositive(yarn.getAmplitude()) ||
      !(first < last) || !std::isfinite(last - first))
    return op->emitOpError("has yarn ")
           << yarn << ", expected a positive factor and amplitude, first below "
           << "last";
  if (scaling)
    return op->emitOpError("has both scaling and yarn");
  return success();
}

/// (C2) to (C5), of both ops.
template <typename Op> static LogicalResult verifyAngles(Op op, int64_t size) {
  if (failed(verifyPositive(op, "theta", op.getTheta())) ||
      failed(verifyScaling(op, op.getScalingAttr())) ||
      failed(verifyYarn(op, op.getYarnAttr(), op.getScalingAttr())))
    return failure();
  auto rotated = static_cast<int64_t>(op.getRotated().value_or(size));
  if (rotated >= 2 && rotated % 2 == 0 && rotated <= size)
    return success();
  return op.emitOpError("rotates ")
         << rotated << " of " << size
         << " elements, expected an even number, at least 2, at most all";
}

LogicalResult RopeOp::verify() {
  // (C1)
  ArrayRef<int64_t> input = shapeOf(getInput());
  if (input.size() < 3 || input.back() % 2)
    return emitOpError("has input ")
           << getInput().getType()
           << ", expected at least three dimensions, the last one even";
  return verifyAngles(*this, input.back());
}

LogicalResult RopeTableOp::verify() {
  // (C1)
  ArrayRef<int64_t> shape = shapeOf(getResult());
  if (shape.size() != 2 || shape.back() % 2)
    return emitOpError("has result ")
           << getResult().getType()
           << ", expected two dimensions, the last one even";
  return verifyAngles(*this, shape.back());
}

LogicalResult ReorderOp::verify() {
  // (C1)
  if (getDim() >= shapeOf(getInput()).size())
    return emitOpError("reorders dimension ")
           << static_cast<int64_t>(getDim()) << " of a tensor of rank "
           << shapeOf(getInput()).size();
  // (C2)
  int64_t extent = shapeOf(getInput())[getDim()];
  if (!getOrder().hasPairs())
    return emitOpError("has ")
           << static_cast<int64_t>(getChunks()) << " chunks of " << extent
           << " elements, expected an even number that divides them";
  return success();
}

LogicalResult RotateHalfOp::verify() {
  // (C1)
  ArrayRef<int64_t> shape = shapeOf(getInput());
  if (shape.empty() || shape.back() % 2)
    return emitOpError("has input ")
           << getInput().getType() << ", expected an even last dimension";
  return success();
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

/// Fails unless `dims` are ascending dimensions of a tensor of rank `rank`.
/// Ascending, so that one list means one thing and lists can be compared.
static LogicalResult verifyDims(Operation *op, ArrayRef<int64_t> dims,
                                int64_t rank) {
  int64_t last = -1;
  for (int64_t dim : dims) {
    if (dim <= last || dim >= rank)
      return op->emitOpError("lists dimension ")
             << dim << " after " << last << " of a tensor of rank " << rank;
    last = dim;
  }
  return success();
}

LogicalResult BroadcastOp::verify() {
  ArrayRef<int64_t> from = shapeOf(getInput()), to = shapeOf(getResult());
  // (C1)
  if (getDims().size() != from.size())
    return emitOpError("lists ")
           << getDims().size() << " dimensions for an input of rank "
           << from.size();
  SmallVector<int64_t> dims(getDims());
  if (!llvm::is_contained(dims, int64_t(to.size()) - 1))
    llvm::sort(dims);
  if (failed(verifyDims(*this, dims, to.size())))
    return failure();
  // (C2)
  for (auto [extent, dim] : llvm::zip_equal(from, getDims()))
    if (extent != to[dim])
      return emitOpError("turns extent ")
             << extent << " into " << to[dim] << " along dimension " << dim;
  return success();
}

LogicalResult ReduceOp::verify() {
  ArrayRef<int64_t> from = shapeOf(getInput());
  // (C1)
  if (getDims().empty())
    return emitOpError("lists no dimension to reduce");
  if (failed(verifyDims(*this, getDims(), from.size())))
    return failure();
  // (C2)
  SmallVector<int64_t> expected;
  for (auto [dim, extent] : llvm::enumerate(from))
    if (!llvm::is_contained(getDims(), static_cast<int64_t>(dim)))
      expected.push_back(extent);
  return verifyShape(*this, "result", getResult(), expected);
}

LogicalResult CausalMaskOp::verify() {
  // (C1)
  if (shapeOf(getInput()).size() < 2)
    return emitOpError("has input ")
           << getInput().getType() << ", expected at least two dimensions";
  if (failed(verifyWindow(*this, getWindow())))
    return failure();
  // (C4)
  if (getBidirectional() && (!getWindow() || getStarts()))
    return emitOpError("is bidirectional ")
           << (getStarts() ? "and has starts of documents"
                           : "without a window, which hides nothing");
  // (C3)
  return verifyShape(*this, "starts", getStarts(),
                     shapeOf(getInput()).drop_back());
}

LogicalResult MaskPaddingOp::verify() {
  // (C1)
  int64_t rank = shapeOf(getInput()).size(), dim = getDim();
  if (dim < 0 || dim >= rank)
    return emitOpError("masks dimension ")
           << dim << " of a tensor of rank " << rank;
  // (C2)
  if (failed(verifyInOrder(*this, getBeginAttr())))
    return failure();
  // (C3)
  if (int64_t(getLimit()) < 1 || getLimit() > INT32_MAX)
    return emitOpError("keeps ")
           << int64_t(getLimit()) << " elements of dimension " << dim
           << ", of which it keeps at least 1 and at most " << INT32_MAX;
  return success();
}

//===----------------------------------------------------------------------===//
// Folds
//===----------------------------------------------------------------------===//

/// Only by what changes no number.
OpFoldResult ScaleOp::fold(FoldAdaptor) {
  return getAmount().isExactlyValue(1.0) ? OpFoldResult(getInput())
                                         : OpFoldResult();
}

OpFoldResult ShiftOp::fold(FoldAdaptor) {
  return getAmount().isZero() ? OpFoldResult(getInput()) : OpFoldResult();
}

/// What was widened only is narrow again without rounding.
OpFoldResult CastOp::fold(FoldAdaptor) {
  if (getInput().getType() == getType())
    return getInput();
  auto inner = getInput().getDefiningOp<CastOp>();
  if (inner && inner.isExact() && inner.getInput().getType() == getType())
    return inner.getInput();
  return {};
}

/// Two chunks lie in order, and there and back again changes nothing.
OpFoldResult ReorderOp::fold(FoldAdaptor) {
  if (getChunks() == 2)
    return getInput();
  auto before = getInput().getDefiningOp<ReorderOp>();
  bool isUndone = before && before.getDim() == getDim() &&
                  before.getChunks() == getChunks() &&
                  before.getInverse() != getInverse() &&
                  before.getInput().getType() == getType();
  return isUndone ? before.getInput() : Value();
}

/// Left alone, a sum with zeros would be a kernel that moves a tensor and
/// computes nothing.
OpFoldResult AddOp::fold(FoldAdaptor) {
  auto isZero = [](Value value) {
    auto fill = value.getDefiningOp<FillOp>();
    return fill && fill.getAmount().isZero();
  };
  if (isZero(getRhs()))
    return getLhs();
  return isZero(getLhs()) ? OpFoldResult(getRhs()) : OpFoldResult();
}
