//===- Integers.cpp - Integers of a few bits and a scale ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../CompressedSum.h"

using namespace mlir;
using namespace plait;

namespace {

/// Codes are round(l x / m), of -l to l, for the largest magnitude m of a chunk
/// and the largest integer l of so many bits, and the number is m / l. It is
/// contractive: |decoded - x| is at most m / 2l for each element (Dettmers
/// 2016, "8-bit approximations").
class Integers : public CompressionRule {
public:
  Integers(Chunks &chunks, int bits)
      : chunks(chunks), nn(chunks.nn), limit((1 << (bits - 1)) - 1) {}

  Message encode(Value x) override {
    Value negated = nn.neg(x);
    Value magnitude = nn.neg(nn.binary<nn::MinOp>(x, negated));
    Value largest = chunks.reduce(magnitude, nn::ReduceKind::Max);
    // Of nothing but zeros the quotient has to be a number, so that zeros come
    // out; what is that small is lost, or fed back.
    Value bound = nn.shift(largest, 0x1p-100);
    Value factor = nn.div(nn.fillLike(bound, limit), bound);
    Value scaled = nn.mul(x, chunks.spread(factor, x));
    Value codes = nn.unary<nn::RoundOp>(scaled);
    return {codes, nn.scale(largest, 1 / limit)};
  }

  Value decode(const Message &message) override {
    Value scales = chunks.spread(message.numbers, message.codes);
    return nn.mul(message.codes, scales);
  }

private:
  Chunks &chunks;
  nn::NNBuilder &nn;
  double limit;
};

} // namespace

namespace plait {
std::unique_ptr<CompressionRule> createInt8(Chunks &chunks,
                                            const Compression &) {
  return std::make_unique<Integers>(chunks, 8);
}

std::unique_ptr<CompressionRule> createInt4(Chunks &chunks,
                                            const Compression &) {
  return std::make_unique<Integers>(chunks, 4);
}
} // namespace plait
