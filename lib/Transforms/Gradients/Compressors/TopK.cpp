//===- TopK.cpp - The largest elements of each chunk ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../CompressedSum.h"

using namespace mlir;
using namespace plait;

namespace {

/// The k elements of largest magnitude are sent as they are: contractive with
/// δ of at least k / d (Stich et al. 2018, "Sparsified SGD with memory"). Which
/// ones they are is said by a bit for each element or by their columns,
/// whichever takes less.
class TopK : public CompressionRule {
public:
  TopK(Chunks &chunks, const Compression &compression)
      : nn(chunks.nn), compression(compression) {}

  Message encode(Value x) override {
    Value mask = nn::KeepTopOp::create(nn.builder, nn.loc, x.getType(), x,
                                       compression.keep, compression.block);
    return {mask, x};
  }

  Value decode(const Message &message) override {
    return nn.mul(message.numbers, message.codes);
  }

  Message send(const Message &message) override {
    ChunkMessage sizes = compression.getMessage();
    Value numbers = nn::CompactOp::create(
        nn.builder, nn.loc, withColumns(message.codes, sizes.numbers),
        message.numbers, message.codes);
    if (sizes.codes == compression.block)
      return {message.codes, numbers};
    Value columns = nn::FindOp::create(nn.builder, nn.loc,
                                       withColumns(message.codes, sizes.codes),
                                       message.codes);
    return {columns, numbers};
  }

  Value receive(const Message &message, const Message &) override {
    Value mask = message.codes;
    RankedTensorType all = withColumns(mask, compression.block);
    if (mask.getType() != all)
      mask = nn::MarkOp::create(nn.builder, nn.loc, all, mask);
    return nn::ExpandOp::create(nn.builder, nn.loc, all, message.numbers, mask);
  }

private:
  static RankedTensorType withColumns(Value like, int64_t columns) {
    auto type = cast<RankedTensorType>(like.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape.back() = columns;
    return type.clone(shape);
  }

  nn::NNBuilder &nn;
  Compression compression;
};

} // namespace

namespace plait {
std::unique_ptr<CompressionRule> createTopK(Chunks &chunks,
                                            const Compression &compression) {
  return std::make_unique<TopK>(chunks, compression);
}

std::unique_ptr<CompressionRule> createEF21(Chunks &chunks,
                                            const Compression &compression) {
  return std::make_unique<TopK>(chunks, compression);
}
} // namespace plait
