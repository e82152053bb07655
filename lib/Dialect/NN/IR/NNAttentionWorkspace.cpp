//===- NNAttentionWorkspace.cpp - Memory of attention in one step ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The formula is one over steps of the plan file (plait/Plan/Attention.h),
// which do not exist yet.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Plan/Attention.h"

using namespace mlir;
using namespace plait;
using namespace plait::nn;

/// Fills in the fields of a step that the formula reads.
template <typename OpTy>
static uint64_t getWorkspace(OpTy op, plan::fb::AttentionKind kind,
                             int architecture, bool deterministic) {
  ArrayRef<int64_t> query = op.getQuery().getType().getShape();
  plan::fb::AttentionStepT step;
  step.kind = kind;
  step.dtype = getElementTypeOrSelf(op.getQuery()).isBF16()
                   ? plan::fb::DType::BF16
                   : plan::fb::DType::F32;
  step.batch = query[0];
  step.queries = query[1];
  step.keys = op.getKey().getType().getDimSize(1);
  step.kv_heads = query[2];
  step.heads = query[2] * query[3];
  step.head_size = query[4];
  step.deterministic = deterministic;
  if (BeginAttr begin = op.getBeginAttr();
      begin && !op.getScore().getBidirectional())
    step.chunks = begin.getChunks();
  return plan::gpuAttentionWorkspace(step, architecture);
}

uint64_t AttentionOp::getLibraryWorkspace(int architecture,
                                          bool deterministic) {
  return getWorkspace(*this, plan::fb::AttentionKind::Forward, architecture,
                      deterministic);
}

uint64_t AttentionGradOp::getLibraryWorkspace(int architecture,
                                              bool deterministic) {
  return getWorkspace(*this, plan::fb::AttentionKind::Backward, architecture,
                      deterministic);
}
