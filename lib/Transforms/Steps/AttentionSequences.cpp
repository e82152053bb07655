//===- AttentionSequences.cpp - Some sequences of an attention ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each sequence attends to itself alone, and all tensors have sequences as
// their outermost dimension.
//
//===----------------------------------------------------------------------===//

#include "AttentionSequences.h"

using namespace mlir;
using namespace plait;
using namespace plait::plan;

bool plait::hasSequences(AttentionOp attention) {
  return attention.getBatch() > 1 && !attention.getGradients() &&
         !attention.getDropoutKeysAttr();
}

AttentionOp plait::createSequences(OpBuilder &builder, AttentionOp whole,
                                   int64_t part, int64_t parts) {
  auto own = cast<AttentionOp>(builder.clone(*whole));
  bool isAligned = true;
  auto getPart = [&](MemoryAttr memory) {
    int64_t bytes = memory.getBytes() / parts;
    isAligned &= bytes % kAlignment == 0;
    return memory.getPart(part * bytes, bytes);
  };
  own.setBatch(int64_t(whole.getBatch()) / parts);
  own.setQAttr(getPart(whole.getQ()));
  own.setKAttr(getPart(whole.getK()));
  own.setVAttr(getPart(whole.getV()));
  own.setOutAttr(getPart(whole.getOut()));
  own.setStatsAttr(getPart(whole.getStats()));
  if (MemoryAttr starts = whole.getStartsAttr())
    own.setStartsAttr(getPart(starts));
  if (isAligned)
    return own;
  own->erase();
  return {};
}
