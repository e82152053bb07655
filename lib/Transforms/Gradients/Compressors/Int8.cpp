//===- Int8.cpp - Integers of eight bits and a scale ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../CompressedSum.h"

using namespace mlir;
using namespace plait;

namespace {

/// Codes are round(127 x / m), of -127 to 127, for the largest magnitude m of a
/// chunk, and the number is m / 127. It is contractive: |decoded - x| is at
/// most m / 254 for each element (Dettmers 2016, "8-bit approximations").
class Int8 : public CompressionRule {
public:
  explicit Int8(Chunks &chunks) : chunks(chunks), nn(chunks.nn) {}

  Message encode(Value x) override {
    Value negated = nn.neg(x);
    Value magnitude = nn.neg(nn.binary<nn::MinOp>(x, negated));
    Value largest = chunks.reduce(magnitude, nn::ReduceKind::Max);
    // Of nothing but zeros the quotient has to be a number, so that zeros come
    // out; what is that small is lost, or fed back.
    Value bound = nn.shift(largest, 0x1p-100);
    Value limit = nn.fillLike(bound, kLimit);
    Value factor = nn.div(limit, bound);
    Value scaled = nn.mul(x, chunks.spread(factor, x));
    Value codes = nn.unary<nn::RoundOp>(scaled);
    return {codes, nn.scale(largest, 1 / kLimit)};
  }

  Value decode(const Message &message) override {
    Value scales = chunks.spread(message.numbers, message.codes);
    return nn.mul(message.codes, scales);
  }

private:
  static constexpr double kLimit = 127;

  Chunks &chunks;
  nn::NNBuilder &nn;
};

} // namespace

namespace plait {
std::unique_ptr<CompressionRule> createInt8(Chunks &chunks) {
  return std::make_unique<Int8>(chunks);
}
} // namespace plait
