//===- Sign.cpp - A bit for each element, and their mean magnitude --------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../CompressedSum.h"

using namespace mlir;
using namespace plait;

namespace {

/// The code is 1 where x < 0, and the number is the mean of |x| over the
/// elements of a chunk, of which the last one of a parameter has fewer:
/// contractive with δ = ‖x‖₁² / (d ‖x‖²) (Karimireddy et al. 2019, "Error
/// feedback fixes SignSGD", Algorithm 2).
class Sign : public CompressionRule {
public:
  explicit Sign(Chunks &chunks) : chunks(chunks), nn(chunks.nn) {}

  /// Elements are divided before they are added up, so that the mean is finite
  /// where they are.
  Message encode(Value x) override {
    Value negated = nn.neg(x);
    Value magnitude = nn.neg(nn.binary<nn::MinOp>(x, negated));
    Value count = chunks.reduce(chunks.occupied(x), nn::ReduceKind::Sum);
    // Rows without any element have a number, too.
    Value less = nn.neg(count);
    Value most = nn.fillLike(less, -1);
    Value divisor = nn.neg(nn.binary<nn::MinOp>(less, most));
    Value one = nn.fillLike(divisor, 1);
    Value factors = chunks.spread(nn.div(one, divisor), x);
    Value mean = chunks.reduce(nn.mul(magnitude, factors), nn::ReduceKind::Sum);
    Value zero = nn.fillLike(x, 0);
    Value codes = nn::GreaterOp::create(nn.builder, nn.loc,
                                        dist::plainType(x.getType()), zero, x);
    return {codes, mean};
  }

  /// A bit has no third value for no element.
  Value decode(const Message &message) override {
    Value signs = nn.shift(nn.scale(message.codes, -2), 1);
    Value own = nn.mul(signs, chunks.occupied(message.codes));
    return nn.mul(own, chunks.spread(message.numbers, own));
  }

private:
  Chunks &chunks;
  nn::NNBuilder &nn;
};

} // namespace

namespace plait {
std::unique_ptr<CompressionRule> createSign(Chunks &chunks,
                                            const Compression &) {
  return std::make_unique<Sign>(chunks);
}

/// Sends the signs of a momentum.
std::unique_ptr<CompressionRule> createOneBitAdam(Chunks &chunks,
                                                  const Compression &) {
  return std::make_unique<Sign>(chunks);
}
} // namespace plait
