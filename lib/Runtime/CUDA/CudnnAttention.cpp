//===- CudnnAttention.cpp - Attention by cuDNN ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaAttention.h"

#if PLAIT_HAS_CUDNN
#include "CudnnGraph.h"
#endif

#include <deque>
#include <tuple>

using namespace plait;
using namespace plait::runtime;

CudaAttentionFactory runtime::createCudaAttention = createCudnnAttention;

#if PLAIT_HAS_CUDNN
namespace {

/// Whether two steps can share a graph: all but where their tensors are.
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

  Result<uint32_t> prepare(const fb::AttentionStep &step) override {
    fb::AttentionStepT shape;
    step.UnPackTo(&shape);
    for (uint32_t i = 0; i < graphs.size(); ++i)
      if (sameShape(graphs[i].first, shape))
        return i;
    auto graph = CudnnGraph::create(shape, handle, workspace.size());
    if (!graph.ok())
      return fail(stream.context->describe(), " cannot compute ",
                  fb::EnumNameAttentionKind(shape.kind), " attention of ",
                  shape.batch, " x ", shape.heads, " heads of size ",
                  shape.head_size, " over ", shape.keys,
                  " positions: ", graph.status().message());
    graphs.emplace_back(std::move(shape), std::move(*graph));
    return static_cast<uint32_t>(graphs.size() - 1);
  }

  Status run(uint32_t prepared, const AttentionOperands &operands) override {
    return stream.add([&] {
      return graphs[prepared].second.run(handle, operands, workspace.data());
    });
  }

private:
  CudaStream &stream;
  CudnnHandle handle;
  std::span<std::byte> workspace;
  std::deque<std::pair<fb::AttentionStepT, CudnnGraph>> graphs;
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
