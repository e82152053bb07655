//===- Compilation.cpp - One module on its way to a plan ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What to compile for is chosen first, from options and IR, and written into
// the module; then the phases run in order, with proofs, checks and dumps
// between them. All that is decided is in the module after import, so that IR
// of any phase compiles on to its plan.
//
//===----------------------------------------------------------------------===//

#include "Compilation.h"

#include "LoweredModel.h"
#include "TargetSettings.h"
#include "plait/Conversion/ToPlan.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Import/HuggingFace.h"
#include "plait/Plan/Files.h"
#include "plait/Planner/DescribeCluster.h"
#include "plait/Schedule/Csv.h"
#include "plait/Schedule/Generators.h"
#include "plait/Support/PieceOverlap.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/Pipelines.h"
#include "plait/Transforms/Steps.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace plait;

//===----------------------------------------------------------------------===//
// Import
//===----------------------------------------------------------------------===//

/// Only IR that says what it is compiled for is a module before that is chosen.
void Compilation::begin() {
  if (!source)
    module = input.model.decided->clone();
}

Status Compilation::chooseMesh() {
  Result<Mesh> asked = Mesh::parse(options.mesh);
  if (!asked.ok())
    return asked.status();
  mesh = *asked;
  dist::MeshOp given = module ? dist::MeshOp::find(*module) : nullptr;
  if (!given)
    return Status::success();
  Result<Mesh> known = given.getMesh();
  if (!known.ok())
    return known.status();
  if (!options.mesh.empty() && !(*asked == *known))
    return fail("`mesh` is ", asked->print(), ", but the module was compiled ",
                "for ", known->print());
  mesh = *known;
  return Status::success();
}

Status Compilation::chooseTarget() {
  if (target)
    return Status::success(); // that of the plan whose reference this is
  target = module ? getTarget(*module) : TargetAttr();
  if (target)
    return checkGivenTarget(options, target, getCluster(*module));
  Result<TargetSettings> settings = makeTargetSettings(options);
  if (!settings.ok())
    return settings.status();
  target = describeTarget(getContext(), *settings);
  return Status::success();
}

Status Compilation::readSchedule() {
  if (input.order)
    order = *input.order;
  if (options.scheduleFile.empty())
    return Status::success();
  if (module &&
      (getPhase(*module) != Phase::Import || pipe::findSchedule(*module)))
    return fail("`schedule-file` is for a model, but the module ",
                pipe::findSchedule(*module) ? "has a schedule"
                                            : "has been compiled further");
  if (options.pins.schedule || options.pins.chunks)
    return fail("`schedule-file` excludes ",
                options.pins.schedule ? "`schedule`" : "`chunks`");
  Result<schedule::Schedule> read = schedule::readCsv(options.scheduleFile);
  if (read.ok())
    order = std::move(*read);
  return read.status();
}

/// Whether a step is of a size that can be compiled, and the order that is
/// given for as many ranks and microbatches as there are.
Status Compilation::checkSchedule() {
  Result<int64_t> microbatches =
      countMicrobatches(configuration, mesh.batchParts());
  if (!microbatches.ok())
    return microbatches.status();
  Status size =
      checkStepSize(mesh[Axis::PP] * configuration.chunks, *microbatches);
  if (!size.ok() || !order)
    return size;
  const schedule::Problem &problem = order->problem;
  std::string where = "schedule '" + options.scheduleFile + "' is for ";
  if (problem.stages != uint32_t(mesh[Axis::PP]))
    return fail(where, problem.stages, " ranks, but pp is ", mesh[Axis::PP]);
  if (problem.microbatches != *microbatches)
    return fail(where, problem.microbatches, " microbatches, but a step has ",
                *microbatches, ": `global-batch` ", configuration.globalBatch,
                " by `micro-batch` ", configuration.microBatch, " and dp ",
                mesh.batchParts());
  return Status::success();
}

Status Compilation::chooseConfiguration() {
  TrainingConfiguration base;
  base.epilogues = getUsualEpilogues(target.isGPU(), target.getCubin());
  base.tensorOverlap = getUsualPieces(target.isGPU());
  if (source)
    base.sequence = source->getSequence().value_or(base.sequence);
  ConfigurationAttr known =
      module ? getConfigurationAttr(*module) : ConfigurationAttr();
  Result<TrainingConfiguration> chosen =
      apply(options.pins, known ? known.getValue() : base, bool(known));
  if (!chosen.ok())
    return chosen.status();
  configuration = std::move(*chosen);
  if (!known && !options.pins.chunks)
    configuration.chunks = int(*schedule::chooseChunks(
        **schedule::findGenerator(configuration.schedule), /*asked=*/0));
  PLAIT_RETURN_IF_ERROR(checkExecutable(configuration));
  return checkSchedule();
}

Status Compilation::choose() {
  PLAIT_RETURN_IF_ERROR(readSchedule());
  PLAIT_RETURN_IF_ERROR(chooseMesh());
  PLAIT_RETURN_IF_ERROR(chooseTarget());
  PLAIT_RETURN_IF_ERROR(chooseConfiguration());
  if (cluster)
    return Status::success();
  cluster = module ? getCluster(*module) : ClusterAttr();
  if (cluster || options.cluster.empty())
    return Status::success();
  Result<TargetSettings> settings = makeTargetSettings(options);
  if (!settings.ok())
    return settings.status();
  cluster = describeCluster(getContext(), *settings->cluster, options.cluster,
                            configuration.precision, mesh);
  return Status::success();
}

/// Has the module say what was chosen.
LogicalResult Compilation::write() {
  if (!module && input.fewer) {
    module = input.fewer.clone();
  } else if (!module) {
    auto imported =
        input.model.get(*source, configuration.microBatch * mesh.batchParts(),
                        configuration.sequence);
    if (failed(imported))
      return failure();
    module = std::move(*imported);
  }
  if (!dist::MeshOp::find(*module))
    dist::MeshOp::add(*module, mesh);
  setConfiguration(*module, configuration);
  if (order)
    pipe::addSchedule(*module, *order,
                      options.scheduleFile.empty()
                          ? StringRef(order->kind)
                          : llvm::sys::path::stem(options.scheduleFile));
  setTarget(*module, target);
  setCluster(*module, cluster);
  return isReference ? success() : input.model.pinShardings(*module);
}

/// What is given in a later phase is to be right already.
LogicalResult Compilation::keepModel() {
  if (!options.claim.empty()) {
    auto claim = importMLIR(*getContext(), options.claim);
    if (failed(claim))
      return failure();
    model = std::move(*claim);
    if (imported > Phase::Lower)
      return module->emitError("the input is IR after phase ")
             << stringifyPhase(imported)
             << ", but `claim` proves that up to phase lower";
    if (imported != Phase::Import && !hasReadRecord(*module))
      return module->emitError("`claim` needs the record of what phases have "
                               "read, but plait.phase has none");
    if (getPhase(*model) != Phase::Import)
      return model->emitError("`claim` needs the model, but this is IR after "
                              "phase ")
             << stringifyPhase(getPhase(*model));
    return prove(imported);
  }
  if (options.prove && imported == Phase::Import)
    model = module->clone();
  return success();
}

LogicalResult Compilation::import() {
  begin();
  if (!report(choose()) || failed(write()))
    return failure();
  imported = getPhase(*module);
  return keepModel();
}

LogicalResult Compilation::adopt(LoweredModel &lowered) {
  module = std::move(lowered.module);
  Result<Mesh> known = dist::MeshOp::find(*module).getMesh();
  if (!report(known.status()))
    return failure();
  mesh = *known;
  target = getTarget(*module);
  cluster = getCluster(*module);
  model = std::move(lowered.model);
  return failed(verify(*module)) ? failure() : prove(Phase::Lower);
}

LogicalResult Compilation::importReference(const Compilation &other) {
  isReference = true;
  begin();
  if (module)
    removeDecisions(*module);
  target = other.target;
  cluster = other.cluster;
  return success(report(choose()) && succeeded(write()));
}

std::unique_ptr<LoweredModel> plait::lowerModel(CompileOptions options,
                                                Compilation::Input input) {
  input.tellsProgress = false;
  options.dumpPhasesTo.clear();
  auto lowered = std::make_unique<LoweredModel>();
  Compilation compilation(options, input);
  if (failed(compilation.import()) ||
      failed(compilation.runTo(Phase::Lower, /*verifies=*/false)))
    return nullptr;
  lowered->module = compilation.takeModule();
  lowered->model = compilation.takeModel();
  for (auto program : lowered->module->getOps<plan::ProgramOp>())
    lowered->memory.push_back(findMemory(program));
  return lowered;
}

//===----------------------------------------------------------------------===//
// Phases
//===----------------------------------------------------------------------===//

std::string Compilation::getText() {
  keepOrigins(*module);
  std::string text;
  llvm::raw_string_ostream out(text);
  // IR that is printed has been verified, or printing would do it once more.
  module->print(out, OpPrintingFlags().enableDebugInfo(false).assumeVerified());
  out << "\n";
  return text;
}

LogicalResult Compilation::dump(Phase phase) {
  if (options.dumpPhasesTo.empty())
    return success();
  if (std::error_code error =
          llvm::sys::fs::create_directories(options.dumpPhasesTo))
    return module->emitError("cannot create ")
           << options.dumpPhasesTo << ": " << error.message();
  SmallString<128> path(options.dumpPhasesTo);
  llvm::sys::path::append(path, std::to_string(int(phase)) + "-" +
                                    stringifyPhase(phase) + ".mlir");
  if (Status status = writeTextFile(path.str().str(), getText()); !status.ok())
    return module->emitError(status.message());
  return success();
}

void Compilation::show(Phase phase) {
  if (input.tellsProgress)
    input.messages.progress({stringifyPhase(phase), int(phase) + 1,
                             int(getPhases().size()), isReference});
}

LogicalResult Compilation::prove(Phase phase) {
  bool isLast = phase == Phase::Lower;
  if (!model || phase < Phase::Partition ||
      !(isLast || options.verifyEachPhase))
    return success();
  input.messages.setCode(Code::WrongPlan);
  CertificatePtr found =
      certify(isLast ? takeModel() : model->clone(), *module);
  if (!found && options.verifyEachPhase)
    report(fail(Code::WrongPlan, "phase ", stringifyPhase(phase).str(),
                " has left it like this"));
  if (isLast)
    certificate = std::move(found);
  return success(certificate || found);
}

CertificatePtr Compilation::takeCertificate() {
  if (options.prove && !certificate)
    certificate =
        certifyNothing("it is compiled from IR after phase " +
                           stringifyPhase(imported) + ", not from the model",
                       input.messages);
  if (certificate)
    certificate->kernels = knownOfKernels;
  return std::move(certificate);
}

/// The planner tells for itself.
void Compilation::tellOfUnfused() {
  TargetAttr where = getTarget(*module);
  Status fused = checkAttentionTraits(nn::findAttentionTraits(getModule()),
                                      FusedBy::Cudnn);
  if (!fused.ok() && options.cluster.empty() && where &&
      where.getArchitecture() > 0 &&
      getConfiguration().attention == AttentionKind::Auto &&
      getConfiguration().precision == Precision::BF16)
    noteUnfusedAttention(input.messages, fused);
}

/// Whether IR is verified after `phase`: where anybody gets to see it, and
/// where a kind of IR ends, which are the model, sharded tensors, kernels and
/// steps.
///
/// What a phase before has broken is broken there, too; each phase's IR of a
/// deep model takes as long to verify as to make. A plan is no IR.
bool Compilation::isVerified(Phase phase, Phase last) const {
  if (phase == Phase::Plan)
    return false;
  return phase == last || !options.dumpPhasesTo.empty() ||
         options.verifyEachPhase || phase == Phase::Import ||
         phase == Phase::Checkpoint || phase >= Phase::Lower;
}

LogicalResult Compilation::runTo(Phase last, bool verifies) {
  // No phase begins that would look at what is there.
  if (last != Phase::Import && getPhase(*module) == last) {
    PassManager manager(getContext());
    manager.addPass(createVerifyPhasePass());
    return manager.run(*module);
  }
  bool isFirst = true; // of those that run
  for (Phase phase : getPhases()) {
    // What a model is has to be checked, whoever has imported it.
    Phase reached = getPhase(*module);
    bool isLeft =
        phase > reached || (phase == Phase::Import && reached == Phase::Import);
    if (!isLeft || phase > last)
      continue;
    show(phase);
    input.messages.setCode(Code::NotCompiled);
    if (phase == Phase::Lower && verifies)
      tellOfUnfused();
    PassManager manager(getContext());
    // Once a phase: after each of its passes it would take as long as they do.
    // What nobody will run comes to no one's hands between phases, either.
    manager.enableVerifier(false);
    buildPhase(manager, phase, /*keepsOrigins=*/false, verifies || isFirst);
    isFirst = false;
    if (failed(manager.run(*module)) ||
        (verifies && isVerified(phase, last) && failed(verify(*module))))
      return failure();
    if (phase != Phase::Plan && failed(dump(phase)))
      return failure();
    if (verifies && failed(prove(phase)))
      return failure();
  }
  return success();
}

Status Compilation::checkMemory(int64_t stage, int64_t bytes,
                                int64_t promised) const {
  int64_t reserved =
      cluster ? std::max(int64_t(cluster.getReserved()), promised) : 0;
  int64_t usable = cluster ? cluster.getMemory() - reserved : 0;
  return !cluster || bytes <= usable
             ? Status::success()
             : fail(Code::DoesNotFit, "stage ", stage, " needs ", bytes,
                    " bytes, a device of ", cluster.getName().str(), " has ",
                    usable, ": ", cluster.getMemory(), " less ", reserved,
                    " for context and libraries");
}

Status Compilation::checkMemory() const {
  for (auto program : getModule().getOps<plan::ProgramOp>())
    PLAIT_RETURN_IF_ERROR(checkMemory(
        program.getRank(), getDeviceBytes(program) + countSiteBytes(program)));
  return Status::success();
}

/// Looks once more, as what sites receive has been placed since, and what
/// communicators take is known.
Status Compilation::checkMemory(const plan::fb::PlanT &plan) const {
  bool changes = plan.outer || plan.backend == "cuda";
  for (size_t i = 0; changes && i < plan.programs.size(); ++i)
    PLAIT_RETURN_IF_ERROR(checkMemory(int64_t(i),
                                      int64_t(plan.programs[i]->arena_bytes),
                                      int64_t(plan.device_reserve)));
  return Status::success();
}

FailureOr<std::unique_ptr<plan::fb::PlanT>> Compilation::convert() {
  std::vector<codegen::EmittedKernel> kernels;
  auto plan = convertToPlan(*module, &kernels);
  if (failed(plan) || !options.prove || isReference)
    return plan;
  input.messages.setCode(Code::WrongPlan);
  FailureOr<std::string> known = checkKernels(**plan, kernels, target);
  if (failed(known))
    return failure();
  knownOfKernels = std::move(*known);
  return plan;
}
