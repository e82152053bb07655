//===- Attention.cpp - Attention as one step ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Attention.h"

#include "plait/Conversion/ElementType.h"

using namespace mlir;
using namespace plait;
namespace fb = plait::plan::fb;

namespace {

/// Fills in what forward and backward have in common.
template <typename OpTy>
std::unique_ptr<fb::AttentionStepT> makeStep(OpTy op, RefOf refOf) {
  auto step = std::make_unique<fb::AttentionStepT>();
  ArrayRef<int64_t> query = op.getQuery().getType().getShape();
  int64_t length = query[1], groups = query[2], shared = query[3];
  step->dtype = getElementDType(op.getQuery());
  step->batch = query[0];
  step->queries = step->keys = length;
  step->heads = groups * shared;
  step->kv_heads = groups;
  step->head_size = query[4];
  // Tensors are row-major [batch, position, head, element].
  auto strides = [&](int64_t heads) {
    int64_t position = heads * step->head_size;
    return std::vector<int64_t>{length * position, position, step->head_size};
  };
  step->q_strides = step->out_strides = strides(step->heads);
  step->k_strides = step->v_strides = strides(groups);
  step->scale = op.getScale().convertToFloat();
  step->causal = true;
  // A window of the whole sequence is none.
  int64_t window = op.getWindow().value_or(length);
  step->window = window < length ? window : 0;
  auto point = [&](Value value) {
    return std::make_unique<fb::Ref>(refOf(value));
  };
  step->q = point(op.getQuery());
  step->k = point(op.getKey());
  step->v = point(op.getValue());
  step->out = point(op.getOut());
  step->stats = point(op.getLse());
  return step;
}

} // namespace

std::unique_ptr<fb::AttentionStepT> plait::convertAttention(nn::AttentionOp op,
                                                            RefOf refOf) {
  return makeStep(op, refOf);
}

std::unique_ptr<fb::AttentionStepT>
plait::convertAttention(nn::AttentionGradOp op, RefOf refOf) {
  auto step = makeStep(op, refOf);
  step->kind = fb::AttentionKind::Backward;
  step->d_out = std::make_unique<fb::Ref>(refOf(op.getGradient()));
  step->d_q = std::make_unique<fb::Ref>(refOf(op.getQueryGradient()));
  step->d_k = std::make_unique<fb::Ref>(refOf(op.getKeyGradient()));
  step->d_v = std::make_unique<fb::Ref>(refOf(op.getValueGradient()));
  return step;
}
