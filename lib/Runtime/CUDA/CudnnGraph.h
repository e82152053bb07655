//===- CudnnGraph.h - Attention as a graph of cuDNN -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All that plait knows of cuDNN's front end, whose headers take many seconds to
// compile: they are in CudnnGraph.cpp alone. libcudnn is opened when the first
// plan needs it. Its engines are chosen, and compiled where they are not, when
// a graph is made; no memory is allocated later.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_CUDNNGRAPH_H
#define PLAIT_LIB_RUNTIME_CUDA_CUDNNGRAPH_H

#include "plait/Runtime/Device.h"

#include <cuda.h>
#include <memory>
#include <string>
#include <vector>

struct cudnnContext;

namespace plait::runtime {

/// Opens libcudnn, once; fails with one line where there is none or where it is
/// older than plait needs.
Status loadCudnn();
/// The version of what was opened; 9.16.0 is 91600.
size_t cudnnVersion();

/// cuDNN on the current context, whose work goes to one stream.
class CudnnHandle {
public:
  static Result<CudnnHandle> create(CUstream stream);
  CudnnHandle(CudnnHandle &&other) noexcept;
  CudnnHandle &operator=(CudnnHandle &&) = delete;
  ~CudnnHandle();

  cudnnContext *get() const { return handle; }

private:
  explicit CudnnHandle(cudnnContext *handle) : handle(handle) {}
  cudnnContext *handle;
};

/// One AttentionStep, ready to run. Its last query sees its last key, whatever
/// `first_query` says.
class CudnnGraph {
public:
  /// Compiles an engine that needs at most `workspace` bytes: that of
  /// `configuration`, one of configurations(), or where it is empty the first
  /// of cuDNN's heuristics.
  static Result<CudnnGraph> create(const fb::AttentionStepT &step,
                                   const CudnnHandle &handle,
                                   uint64_t workspace,
                                   const std::string &configuration);
  /// Names the engines of cuDNN's heuristics, with their parameters, once each.
  static Result<std::vector<std::string>>
  configurations(const fb::AttentionStepT &step, const CudnnHandle &handle);
  /// Names those that there would be on the GPU that `properties` describes, in
  /// cuDNN's JSON, whose compute capability times ten is `architecture`; fails
  /// where none needs at most `workspace` bytes. Needs no GPU, and no driver
  /// but what is linked with in its place.
  static Result<std::vector<std::string>>
  findFor(const fb::AttentionStepT &step, const std::string &properties,
          int architecture, uint64_t workspace);
  CudnnGraph(CudnnGraph &&) noexcept;
  CudnnGraph &operator=(CudnnGraph &&) = delete;
  ~CudnnGraph();

  /// Names the engine.
  Result<std::string> configuration() const;
  /// Enqueues the step on the handle's stream.
  Status run(const CudnnHandle &handle, const AttentionOperands &operands,
             std::byte *workspace) const;

private:
  struct Content;
  explicit CudnnGraph(std::unique_ptr<Content> content);
  std::unique_ptr<Content> content;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_CUDNNGRAPH_H
