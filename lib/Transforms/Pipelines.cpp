//===- Pipelines.cpp - The phases of a compilation ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Transforms/Pipelines.h"
#include "plait/Schedule/Generators.h"
#include "plait/Transforms/Passes.h"

#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace plait;

static constexpr PhaseInfo kPhases[] = {
    {Phase::Import, "import", "the model: global tensors, forward and loss"},
    {Phase::Shard, "shard", "every value has a sharding"},
    {Phase::Stage, "stage", "one forward function per pipeline stage"},
    {Phase::Differentiate, "differentiate", "forward and backward, joint"},
    {Phase::Checkpoint, "checkpoint",
     "forward, backward, reduce and optimizer functions"},
    {Phase::Partition, "partition", "one rank's tensors, with collectives"},
    {Phase::Schedule, "schedule", "the order of every rank's work, verified"},
    {Phase::Lower, "lower", "kernels, addresses, programs"},
    {Phase::Plan, "plan", "the checked plan file"},
};

ArrayRef<PhaseInfo> plait::getPhases() { return kPhases; }

ArrayRef<StringLiteral> plait::getRecomputeKinds() {
  static constexpr StringLiteral kinds[] = {"none", "full"};
  return kinds;
}

ArrayRef<StringLiteral> plait::getPrecisions() {
  static constexpr StringLiteral precisions[] = {"fp32", "bf16"};
  return precisions;
}

ArrayRef<StringLiteral> plait::getEpilogueKinds() {
  static constexpr StringLiteral kinds[] = {"none", "bias", "all"};
  return kinds;
}

ArrayRef<unsigned> plait::getZeroStages() {
  static constexpr unsigned stages[] = {0, 1, 2, 3};
  return stages;
}

/// Removes what nobody uses and what is computed twice.
static void addCleanup(OpPassManager &manager) {
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
}

/// An unknown schedule is refused where stages are assigned.
static bool splitsBackward(const std::string &schedule) {
  auto generator = schedule::findGenerator(schedule);
  return generator.ok() && (*generator)->splitsBackward;
}

void plait::buildPhase(OpPassManager &manager, Phase phase,
                       const PipelineOptions &options) {
  switch (phase) {
  case Phase::Plan:
    return;
  case Phase::Import:
    manager.addPass(createVerifyModelPass());
    return;
  case Phase::Shard:
    if (options.precision == "bf16")
      manager.addPass(createLowerPrecisionPass());
    manager.addPass(createDecomposePass({/*early=*/true, /*keep=*/{}}));
    addCleanup(manager);
    manager.addPass(
        createAssignShardingsPass({options.sequenceParallel, options.zero}));
    return;
  case Phase::Stage:
    manager.addPass(
        createAssignStagesPass({SmallVector<int64_t>(ArrayRef(options.layers)),
                                options.schedule, options.chunks}));
    manager.addPass(createOutlineStagesPass());
    return;
  case Phase::Differentiate:
    manager.addPass(createDifferentiatePass());
    return;
  case Phase::Checkpoint:
    // No cleanup before the phases are split: it would merge what is computed
    // again with what it repeats.
    manager.addPass(createCheckpointPass({options.recompute}));
    manager.addPass(createSplitPhasesPass({splitsBackward(options.schedule)}));
    if (!options.kernelsOnly)
      manager.addPass(createBuildOptimizerPass());
    addCleanup(manager);
    return;
  case Phase::Partition:
    manager.addPass(createPartitionPass());
    addCleanup(manager);
    manager.addPass(createMergeResidualsPass());
    return;
  case Phase::Schedule:
    manager.addPass(
        createSchedulePass({options.schedule, options.microbatches}));
    return;
  case Phase::Lower:
    manager.addPass(createFuseEpiloguesPass({options.epilogues}));
    manager.addPass(createDecomposePass(
        {/*early=*/false, SmallVector<std::string>(ArrayRef(options.keep))}));
    addCleanup(manager);
    // Where parameters lie is of no interest without places.
    if (!options.kernelsOnly)
      manager.addPass(createPackParametersPass({options.zero, /*bucket=*/0}));
    manager.addPass(createFormClustersPass());
    if (!options.kernelsOnly)
      manager.addPass(createPlaceBuffersPass());
    return;
  }
}

#define GEN_PASS_REGISTRATION
namespace plait {
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

namespace {
/// The options of a phase as a textual pipeline: `plait-schedule{kind=gpipe}`.
struct PhaseOptions : PassPipelineOptions<PhaseOptions> {
  Option<std::string> schedule{*this, "schedule",
                               llvm::cl::desc("a schedule's name"),
                               llvm::cl::init("1f1b")};
  Option<unsigned> chunks{
      *this, "chunks",
      llvm::cl::desc("virtual stages of a rank; 0: as few as it orders"),
      llvm::cl::init(0)};
  Option<unsigned> microbatches{*this, "microbatches",
                                llvm::cl::desc("microbatches of a step"),
                                llvm::cl::init(1)};
  Option<std::string> recompute{*this, "recompute",
                                llvm::cl::desc("none or full"),
                                llvm::cl::init("none")};
  Option<bool> sequenceParallel{
      *this, "sequence-parallel",
      llvm::cl::desc("let tp split the sequence as well"),
      llvm::cl::init(false)};
  Option<std::string> precision{*this, "precision",
                                llvm::cl::desc("fp32 or bf16"),
                                llvm::cl::init("fp32")};
  Option<std::string> epilogues{*this, "epilogues",
                                llvm::cl::desc("none, bias or all"),
                                llvm::cl::init("none")};
  Option<unsigned> zero{*this, "zero", llvm::cl::desc("ZeRO stage: 0 to 3"),
                        llvm::cl::init(0)};
};
} // namespace

void plait::registerAllPasses() {
  registerPlaitPasses();
  registerTransformsPasses();
  for (const PhaseInfo &info : kPhases) {
    if (info.phase == Phase::Plan)
      continue;
    PassPipelineRegistration<PhaseOptions>(
        ("plait-" + info.name).str(), info.help,
        [phase = info.phase](OpPassManager &manager,
                             const PhaseOptions &given) {
          PipelineOptions options{given.schedule, given.microbatches,
                                  given.recompute, given.sequenceParallel};
          options.precision = given.precision;
          options.epilogues = given.epilogues;
          options.zero = given.zero;
          options.chunks = given.chunks;
          buildPhase(manager, phase, options);
        });
  }
}
