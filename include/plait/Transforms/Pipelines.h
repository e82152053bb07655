//===- Pipelines.h - The phases of a compilation ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_PIPELINES_H
#define PLAIT_TRANSFORMS_PIPELINES_H

#include "mlir/Pass/PassManager.h"
#include <string>
#include <vector>

namespace plait {

/// The phases between a model and its plan, in order.
enum class Phase {
  Import,
  Shard,
  Stage,
  Differentiate,
  Checkpoint,
  Partition,
  Schedule,
  Lower,
  Plan,
};

struct PhaseInfo {
  Phase phase;
  llvm::StringLiteral name; // of --compile-to and of dump files
  llvm::StringLiteral help; // what the IR is after it
};

/// All phases, in order.
llvm::ArrayRef<PhaseInfo> getPhases();

/// What the passes of a compilation need to know beside the module.
struct PipelineOptions {
  std::string schedule = "1f1b";
  unsigned microbatches = 1;
  std::string recompute = "none";
  bool sequenceParallel = false;
  /// Virtual stages of a rank; 0: as few as the schedule orders.
  unsigned chunks = 0;
  /// Layers of each virtual stage; empty: cut by cost.
  std::vector<int64_t> layers = {};
  /// Ops that lowering leaves whole.
  std::vector<std::string> keep = {};
  /// The kernels of a microbatch alone, for a cost model: no end of the step,
  /// and no places.
  bool kernelsOnly = false;
  /// What the model computes in, one of getPrecisions().
  std::string precision = "fp32";
  /// What products do to their results, one of getEpilogueKinds().
  std::string epilogues = "none";
  /// The ZeRO stage, one of getZeroStages().
  unsigned zero = 0;
};

/// What `recompute` may be.
llvm::ArrayRef<llvm::StringLiteral> getRecomputeKinds();

/// What `precision` may be: fp32, or bf16 with fp32 master copies of the
/// parameters.
llvm::ArrayRef<llvm::StringLiteral> getPrecisions();

/// What `epilogues` may be: none, bias, or all (bias, GELU and its gradient).
llvm::ArrayRef<llvm::StringLiteral> getEpilogueKinds();

/// What `zero` may be: 0, or 1 to divide the optimizer's state over
/// data-parallel ranks.
llvm::ArrayRef<unsigned> getZeroStages();

/// Adds the passes of one phase; Import and Plan have none.
void buildPhase(mlir::OpPassManager &manager, Phase phase,
                const PipelineOptions &options);

} // namespace plait

#endif // PLAIT_TRANSFORMS_PIPELINES_H
