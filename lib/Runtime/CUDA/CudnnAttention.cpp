//===- CudnnAttention.cpp - Attention by cuDNN ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// cuDNN on a stream, a graph for each shape. Where plait-run is built without
// its headers, all that is left of this file is a factory that says so.
//
//===----------------------------------------------------------------------===//

#include "CudaAttention.h"

#if PLAIT_HAS_CUDNN
#include "CudnnGraph.h"
#endif

using namespace plait;
using namespace plait::runtime;

#if PLAIT_HAS_CUDNN
namespace {

class CudnnCall : public AttentionCall {
public:
  CudnnCall(const CudnnHandle &handle, CudnnGraph graph)
      : handle(handle), graph(std::move(graph)) {}

  Status run(const AttentionOperands &operands, std::byte *workspace) override {
    return graph.run(handle, operands, workspace);
  }
  Result<std::string> configuration() const override {
    return graph.configuration();
  }

private:
  const CudnnHandle &handle;
  CudnnGraph graph;
};

class CudnnEngine : public AttentionEngine {
public:
  CudnnEngine(CudaStream &stream, CudnnHandle handle)
      : stream(stream), handle(std::move(handle)) {}

  Result<std::unique_ptr<AttentionCall>>
  create(const fb::AttentionStepT &shape, uint64_t workspace,
         const std::string &configuration) override {
    auto graph = CudnnGraph::create(shape, handle, workspace, configuration);
    if (!graph.ok())
      return fail(stream.context->describe(), " cannot compute ",
                  fb::EnumNameAttentionKind(shape.kind), " attention of ",
                  shape.batch, " x ", shape.heads, " heads of size ",
                  shape.head_size, " over ", shape.keys,
                  " positions: ", graph.status().message());
    return std::unique_ptr<AttentionCall>(
        std::make_unique<CudnnCall>(handle, std::move(*graph)));
  }
  Result<std::vector<std::string>>
  configurations(const fb::AttentionStepT &shape) override {
    return CudnnGraph::configurations(shape, handle);
  }
  std::string describe() const override {
    return "cuDNN " + std::to_string(cudnnVersion());
  }

private:
  CudaStream &stream;
  CudnnHandle handle;
};

} // namespace

Result<std::unique_ptr<AttentionEngine>>
runtime::createCudnnEngine(CudaStream &stream) {
  auto handle = CudnnHandle::create(stream.handle());
  if (!handle.ok())
    return handle.status();
  return std::unique_ptr<AttentionEngine>(
      std::make_unique<CudnnEngine>(stream, std::move(*handle)));
}
#else
Result<std::unique_ptr<AttentionEngine>>
runtime::createCudnnEngine(CudaStream &) {
  return fail("the plan computes attention by cuDNN, which this plait-run was "
              "built without (cudnn_frontend.h was not found)");
}
#endif
