//===- QSGD.cpp - Integers of a few bits, rounded at random ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../CompressedSum.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace plait;

namespace {

/// Codes are sign(x) · ζ for one of the two integers ζ around s |x| / ‖x‖₂, the
/// upper one with the probability that makes it s |x| / ‖x‖₂ on average, and
/// the number is ‖x‖₂ / s of the chunk (Alistarh et al. 2017, "QSGD", section
/// 3.1): unbiased, with ω of at most min(d / s², √d / s). Where errors are fed
/// back, they must not grow: then the number is divided by 1 + ω, which is
/// contractive with δ = 1 / (1 + ω).
class QSGD : public CompressionRule {
public:
  QSGD(Chunks &chunks, const Compression &compression)
      : chunks(chunks), nn(chunks.nn),
        levels((1 << (compression.get().bits - 1)) - 1) {
    double block = double(compression.block);
    double omega =
        std::min(block / (levels * levels), std::sqrt(block) / levels);
    unit = 1 / (compression.feedback ? levels * (1 + omega) : levels);
  }

  /// 1. The norm, of what is at most 1, so that no square is too large or too
  ///    small for its type.
  /// 2. s |x| / ‖x‖₂, which rounding may make larger than s, and the integer
  ///    below.
  Message encode(Value x) override {
    // 1.
    Value magnitude = magnitudeOf(x);
    Value largest = chunks.reduce(magnitude, nn::ReduceKind::Max);
    Value bound = nn.shift(largest, 0x1p-100);
    Value one = nn.fillLike(bound, 1);
    Value parts = nn.mul(magnitude, chunks.spread(nn.div(one, bound), x));
    Value squares = nn.mul(parts, parts);
    Value sum = chunks.reduce(squares, nn::ReduceKind::Sum);
    Value norm = nn.unary<nn::SqrtOp>(clamp(sum));
    // Of nothing but zeros the quotient has to be a number.
    Value divisor = nn.shift(norm, 0x1p-100);
    Value factor = nn.div(nn.fillLike(divisor, levels), divisor);
    // 2.
    Value scaled = nn.mul(parts, chunks.spread(factor, x));
    Value all = nn.fillLike(scaled, levels);
    Value share = nn.binary<nn::MinOp>(scaled, all);
    Value nearest = nn.unary<nn::RoundOp>(share);
    Value below = nn.sub(nearest, isGreater(nearest, share));
    Value left = nn.sub(share, below);
    Value draws = chunks.takeRowsOf(chunks.draw(/*shared=*/false), x);
    Value up = isGreater(left, draws);
    Value zero = nn.fillLike(x, 0);
    Value isNegative = isGreater(zero, x);
    Value sign = nn.shift(nn.scale(isNegative, -2), 1);
    Value rounded = nn.mul(nn.add(below, up), sign);
    Value code = nn.mul(rounded, chunks.occupied(x));
    // What lies behind the end of a parameter, times it, has to stay zero: what
    // may be infinite would not.
    Value most = nn.fillLike(largest, 0x1p120);
    Value within = nn.binary<nn::MinOp>(largest, most);
    return {code, nn.mul(within, nn.scale(norm, unit))};
  }

  Value decode(const Message &message) override {
    Value scales = chunks.spread(message.numbers, message.codes);
    return nn.mul(message.codes, scales);
  }

private:
  Value magnitudeOf(Value x) {
    Value negated = nn.neg(x);
    return nn.neg(nn.binary<nn::MinOp>(x, negated));
  }
  /// The proof does not know that a sum of squares that are at most 1 is within
  /// 0 and twice their number.
  Value clamp(Value sum) {
    Value negated = nn.neg(sum);
    Value none = nn.fillLike(negated, 0);
    Value positive = nn.neg(nn.binary<nn::MinOp>(negated, none));
    Value most = nn.fillLike(positive, 2 * kMostBlock);
    return nn.binary<nn::MinOp>(positive, most);
  }
  Value isGreater(Value a, Value b) {
    return nn::GreaterOp::create(nn.builder, nn.loc,
                                 dist::plainType(a.getType()), a, b);
  }

  Chunks &chunks;
  nn::NNBuilder &nn;
  double levels, unit;
};

} // namespace

namespace plait {
std::unique_ptr<CompressionRule> createQSGD8(Chunks &chunks,
                                             const Compression &compression) {
  return std::make_unique<QSGD>(chunks, compression);
}

std::unique_ptr<CompressionRule> createQSGD4(Chunks &chunks,
                                             const Compression &compression) {
  return std::make_unique<QSGD>(chunks, compression);
}

std::unique_ptr<CompressionRule> createQSGD2(Chunks &chunks,
                                             const Compression &compression) {
  return std::make_unique<QSGD>(chunks, compression);
}
} // namespace plait
