//===- Profile.h - A model's work, read off the IR ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The planner asks what one rank would compute, move and keep for a degree of
// tensor parallelism. Instead of formulas for transformers, the compiler's own
// passes give the answer: of each run of layers that are alike one is kept,
// every kept layer is made a stage of its own, and the module goes through
// sharding, differentiation, partitioning and kernel formation. Two profiles,
// for microbatches of two sizes, tell what grows with the
// microbatch. The cost does not depend on the number of layers or ranks.
//
// Shardings are those that the compiler will choose for the whole model and for
// the sequences that a rank has. There is a profile for each answer to that,
// which mostly is one.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_PROFILE_H
#define PLAIT_PLANNER_PROFILE_H

#include "plait/Configuration/Configuration.h"
#include "plait/Planner/Cluster.h"
#include "plait/Planner/Framework.h"
#include "plait/Planner/Work.h"
#include "plait/Support/AttentionTraits.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace plait {

struct Sums;
enum class Phase : uint32_t;

/// Makes the nn module of a model for a microbatch of `batch` sequences, on one
/// rank: with `@loss`, without mesh. Failure has been reported as a diagnostic.
using BatchSource =
    std::function<mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>(
        int64_t batch)>;

/// Profiles one model, each way to split it once.
/// `context` must have all dialects of plait loaded, and those of the model in
/// its registry: further contexts are made from that, for other threads.
class ModelProfile : public planner::WorkSource {
public:
  /// Imports the model, which is trained in `precision`, sharded as it is when
  /// compiled for `cluster`, if there is one, split in no way that cuts what is
  /// compressed, with `epilogues` in its matmuls, as `framework` does it. Null
  /// when that fails; a diagnostic has said why.
  static std::unique_ptr<ModelProfile>
  create(mlir::MLIRContext &context, BatchSource source,
         Precision precision = Precision::FP32,
         std::optional<planner::Cluster> cluster = std::nullopt,
         Compression compress = {}, EpilogueKind epilogues = EpilogueKind::None,
         const planner::Framework &framework = {});
  ~ModelProfile() override;

  const planner::Work *get(const planner::Degrees &degrees, double sequences,
                           std::string &reason) override;
  void prepare(std::span<const planner::WorkQuestion> questions) override;
  int64_t countExperts() override;

  /// Tells what the model asks of a library's attention.
  AttentionTraits findAttentionTraits();
  /// Whether GPUs of `architecture` (80 for sm_80) compute all of its attention
  /// in one step, in bf16; fails with what is in the way.
  Status checkFusedAttention(int architecture);

private:
  struct Model; // folded: one layer of each kind
  struct Worker;
  /// Words that say all that the measure of a block follows from.
  using BlockKey = std::vector<uintptr_t>;
  /// Blocks at one size of a microbatch: without recomputation, and where
  /// layers compute again what is cheap.
  struct Sizes {
    std::vector<planner::Block> plain, cheap;
  };
  /// The same of one block, for any size; the latter as far as it is known.
  struct Measured {
    planner::Block plain;
    std::optional<planner::Block> cheap;
  };
  using HalvesByKind = std::array<planner::Halves, 3>; // by recomputation
  /// How a model is split: it, and what its values' types are then.
  struct Sharded {
    mlir::OwningOpRef<mlir::ModuleOp> module;
    std::vector<const void *> types;
  };
  /// A degree of tp and ep, with sequence parallelism or without, and one
  /// exchange around experts, as far as it is known.
  struct Degree {
    Worker *worker = nullptr; // whose context the keys are of
    std::string refusal;      // of any number of sequences; else empty
    /// The works, each with the types of the shardings that it is of.
    std::vector<std::pair<std::vector<const void *>,
                          std::unique_ptr<const planner::Work>>>
        works;
    std::map<double, const planner::Work *> solved; // by sequences
    std::map<BlockKey, Measured> blocks;
    std::map<BlockKey, HalvesByKind> halves;

    const planner::Work *find(double sequences) const;
  };
  ModelProfile(mlir::MLIRContext &context, BatchSource source,
               Precision precision, std::optional<planner::Cluster> cluster,
               Compression compress, EpilogueKind epilogues,
               const planner::Framework &framework);
  Precision getWidth() const;
  Model *getModel(int64_t batch);
  Worker &getWorker(size_t index);
  mlir::ModuleOp getModule(Worker &worker, int64_t batch);
  Degree &getDegree(const planner::Degrees &degrees);
  TrainingConfiguration getConfiguration(const planner::Degrees &degrees) const;
  mlir::LogicalResult run(mlir::ModuleOp module, llvm::ArrayRef<Phase> phases);
  mlir::LogicalResult shard(mlir::ModuleOp module, const Model &model,
                            const Mesh &mesh, double sequences);
  mlir::FailureOr<Sharded> shardFor(double sequences, mlir::ModuleOp whole,
                                    const Model &model,
                                    const planner::Degrees &degrees);
  mlir::OwningOpRef<mlir::ModuleOp>
  differentiate(Sharded &sharded, const TrainingConfiguration &configuration);
  mlir::FailureOr<std::vector<planner::Block>>
  measure(mlir::ModuleOp joint, llvm::ArrayRef<int64_t> blocks,
          const Sums &sums, const planner::Degrees &degrees,
          Recompute recompute);
  mlir::FailureOr<Sizes> measure(mlir::ModuleOp joint, const Model &model,
                                 llvm::ArrayRef<int64_t> blocks,
                                 const Sums &sums,
                                 const planner::Degrees &degrees);
  mlir::FailureOr<Sizes> measureLarge(mlir::ModuleOp whole, const Model &model,
                                      llvm::ArrayRef<int64_t> blocks,
                                      double sequences,
                                      const planner::Degrees &degrees,
                                      std::string &reason);
  mlir::LogicalResult addBlocks(Degree &degree,
                                const std::vector<BlockKey> &keys,
                                llvm::ArrayRef<int64_t> blocks, Sizes small,
                                const Sizes &large);
  std::vector<HalvesByKind> measureNew(Degree &degree, Worker &second,
                                       const std::vector<BlockKey> &keys,
                                       mlir::ModuleOp joint, const Sums &sums,
                                       Sharded &small, double sequences,
                                       const planner::Degrees &degrees);
  std::vector<HalvesByKind> findHalves(Degree &degree, Sharded &sharded,
                                       const planner::Degrees &degrees);
  planner::Work assemble(const std::vector<Measured> &blocks,
                         const std::vector<HalvesByKind> &halves);
  /// Returns the work for a number of sequences; null where the model cannot be
  /// split, which diagnostics have said.
  const planner::Work *solve(Degree &degree, Worker &second, double sequences,
                             const planner::Degrees &degrees);
  /// Returns it, known or found by the degree's worker, of which `second` has
  /// the larger microbatch.
  const planner::Work *answer(const planner::Degrees &degrees, double sequences,
                              Worker &second);

  mlir::MLIRContext &context;
  BatchSource source;
  Precision precision;
  std::optional<planner::Cluster> cluster;
  Compression compress;
  EpilogueKind epilogues;
  planner::Framework framework;
  std::map<int64_t, std::unique_ptr<Model>> models; // by microbatch size
  /// Workers by number; the first works in the caller's context.
  std::vector<std::unique_ptr<Worker>> workers;
  std::map<planner::Degrees, Degree> known;
};

} // namespace plait

#endif // PLAIT_PLANNER_PROFILE_H
