//===- Driver.cpp - From a model file to a plan file ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is made of a compilation: a plan with its reference and certificate, IR
// of a phase, or a lowered model for the planner.
//
//===----------------------------------------------------------------------===//

#include "plait/Driver/Driver.h"

#include "Certificate.h"
#include "Compilation.h"
#include "Memory.h"
#include "Reference.h"
#include "Settings.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Import/HuggingFace.h"
#include "plait/Plan/Container.h"
#include "plait/Plan/Files.h"
#include "plait/Transforms/Pipelines.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <optional>

using namespace mlir;
using namespace plait;

/// The plan of the unpartitioned model; fails with the reason why there is
/// none. Nothing is built of a model that is too large.
static Result<std::unique_ptr<plan::fb::PlanT>>
compileReference(const CompileOptions &given, ModelContext &context,
                 const Compilation &partitioned) {
  TrainingConfiguration configuration = partitioned.getConfiguration();
  // Sequences that depend on each other have to be computed together.
  if (partitioned.hasFixedBatch())
    configuration.microBatch *= partitioned.getMesh().batchParts();
  CompileOptions options = getReferenceOptions(given, configuration);
  Compilation compilation(options, context);
  std::string problem;
  ScopedDiagnosticHandler keep(context.get(), [&](Diagnostic &diag) {
    if (problem.empty() && diag.getSeverity() == DiagnosticSeverity::Error)
      problem = diag.str();
    return success();
  });
  if (failed(compilation.importReference(partitioned)))
    return fail(problem);
  PLAIT_RETURN_IF_ERROR(
      checkReferenceSize(countParameterBytes(compilation.getModule())));
  if (failed(compilation.runTo(Phase::Plan)))
    return fail(problem);
  for (auto program : compilation.getModule().getOps<plan::ProgramOp>())
    PLAIT_RETURN_IF_ERROR(checkReferenceSize(program.getBytes()));
  auto plan = compilation.convert();
  if (failed(plan))
    return fail(problem);
  return std::move(*plan);
}

std::shared_ptr<LoweredModel> plait::lowerModel(CompileOptions options) {
  options.progress = false;
  options.dumpPhasesTo.clear();
  auto lowered = std::make_shared<LoweredModel>(options);
  Compilation compilation(options, lowered->context);
  if (failed(compilation.import()) ||
      failed(compilation.runTo(Phase::Lower, /*verifies=*/false)))
    return nullptr;
  lowered->module = compilation.takeModule();
  lowered->model = compilation.takeModel();
  for (auto program : lowered->module->getOps<plan::ProgramOp>())
    lowered->memory.push_back(findMemory(program));
  return lowered;
}

/// The phase called `name`; failure lists those there are.
static Result<Phase> findPhase(StringRef name) {
  if (std::optional<Phase> phase = symbolizePhase(name))
    return *phase;
  std::vector<std::string> names;
  for (Phase phase : getPhases())
    names.push_back(stringifyPhase(phase).str());
  return fail("no phase is called \"", name.str(), "\", there are ",
              llvm::join(names, ", "));
}

/// Embeds the reference, or says why there is none.
static void addReference(const CompileOptions &options, ModelContext &context,
                         const Compilation &compilation,
                         plan::fb::PlanT &plan) {
  Phase imported = compilation.getImported();
  auto reference =
      imported == Phase::Import
          ? compileReference(options, context, compilation)
          : fail("it is compiled from IR after phase ",
                 stringifyPhase(imported).str(), ", not from the model");
  if (reference.ok())
    plan.reference = plan::packPlan(**reference);
  else
    printWarning("the plan has no reference for plait-run --check: " +
                 reference.status().message());
}

/// Whether there is a file of weights beside the model's config.json.
static bool hasWeights(const CompileOptions &options) {
  if (isText(options))
    return false;
  std::string config = getConfigPath(options.model);
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

static bool compilePlan(const CompileOptions &options, ModelContext &context,
                        Compilation &compilation) {
  FailureOr<std::unique_ptr<plan::fb::PlanT>> plan = failure();
  if (succeeded(compilation.runTo(Phase::Plan)) &&
      report(compilation.checkMemory()))
    plan = compilation.convert();
  if (succeeded(plan) && options.reference)
    addReference(options, context, compilation, **plan);
  clearProgress();
  if (succeeded(plan))
    addCertificate(compilation.takeCertificate(), **plan);
  if (failed(plan))
    return false;
  Result<OutputFile> file = plan::preparePlan(options.output, **plan);
  if (!report(file.status()))
    return false;
  const Mesh &mesh = compilation.getMesh();
  TrainingConfiguration configuration = compilation.getConfiguration();
  std::string what =
      llvm::formatv("{0}, {1}, micro-batch {2}, {3}, {4} reference",
                    mesh.print(), (*plan)->schedule, configuration.microBatch,
                    print(configuration.precision),
                    (*plan)->reference.empty() ? "without" : "with");
  PendingPlan written{std::move(*file), describeWritten(options, what),
                      getText(options)};
  if (hasWeights(options))
    printNote("the weights of the model are not in the plan: plait-run "
              "reads them with --weights, and begins with random ones without");
  if (!options.pending)
    return written.appear();
  options.pending->push_back(std::move(written));
  return true;
}

/// Runs the phases up to `last` and writes the IR.
static bool compileIR(const CompileOptions &options, Compilation &compilation,
                      Phase last) {
  if (Phase reached = getPhase(compilation.getModule()); reached > last)
    return report(fail("--compile-to is ", stringifyPhase(last).str(), ", but ",
                       options.model, " is IR after phase ",
                       stringifyPhase(reached).str()));
  if (failed(compilation.runTo(last)))
    return false;
  clearProgress();
  if (!report(writeTextFile(options.output.empty() ? "-" : options.output,
                            compilation.getText())))
    return false;
  getText(options) << describeWritten(
      options, "IR after phase " + llvm::Twine(options.compileTo));
  return true;
}

bool plait::compile(const CompileOptions &options) {
  Phase last = Phase::Plan;
  if (!options.compileTo.empty()) {
    Result<Phase> found = findPhase(options.compileTo);
    if (!found.ok())
      return report(found.status());
    last = *found;
  }
  if (last == Phase::Plan && options.output.empty())
    return report(fail("no output file; give one with -o"));
  // Earlier phases are dumped, and proven, by running them.
  bool showsPhases = !options.dumpPhasesTo.empty() || options.verifyEachPhase;
  std::shared_ptr<LoweredModel> lowered =
      last < Phase::Lower || showsPhases ? nullptr : options.lowered;
  std::optional<ModelContext> own;
  ModelContext &context = lowered ? lowered->context : own.emplace(options);
  Compilation compilation(options, context);
  if (failed(lowered ? compilation.adopt(*lowered) : compilation.import()))
    return false;
  // The planner tells for itself.
  if (options.cluster.empty())
    for (const std::string &line :
         findIdlePins(options.pins, compilation.getMesh()))
      printNote(line);
  return last == Phase::Plan ? compilePlan(options, context, compilation)
                             : compileIR(options, compilation, last);
}
