//===- Driver.cpp - From a model file to a plan file ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Driver/Driver.h"

#include "Attention.h"
#include "Layout.h"
#include "Memory.h"
#include "Model.h"
#include "Reference.h"
#include "Settings.h"
#include "plait/Analysis/ModelFlops.h"
#include "plait/Conversion/ToPlan.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Plan/Container.h"
#include "plait/Plan/Files.h"
#include "plait/Transforms/Names.h"
#include "plait/Transforms/Pipelines.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <map>

using namespace mlir;
using namespace plait;

namespace {

/// One module on its way through the phases.
class Compilation {
public:
  /// A mesh that the model brings along must be the one of `layout`, unless
  /// this compiles a reference.
  Compilation(const CompileOptions &options, const Layout &layout,
              const Settings &settings, bool isReference = false)
      : options(options), layout(layout), settings(settings),
        isReference(isReference), context(options) {}

  LogicalResult import();
  /// Runs the phases up to `last`. What nobody will run need not be verified.
  LogicalResult runTo(Phase last, bool verifies = true);
  uint64_t getArenaBytes(plan::ProgramOp program) const {
    return plait::getArenaBytes(program, options.deterministic,
                                settings.target);
  }
  /// Fails where a rank needs more than a device of the cluster has.
  Status checkMemory();
  FailureOr<std::unique_ptr<plan::fb::PlanT>> convert();
  ModuleOp getModule() { return *module; }
  MLIRContext *getContext() { return context.get(); }
  std::string getText();

private:
  LogicalResult checkBatch();
  LogicalResult addMesh();
  LogicalResult dump(const PhaseInfo &info);
  void show(const PhaseInfo &info) const;

  const CompileOptions &options;
  const Layout &layout;
  const Settings &settings;
  bool isReference;
  ModelContext context;
  OwningOpRef<ModuleOp> module;
  double modelFlops = 0; // of a step
};

} // namespace

/// The types of a model in IR fix its batch, over all data-parallel ranks.
LogicalResult Compilation::checkBatch() {
  auto loss = module->lookupSymbol<func::FuncOp>(nn::kLossFunction);
  auto shape = cast<RankedTensorType>(loss.getArgumentTypes()[0]).getShape();
  int64_t batch = options.microBatch * layout.data;
  if (shape[0] == batch && shape[1] == options.sequence)
    return success();
  return loss.emitError("is for ")
         << shape[0] << " sequences of " << shape[1]
         << " tokens, but --micro-batch " << options.microBatch << " times dp "
         << layout.data << " is " << batch << ", and --seq is "
         << options.sequence;
}

LogicalResult Compilation::addMesh() {
  OpBuilder builder(module->getBodyRegion());
  builder.setInsertionPointToStart(module->getBody());
  auto axes = layout.axes();
  auto mesh = dist::MeshOp::create(
      builder, module->getLoc(), builder.getStringAttr("mesh"),
      builder.getStrArrayAttr(llvm::to_vector(llvm::make_first_range(axes))),
      builder.getDenseI64ArrayAttr(
          llvm::to_vector(llvm::make_second_range(axes))));
  // The dump of an earlier compilation has one.
  for (auto other :
       llvm::make_early_inc_range(module->getOps<dist::MeshOp>())) {
    if (other == mesh)
      continue;
    if (!isReference && other->getAttrDictionary() != mesh->getAttrDictionary())
      return other.emitError("is not the mesh that --mesh gives: ")
             << layout.mesh();
    other.erase();
  }
  return success();
}

LogicalResult Compilation::import() {
  FailureOr<OwningOpRef<ModuleOp>> imported =
      importModel(context, options, options.microBatch * layout.data);
  if (failed(imported))
    return failure();
  module = std::move(*imported);
  if (isText(options) && failed(checkBatch()))
    return failure();
  modelFlops =
      countModelFlops(module->lookupSymbol<func::FuncOp>(nn::kLossFunction)) *
      double(layout.microbatches);
  return addMesh();
}

std::string Compilation::getText() {
  std::string text;
  llvm::raw_string_ostream out(text);
  module->print(out, OpPrintingFlags().enableDebugInfo(false));
  out << "\n";
  return text;
}

LogicalResult Compilation::dump(const PhaseInfo &info) {
  if (options.dumpPhasesTo.empty())
    return success();
  if (std::error_code error =
          llvm::sys::fs::create_directories(options.dumpPhasesTo))
    return module->emitError("cannot create ")
           << options.dumpPhasesTo << ": " << error.message();
  SmallString<128> path(options.dumpPhasesTo);
  int number = static_cast<int>(info.phase);
  llvm::sys::path::append(path,
                          std::to_string(number) + "-" + info.name + ".mlir");
  if (Status status = writeTextFile(path.str().str(), getText()); !status.ok())
    return module->emitError(status.message());
  return success();
}

void Compilation::show(const PhaseInfo &info) const {
  if (options.progress)
    showProgress((isReference ? "reference [" : "[") +
                 llvm::Twine(static_cast<int>(info.phase) + 1) + "/" +
                 llvm::Twine(getPhases().size()) + "] " + info.name);
}

LogicalResult Compilation::runTo(Phase last, bool verifies) {
  PipelineOptions pipeline{
      options.schedule,  static_cast<unsigned>(layout.microbatches),
      options.recompute, options.sequenceParallel,
      options.chunks,    options.layers};
  pipeline.precision = settings.precision;
  pipeline.epilogues = settings.epilogues;
  pipeline.zero = options.zero;
  for (const PhaseInfo &info : getPhases()) {
    if (info.phase > last)
      break;
    show(info);
    if (info.phase == Phase::Lower) {
      auto whole = findWholeAttention(*module, options, settings.target);
      if (failed(whole))
        return failure();
      pipeline.keep = std::move(*whole);
    }
    PassManager manager(getContext());
    manager.enableVerifier(verifies);
    buildPhase(manager, info.phase, pipeline);
    if (manager.size() && failed(manager.run(*module)))
      return failure();
    if (info.phase != Phase::Plan && failed(dump(info)))
      return failure();
  }
  return success();
}

Status Compilation::checkMemory() {
  if (!settings.cluster)
    return Status::success();
  const planner::Device &device = settings.cluster->device;
  for (auto program : module->getOps<plan::ProgramOp>())
    if (double(getArenaBytes(program)) > device.usableBytes())
      return fail("stage ", program.getRank(), " needs ",
                  getArenaBytes(program), " bytes, a device of ",
                  options.cluster, " has ", int64_t(device.usableBytes()), ": ",
                  int64_t(device.memoryBytes), " less ",
                  int64_t(device.reservedBytes), " for context and libraries");
  return Status::success();
}

FailureOr<std::unique_ptr<plan::fb::PlanT>> Compilation::convert() {
  show(getPhases().back());
  PlanIdentity identity{options.recompute,
                        options.sequence,
                        options.globalBatch,
                        options.microBatch,
                        options.deterministic,
                        getDeviceReserve(settings),
                        modelFlops,
                        nullptr};
  if (settings.cluster)
    identity.cluster = describeCluster(settings, options.cluster);
  return convertToPlan(*module, std::move(identity), settings.target);
}

//===----------------------------------------------------------------------===//
// The driver
//===----------------------------------------------------------------------===//

/// The plan of the unpartitioned model; fails with the reason why there is
/// none. Nothing is built of a model that is too large.
static Result<std::unique_ptr<plan::fb::PlanT>>
compileReference(const CompileOptions &given, const Layout &partitioned,
                 Settings settings) {
  settings.epilogues = "none";
  CompileOptions options = getReferenceOptions(given, partitioned);
  Result<Layout> layout = makeLayout(options);
  if (!layout.ok())
    return layout.status();
  Compilation compilation(options, *layout, settings, /*isReference=*/true);
  std::string problem;
  ScopedDiagnosticHandler keep(compilation.getContext(), [&](Diagnostic &diag) {
    if (problem.empty() && diag.getSeverity() == DiagnosticSeverity::Error)
      problem = diag.str();
    return success();
  });
  if (failed(compilation.import()))
    return fail(problem);
  PLAIT_RETURN_IF_ERROR(checkReferenceSize(
      countParameterBytes(compilation.getModule(), settings.precision)));
  if (failed(compilation.runTo(Phase::Lower)))
    return fail(problem);
  for (auto program : compilation.getModule().getOps<plan::ProgramOp>())
    PLAIT_RETURN_IF_ERROR(checkReferenceSize(program.getBytes()));
  auto plan = compilation.convert();
  if (failed(plan))
    return fail(problem);
  return std::move(*plan);
}

/// The most bytes of `category` that are live during one action.
static int64_t findPeak(plan::ProgramOp program, plan::Category category) {
  std::map<int64_t, int64_t> change; // by action
  for (auto buffer : program.getOps<plan::BufferOp>()) {
    if (buffer.getCategory() != category)
      continue;
    change[buffer.getFirst()] += buffer.getBytes();
    change[buffer.getLast() + 1] -= buffer.getBytes();
  }
  int64_t live = 0, peak = 0;
  for (auto [action, bytes] : change)
    peak = std::max(peak, live += bytes);
  return peak;
}

FailureOr<std::vector<planner::StageMemory>>
plait::placeMemory(CompileOptions options) {
  options.progress = false;
  options.dumpPhasesTo.clear();
  Result<Layout> layout = makeLayout(options);
  if (!report(layout.status()))
    return failure();
  Result<Settings> settings = makeSettings(options);
  if (!report(settings.status()))
    return failure();
  Compilation compilation(options, *layout, *settings);
  if (failed(compilation.import()) ||
      failed(compilation.runTo(Phase::Lower, /*verifies=*/false)))
    return failure();
  std::vector<planner::StageMemory> stages;
  for (auto program : compilation.getModule().getOps<plan::ProgramOp>()) {
    planner::StageMemory &memory = stages.emplace_back();
    memory.parameters = findPeak(program, plan::Category::Parameters);
    memory.gradients = findPeak(program, plan::Category::Gradients);
    memory.optimizer = findPeak(program, plan::Category::Optimizer);
    // Gradients may begin to live after activations have begun to die.
    double left =
        double(compilation.getArenaBytes(program)) - memory.resident();
    double activations = findPeak(program, plan::Category::Activations);
    memory.activations = std::min(activations, left);
    memory.workspace = left - memory.activations;
  }
  return stages;
}

/// Says what was written, unless that was to standard output.
static void tellWritten(const CompileOptions &options,
                        const llvm::Twine &what) {
  if (!options.output.empty() && !isStandardOutput(options.output))
    getText(options) << "wrote " << options.output << ": " << what << "\n";
}

/// The phase called `name`; failure lists those there are.
static Result<Phase> findPhase(StringRef name) {
  std::string names;
  for (const PhaseInfo &info : getPhases()) {
    if (name == info.name)
      return info.phase;
    names += (names.empty() ? "" : ", ") + info.name.str();
  }
  return fail("no phase is called \"", name.str(), "\", there are ", names);
}

/// Embeds the reference, or says why there is none.
static void addReference(const CompileOptions &options, const Layout &layout,
                         const Settings &settings, plan::fb::PlanT &plan) {
  auto reference = compileReference(options, layout, settings);
  if (reference.ok())
    plan.reference = plan::packPlan(**reference);
  else
    printWarning("the plan has no reference for plait-run --check: " +
                 reference.status().message());
}

static bool compilePlan(const CompileOptions &options, const Layout &layout,
                        const Settings &settings, Compilation &compilation) {
  FailureOr<std::unique_ptr<plan::fb::PlanT>> plan = failure();
  if (succeeded(compilation.runTo(Phase::Plan)) &&
      report(compilation.checkMemory()))
    plan = compilation.convert();
  if (succeeded(plan) && options.reference)
    addReference(options, layout, settings, **plan);
  clearProgress();
  if (failed(plan))
    return false;
  Result<std::string> config = readConfig(options);
  if (!report(config.status()))
    return false;
  (*plan)->config = std::move(*config);
  if (!report(plan::writePlan(options.output, **plan)))
    return false;
  tellWritten(options,
              llvm::formatv("{0}, {1}, micro-batch {2}, {3}, {4} reference",
                            layout.mesh(), options.schedule, options.microBatch,
                            settings.precision,
                            (*plan)->reference.empty() ? "without" : "with")
                  .str());
  return true;
}

bool plait::compile(const CompileOptions &options) {
  Result<Layout> layout = makeLayout(options);
  if (!layout.ok())
    return report(layout.status());
  Result<Settings> settings = makeSettings(options);
  if (!settings.ok())
    return report(settings.status());
  if (Status status = checkAttentionOption(options); !status.ok())
    return report(status);
  Phase last = Phase::Plan;
  if (!options.compileTo.empty()) {
    Result<Phase> found = findPhase(options.compileTo);
    if (!found.ok())
      return report(found.status());
    last = *found;
  }
  if (last == Phase::Plan && options.output.empty())
    return report(fail("no output file; give one with -o"));
  Compilation compilation(options, *layout, *settings);
  if (failed(compilation.import()))
    return false;
  if (last == Phase::Plan)
    return compilePlan(options, *layout, *settings, compilation);
  if (failed(compilation.runTo(last)))
    return false;
  clearProgress();
  if (!report(writeTextFile(options.output.empty() ? "-" : options.output,
                            compilation.getText())))
    return false;
  tellWritten(options, "IR after phase " + llvm::Twine(options.compileTo));
  return true;
}
