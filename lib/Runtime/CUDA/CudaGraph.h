//===- CudaGraph.h - Recorded work ------------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_CUDAGRAPH_H
#define PLAIT_LIB_RUNTIME_CUDA_CUDAGRAPH_H

#include "CudaStream.h"

namespace plait::runtime {

/// The recording of one stream, and those that have waited for it. Used by one
/// thread at a time.
class CudaGraph {
public:
  /// `stream` is used from begin() to end() and by launch().
  explicit CudaGraph(CudaStream &stream)
      : stream(&stream), context(stream.context) {}
  CudaGraph(const CudaGraph &) = delete;
  ~CudaGraph() { drop(); }

  /// Record, instead of doing it, what is enqueued from begin() to end(): a
  /// part, behind those that are there.
  Status begin();
  Status end();
  /// Enqueues what was recorded, one part after the other.
  Status launch();
  /// Ends a recording that is left halfway between begin() and end().
  void cancel();
  /// Forgets it, also halfway. Waits for what has been launched: the driver
  /// does, whatever its manual says (seen with 580).
  void drop();

private:
  CudaStream *stream;
  std::shared_ptr<CudaContext> context;
  bool records = false;
  std::vector<CUgraphExec> parts;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_CUDAGRAPH_H
