//===- Attention.cpp - Attention in one step ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rules of attention that compiler, checker and runtime share. The bound of
// cuDNN's workspace was made from its front end and is tested against the
// library (see Attention.h): a plan does not depend on what is installed where
// it is compiled.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Attention.h"

#include "CheckSteps.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Defaults.h"

#include <cmath>

using namespace plait;
using namespace plait::plan;

/// A tensor of `positions` rows of `heads` heads, by its strides.
static Status checkLayout(const char *what, const fb::AttentionStep &step,
                          int64_t heads,
                          const flatbuffers::Vector<int64_t> *strides) {
  if (length(strides) != 3)
    return fail(what, " has ", length(strides),
                " strides, expected those of sequence, position and head");
  int64_t position = strides->Get(1), head = strides->Get(2);
  bool apart = head >= step.head_size() || heads == 1;
  if (strides->Get(0) < 0 || head < 0 || !apart || position < step.head_size())
    return fail(what, " has strides ", strides->Get(0), ", ", position, " and ",
                head, " for heads of size ", step.head_size());
  return Status::success();
}

/// The probability is below 1, as what is kept is divided by 1 minus it.
static Status checkDropout(const RankGrid &mesh, const fb::AttentionStep &step,
                           const fb::AttentionDropout &dropout) {
  if (!(dropout.probability() >= 0 && dropout.probability() < 1))
    return fail("has dropout of probability ", dropout.probability(),
                ", allowed are 0 to below 1");
  // What ranks hold together, in 32 bits like all indices.
  return checkRange(mesh, dropout.first_group(), INT32_MAX - step.kv_heads(),
                    "first_group");
}

/// Products are formed with overflow checks, so that libraries and scratch
/// memory may multiply these sizes.
Status plan::checkAttention(const RankGrid &mesh,
                            const fb::AttentionStep &step) {
  if (step.kind() > fb::AttentionKind::MAX)
    return fail("unknown attention ", int(step.kind()));
  if (step.dtype() != fb::DType::F32 && step.dtype() != fb::DType::BF16)
    return fail("has dtype ", int(step.dtype()), ", allowed are f32 and bf16");
  // Scores fit an arena too, so that sizes of scratch memory do not overflow.
  // Query heads are dealt evenly to key heads.
  if (!elementCount(
          {step.batch(), step.heads(), step.queries(), step.keys()}) ||
      !elementCount(
          {step.batch(), step.heads(), step.queries(), step.head_size()}) ||
      step.kv_heads() < 1 || step.heads() % step.kv_heads())
    return fail("has batch ", step.batch(), ", ", step.heads(), " heads over ",
                step.kv_heads(), ", ", step.queries(), " queries, ",
                step.keys(), " keys and head size ", step.head_size());
  // Each query sees at least its own position, so that no sum is empty.
  if (step.queries() > step.keys())
    return fail("has ", step.queries(), " queries, more than the ", step.keys(),
                " keys");
  // 0: no window.
  if (step.window() < 0 || step.window() > step.keys())
    return fail("has window ", step.window(), ", allowed are 0 to ",
                step.keys());
  // 0: no cap. A number that is none is not at least 0.
  if (!(step.soft_cap() >= 0 && std::isfinite(step.soft_cap())))
    return fail("has soft cap ", step.soft_cap(),
                ", expected a positive number, or 0 for none");
  if (step.sinks() && step.kind() != fb::AttentionKind::Forward)
    return fail("has sinks, which a forward step has");
  if (!step.causal() && step.starts())
    return fail("has starts of documents, which only causal attention has");
  if (ChunkOrder order = {step.keys(), step.chunks()};
      step.chunks() && !order.hasPairs())
    return fail("has ", step.chunks(), " chunks of ", step.keys(),
                " keys, expected an even number that divides them");
  if (const fb::AttentionDropout *dropout = step.dropout())
    PLAIT_RETURN_IF_ERROR(checkDropout(mesh, step, *dropout));
  PLAIT_RETURN_IF_ERROR(checkRange(
      mesh, step.first_query(), step.keys() - step.queries(), "first_query"));
  PLAIT_RETURN_IF_ERROR(checkLayout("q", step, step.heads(), step.q_strides()));
  PLAIT_RETURN_IF_ERROR(
      checkLayout("k", step, step.kv_heads(), step.k_strides()));
  PLAIT_RETURN_IF_ERROR(
      checkLayout("v", step, step.kv_heads(), step.v_strides()));
  return checkLayout("o", step, step.heads(), step.out_strides());
}

AttentionTraits plan::traitsOf(const fb::AttentionStep &step) {
  return AttentionTraits()
      .add(AttentionTrait::Dropout, step.dropout())
      .add(AttentionTrait::Documents, step.starts())
      .add(AttentionTrait::WindowOnBothSides, !step.causal() && step.window())
      .add(AttentionTrait::SoftCap, step.soft_cap() != 0)
      .add(AttentionTrait::Sinks, step.sinks());
}

/// Refuses what cuDNN's fused kernels do not take, which is computed from GEMMs
/// and kernels.
Status plan::checkGpuAttention(fb::DType dtype, int64_t queries,
                               int64_t headSize, int architecture) {
  if (dtype != fb::DType::BF16)
    return fail("its elements are f32, not bf16");
  if (queries == 1)
    return fail("its sequences have one position");
  int64_t largest = architecture / 10 == 9 ? 256 : 128;
  if (headSize % 8 || headSize > largest)
    return fail("its heads have size ", headSize,
                ", allowed are multiples of 8 up to ", largest);
  return Status::success();
}

/// cuDNN wants tensors to begin at multiples of 16 bytes, and statistics, four
/// bytes each, without gaps: those of either piece are copied, the second's
/// behind the first's.
Status plan::checkGpuChunks(const ChunkOrder &order, int64_t queries,
                            int64_t heads) {
  int64_t chunk = order.getChunk();
  if (queries != 2 * chunk)
    return fail("its ", queries, " queries are not a pair of chunks of ", chunk,
                " positions");
  if (chunk == 1)
    return fail("its chunks have one position");
  if (heads * chunk % 4)
    return fail("its chunks of ", chunk, " positions have ", heads * chunk,
                " rows of scores, allowed are multiples of 4");
  return Status::success();
}

/// Rounds up to what libraries want a tensor, and a workspace, to begin at.
static uint64_t alignTensor(uint64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

/// Counts bytes as the gradients lie in memory, whose sequences are all keys
/// apart.
uint64_t plan::attentionTermBytes(const fb::AttentionStepT &step,
                                  int64_t positions) {
  uint64_t rows = (step.batch - 1) * step.keys + positions;
  return alignTensor(rows * step.kv_heads * step.head_size *
                     elementBytes(step.dtype));
}

uint64_t plan::attentionStatsBytes(const fb::AttentionStepT &step) {
  return alignTensor(step.batch * step.heads * step.queries * sizeof(float));
}

/// Forward engines need almost nothing: softmax is taken block by block on the
/// chip. Backward ones add up dQ in f32, or keep dP, and divide dK and dV by
/// query heads.
static uint64_t engineWorkspace(const fb::AttentionStepT &step, int64_t queries,
                                int architecture) {
  // What engines need for flags and alignment, with much to spare.
  constexpr uint64_t small = 1 << 16;
  if (step.kind == fb::AttentionKind::Forward)
    return small;
  // Rows and columns of scores are computed in tiles of up to 128.
  auto roundUp = [](uint64_t value) { return (value + 127) / 128 * 128; };
  uint64_t heads = step.batch * step.heads, size = step.head_size;
  // A row: the sum of dO · O, and dQ in f32, of which the engines for sm_80
  // have two copies.
  uint64_t row = 4 + size * 4 * (architecture < 90 ? 2 : 1);
  // Without atomics on dQ: dP in bf16.
  if (step.deterministic && architecture < 100)
    row = 4 + roundUp(step.keys) * 2;
  uint64_t bytes = heads * roundUp(queries) * row;
  // Where query heads share a key head, dK and dV of each, in bf16. With more
  // keys than queries the engines for sm_100 refuse that; twice as much, as if
  // in f32, was enough for all that were asked.
  if (step.heads != step.kv_heads)
    bytes += 2 * heads * step.keys * size * (step.keys > queries ? 4 : 2);
  return bytes + small;
}

/// Queries in zig-zag order are two calls, one after the other, the second of
/// which sees half of the keys at most: these are what it adds to. Both have
/// their statistics there.
uint64_t plan::gpuAttentionWorkspace(const fb::AttentionStepT &step,
                                     int architecture) {
  if (step.chunks == 0)
    return engineWorkspace(step, step.queries, architecture);
  uint64_t bytes = engineWorkspace(step, step.queries / 2, architecture) +
                   attentionStatsBytes(step);
  if (step.kind == fb::AttentionKind::Backward)
    bytes += 2 * attentionTermBytes(step, step.keys / 2);
  return bytes;
}
