//===- Session.cpp - From a model to a plan, as a library -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is made of a compilation: a plan with its reference and certificate, IR
// of a phase, or a lowered model for the planner. Nothing here prints or keeps
// anything between calls.
//
//===----------------------------------------------------------------------===//

#include "plait/Driver/Session.h"

#include "Certificate.h"
#include "Compilation.h"
#include "LoweredModel.h"
#include "Planning.h"
#include "Reference.h"
#include "TargetSettings.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Import/HuggingFace.h"
#include "plait/Plan/Container.h"
#include "plait/Transforms/Pipelines.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"

#include <optional>

using namespace mlir;
using namespace plait;

/// A plan with what is said of it in one line.
struct plait::PlanState {
  std::unique_ptr<plan::fb::PlanT> plan;
  std::string description;
};

//===----------------------------------------------------------------------===//
// Handles
//===----------------------------------------------------------------------===//

bool Model::isPlannable() const {
  return state->source && !state->source->hasFixedBatch();
}

const std::string &Model::getConfig() const { return state->config; }

Status CompiledPlan::save(const std::string &path) const {
  Result<OutputFile> file = prepare(path);
  return file.ok() ? file->commit() : file.status();
}

Result<OutputFile> CompiledPlan::prepare(const std::string &path) const {
  return plan::preparePlan(path, *state->plan);
}

const std::string &CompiledPlan::describe() const { return state->description; }

Result<Model> Session::import(const ModelOptions &options) {
  auto state = std::make_shared<ModelState>(options, reporter, addDialects);
  if (failed(state->open()))
    return state->messages.getFailure();
  return Model(std::move(state));
}

//===----------------------------------------------------------------------===//
// References
//===----------------------------------------------------------------------===//

namespace {
/// Keeps the first error, and tells of nothing but progress.
class Silence : public Reporter {
public:
  explicit Silence(Messages &outer) : outer(outer) {}

  void message(const Message &message) override {
    if (message.severity == Severity::Error && first.empty())
      first = message.text;
  }
  void progress(const Progress &progress) override { outer.progress(progress); }

  std::string first;

private:
  Messages &outer;
};
} // namespace

/// The plan of the unpartitioned model; fails with the reason why there is
/// none. Nothing is built of a model that is too large.
static Result<std::unique_ptr<plan::fb::PlanT>>
compileReference(const CompileOptions &given, const Compilation::Input &input,
                 const Compilation &partitioned) {
  TrainingConfiguration configuration = partitioned.getConfiguration();
  if (configuration.outer.isOn())
    return fail("each site trains weights of its own, and one rank has one of "
                "them");
  if (configuration.compress.isOn())
    return fail("what replicas compress are their own gradients, and one rank "
                "has the gradient of all");
  // Sequences that depend on each other have to be computed together.
  if (partitioned.hasFixedBatch())
    configuration.microBatch *= partitioned.getMesh().batchParts();
  CompileOptions options = getReferenceOptions(given, configuration);
  // Whatever fails is told by one warning.
  Silence silence(input.messages);
  Messages quiet(silence);
  ModelState &model = input.model;
  ScopedDiagnosticHandler keep(&model.context, [&](Diagnostic &diagnostic) {
    quiet.report(diagnostic);
  });
  Compilation compilation(options, {model, input.source, quiet});
  if (failed(compilation.importReference(partitioned)))
    return fail(silence.first);
  PLAIT_RETURN_IF_ERROR(
      checkReferenceSize(countParameterBytes(compilation.getModule())));
  if (failed(compilation.runTo(Phase::Plan)))
    return fail(silence.first);
  for (auto program : compilation.getModule().getOps<plan::ProgramOp>())
    PLAIT_RETURN_IF_ERROR(checkReferenceSize(program.getBytes()));
  auto plan = compilation.convert();
  if (failed(plan))
    return fail(silence.first);
  return std::move(*plan);
}

/// Embeds the reference, or says why there is none.
static void addReference(const CompileOptions &options,
                         const Compilation::Input &input,
                         const Compilation &compilation,
                         plan::fb::PlanT &plan) {
  Phase imported = compilation.getImported();
  auto reference =
      imported == Phase::Import
          ? compileReference(options, input, compilation)
          : fail("it is compiled from IR after phase ",
                 stringifyPhase(imported).str(), ", not from the model");
  if (reference.ok())
    plan.reference = plan::packPlan(**reference);
  else
    input.messages.warn("the plan has no reference for plait-run `check`: " +
                        reference.status().message());
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

/// Whether there is a file of weights beside the model's config.json.
static bool hasWeights(const ModelState &model) {
  if (model.config.empty() || !model.options.config.empty())
    return false;
  std::string config = getConfigPath(model.options.model);
  StringRef folder = llvm::sys::path::parent_path(config);
  std::error_code error;
  for (llvm::sys::fs::directory_iterator
           file(folder.empty() ? "." : folder, error),
       end;
       !error && file != end; file.increment(error))
    if (StringRef(file->path()).ends_with(".safetensors"))
      return true;
  return false;
}

static std::string describe(const plan::fb::PlanT &plan,
                            const Compilation &compilation) {
  TrainingConfiguration configuration = compilation.getConfiguration();
  std::string mesh = compilation.getMesh().print();
  if (configuration.outer.isOn())
    mesh += ",sites=" + std::to_string(configuration.outer.sites);
  std::string exchange;
  if (compilation.getMesh()[Axis::EP] > 1)
    exchange = ", expert-exchange " + print(configuration.expertExchange);
  return llvm::formatv("{0}, {1}, micro-batch {2}, {3}{4}, {5} reference", mesh,
                       plan.schedule, configuration.microBatch,
                       print(configuration.precision), exchange,
                       plan.reference.empty() ? "without" : "with");
}

/// Reads the model, or goes on with what has been lowered. The planner tells of
/// pins without effect for itself.
static LogicalResult begin(Compilation &compilation,
                           const CompileOptions &options,
                           const Compilation::Input &input,
                           LoweredModel *lowered) {
  if (failed(lowered ? compilation.adopt(*lowered) : compilation.import()))
    return failure();
  if (options.cluster.empty())
    for (const std::string &line :
         findIdlePins(options.pins, compilation.getMesh()))
      input.messages.note(line);
  return success();
}

/// Only processors compute what sites do.
static Status checkSites(const Compilation &compilation) {
  Outer outer = compilation.getConfiguration().outer;
  TargetAttr target = getTarget(compilation.getModule());
  return outer.isOn() && target && target.isGPU()
             ? fail("`outer` is ", print(outer),
                    ", which is compiled for processors, not for GPUs")
             : Status::success();
}

static Result<CompiledPlan> compilePlan(CompileOptions options,
                                        const Compilation::Input &input,
                                        LoweredModel *lowered) {
  Messages &messages = input.messages;
  messages.begin();
  if (!messages.report(takeSites(options)))
    return messages.getFailure();
  Compilation compilation(options, input);
  FailureOr<std::unique_ptr<plan::fb::PlanT>> plan = failure();
  if (succeeded(begin(compilation, options, input, lowered)) &&
      succeeded(compilation.runTo(Phase::Plan)) &&
      messages.report(checkSites(compilation)) &&
      messages.report(compilation.checkMemory()))
    plan = compilation.convert();
  if (failed(plan) || !messages.report(compilation.checkMemory(**plan)))
    return messages.getFailure();
  if (options.reference)
    addReference(options, input, compilation, **plan);
  addCertificate(compilation.takeCertificate(), **plan);
  if (hasWeights(input.model))
    messages.note("the weights of the model are not in the plan: plait-run "
                  "reads them with `weights`, and begins with random ones "
                  "without");
  std::string description = describe(**plan, compilation);
  return CompiledPlan(std::make_shared<PlanState>(
      PlanState{std::move(*plan), std::move(description)}));
}

/// What the choice has lowered is used once. Earlier phases are dumped, and
/// proven, by running them.
Result<CompiledPlan> Session::compile(const Choice &choice) {
  ChoiceState &state = choice.get();
  std::unique_ptr<LoweredModel> lowered;
  if (state.options.dumpPhasesTo.empty() && !state.options.verifyEachPhase)
    lowered = std::move(state.lowered);
  return compilePlan(state.options, state.getInput(), lowered.get());
}

Result<CompiledPlan> Session::compile(const Model &model,
                                      const CompileOptions &options) {
  ModelState &state = model.get();
  return compilePlan(options, {state, state.source.get(), state.messages},
                     nullptr);
}

//===----------------------------------------------------------------------===//
// IR
//===----------------------------------------------------------------------===//

/// The phase called `name`; failure lists those there are.
static Result<Phase> findPhase(StringRef name) {
  std::optional<Phase> phase = symbolizePhase(name);
  if (phase && *phase != Phase::Plan)
    return *phase;
  std::vector<std::string> names;
  for (Phase phase : getPhases())
    names.push_back(stringifyPhase(phase).str());
  return fail(Code::InvalidOption, "no phase is called \"", name.str(),
              "\", there are ", llvm::join(names, ", "));
}

/// Runs the phases up to the one called `phase`.
static Result<std::string> lowerTo(CompileOptions options,
                                   const Compilation::Input &input,
                                   const std::string &phase) {
  Messages &messages = input.messages;
  messages.begin();
  if (!messages.report(takeSites(options)))
    return messages.getFailure();
  Result<Phase> last = findPhase(phase);
  if (!messages.report(last.status()))
    return messages.getFailure();
  Compilation compilation(options, input);
  if (failed(begin(compilation, options, input, nullptr)))
    return messages.getFailure();
  Phase reached = getPhase(compilation.getModule());
  Status isAhead =
      reached <= *last
          ? Status::success()
          : fail("`compile-to` is ", phase, ", but ", input.model.options.model,
                 " is IR after phase ", stringifyPhase(reached).str());
  if (!messages.report(isAhead) || failed(compilation.runTo(*last)))
    return messages.getFailure();
  return compilation.getText();
}

Result<std::string> Session::lower(const Choice &choice,
                                   const std::string &phase) {
  return lowerTo(choice.getOptions(), choice.get().getInput(), phase);
}

Result<std::string> Session::lower(const Model &model,
                                   const CompileOptions &options,
                                   const std::string &phase) {
  ModelState &state = model.get();
  return lowerTo(options, {state, state.source.get(), state.messages}, phase);
}
