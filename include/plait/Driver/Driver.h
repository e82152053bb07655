//===- Driver.h - From a model file to a plan file ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The compiler as a library: plaitc is option parsing around compile().
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DRIVER_DRIVER_H
#define PLAIT_DRIVER_DRIVER_H

#include "plait/Configuration/Configuration.h"
#include "plait/Plan/Files.h"
#include "plait/Schedule/Schedule.h"
#include "plait/Support/Status.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace llvm {
class raw_ostream;
} // namespace llvm

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace plait {

struct LoweredModel;

/// A plan that is written, and not yet under its name.
struct PendingPlan {
  OutputFile file;
  std::string told; // then, in one line; empty: nothing
  llvm::raw_ostream &text;

  /// Returns false after a message.
  bool appear();
};

/// The user's request.
struct CompileOptions {
  /// A folder with config.json, that file, or a .mlir file: a model, or what a
  /// compilation has left after any of its phases.
  std::string model;
  /// Fields of the model's config that are unknown and change no arithmetic, as
  /// ImportOptions has them.
  std::vector<std::string> ignoredFields;
  /// Axis sizes as "pp=2,dp=2,tp=2"; axes that are not named have size 1. "1",
  /// or empty, is one rank, and empty is the mesh of a module that has one.
  std::string mesh;
  /// The part of the configuration that is given. The rest is that of the
  /// module, or else its default, which for epilogues follows from the target:
  /// all on GPUs but bias for sm_80, and none on processors. What the module
  /// and this both say has to agree.
  ConfigurationPins pins;
  /// A file with the order of a step as plait/Schedule/Csv.h has it, in place
  /// of `schedule` and `chunks`; for models, not for later phases. Empty: none.
  std::string scheduleFile;
  /// The same as a value, compute only: what choosing the other options has
  /// predicted with, where the name of the schedule does not say it.
  std::optional<schedule::Schedule> order;
  /// Whether the model's dropout stays in.
  bool dropout = true;
  /// Whether every attention of the model looks back no further than to where
  /// the document of its token begins.
  bool documentMask = false;
  /// Parameters to which weight decay does not apply, whatever the model says:
  /// names, `*` matching anything.
  std::vector<std::string> noDecay;
  /// Pinned shardings: a parameter's name, `*` matching anything, and the axes
  /// of each dimension as in `#dist.sharding`: `[{}, {"tp"}]`.
  std::vector<std::pair<std::string, std::string>> shardings;
  /// The backend that executes the plan: "cpu" or "cuda". Empty: what the
  /// cluster's devices are; "cpu" without one.
  std::string backend;
  /// The processor that kernels are for: a name LLVM knows, or "host", which is
  /// what empty means. CPU only.
  std::string targetCPU;
  /// The GPU architecture that kernels are for, "sm_90". CUDA only; empty: that
  /// of the cluster's devices; without one any, and the usual one without a
  /// delay when the plan is loaded.
  std::string target;
  /// The machines that the plan is for, as planner::parseCluster reads them.
  /// Empty: not known; a GPU then reserves what the target's usual one does.
  std::string cluster;
  /// Stop after this phase and write the IR (empty: write the plan).
  std::string compileTo;
  /// Write the IR after every phase into this folder (empty: nowhere).
  std::string dumpPhasesTo;
  /// The plan, or the IR with `compileTo`; "-" is standard output.
  std::string output;
  /// Prove that the plan computes what the model asks for: what computes
  /// something else is an error, and of what cannot be proven the plan says so.
  bool prove = true;
  /// The file that IR of a later phase is held against: the model, as
  /// `dumpPhasesTo` has written it after phase import. Empty: that of `model`,
  /// if it is one.
  std::string claim;
  /// Prove it after each phase from which IR can be held against the model.
  bool verifyEachPhase = false;
  /// Embed the unpartitioned model, so that `plait-run --check` can compare.
  bool reference = true;
  /// The stream for what is told to people; null: standard output. It must be
  /// another where an output is "-".
  llvm::raw_ostream *text = nullptr;
  /// Say on standard error which phase is running.
  bool progress = false;
  /// Adds dialects that a .mlir file may use beside plait's own.
  std::function<void(mlir::DialectRegistry &)> addDialects;
  /// The list where a plan waits that is to appear together with others; null:
  /// it appears at once.
  std::vector<PendingPlan> *pending = nullptr;
  /// The model as choosing these options has compiled it already; null:
  /// nothing.
  std::shared_ptr<LoweredModel> lowered;
};

/// Compiles and writes the output, completely or not at all, and says in one
/// line what was written where that is a file. On failure the
/// reason has been printed to standard error.
bool compile(const CompileOptions &options);

} // namespace plait

#endif // PLAIT_DRIVER_DRIVER_H
