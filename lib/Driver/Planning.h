//===- Planning.h - One search of the planner -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_DRIVER_PLANNING_H
#define PLAIT_LIB_DRIVER_PLANNING_H

#include "Compilation.h"
#include "FewLayers.h"
#include "LoweredModel.h"
#include "plait/Planner/Profile.h"
#include "plait/Schedule/Schedule.h"

namespace plait {

/// Pins in `options` what was chosen: the mesh, the precision and every field
/// of the strategy.
void pinChoice(const planner::Configuration &choice, Precision precision,
               CompileOptions &options);

/// One search and what it has found: what Choice is a handle of.
struct ChoiceState {
  ChoiceState(std::shared_ptr<ModelState> model, CompileOptions given,
              PlanningOptions planning)
      : model(std::move(model)), options(std::move(given)),
        planning(std::move(planning)) {}

  /// Reads what is given and profiles the model. Failures have been reported.
  bool start();
  /// After start(): finds the result, tells what there is to say of it, and
  /// pins it in the options.
  Status search();
  /// What a compilation of the choice begins with.
  Compilation::Input getInput() const {
    return {*model, source, model->messages, order ? &*order : nullptr};
  }
  Result<planner::WhyNot> whyNot(const std::string &pins) const;

  std::shared_ptr<ModelState> model;
  CompileOptions options; // as given, then what was chosen
  PlanningOptions planning;
  planner::Cluster cluster;
  planner::Training training;
  std::optional<planner::SearchResult> result;
  /// The choice as it was placed, if it is to be compiled.
  std::unique_ptr<LoweredModel> lowered;

private:
  Status prepare();
  bool open();
  Status setAttention();
  Result<planner::SearchResult> findFastest();
  Result<planner::SearchResult> findBest();
  std::string describeFused(const planner::SearchResult &result);
  bool canPlace() const;
  Status checkSize(const planner::Configuration &choice) const;
  Status findOrder(const planner::Configuration &choice);
  std::unique_ptr<LoweredModel> lower(const planner::Configuration &choice,
                                      int64_t microbatches,
                                      mlir::ModuleOp fewer = nullptr) const;
  std::optional<FewLayers> findFewLayers(const planner::Configuration &choice);
  std::optional<FewLayers::Placed>
  placeLayers(const planner::Configuration &choice, const FewLayers &few,
              int depth, mlir::ModuleOp deepest) const;
  std::optional<std::vector<planner::StageMemory>> followLayers(
      const planner::Configuration &choice,
      llvm::function_ref<bool(std::vector<planner::StageMemory>)> refuses);
  bool refusesByLayers(const planner::Configuration &choice,
                       planner::Estimate &estimate);
  Status place(const planner::Configuration &choice,
               planner::Estimate &estimate);
  void tell() const;

  std::unique_ptr<ModelSource> undecided; // of a model that was decided
  ModelSource *source = nullptr;
  planner::SearchSpace space; // what the framework can run
  std::unique_ptr<ModelProfile> profile;
  Status fused = Status::success(); // attention; or why it is not
  // What the last choice was predicted with, where costs decide its order.
  std::optional<schedule::Schedule> order;
};

} // namespace plait

#endif // PLAIT_LIB_DRIVER_PLANNING_H
