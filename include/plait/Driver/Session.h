//===- Session.h - From a model to a plan, as a library ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The compiler and the planner as a library: a session imports models, lets the
// planner choose how to train them, and compiles them. What comes out are
// values; plaitc is one client that writes and prints them.
//
//   Session session(reporter);
//   Result<Model> model = session.import({.model = "gpt2-nano"});
//   Result<Choice> choice = session.plan(*model, given);
//   Result<CompiledPlan> plan = session.compile(*choice);
//   Status saved = plan->save("nano.plan");
//
// Errors. A function of a session that fails has given each error to the
// reporter, once; the status that it returns repeats the first of them. What
// other values here fail with is in their status alone.
//
// Threads. Sessions share nothing: different ones may be used by different
// threads at the same time. One session, with all that has come out of it, is
// for one thread at a time.
//
// This header needs no header of MLIR or LLVM.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DRIVER_SESSION_H
#define PLAIT_DRIVER_SESSION_H

#include "plait/Configuration/Configuration.h"
#include "plait/Plan/Files.h"
#include "plait/Planner/Report.h"
#include "plait/Support/Reporter.h"
#include "plait/Transforms/ModelEdits.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace plait {

struct ModelState;
struct ChoiceState;
struct PlanState;

//===----------------------------------------------------------------------===//
// What is asked for
//===----------------------------------------------------------------------===//

/// Which model, and what is changed in it right after import.
struct ModelOptions {
  /// A folder with config.json, that file, or a .mlir file: a model, or what a
  /// compilation has left after any of its phases.
  std::string model;
  /// The text of a config.json, in the place of a file; `model` is what it is
  /// called then. Empty: there is a file.
  std::string config = {};
  /// Fields of the model's config that are unknown and change no arithmetic, as
  /// ImportOptions has them.
  std::vector<std::string> ignoredFields = {};
  ModelEdits edits = {};
  /// Pinned shardings, each NAME=AXES: a parameter's name, `*` matching
  /// anything, and the axes of each dimension as in `#dist.sharding`:
  /// `[{}, {"tp"}]`.
  std::vector<std::string> shardings = {};
  /// Chunks of tokens in which the experts of a layer are computed: more than
  /// these have more code than a plan should have.
  static constexpr int kMostExpertChunks = 64;
  int expertChunks = 1;
};

/// Names what a model is compiled for.
struct CompileOptions {
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
  /// A folder for the IR after every phase (empty: nowhere).
  std::string dumpPhasesTo;
  /// Whether to prove that the plan computes what the model asks for: what
  /// computes something else is an error, and of what cannot be proven the plan
  /// says so.
  bool prove = true;
  /// The file that IR of a later phase is held against: the model, as
  /// `dumpPhasesTo` has written it after phase import. Empty: the model that
  /// was imported, if it is one.
  std::string claim;
  /// Whether to prove it after each phase from which IR can be held against the
  /// model.
  bool verifyEachPhase = false;
  /// Whether to embed the unpartitioned model, with which a run can compare.
  bool reference = true;
};

/// Returns what `given` pins of what a planner decides, and what `further`
/// does, in the form of planner::parsePins. Fails where something is pinned
/// twice, even alike.
Result<planner::Pins> getPins(const CompileOptions &given,
                              const std::string &further = "");

/// Says what the planner is asked, besides `CompileOptions::cluster`.
struct PlanningOptions {
  /// Holds what the planner may not decide. A strategy in CompileOptions::pins
  /// is not looked at: it belongs here.
  planner::Pins pins;
  /// Whose habits to predict, as planner::findFramework knows it. The search is
  /// of what that program can run (plait/Planner/Abilities.h), and only plait
  /// compiles.
  std::string framework = "plait";
  /// Whether what is chosen has to be executable.
  bool compiles = true;
  /// Whether it is an answer that nothing fits: it fails with
  /// Code::NothingFits then, and the reporter hears of no error.
  bool isTentative = false;
};

//===----------------------------------------------------------------------===//
// What comes out
//===----------------------------------------------------------------------===//

/// An imported model, or IR that an earlier compilation has left. A handle:
/// copies are of the same model.
class Model {
public:
  explicit Model(std::shared_ptr<ModelState> state) : state(std::move(state)) {}

  /// Whether the planner can be asked about it: nothing is decided yet, as it
  /// is in what a compilation has left, and it has no batch of its own.
  bool isPlannable() const;
  /// Returns the text of its config.json; empty: it has none.
  const std::string &getConfig() const;
  /// Serves the session's own parts.
  ModelState &get() const { return *state; }
  const std::shared_ptr<ModelState> &share() const { return state; }

private:
  std::shared_ptr<ModelState> state;
};

/// A choice of the planner for a model. A handle, as Model is.
class Choice {
public:
  explicit Choice(std::shared_ptr<ChoiceState> state)
      : state(std::move(state)) {}

  /// Returns what it was chosen for.
  Model getModel() const;
  /// Returns what compile() will compile for: what was given, and what was
  /// chosen in the place of what was not.
  const CompileOptions &getOptions() const;
  /// The choice with its costs, and what else there was.
  const planner::SearchResult &getResult() const;
  /// Returns what reports are made of (plait/Planner/Report.h). It refers to
  /// this choice, which must live longer.
  planner::ReportInput describe() const;
  /// Compares with the best choice under other pins, such as "tp=4,pp=2", or,
  /// where there are none, with the best of all. Searches once more.
  Result<planner::WhyNot> whyNot(const std::string &pins) const;
  /// Serves the session's own parts.
  ChoiceState &get() const { return *state; }

private:
  std::shared_ptr<ChoiceState> state;
};

/// A plan, in memory. A handle, as Model is.
class CompiledPlan {
public:
  explicit CompiledPlan(std::shared_ptr<const PlanState> state)
      : state(std::move(state)) {}

  /// Writes the file, completely or not at all.
  Status save(const std::string &path) const;
  /// Writes it so that it appears with the returned file's commit(), together
  /// with others.
  Result<OutputFile> prepare(const std::string &path) const;
  /// "pp=2,dp=2, 1f1b, micro-batch 2, fp32, with reference".
  const std::string &describe() const;

private:
  std::shared_ptr<const PlanState> state;
};

//===----------------------------------------------------------------------===//
// Sessions
//===----------------------------------------------------------------------===//

/// Adds dialects that a .mlir file may use beside plait's own.
using AddDialects = std::function<void(mlir::DialectRegistry &)>;

/// Imports, plans and compiles. `reporter` must live longer.
class Session {
public:
  explicit Session(Reporter &reporter, AddDialects addDialects = nullptr)
      : reporter(reporter), addDialects(std::move(addDialects)) {}

  /// Opens a model: reads its file, and of a .mlir file all that is in it.
  Result<Model> import(const ModelOptions &options);

  /// Searches for the best configuration of the model for
  /// `CompileOptions::cluster`, which must be given.
  Result<Choice> plan(const Model &model, const CompileOptions &given,
                      const PlanningOptions &planning = {});

  /// Compiles what was chosen; what the choice has compiled already is not
  /// compiled again.
  Result<CompiledPlan> compile(const Choice &choice);
  /// Compiles without a planner: what is not given has its default.
  Result<CompiledPlan> compile(const Model &model,
                               const CompileOptions &options);

  /// Runs the phases up to `phase`, such as "partition", and returns the IR,
  /// which import() reads again.
  Result<std::string> lower(const Choice &choice, const std::string &phase);
  Result<std::string> lower(const Model &model, const CompileOptions &options,
                            const std::string &phase);

private:
  Reporter &reporter;
  AddDialects addDialects;
};

} // namespace plait

#endif // PLAIT_DRIVER_SESSION_H
