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
// So does the proof make the step that a plan is held against (buildClaim()).
//
//===----------------------------------------------------------------------===//

#include "plait/Transforms/Pipelines.h"

#include "MergeEqual.h"
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

/// Removes what nobody uses and what is computed twice. Functions are of one
/// block: of their regions there is nothing to simplify.
static void addCleanup(OpPassManager &manager) {
  GreedyRewriteConfig config;
  config.setRegionSimplificationLevel(GreedySimplifyRegionLevel::Disabled);
  manager.addPass(createCanonicalizerPass(config));
  manager.addPass(createMergeEqualPass());
}

namespace {

/// Names what IR is made for.
enum class Purpose {
  Plan,    // a whole training step
  Kernels, // its functions, for a cost model: no optimizer, packs or programs
  Claim,   // the step on one rank, for the proof
};

} // namespace

/// Adds the passes of a phase.
static void addPasses(OpPassManager &manager, Phase phase, Purpose purpose) {
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
    // The claim needs it, too: a value that is computed twice has two
    // gradients, from which others follow one by one; of one value they follow
    // from the sum.
    addCleanup(manager);
    // One rank has whole sequences.
    if (purpose != Purpose::Claim)
      manager.addPass(createReorderSequencePass());
    manager.addPass(createAssignShardingsPass());
    return;
  case Phase::Stage:
    // A cost model assigns stages itself.
    if (purpose != Purpose::Kernels)
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
    // What is computed twice or for nothing costs the proof's terms nothing.
    if (purpose != Purpose::Claim)
      addCleanup(manager);
    return;
  case Phase::Partition:
    // The proof knows parameters by their names, not by where they lie.
    if (purpose == Purpose::Plan)
      manager.addPass(createPackParametersPass());
    if (purpose != Purpose::Kernels)
      manager.addPass(createBuildOptimizerPass());
    // After the two above, which go by shardings: it leaves none.
    manager.addPass(createPartitionPass());
    // One rank exchanges nothing, and what follows changes how things are
    // computed, which is for the proof to compare.
    if (purpose == Purpose::Claim)
      return;
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
    if (purpose == Purpose::Plan) {
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

/// Every phase verifies its input first, unless it comes right from the phase
/// before, and says at the end that it is complete, so that a dump can be taken
/// up again behind any of them.
void plait::buildPhase(OpPassManager &manager, Phase phase, bool keepsOrigins,
                       bool verifies) {
  std::string name = stringifyPhase(phase).str();
  if (verifies)
    manager.addPass(createBeginPhasePass({name}));
  addPasses(manager, phase, Purpose::Plan);
  // A plan is no IR.
  if (phase != Phase::Plan)
    manager.addPass(createEndPhasePass({name, keepsOrigins}));
}

/// Neither verified nor marked: a cost model runs it on modules of its own that
/// are no whole model.
void plait::buildKernels(OpPassManager &manager, Phase phase) {
  addPasses(manager, phase, Purpose::Kernels);
}

void plait::buildClaim(OpPassManager &manager) {
  for (Phase phase : {Phase::Shard, Phase::Stage, Phase::Differentiate,
                      Phase::Checkpoint, Phase::Partition})
    addPasses(manager, phase, Purpose::Claim);
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
