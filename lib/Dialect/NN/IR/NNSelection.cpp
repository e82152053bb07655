//===- NNSelection.cpp - What ids select ----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/Selection.h"

using namespace mlir;
using namespace plait;
using namespace plait::nn;

int64_t Selection::getEntries() const {
  return cast<RankedTensorType>(from.getType()).getDimSize(dim);
}

Selection nn::findSelection(Operation *op) {
  auto last = [](Value value) {
    return cast<RankedTensorType>(value.getType()).getRank() - 1;
  };
  if (auto embedding = dyn_cast<EmbeddingOp>(op))
    return {embedding.getIds(), embedding.getTable(), 0,
            embedding.getBeginAttr(), int64_t(embedding.getLimit())};
  if (auto pick = dyn_cast<PickOp>(op))
    return {pick.getIds(), pick.getInput(), last(pick.getInput()),
            pick.getBeginAttr()};
  if (auto entropy = dyn_cast<SoftmaxCrossEntropyOp>(op))
    return {entropy.getTargets(), entropy.getLogits(),
            last(entropy.getLogits()), BeginAttr()};
  return {};
}
