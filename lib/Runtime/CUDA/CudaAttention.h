//===- CudaAttention.h - Attention on a GPU ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The attention steps of one rank, and what computes them: cuDNN
// (CudnnAttention.cpp), or in tests the host.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_CUDAATTENTION_H
#define PLAIT_LIB_RUNTIME_CUDA_CUDAATTENTION_H

#include "ReduceKernels.h"
#include "plait/Runtime/Device.h"

#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace plait::runtime {

/// A library's attention of one shape, on the stream of its engine.
class AttentionCall {
public:
  virtual ~AttentionCall() = default;
  /// Enqueues it. `workspace` is as large as was promised.
  virtual Status run(const AttentionOperands &operands,
                     std::byte *workspace) = 0;
};

/// A library on one stream.
class AttentionEngine {
public:
  virtual ~AttentionEngine() = default;
  /// Does at load time all that a step of this shape needs, in at most
  /// `workspace` bytes. Its last query sees its last key; where its tensors are
  /// and what `first_query` is, is not looked at.
  virtual Result<std::unique_ptr<AttentionCall>>
  create(const fb::AttentionStepT &shape, uint64_t workspace) = 0;
};

/// `stream` outlives the result.
using AttentionEngineFactory =
    Result<std::unique_ptr<AttentionEngine>> (*)(CudaStream &stream);

/// cuDNN. Fails with one line where the library or, in this build, its front
/// end is missing, and where the library is too old.
Result<std::unique_ptr<AttentionEngine>> createCudnnEngine(CudaStream &stream);

/// The function that devices use: createCudnnEngine, unless a test puts its own
/// here before the first device is made.
extern AttentionEngineFactory createAttentionEngine;

/// The part of a step that an engine can compute at once.
struct AttentionPiece {
  int64_t query; // the first, among those of the step
  fb::AttentionStepT shape;
};
/// The pieces of `step`, whose query 0 is stored at `firstQuery`; the one that
/// sees the most keys is the first.
std::vector<AttentionPiece> cutAttention(const fb::AttentionStepT &step,
                                         int64_t firstQuery);

/// The attentions of one rank. Used by the rank's thread only.
class CudaAttention {
public:
  /// `stream` outlives the result. `workspace` is device memory that nothing
  /// else on the stream uses at the same time.
  static Result<std::unique_ptr<CudaAttention>>
  create(CudaStream &stream, std::span<std::byte> workspace);

  /// Does at load time all that `step` needs, whose query 0 is stored at
  /// `firstQuery` (see Plan.fbs); the number is for run(). Equal steps share
  /// one.
  Result<uint32_t> prepare(const fb::AttentionStep &step, int64_t firstQuery);
  /// Enqueues the step.
  Status run(uint32_t prepared, const AttentionOperands &operands);

private:
  struct Call {
    fb::AttentionStepT shape;
    uint64_t workspace;
    std::unique_ptr<AttentionCall> call;
  };
  struct Piece : AttentionPiece {
    AttentionCall *call;
  };
  struct Prepared {
    fb::AttentionStepT step;
    int64_t firstQuery;
    std::vector<Piece> pieces;
    uint64_t termBytes = 0; // of what the second piece adds to dK, or to dV
  };

  CudaAttention(CudaStream &stream, std::span<std::byte> workspace,
                std::unique_ptr<AttentionEngine> engine)
      : stream(stream), workspace(workspace), engine(std::move(engine)) {}
  Result<AttentionCall *> find(const fb::AttentionStepT &shape,
                               uint64_t workspace);
  Status cut(Prepared &made);
  Status makeRoomForTerms(Prepared &made);
  Status clearUnseen(const Prepared &attention,
                     const AttentionOperands &operands);
  Status add(const Prepared &attention, const std::vector<int64_t> &strides,
             std::byte *sum, const std::byte *term);

  CudaStream &stream;
  std::span<std::byte> workspace;
  std::unique_ptr<AttentionEngine> engine;
  std::shared_ptr<const ReduceKernels> sums; // made by the first that needs it
  std::deque<Call> calls;                    // pieces point to them
  std::deque<Prepared> steps;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_CUDAATTENTION_H
