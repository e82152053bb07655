//===- CudaGraph.cpp - Recorded work -------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Stream capture of the driver: what is enqueued between begin() and end(), in
// this stream and in those that wait for it, becomes a graph, which is then
// launched as one. Calls on the stream take its lock, see CudaStream.
//
//===----------------------------------------------------------------------===//

#include "CudaGraph.h"

using namespace plait;
using namespace plait::runtime;

Status CudaGraph::begin() {
  // Relaxed: other threads may do anything meanwhile.
  Status status = stream->add([&] {
    return stream->driver.check(
        stream->driver.cuStreamBeginCapture(stream->handle(),
                                            CU_STREAM_CAPTURE_MODE_RELAXED),
        "cuStreamBeginCapture");
  });
  records = status.ok();
  return status;
}

/// Only the executable form is kept: the graph that it is made from is not
/// changed later.
Status CudaGraph::end() {
  records = false;
  return stream->add([&] {
    CUgraph graph = nullptr;
    const Driver &driver = stream->driver;
    PLAIT_RETURN_IF_ERROR(
        driver.check(driver.cuStreamEndCapture(stream->handle(), &graph),
                     "cuStreamEndCapture"));
    // Else kernels of urgent streams get the priority of this one's.
    CUgraphExec executable = nullptr;
    Status status = driver.check(
        driver.cuGraphInstantiate(
            &executable, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY),
        "cuGraphInstantiate");
    driver.cuGraphDestroy(graph);
    if (status.ok())
      parts.push_back(executable);
    return status;
  });
}

Status CudaGraph::launch() {
  return stream->add([&] {
    for (CUgraphExec part : parts)
      PLAIT_RETURN_IF_ERROR(stream->driver.check(
          stream->driver.cuGraphLaunch(part, stream->handle()),
          "cuGraphLaunch"));
    return Status::success();
  });
}

/// Without the stream's lock: nobody else uses the stream when this is called.
/// May be called on any thread, hence use().
void CudaGraph::cancel() {
  if (!records || !context->use().ok())
    return;
  const Driver &driver = context->driver;
  // A recording that lacks a part ends with an error and no graph.
  CUgraph graph = nullptr;
  if (driver.cuStreamEndCapture(stream->handle(), &graph) == CUDA_SUCCESS)
    driver.cuGraphDestroy(graph);
  records = false;
}

void CudaGraph::drop() {
  cancel();
  if (parts.empty() || !context->use().ok())
    return;
  for (CUgraphExec part : parts)
    context->driver.cuGraphExecDestroy(part);
  parts.clear();
}
