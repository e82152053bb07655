//===- CudaAttention.cpp - Attention on a GPU -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rank of a context-parallel plan has queries from the middle of a sequence.
// A causal mask then depends on the first one's position, which cuDNN has no
// parameter for but for two cases: the first query sees the first key only, or
// the last query sees the last key. Cutting off the keys that no query sees
// gives the latter.
//
// In zig-zag order a rank has two chunks of the sequence, and so two such
// pieces:
//
//   keys    0 ┄┄┄┄┄┄┄┄ chunk r ┄┄┄┄┄┄┄┄┄┄ chunk 2n-1-r ┄┄┄┄┄┄ 2n
//   late    ══════════════════════════════════════╗
//   early   ══════════════════╗
//
// They are two calls. Queries, results and their gradients are those of either
// piece alone. Gradients of keys are not: the late piece's call writes them
// where they belong, as it sees more keys; the early one's writes to the
// workspace, and is added. Behind the late one's they are zeros. Statistics of
// each head's queries lie side by side, half of them one piece's: those of a
// piece are copied to the workspace before a backward call, and from there
// behind a forward one.
//
//===----------------------------------------------------------------------===//

#include "CudaAttention.h"

#include "plait/Plan/Attention.h"
#include "plait/Plan/Check.h"
#include "plait/Support/ChunkOrder.h"

#include <algorithm>
#include <sstream>
#include <tuple>

using namespace plait;
using namespace plait::runtime;

/// A variable, so that tests put their own in its place.
AttentionEngineFactory runtime::createAttentionEngine = createCudnnEngine;

/// Whether two steps differ at most in where their tensors and their queries
/// are.
static bool sameShape(const fb::AttentionStepT &x,
                      const fb::AttentionStepT &y) {
  auto shapeOf = [](const fb::AttentionStepT &step) {
    return std::tie(step.kind, step.dtype, step.batch, step.heads,
                    step.kv_heads, step.queries, step.keys, step.head_size,
                    step.q_strides, step.k_strides, step.v_strides,
                    step.out_strides, step.scale, step.causal, step.window,
                    step.deterministic, step.chunks);
  };
  return shapeOf(x) == shapeOf(y);
}

/// Whether the rows of keys and values lie side by side, all of a sequence:
/// only then is each run of positions one run of memory.
static bool isDense(const fb::AttentionStepT &step) {
  int64_t row = step.kv_heads * step.head_size;
  auto dense = [&](const std::vector<int64_t> &strides) {
    return strides[1] == row &&
           (step.batch == 1 || strides[0] == step.keys * row);
  };
  return dense(step.k_strides) && dense(step.v_strides);
}

/// A window that reaches beyond the first key hides nothing; the library is not
/// told of it.
std::vector<AttentionPiece>
runtime::cutAttention(const fb::AttentionStepT &step, int64_t firstQuery) {
  std::vector<AttentionPiece> pieces;
  ChunkOrder order = {step.keys, step.causal ? step.chunks : 0};
  for (int64_t query = 0; query < step.queries;) {
    int64_t stored = firstQuery + query;
    AttentionPiece &piece = pieces.emplace_back(query, step);
    piece.shape.chunks = 0;
    piece.shape.queries = order.getRun(stored, firstQuery + step.queries);
    query += piece.shape.queries;
    if (step.causal)
      piece.shape.keys =
          std::min(step.keys, order.getPosition(stored) + piece.shape.queries);
    if (piece.shape.window >= piece.shape.keys)
      piece.shape.window = 0;
  }
  std::ranges::stable_sort(pieces, std::ranges::greater(),
                           [](auto &piece) { return piece.shape.keys; });
  return pieces;
}

/// Finds the statistics of one of two pieces, without gaps, as cuDNN wants
/// them: those of the queries before it, of all heads, come first.
std::byte *CudaAttention::statsOf(const Prepared &attention,
                                  const Piece &piece) const {
  return workspace.data() + 2 * attention.termBytes +
         piece.query * attention.step.batch * attention.step.heads *
             sizeof(float);
}

/// Operands of one piece. Of two the statistics are in the workspace, and what
/// the second one adds goes there, too.
AttentionOperands CudaAttention::operandsOf(const Prepared &attention,
                                            const Piece &piece,
                                            AttentionOperands operands) const {
  const fb::AttentionStepT &shape = piece.shape;
  int64_t unit = plan::elementBytes(shape.dtype);
  int64_t q = piece.query * shape.q_strides[1] * unit;
  int64_t o = piece.query * shape.out_strides[1] * unit;
  operands.q += q;
  operands.o += o;
  if (attention.statsBytes)
    operands.stats = statsOf(attention, piece);
  if (shape.kind == fb::AttentionKind::Backward) {
    operands.gradient += o;
    operands.dq += q;
  }
  if (attention.termBytes && &piece != attention.pieces.data()) {
    operands.dk = workspace.data();
    operands.dv = operands.dk + attention.termBytes;
  }
  return operands;
}

Result<std::unique_ptr<CudaAttention>>
CudaAttention::create(CudaStream &stream, std::span<std::byte> workspace) {
  auto engine = createAttentionEngine(stream);
  if (!engine.ok())
    return engine.status();
  return std::unique_ptr<CudaAttention>(
      new CudaAttention(stream, workspace, std::move(*engine)));
}

/// One for each shape: making it may take seconds.
Result<uint32_t> CudaAttention::find(const fb::AttentionStepT &shape,
                                     uint64_t workspace) {
  for (uint32_t i = 0; i < calls.size(); ++i)
    if (calls[i].workspace <= workspace && sameShape(calls[i].shape, shape))
      return i;
  auto made = engine->create(shape, workspace, /*configuration=*/"");
  if (!made.ok())
    return made.status();
  calls.push_back({shape, workspace, std::move(*made)});
  return static_cast<uint32_t>(calls.size() - 1);
}

/// Leaves two pieces at most, whose keys are a run of memory each sequence.
Status CudaAttention::cut(Prepared &made) {
  const fb::AttentionStepT &step = made.step;
  if (step.chunks && step.causal)
    if (Status status = plan::checkGpuChunks(
            {step.keys, step.chunks}, step.queries, step.batch * step.heads);
        !status.ok())
      return fail("GPUs do not compute an attention step: ", status.message());
  for (AttentionPiece &piece : cutAttention(step, made.firstQuery))
    made.pieces.push_back({std::move(piece), 0});
  if (made.pieces.size() > 2)
    return fail("queries from ", made.firstQuery, " on are ",
                made.pieces.size(), " pieces of a sequence, expected two");
  // Of other keys the gradients are written here and not by the library.
  int64_t least = made.pieces.back().shape.keys;
  if (least != step.keys && !isDense(step))
    return fail("keys that not all queries see are among others");
  return Status::success();
}

/// Makes room at the beginning of the workspace: of terms first dK, then dV,
/// each with rows as far apart as the gradients' own.
Status CudaAttention::makeRoom(Prepared &made) {
  if (made.pieces.size() == 1)
    return Status::success();
  made.statsBytes = plan::attentionStatsBytes(made.step);
  if (made.step.kind == fb::AttentionKind::Backward)
    made.termBytes =
        plan::attentionTermBytes(made.step, made.pieces[1].shape.keys);
  if (made.ownBytes() > workspace.size())
    return fail("attention adds gradients of ", 2 * made.termBytes,
                " bytes and copies statistics of ", made.statsBytes,
                " bytes, the plan has ", workspace.size(),
                " bytes of workspace");
  if (sums)
    return Status::success();
  auto loaded = ReduceKernels::load(stream.context);
  if (loaded.ok())
    sums = std::move(*loaded);
  return loaded.status();
}

Result<uint32_t> CudaAttention::prepare(const fb::AttentionStep &step,
                                        int64_t firstQuery) {
  Prepared made;
  step.UnPackTo(&made.step);
  made.firstQuery = firstQuery;
  for (uint32_t i = 0; i < steps.size(); ++i)
    if (steps[i].firstQuery == firstQuery &&
        sameShape(steps[i].step, made.step))
      return i;
  PLAIT_RETURN_IF_ERROR(cut(made));
  PLAIT_RETURN_IF_ERROR(makeRoom(made));
  for (Piece &piece : made.pieces) {
    auto call = find(piece.shape, workspace.size() - made.ownBytes());
    if (!call.ok())
      return call.status();
    piece.call = *call;
  }
  steps.push_back(std::move(made));
  return static_cast<uint32_t>(steps.size() - 1);
}

/// Sums are made in f32, rounded to the gradients' type, and always in one
/// order.
Status CudaAttention::run(uint32_t prepared,
                          const AttentionOperands &operands) {
  const Prepared &attention = steps[prepared];
  const fb::AttentionStepT &step = attention.step;
  bool forward = step.kind == fb::AttentionKind::Forward;
  PLAIT_RETURN_IF_ERROR(clearUnseen(attention, operands));
  for (const Piece &piece : attention.pieces) {
    AttentionOperands own = operandsOf(attention, piece, operands);
    if (!forward)
      PLAIT_RETURN_IF_ERROR(copyStats(attention, piece, operands.stats));
    PLAIT_RETURN_IF_ERROR(runCall(piece.call, own));
    if (forward)
      PLAIT_RETURN_IF_ERROR(copyStats(attention, piece, operands.stats));
    if (own.dk == operands.dk)
      continue;
    PLAIT_RETURN_IF_ERROR(add(attention, step.k_strides, operands.dk, own.dk));
    PLAIT_RETURN_IF_ERROR(add(attention, step.v_strides, operands.dv, own.dv));
  }
  return Status::success();
}

/// Its workspace is behind what pieces add and copy.
Status CudaAttention::runCall(uint32_t call, const AttentionOperands &operands,
                              AttentionCall *made) {
  Call &known = calls[call];
  AttentionCall &one = made ? *made : *known.call;
  return stream.add([&] {
    return one.run(operands, workspace.last(known.workspace).data());
  });
}

std::vector<AttentionUse>
CudaAttention::callsOf(const std::vector<AttentionUse> &steps) const {
  std::vector<AttentionUse> uses;
  for (const AttentionUse &step : steps) {
    const Prepared &attention = this->steps[step.number];
    for (const Piece &piece : attention.pieces) {
      auto known = std::ranges::find(uses, piece.call, &AttentionUse::number);
      if (known == uses.end())
        known = uses.insert(
            known, {piece.call, operandsOf(attention, piece, step.operands)});
      known->calls += step.calls;
    }
  }
  return uses;
}

std::string CudaAttention::describe(uint32_t call) const {
  const auto &[shape, bytes, made] = calls[call];
  std::ostringstream text;
  text << "attention " << fb::EnumNameAttentionKind(shape.kind) << " "
       << fb::EnumNameDType(shape.dtype) << " " << shape.batch << " by "
       << shape.heads << " and " << shape.kv_heads << " by " << shape.queries
       << " and " << shape.keys << " by " << shape.head_size << ", strides";
  for (const auto *strides : {&shape.q_strides, &shape.k_strides,
                              &shape.v_strides, &shape.out_strides})
    for (int64_t stride : *strides)
      text << " " << stride;
  text << ", scale " << shape.scale << (shape.causal ? ", causal" : "")
       << ", window " << shape.window
       << (shape.deterministic ? ", deterministic" : "") << ", workspace "
       << bytes;
  return text.str();
}

Result<std::unique_ptr<AttentionCall>>
CudaAttention::make(uint32_t call, const std::string &configuration) {
  return engine->create(calls[call].shape, calls[call].workspace,
                        configuration);
}

Status CudaAttention::take(uint32_t call, const std::string &configuration) {
  auto own = configurationOf(call);
  if (!own.ok())
    return own.status();
  if (*own == configuration)
    return Status::success();
  auto made = make(call, configuration);
  if (made.ok())
    install(call, std::move(*made));
  return made.status();
}

/// The gradients of keys that no query sees, of which the library does not
/// know.
Status CudaAttention::clearUnseen(const Prepared &attention,
                                  const AttentionOperands &operands) {
  const fb::AttentionStepT &step = attention.step;
  int64_t seen = attention.pieces.front().shape.keys;
  if (seen == step.keys || step.kind == fb::AttentionKind::Forward)
    return Status::success();
  uint64_t unit = plan::elementBytes(step.dtype);
  for (auto [gradient, strides] : {std::pair(operands.dk, &step.k_strides),
                                   {operands.dv, &step.v_strides}})
    for (int64_t sequence = 0; sequence < step.batch; ++sequence)
      PLAIT_RETURN_IF_ERROR(stream.fillZero(
          gradient + (sequence * (*strides)[0] + seen * (*strides)[1]) * unit,
          (step.keys - seen) * (*strides)[1] * unit));
  return Status::success();
}

/// Copies the statistics of a piece from the workspace to those of all queries
/// behind a forward call; the other way before a backward one.
Status CudaAttention::copyStats(const Prepared &attention, const Piece &piece,
                                std::byte *stats) {
  if (!attention.statsBytes)
    return Status::success();
  std::byte *own = statsOf(attention, piece);
  std::byte *all = stats + piece.query * sizeof(float);
  ReduceParams params = {};
  params.inputCount = params.outputCount = 1;
  params.inputs[0] = own;
  params.outputs[0] = all;
  params.outer = attention.step.batch * attention.step.heads;
  params.chunk = params.inputStride = piece.shape.queries;
  params.outputStride = attention.step.queries;
  if (attention.step.kind == fb::AttentionKind::Backward) {
    params.inputs[0] = all;
    params.outputs[0] = own;
    std::swap(params.inputStride, params.outputStride);
  }
  return sums->launch(stream, params, fb::Reduction::Sum, fb::DType::F32);
}

/// Adds the terms of the positions that the second piece sees.
Status CudaAttention::add(const Prepared &attention,
                          const std::vector<int64_t> &strides, std::byte *sum,
                          const std::byte *term) {
  ReduceParams params = {};
  params.inputs[0] = sum;
  params.inputs[1] = term;
  params.inputCount = 2;
  params.outputs[0] = sum;
  params.outputCount = 1;
  params.outer = attention.step.batch;
  params.chunk = attention.pieces[1].shape.keys * strides[1];
  params.inputStride = params.outputStride = strides[0];
  return sums->launch(stream, params, fb::Reduction::Sum, attention.step.dtype);
}
