//===- RandomK.cpp - Some elements of each chunk, at random ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../CompressedSum.h"

using namespace mlir;
using namespace plait;

namespace {

/// The k elements with the largest random numbers are sent, of equal ones those
/// that come first (Stich et al. 2018, "Sparsified SGD with memory"): on all
/// replicas the same ones, so that nobody has to say which. Times d / k of the
/// d elements that a chunk has it is unbiased with ω = d / k - 1; where errors
/// are fed back, elements are sent as they are, which is contractive with δ = k
/// / d.
class RandomK : public CompressionRule {
public:
  RandomK(Chunks &chunks, const Compression &compression)
      : chunks(chunks), nn(chunks.nn), compression(compression) {}

  Message encode(Value x) override {
    Value random = chunks.draw(/*shared=*/true);
    Value occupied = chunks.occupied(chunks.whole);
    Value draws = nn.mul(random, occupied);
    all = nn::KeepTopOp::create(nn.builder, nn.loc, draws.getType(), draws,
                                compression.keep, compression.block);
    Value mask = chunks.fitMask(all, x);
    if (compression.feedback)
      return {mask, x};
    // All elements of a chunk that has no more than k.
    Value count =
        chunks.reduce(chunks.fitMask(occupied, x), nn::ReduceKind::Sum);
    Value less = nn.neg(count);
    double keep = double(compression.keep);
    Value most = nn.fillLike(less, -keep);
    Value larger = nn.neg(nn.binary<nn::MinOp>(less, most));
    Value factors = chunks.spread(nn.scale(larger, 1 / keep), x);
    return {mask, nn.mul(x, factors)};
  }

  Value decode(const Message &message) override {
    return nn.mul(message.numbers, message.codes);
  }

  Message send(const Message &message) override {
    SmallVector<int64_t> shape(typeOf(message.numbers).getShape());
    shape.back() = compression.keep;
    Value numbers = nn::CompactOp::create(nn.builder, nn.loc,
                                          typeOf(message.numbers).clone(shape),
                                          message.numbers, message.codes);
    return {Value(), numbers};
  }

  Value receive(const Message &message, const Message &) override {
    Value masks = chunks.fitMask(all, message.numbers);
    return nn::ExpandOp::create(nn.builder, nn.loc, masks.getType(),
                                message.numbers, masks);
  }

private:
  static RankedTensorType typeOf(Value value) {
    return cast<RankedTensorType>(value.getType());
  }

  Chunks &chunks;
  nn::NNBuilder &nn;
  Compression compression;
  Value all; // the mask of all rows
};

} // namespace

namespace plait {
std::unique_ptr<CompressionRule> createRandomK(Chunks &chunks,
                                               const Compression &compression) {
  return std::make_unique<RandomK>(chunks, compression);
}
} // namespace plait
