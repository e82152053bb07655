//===- InsertDocumentMask.cpp - Keep attention within documents -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The argument with the starts of documents is of the tokens' type: a start for
// each position. A model in IR may have it already.
//
//===----------------------------------------------------------------------===//

#include "FindInModel.h"

#include "plait/Dialect/NN/IR/Inputs.h"
#include "plait/Transforms/Passes.h"

namespace plait {
#define GEN_PASS_DEF_INSERTDOCUMENTMASKPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {
struct InsertDocumentMaskPass
    : plait::impl::InsertDocumentMaskPassBase<InsertDocumentMaskPass> {
  void runOnOperation() override {
    auto loss =
        findModel(getOperation(), "in which documents are not masked any more");
    if (failed(loss) || failed(insert(*loss)))
      signalPassFailure();
  }

  static LogicalResult insert(func::FuncOp loss) {
    auto attentions = llvm::to_vector(loss.getOps<nn::AttentionOp>());
    if (attentions.empty())
      return loss.emitError("@loss has no attention for a document mask");
    for (nn::AttentionOp attention : attentions)
      if (attention.getScore().getBidirectional())
        return attention.emitOpError("is bidirectional, and a document mask is "
                                     "for causal attention");
    constexpr auto kStarts = nn::InputKind::Starts;
    Value starts = nn::findInput(loss, kStarts);
    if (!starts)
      starts = nn::appendInput(loss, kStarts, loss.getArgument(0).getType());
    for (nn::AttentionOp attention : attentions)
      attention.getStartsMutable().assign(starts);
    return success();
  }
};
} // namespace
