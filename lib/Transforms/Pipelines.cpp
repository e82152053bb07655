//===- Pipelines.cpp - The phases of a compilation ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Says which passes make up each phase, and in which order. What must hold at
// the ends of a phase is verified by the passes that begin and end it
// (Phases/Phases.cpp).
//
// The planner profiles a model by the same lists of passes (buildKernels()),
// without those that need a whole step: what it costs is what will be compiled.
//
//===----------------------------------------------------------------------===//

#include "plait/Transforms/Pipelines.h"
#include "plait/Schedule/Generators.h"
#include "plait/Transforms/Passes.h"

#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace plait;

/// Phases come in the order in which they run; each takes what the one before
/// leaves.
llvm::ArrayRef<Phase> plait::getPhases() {
  static constexpr Phase phases[] = {Phase::Import,     Phase::Shard,
                                     Phase::Stage,      Phase::Differentiate,
                                     Phase::Checkpoint, Phase::Partition,
                                     Phase::Schedule,   Phase::Lower,
                                     Phase::Steps,      Phase::Plan};
  return phases;
}

StringRef plait::describePhase(Phase phase) {
  switch (phase) {
  case Phase::Import:
    return "the model: global tensors, forward and loss";
  case Phase::Shard:
    return "every value has a sharding";
  case Phase::Stage:
    return "one forward function per pipeline stage";
  case Phase::Differentiate:
    return "forward and backward, joint";
  case Phase::Checkpoint:
    return "forward and backward functions";
  case Phase::Partition:
    return "one rank's tensors, with collectives, and the end of the step";
  case Phase::Schedule:
    return "the order of every rank's work, verified";
  case Phase::Lower:
    return "kernels, addresses, programs";
  case Phase::Steps:
    return "what devices execute, in order, with addresses";
  case Phase::Plan:
    return "the checked plan file";
  }
  llvm_unreachable("no other phase");
}

/// Removes what nobody uses and what is computed twice.
static void addCleanup(OpPassManager &manager) {
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
}

/// The passes of a phase. `kernelsOnly` leaves out what a whole training step
/// needs beyond its functions: the optimizer, packs and programs.
static void addPasses(OpPassManager &manager, Phase phase, bool kernelsOnly) {
  switch (phase) {
  // The front end and the writer of the file do the work.
  case Phase::Import:
  case Phase::Plan:
    return;
  case Phase::Shard:
    // First: the FLOPs are those of the model as it was written.
    manager.addPass(createCountModelFlopsPass());
    manager.addPass(createAssignMatricesPass());
    manager.addPass(createLowerPrecisionPass());
    manager.addPass(createDecomposePass({/*early=*/true}));
    // Before shardings are chosen: dead and repeated ops would be weighed like
    // others.
    addCleanup(manager);
    manager.addPass(createReorderSequencePass());
    manager.addPass(createAssignShardingsPass());
    return;
  case Phase::Stage:
    // A cost model assigns stages itself.
    if (!kernelsOnly)
      manager.addPass(createAssignStagesPass());
    manager.addPass(createOutlineStagesPass());
    return;
  case Phase::Differentiate:
    manager.addPass(createDifferentiatePass());
    return;
  case Phase::Checkpoint:
    // No cleanup before the phases are split: it would merge what is computed
    // again with what it repeats.
    manager.addPass(createCheckpointPass());
    manager.addPass(createSplitPhasesPass());
    addCleanup(manager);
    return;
  case Phase::Partition:
    if (!kernelsOnly) {
      manager.addPass(createPackParametersPass());
      manager.addPass(createBuildOptimizerPass());
    }
    // After the two above, which go by shardings: it leaves none.
    manager.addPass(createPartitionPass());
    addCleanup(manager);
    manager.addPass(createChunkLossPass());
    manager.addPass(createExchangeRowsPass());
    manager.addPass(createMergeResidualsPass());
    return;
  case Phase::Schedule:
    manager.addPass(createSchedulePass());
    return;
  case Phase::Lower:
    // While the ops of an epilogue are still whole: what is decomposed cannot
    // be recognised.
    manager.addPass(createFuseEpiloguesPass());
    manager.addPass(createDecomposePass());
    addCleanup(manager);
    // On cleaned IR: whether a sum has one user must not depend on dead ops.
    manager.addPass(createFuseSumsPass());
    manager.addPass(createFormClustersPass());
    if (!kernelsOnly) {
      // Once it is known what kernels take.
      manager.addPass(createInsertMovesPass());
      manager.addPass(createPlaceBuffersPass());
    }
    return;
  case Phase::Steps:
    manager.addPass(createLowerToStepsPass());
    // These need addresses, to know which steps conflict. What has other
    // matmuls beside it need not be cut.
    manager.addPass(createOverlapCollectivesPass());
    manager.addPass(createSplitCollectivesPass());
    manager.addPass(createBucketReductionsPass());
    return;
  }
}

/// Every phase verifies its input first and says at the end that it is
/// complete, so that a dump can be taken up again behind any of them.
void plait::buildPhase(OpPassManager &manager, Phase phase, bool keepsOrigins) {
  std::string name = stringifyPhase(phase).str();
  manager.addPass(createBeginPhasePass({name}));
  addPasses(manager, phase, /*kernelsOnly=*/false);
  // A plan is no IR.
  if (phase != Phase::Plan)
    manager.addPass(createEndPhasePass({name, keepsOrigins}));
}

/// Neither verified nor marked: a cost model runs it on modules of its own that
/// are no whole model.
void plait::buildKernels(OpPassManager &manager, Phase phase) {
  addPasses(manager, phase, /*kernelsOnly=*/true);
}

#define GEN_PASS_REGISTRATION
namespace plait {
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

/// The phase `plan` is none for plait-opt: what it makes is no IR.
void plait::registerAllPasses() {
  registerPlaitPasses();
  registerTransformsPasses();
  for (Phase phase : getPhases())
    if (phase != Phase::Plan)
      PassPipelineRegistration<>(
          ("plait-" + stringifyPhase(phase)).str(), describePhase(phase),
          [phase](OpPassManager &manager) {
            buildPhase(manager, phase, /*keepsOrigins=*/true);
          });
}
