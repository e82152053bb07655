//===- Exponentials.cpp - exp by the GPU's powers of two ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// GPUs have an instruction for 2^x, ex2.approx, whose relative error is at most
// 2^-22.5 (PTX manual). What is left of exp is to reduce its argument without
// losing bits: x log2(e) = n + f with a whole number n and |f| <= 1/2, of which
// f has the bits that the rounded product lacks, and 2^n is put together from
// its bits. 10 instructions take the place of the 22 of the polynomial: a loss
// over a vocabulary has two exponentials for each 6 bytes, and took an H200
// twice as long as its memory needs.
//
// Where rows are bf16, as the logits of that loss are, numbers have 8 bits, and
// what the rounding of x log2(e) costs is less than a hundredth of the last
// one. There the argument is not reduced at all.
//
//===----------------------------------------------------------------------===//

#include "Exponentials.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

/// log2(e), rounded.
static constexpr float kLog2e = 0x1.715476p+0f;

namespace {

/// Expands exponentials of f32, or a vector of them.
struct ExpandExp : OpRewritePattern<math::ExpOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::ExpOp op,
                                PatternRewriter &rewriter) const override;
};

} // namespace

/// 2^x, one element after the other. Below 2^-126, where ftz makes zero of it,
/// the power that it is multiplied with makes less than any float.
static Value raiseTwo(ImplicitLocOpBuilder &b, Value x) {
  auto raise = [&](Value number) -> Value {
    return LLVM::CallIntrinsicOp::create(
               b, number.getType(), b.getStringAttr("llvm.nvvm.ex2.approx.ftz"),
               ValueRange(number))
        .getResult(0);
  };
  auto vector = dyn_cast<VectorType>(x.getType());
  if (!vector)
    return raise(x);
  Value result = x;
  for (int64_t i = 0; i < vector.getNumElements(); ++i)
    result = vector::InsertOp::create(
        b, raise(vector::ExtractOp::create(b, x, i)), result, i);
  return result;
}

/// 1. n, by adding what makes a float of whole numbers of it. Of what overflows
///    or vanishes, n is one that has a power; f is as far off as x is, or no
///    number, and so is 2^f.
/// 2. f = x log2(e) - n, with log2(e) in two parts.
/// 3. 2^f 2^n. The bits of n are the lowest of the shifted float; the upper
/// ones
///    go.
LogicalResult ExpandExp::matchAndRewrite(math::ExpOp op,
                                         PatternRewriter &rewriter) const {
  Value x = op.getOperand();
  Type type = x.getType();
  if (!getElementTypeOrSelf(type).isF32())
    return failure();
  ImplicitLocOpBuilder b(op.getLoc(), rewriter);
  auto vector = dyn_cast<VectorType>(type);
  Type words = b.getI32Type();
  if (vector)
    words = vector.clone(words);
  auto constant = [&](Type of, TypedAttr one) -> Value {
    TypedAttr value = one;
    if (vector)
      value = DenseElementsAttr::get(cast<ShapedType>(of), Attribute(one));
    return arith::ConstantOp::create(b, of, value);
  };
  auto number = [&](float value) {
    return constant(type, b.getF32FloatAttr(value));
  };
  auto word = [&](int32_t value) {
    return constant(words, b.getI32IntegerAttr(value));
  };
  constexpr float log2eRest = 0x1.4ae0c0p-26f;
  constexpr float wholeNumbers = 0x1.8p+23f;
  // 1.
  Value power = arith::MulFOp::create(b, x, number(kLog2e));
  power = arith::MaxNumFOp::create(b, power, number(-126));
  power = arith::MinNumFOp::create(b, power, number(127));
  Value shifted = arith::AddFOp::create(b, power, number(wholeNumbers));
  Value n = arith::SubFOp::create(b, shifted, number(wholeNumbers));
  // 2.
  Value f =
      math::FmaOp::create(b, x, number(kLog2e), arith::NegFOp::create(b, n));
  f = math::FmaOp::create(b, x, number(log2eRest), f);
  // 3.
  constexpr int32_t mantissaBits = 23, one = 0x3f800000;
  Value bits = arith::BitcastOp::create(b, words, shifted);
  bits = arith::ShLIOp::create(b, bits, word(mantissaBits));
  bits = arith::AddIOp::create(b, bits, word(one));
  Value scale = arith::BitcastOp::create(b, type, bits);
  rewriter.replaceOpWithNewOp<arith::MulFOp>(op, raiseTwo(b, f), scale);
  return success();
}

/// The rounded product is off by up to 2^-24 of |x log2(e)|, and so is the
/// logarithm of the power; infinities and what is no number stay what they are.
void plait::codegen::shortenExponentials(func::FuncOp kernel) {
  kernel.walk([](math::ExpOp op) {
    Type type = op.getType();
    if (!getElementTypeOrSelf(type).isF32())
      return;
    OpBuilder builder(op);
    ImplicitLocOpBuilder b(op.getLoc(), builder);
    TypedAttr factor = b.getF32FloatAttr(kLog2e);
    if (auto vector = dyn_cast<VectorType>(type))
      factor = DenseElementsAttr::get(vector, Attribute(factor));
    Value log2e = arith::ConstantOp::create(b, type, factor);
    Value power = arith::MulFOp::create(b, op.getOperand(), log2e);
    op.replaceAllUsesWith(raiseTwo(b, power));
    op.erase();
  });
}

LogicalResult plait::codegen::expandExponentials(ModuleOp module) {
  RewritePatternSet patterns(module.getContext());
  patterns.add<ExpandExp>(module.getContext());
  return applyPatternsGreedily(module, std::move(patterns));
}
