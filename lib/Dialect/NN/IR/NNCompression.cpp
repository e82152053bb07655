//===- NNCompression.cpp - Ops of compressed sums -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Codes are integers in f32 until they are packed. Of a row the elements that
// share a word are as far from one another as the row has words: so words are
// made of, and become, runs of neighbours, which vectors load and store.
//
//===----------------------------------------------------------------------===//

#include "Constraints.h"
#include "plait/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace plait;
using namespace plait::nn;

constexpr int64_t kWordBits = 32;

static int64_t lastOf(Value value) { return shapeOf(value).size() - 1; }

//===----------------------------------------------------------------------===//
// Verifiers
//===----------------------------------------------------------------------===//

/// (C1) of both ops of replicas.
static LogicalResult verifyReplicas(Operation *op, Value parts, Value sum) {
  ArrayRef<int64_t> all = shapeOf(parts), own = shapeOf(sum);
  if (all == own ||
      (!all.empty() && all.front() > 0 && all.drop_front() == own))
    return success();
  return op->emitOpError("has parts ")
         << parts.getType() << " of a sum " << sum.getType()
         << ", expected the same shape, or one dimension in front";
}

LogicalResult PartsOp::verify() {
  if (failed(verifyReplicas(*this, getResult(), getInput())))
    return failure();
  // (C2)
  ArrayRef<int64_t> all = shapeOf(getResult());
  if (!getAlone() || all == shapeOf(getInput()) || all.front() == 1)
    return success();
  return emitOpError("has ") << all.front() << " parts of what is alone";
}

LogicalResult UniteOp::verify() {
  return verifyReplicas(*this, getInput(), getResult());
}

/// (C1) and (C2) of both chunk ops.
static LogicalResult verifyChunks(Operation *op, Value elements, Value numbers,
                                  int64_t block) {
  if (block < 1)
    return op->emitOpError("has chunks of ")
           << block << " elements, expected at least 1";
  ArrayRef<int64_t> shape = shapeOf(elements), own = shapeOf(numbers);
  bool fits =
      !shape.empty() && own.size() == 2 && own[0] == shape[0] &&
      own[1] == int64_t(llvm::divideCeil(
                    ShapedType::getNumElements(shape.drop_front()), block));
  if (fits)
    return success();
  return op->emitOpError("has ")
         << numbers.getType() << " for " << elements.getType()
         << ", expected a number for each chunk of " << block << " elements";
}

LogicalResult ChunkReduceOp::verify() {
  return verifyChunks(*this, getInput(), getResult(), getBlock());
}

LogicalResult ChunkSpreadOp::verify() {
  return verifyChunks(*this, getResult(), getInput(), getBlock());
}

LogicalResult nn::SliceOp::verify() {
  int64_t part = getPart(), parts = getParts();
  SmallVector<int64_t> shape(shapeOf(getInput()));
  // (C1)
  if (shape.empty() || parts < 1 || part < 0 || part >= parts ||
      shape.back() % parts)
    return emitOpError("takes part ")
           << part << " of " << parts << " of " << getInput().getType();
  // (C2)
  shape.back() /= parts;
  if (shapeOf(getResult()) == ArrayRef(shape))
    return success();
  return emitOpError("has result ") << getResult().getType() << ", expected "
                                    << shape.back() << " elements of each row";
}

/// (C1) of both ops of words.
static LogicalResult verifyBits(Operation *op, int64_t bits) {
  if (llvm::is_contained({1, 2, 4, 8, 16}, bits))
    return success();
  return op->emitOpError("has integers of ")
         << bits << " bits, expected 1, 2, 4, 8 or 16";
}

LogicalResult PackBitsOp::verify() {
  if (failed(verifyBits(*this, getBits())))
    return failure();
  // (C2)
  int64_t count = getInputs().size(), wanted = kWordBits / int64_t(getBits());
  if (count != wanted)
    return emitOpError("has ") << count << " inputs, expected " << wanted;
  for (Value input : getInputs())
    if (shapeOf(input) != shapeOf(getResult()))
      return emitOpError("has input ")
             << input.getType() << ", expected the shape of "
             << getResult().getType();
  return success();
}

LogicalResult UnpackBitsOp::verify() {
  if (failed(verifyBits(*this, getBits())))
    return failure();
  // (C2)
  SmallVector<int64_t> shape(shapeOf(getInput()));
  if (!shape.empty()) {
    shape.back() *= kWordBits / int64_t(getBits());
    if (shapeOf(getResult()) == ArrayRef(shape))
      return success();
  }
  return emitOpError("makes ")
         << getResult().getType() << " of " << getInput().getType()
         << ", expected " << kWordBits / int64_t(getBits())
         << " elements for each word";
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

Value PartsOp::emitElement(ElementContext &, ValueRange operands) {
  return operands.front();
}
Value UniteOp::emitElement(ElementContext &, ValueRange operands) {
  return operands.front();
}

FusionRole nn::SliceOp::getFusionRole() { return FusionRole::Reindex; }

IndexMap nn::SliceOp::getIndexMap() {
  int64_t own = shapeOf(getResult()).back();
  return {lastOf(getInput()), {{own, int64_t(getPart()) * own}}};
}

Value nn::SliceOp::emitElement(ElementContext &, ValueRange operands) {
  return operands.front();
}

FusionRole UnpackBitsOp::getFusionRole() { return FusionRole::Reindex; }

/// Each run of the row is all words, once more.
IndexMap UnpackBitsOp::getIndexMap() {
  int64_t words = shapeOf(getInput()).back();
  IndexMap map{lastOf(getInput()), {}};
  for (int64_t run = 0; run < kWordBits / int64_t(getBits()); ++run)
    map.pieces.push_back({(run + 1) * words, -run * words});
  return map;
}

namespace {
/// Arithmetic on elements, as expressions.
struct Arithmetic {
  ElementContext &context;

  template <typename OpTy> Value make(Value a, Value b) {
    return OpTy::create(context.builder, context.loc, a, b);
  }
  Value real(double value) {
    return context.getConstant(context.builder.getF32FloatAttr(value));
  }
  Value integer(int32_t value) {
    return context.getConstant(context.builder.getI32IntegerAttr(value));
  }
};
} // namespace

/// The last digit of numbers around this one is 1, so that a sum with it is
/// rounded to an integer; its own lowest 22 bits are zero, and those of the
/// sum the integer's.
constexpr double kRoundsToIntegers = 0x1.8p23;

/// Also what is no number is left as it is.
Value RoundOp::emitElement(ElementContext &context, ValueRange operands) {
  Arithmetic of{context};
  Value x = operands.front(), magic = of.real(kRoundsToIntegers);
  Value sum = of.make<arith::AddFOp>(x, magic);
  Value rounded = of.make<arith::SubFOp>(sum, magic);
  Value square = of.make<arith::MulFOp>(x, x);
  Value isSmall =
      arith::CmpFOp::create(context.builder, context.loc,
                            arith::CmpFPredicate::OLT, square, of.real(0x1p44));
  return arith::SelectOp::create(context.builder, context.loc, isSmall, rounded,
                                 x);
}

/// No conversion to integers, which would be undefined for what is none.
Value PackBitsOp::emitElement(ElementContext &context, ValueRange operands) {
  Arithmetic of{context};
  int64_t bits = getBits();
  Value magic = of.real(kRoundsToIntegers);
  Value mask = of.integer((int32_t(1) << bits) - 1);
  Value word;
  for (auto [index, operand] : llvm::enumerate(operands)) {
    Value sum = of.make<arith::AddFOp>(operand, magic);
    Type type = context.builder.getI32Type();
    if (auto vector = dyn_cast<VectorType>(sum.getType()))
      type = vector.clone(type);
    Value code =
        arith::BitcastOp::create(context.builder, context.loc, type, sum);
    code = of.make<arith::AndIOp>(code, mask);
    if (index)
      code = of.make<arith::ShLIOp>(code, of.integer(index * bits));
    word = word ? of.make<arith::OrIOp>(word, code) : code;
  }
  return word;
}

/// Shifted up, so that its sign is the word's, and down again.
Value UnpackBitsOp::emitElement(ElementContext &context, ValueRange operands) {
  Arithmetic of{context};
  int32_t bits = getBits(), words = shapeOf(getInput()).back();
  Value run = of.make<arith::DivUIOp>(context.getIndex(lastOf(getInput())),
                                      of.integer(words));
  Value below = of.make<arith::MulIOp>(run, of.integer(bits));
  Value up = of.make<arith::SubIOp>(of.integer(kWordBits - bits), below);
  Value code = of.make<arith::ShLIOp>(operands.front(), up);
  Value down = of.integer(kWordBits - bits);
  code = bits == 1 ? of.make<arith::ShRUIOp>(code, down)
                   : of.make<arith::ShRSIOp>(code, down);
  Type type = context.builder.getF32Type();
  if (auto vector = dyn_cast<VectorType>(code.getType()))
    type = vector.clone(type);
  return arith::SIToFPOp::create(context.builder, context.loc, type, code);
}
