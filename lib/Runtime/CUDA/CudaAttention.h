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
#include <string>
#include <vector>

namespace plait::runtime {

/// A library's attention of one shape, on the stream of its engine.
class AttentionCall {
public:
  virtual ~AttentionCall() = default;
  /// Enqueues it. `workspace` is as large as was promised.
  virtual Status run(const AttentionOperands &operands,
                     std::byte *workspace) = 0;
  /// Names what computes it, as AttentionEngine::configurations() does.
  virtual Result<std::string> configuration() const = 0;
};

/// A library on one stream.
class AttentionEngine {
public:
  virtual ~AttentionEngine() = default;
  /// Does at load time all that a step of this shape needs, in at most
  /// `workspace` bytes. Its last query sees its last key; where its tensors are
  /// and what `first_query` is, is not looked at. The step is computed by
  /// `configuration`, or where that is empty, by the first that works.
  virtual Result<std::unique_ptr<AttentionCall>>
  create(const fb::AttentionStepT &shape, uint64_t workspace,
         const std::string &configuration) = 0;
  /// Names what may compute a step of this shape, the fastest first as far as
  /// the library knows. Not all may work, or within a workspace. The same
  /// version has the same names on equal GPUs.
  virtual Result<std::vector<std::string>>
  configurations(const fb::AttentionStepT &shape) = 0;
  /// Names the library and its version.
  virtual std::string describe() const = 0;
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

/// Attention that a step calls.
struct AttentionUse {
  uint32_t number; // of CudaAttention: a step or, to be timed, a call for one
  AttentionOperands operands;
  uint64_t calls = 0; // in a step
};

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

  std::string describeLibrary() const { return engine->describe(); }
  /// The library's calls that compute `steps`, once each, with the operands of
  /// the first step that makes it.
  std::vector<AttentionUse>
  callsOf(const std::vector<AttentionUse> &steps) const;
  const fb::AttentionStepT &shapeOf(uint32_t call) const {
    return calls[call].shape;
  }
  /// Tells in one line what a configuration is chosen for.
  std::string describe(uint32_t call) const;
  Result<std::string> configurationOf(uint32_t call) const {
    return calls[call].call->configuration();
  }
  Result<std::vector<std::string>> configurations(uint32_t call) {
    return engine->configurations(calls[call].shape);
  }
  /// The call by another configuration; install() has it take the first's
  /// place.
  Result<std::unique_ptr<AttentionCall>> make(uint32_t call,
                                              const std::string &configuration);
  void install(uint32_t call, std::unique_ptr<AttentionCall> made) {
    calls[call].call = std::move(made);
  }
  /// Both, unless that is what it has. Where it fails all stays as it is.
  Status take(uint32_t call, const std::string &configuration);
  /// Enqueues `made`, which is for `call`, or where it is null, what that has.
  Status runCall(uint32_t call, const AttentionOperands &operands,
                 AttentionCall *made = nullptr);

private:
  struct Call {
    fb::AttentionStepT shape;
    uint64_t workspace;
    std::unique_ptr<AttentionCall> call;
  };
  struct Piece : AttentionPiece {
    uint32_t call;
  };
  struct Prepared {
    fb::AttentionStepT step;
    int64_t firstQuery;
    std::vector<Piece> pieces;
    // In the workspace, of two pieces: what the second one adds to dK and to
    // dV, so much each, and then the statistics of both.
    uint64_t termBytes = 0, statsBytes = 0;

    uint64_t ownBytes() const { return 2 * termBytes + statsBytes; }
  };

  CudaAttention(CudaStream &stream, std::span<std::byte> workspace,
                std::unique_ptr<AttentionEngine> engine)
      : stream(stream), workspace(workspace), engine(std::move(engine)) {}
  Result<uint32_t> find(const fb::AttentionStepT &shape, uint64_t workspace);
  AttentionOperands operandsOf(const Prepared &attention, const Piece &piece,
                               AttentionOperands operands) const;
  Status cut(Prepared &made);
  Status makeRoom(Prepared &made);
  std::byte *statsOf(const Prepared &attention, const Piece &piece) const;
  Status copyStats(const Prepared &attention, const Piece &piece,
                   std::byte *stats);
  Status clearUnseen(const Prepared &attention,
                     const AttentionOperands &operands);
  Status add(const Prepared &attention, const std::vector<int64_t> &strides,
             std::byte *sum, const std::byte *term);

  CudaStream &stream;
  std::span<std::byte> workspace;
  std::unique_ptr<AttentionEngine> engine;
  std::shared_ptr<const ReduceKernels> sums; // made by the first that needs it
  std::deque<Call> calls;
  std::deque<Prepared> steps;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_CUDAATTENTION_H
