//===- Attention.cpp - Attention as one step ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Attention.h"

#include "plait/Conversion/ElementType.h"
#include "plait/Conversion/RankScalar.h"

using namespace mlir;
using namespace plait;
namespace fb = plait::plan::fb;

namespace {

/// Fills in what forward and backward have in common.
template <typename OpTy>
FailureOr<std::unique_ptr<fb::AttentionStepT>> makeStep(OpTy op, RefOf refOf) {
  auto step = std::make_unique<fb::AttentionStepT>();
  ArrayRef<int64_t> query = op.getQuery().getType().getShape();
  int64_t groups = query[2], shared = query[3];
  step->dtype = getElementDType(op.getQuery());
  step->batch = query[0];
  step->queries = query[1];
  step->keys = op.getKey().getType().getDimSize(1);
  step->heads = groups * shared;
  step->kv_heads = groups;
  step->head_size = query[4];
  // Tensors are row-major [batch, position, head, element].
  auto strides = [&](int64_t positions, int64_t heads) {
    int64_t position = heads * step->head_size;
    return std::vector<int64_t>{positions * position, position,
                                step->head_size};
  };
  step->q_strides = step->out_strides = strides(step->queries, step->heads);
  step->k_strides = step->v_strides = strides(step->keys, groups);
  step->scale = op.getScale().convertToFloat();
  step->causal = true;
  // A window of the whole sequence is none.
  int64_t window = op.getWindow().value_or(step->keys);
  step->window = window < step->keys ? window : 0;
  if (nn::BeginAttr begin = op.getBeginAttr())
    if (failed(convertRankTerms(op, begin.getTerms(), 1, step->first_query)))
      return failure();
  auto point = [&](Value value) {
    return std::make_unique<fb::Ref>(refOf(value));
  };
  step->q = point(op.getQuery());
  step->k = point(op.getKey());
  step->v = point(op.getValue());
  step->out = point(op.getOut());
  step->stats = point(op.getLse());
  if (Value keys = op.getDropoutKeys()) {
    step->dropout = std::make_unique<fb::AttentionDropoutT>();
    step->dropout->keys = point(keys);
    step->dropout->probability = op.getProbability()->convertToDouble();
    step->dropout->site = *op.getSite();
    if (nn::BeginAttr begin = op.getGroupBeginAttr())
      if (failed(convertRankTerms(op, begin.getTerms(), 1,
                                  step->dropout->first_group)))
        return failure();
  }
  return step;
}

} // namespace

FailureOr<std::unique_ptr<fb::AttentionStepT>>
plait::convertAttention(nn::AttentionOp op, RefOf refOf) {
  return makeStep(op, refOf);
}

FailureOr<std::unique_ptr<fb::AttentionStepT>>
plait::convertAttention(nn::AttentionGradOp op, RefOf refOf) {
  auto made = makeStep(op, refOf);
  if (failed(made))
    return failure();
  auto &step = *made;
  step->kind = fb::AttentionKind::Backward;
  step->d_out = std::make_unique<fb::Ref>(refOf(op.getGradient()));
  step->d_q = std::make_unique<fb::Ref>(refOf(op.getQueryGradient()));
  step->d_k = std::make_unique<fb::Ref>(refOf(op.getKeyGradient()));
  step->d_v = std::make_unique<fb::Ref>(refOf(op.getValueGradient()));
  return made;
}
