//===- CudnnAttention.cpp - Attention by cuDNN ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The attention steps of one rank: which graph computes a step, and what cuDNN
// does not do of it. Where plait-run is built without cuDNN's headers, all that
// is left of this file is a factory that says so.
//
// A rank of a context-parallel plan has queries from the middle of a sequence.
// A causal mask then depends on the first one's position, which cuDNN has no
// parameter for but for two cases: the first query sees the first key only, or
// the last query sees the last key. Cutting off the keys that no query sees
// gives the latter.
//
//===----------------------------------------------------------------------===//

#include "CudaAttention.h"

#if PLAIT_HAS_CUDNN
#include "CudnnGraph.h"
#endif

#include "plait/Plan/Check.h"

#include <algorithm>
#include <deque>
#include <tuple>

using namespace plait;
using namespace plait::runtime;

/// A variable, so that tests put their own in its place.
CudaAttentionFactory runtime::createCudaAttention = createCudnnAttention;

#if PLAIT_HAS_CUDNN
namespace {

/// Whether two steps can share a graph: all but where their tensors and, once
/// the keys are cut, their queries are.
bool sameShape(const fb::AttentionStepT &x, const fb::AttentionStepT &y) {
  auto shapeOf = [](const fb::AttentionStepT &step) {
    return std::tie(step.kind, step.dtype, step.batch, step.heads,
                    step.kv_heads, step.queries, step.keys, step.head_size,
                    step.q_strides, step.k_strides, step.v_strides,
                    step.out_strides, step.scale, step.causal, step.window,
                    step.deterministic);
  };
  return shapeOf(x) == shapeOf(y);
}

class CudnnAttention : public CudaAttention {
public:
  CudnnAttention(CudaStream &stream, CudnnHandle handle,
                 std::span<std::byte> workspace)
      : stream(stream), handle(std::move(handle)), workspace(workspace) {}

  /// Of the keys cuDNN gets those that some query sees: then the last query
  /// sees the last key, a mask that it has (bottom right).
  Result<uint32_t> prepare(const fb::AttentionStep &step,
                           int64_t firstQuery) override {
    fb::AttentionStepT shape;
    step.UnPackTo(&shape);
    if (shape.causal)
      shape.keys = std::min(shape.keys, firstQuery + shape.queries);
    // Their gradients are zero, and cuDNN, which does not know of them, leaves
    // them as they are.
    int64_t unseen = step.keys() - shape.keys;
    if (unseen && !isDense(shape))
      return fail("keys that no query sees lie among others");
    for (uint32_t i = 0; i < graphs.size(); ++i)
      if (sameShape(graphs[i].shape, shape) && graphs[i].unseen == unseen)
        return i;
    auto graph = CudnnGraph::create(shape, handle, workspace.size());
    if (!graph.ok())
      return fail(stream.context->describe(), " cannot compute ",
                  fb::EnumNameAttentionKind(shape.kind), " attention of ",
                  shape.batch, " x ", shape.heads, " heads of size ",
                  shape.head_size, " over ", shape.keys,
                  " positions: ", graph.status().message());
    graphs.push_back({std::move(shape), unseen, std::move(*graph)});
    return static_cast<uint32_t>(graphs.size() - 1);
  }

  Status run(uint32_t prepared, const AttentionOperands &operands) override {
    const Prepared &attention = graphs[prepared];
    PLAIT_RETURN_IF_ERROR(clearUnseen(attention, operands));
    return stream.add([&] {
      return attention.graph.run(handle, operands, workspace.data());
    });
  }

private:
  /// A deque of them: graphs are not copied, and numbers stay.
  struct Prepared {
    fb::AttentionStepT shape; // with the keys that queries see
    int64_t unseen;           // keys behind them
    CudnnGraph graph;
  };

  /// Whether the rows of keys and values lie side by side.
  /// Only then are the keys behind the cut one run of memory a sequence.
  static bool isDense(const fb::AttentionStepT &step) {
    int64_t row = step.kv_heads * step.head_size;
    return step.k_strides[1] == row && step.v_strides[1] == row;
  }

  /// The gradients of keys that no query sees.
  Status clearUnseen(const Prepared &attention,
                     const AttentionOperands &operands) {
    const fb::AttentionStepT &step = attention.shape;
    if (!attention.unseen || step.kind == fb::AttentionKind::Forward)
      return Status::success();
    uint64_t unit = plan::elementBytes(step.dtype);
    for (auto [gradient, strides] : {std::pair(operands.dk, &step.k_strides),
                                     {operands.dv, &step.v_strides}})
      for (int64_t sequence = 0; sequence < step.batch; ++sequence)
        PLAIT_RETURN_IF_ERROR(stream.fillZero(
            gradient +
                (sequence * (*strides)[0] + step.keys * (*strides)[1]) * unit,
            attention.unseen * (*strides)[1] * unit));
    return Status::success();
  }

  CudaStream &stream;
  CudnnHandle handle;
  std::span<std::byte> workspace;
  std::deque<Prepared> graphs;
};

} // namespace

Result<std::unique_ptr<CudaAttention>>
runtime::createCudnnAttention(CudaStream &stream,
                              std::span<std::byte> workspace) {
  auto handle = CudnnHandle::create(stream.handle());
  if (!handle.ok())
    return handle.status();
  return std::unique_ptr<CudaAttention>(
      std::make_unique<CudnnAttention>(stream, std::move(*handle), workspace));
}
#else
Result<std::unique_ptr<CudaAttention>>
runtime::createCudnnAttention(CudaStream &, std::span<std::byte>) {
  return fail("the plan computes attention by cuDNN, which this plait-run was "
              "built without (cudnn_frontend.h was not found)");
}
#endif
