//===- NNAttentionSteps.cpp - Attention in one step of a library ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which libraries compute nn.attention and nn.attention_grad in one step, and
// what that takes of a GPU. The formulas are over steps of the plan file
// (plait/Plan/Attention.h), which do not exist yet.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Plan/Attention.h"

using namespace mlir;
using namespace plait;
using namespace plait::nn;

/// Finds what has to be the library's. Sinks need not be: where it does not
/// compute them, kernels behind its step do.
template <typename OpTy> static AttentionTraits getTraits(OpTy op) {
  ScoreAttr score = op.getScore();
  return AttentionTraits()
      .add(AttentionTrait::Dropout, bool(op.getDropoutKeys()))
      .add(AttentionTrait::Documents, bool(op.getStarts()))
      .add(AttentionTrait::WindowOnBothSides,
           score.getBidirectional() && score.getWindow())
      .add(AttentionTrait::SoftCap, bool(score.getSoftCap()));
}

/// Asked by who has to choose how attention is computed before the passes do.
AttentionTraits nn::findAttentionTraits(Operation *root) {
  AttentionTraits traits;
  root->walk([&](AttentionOp op) { traits.add(getTraits(op)); });
  return traits;
}

template <typename OpTy> static plan::fb::DType getDType(OpTy op) {
  return getElementTypeOrSelf(op.getQuery()).isBF16() ? plan::fb::DType::BF16
                                                      : plan::fb::DType::F32;
}

static FusedBy getLibrary(int architecture) {
  return architecture == 0 ? FusedBy::Processors : FusedBy::Cudnn;
}

template <typename OpTy>
static Status checkAttentionStep(OpTy op, int architecture) {
  FusedBy library = getLibrary(architecture);
  PLAIT_RETURN_IF_ERROR(checkAttentionTraits(getTraits(op), library));
  if (library == FusedBy::Processors)
    return Status::success();
  RankedTensorType query = op.getQuery().getType();
  int64_t queries = query.getDimSize(1);
  // Under a causal mask two pieces of a sequence are two calls.
  if (BeginAttr begin = op.getBeginAttr();
      begin && begin.isReordered() && !op.getScore().getBidirectional()) {
    ArrayRef<int64_t> shape = query.getShape();
    PLAIT_RETURN_IF_ERROR(plan::checkGpuChunks(begin.getOrder(), queries,
                                               shape[0] * shape[2] * shape[3]));
    queries /= 2;
  }
  return plan::checkGpuAttention(getDType(op), queries, query.getShape().back(),
                                 architecture);
}

/// Answers that there is no step where the library computes the rest alone,
/// which the op then decomposes into.
std::optional<Status> AttentionOp::checkLibraryStep(int architecture) {
  Status rest = checkAttentionStep(*this, architecture);
  auto sinks = AttentionTraits().add(AttentionTrait::Sinks, bool(getSinks()));
  if (rest.ok() && findUncomputed(sinks, getLibrary(architecture)))
    return std::nullopt;
  return rest;
}

std::optional<Status> AttentionGradOp::checkLibraryStep(int architecture) {
  return checkAttentionStep(*this, architecture);
}

bool AttentionOp::isLibraryStepByDefault(int architecture) {
  return isFusedByDefault(getLibrary(architecture),
                          getKey().getType().getDimSize(1));
}

bool AttentionGradOp::isLibraryStepByDefault(int architecture) {
  return isFusedByDefault(getLibrary(architecture),
                          getKey().getType().getDimSize(1));
}

/// Fills in the fields of a step that the formula reads.
template <typename OpTy>
static uint64_t getWorkspace(OpTy op, plan::fb::AttentionKind kind,
                             int architecture, bool deterministic) {
  ArrayRef<int64_t> query = op.getQuery().getType().getShape();
  plan::fb::AttentionStepT step;
  step.kind = kind;
  step.dtype = getDType(op);
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
