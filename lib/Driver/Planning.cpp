//===- Planning.cpp - Let the planner choose the options ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Between the options of a compilation and the planner: what is given becomes
// pins, what is found becomes options, as if the user had written them, so that
// a compilation cannot differ from its prediction. The planner knows neither
// options nor modules; it is given a profile of the model, a cluster and a
// training, and returns a configuration with its costs.
//
// The estimate of memory is replaced by the compiler's own placement before a
// choice is told: a plan that is promised to fit does fit.
//
//===----------------------------------------------------------------------===//

#include "Planning.h"

#include "ModelState.h"
#include "TargetSettings.h"
#include "plait/Configuration/CompressionFacts.h"
#include "plait/Configuration/Mixing.h"
#include "plait/Configuration/Optimizers.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Import/HuggingFace.h"
#include "plait/Planner/Abilities.h"
#include "plait/Schedule/Generators.h"
#include "plait/Support/PieceOverlap.h"

using namespace mlir;
using namespace plait;
using planner::Configuration;
using planner::SearchSpace;

//===----------------------------------------------------------------------===//
// What is given
//===----------------------------------------------------------------------===//

/// What is not given is what one would train in on the device; compiled plans
/// know no fp16.
/// 1. What is given, if plans can be compiled in it.
/// 2. fp32 on processors, bf16 on GPUs. Hardware files have rates for each,
///    whether or not there are units for it.
static Result<Precision> findPrecision(const CompileOptions &options,
                                       const PlanningOptions &planning,
                                       const planner::Device &device) {
  // 1. Given.
  if (std::optional<Precision> given = options.pins.precision) {
    TrainingConfiguration asked;
    asked.precision = *given;
    if (planning.compiles)
      PLAIT_RETURN_IF_ERROR(checkExecutable(asked));
    return *given;
  }
  // 2. What is usual.
  return device.isProcessor ? Precision::FP32 : Precision::BF16;
}

/// Whether attention may be fused. Where nothing is given, what a compilation
/// does: GPUs do not fuse it in fp32. A hardware file lists the efficiency of
/// fused attention where the device has it. Processors compute flash attention
/// in blocks of their own, whatever is listed.
static Result<bool> findAttention(const CompileOptions &options,
                                  Precision precision,
                                  const planner::Device &device,
                                  const planner::Abilities &abilities) {
  AttentionKind kind = options.pins.attention.value_or(AttentionKind::Auto);
  if (kind == AttentionKind::Flash && !abilities.hasFlash)
    return fail("`attention` is flash, which ", abilities.version,
                " does not have");
  bool hasFused = !device.attention.forward.empty() &&
                  precision != Precision::FP32 && abilities.hasFlash;
  if (kind == AttentionKind::Auto)
    return device.isProcessor ? abilities.version.empty() : hasFused;
  if (kind == AttentionKind::Flash && !hasFused && !device.isProcessor)
    return fail("`attention` is flash, which ", device.name,
                " does not have in ", print(precision));
  return kind == AttentionKind::Flash;
}

/// What the planner has to know of a training, as one value: the batch, the
/// optimizer's state, precision, attention, and whose implementation it
/// predicts.
static Result<planner::Training> makeTraining(const CompileOptions &options,
                                              const PlanningOptions &planning,
                                              const planner::Device &device) {
  planner::Training training;
  // Never fails: pins alone cannot contradict each other.
  Result<TrainingConfiguration> given =
      apply(options.pins, TrainingConfiguration(), /*isGiven=*/false);
  training.outer = given->outer;
  training.globalBatch = given->globalBatch / given->outer.countSites();
  if (given->globalBatch % given->outer.countSites())
    return fail("global batch ", given->globalBatch,
                " is not divisible by sites ", given->outer.sites);
  training.sequence = given->sequence;
  // Of one parameter; weight and gradient come on top.
  const Optimizer &optimizer = **findOptimizer(given->optimizer);
  // What is fed back is kept with it, but for what replicas have a part of.
  double error = double((getCompressionStates(given->compress).size() -
                         keepsSumError(given->compress)) *
                        sizeof(float));
  const Optimizer *rest = optimizer.getRest();
  training.stateBytes =
      double((rest ? *rest : optimizer).getStateBytes()) + error;
  if (optimizer.updatesMatrices())
    training.matrixStateBytes = double(optimizer.getStateBytes()) + error;
  training.feedbackBytes = error;
  training.compress = given->compress;
  Result<Precision> precision = findPrecision(options, planning, device);
  if (!precision.ok())
    return precision.status();
  training.precision = *precision;
  training.reducePrecision = given->reducePrecision;
  training.tensorOverlap =
      options.pins.tensorOverlap.value_or(getUsualPieces(!device.isProcessor));
  training.lossChunks = given->lossChunks;
  // Other frameworks are predicted with their own habits, and not compiled.
  Result<planner::Framework> framework =
      planner::findFramework(planning.framework);
  if (!framework.ok())
    return framework.status();
  training.framework = *framework;
  const planner::Abilities &abilities = planner::getAbilities(*framework);
  if (training.reducePrecision == Precision::BF16 && !abilities.sumsInBf16)
    return fail("`reduce-precision` is bf16, but ", abilities.version,
                " sums gradients in fp32");
  if (training.compress.isOn() && !abilities.compresses)
    return fail("`compress` is ", print(training.compress), ", but ",
                abilities.version, " sends gradients as they are");
  if (training.outer.isOn() && planning.framework != "plait")
    return fail("`outer` is ", print(training.outer), ", but ",
                abilities.version, " has no sites");
  // A search would fail on each choice that it takes.
  TrainingConfiguration sums;
  sums.compress = training.compress;
  sums.optimizer = given->optimizer;
  sums.outer = training.outer;
  sums.optimizer = given->optimizer;
  sums.reducePrecision = training.reducePrecision;
  sums.zero = planning.pins.zero.value_or(0);
  PLAIT_RETURN_IF_ERROR(checkExecutable(sums));
  Result<bool> flash = findAttention(options, *precision, device, abilities);
  if (!flash.ok())
    return flash.status();
  training.flashAttention = *flash;
  return training;
}

/// 1. The mesh and what is pinned further are texts of the same form, and are
///    parsed as one.
/// 2. Fields that have options of their own are added; what is given twice is
///    an error, even where both agree.
Result<planner::Pins> plait::getPins(const CompileOptions &given,
                                     const std::string &further) {
  // 1. One rank is a mesh whose axes are all pinned. Of sites nothing is left
  // to
  //    choose.
  std::string mesh = given.mesh;
  Outer outer = given.pins.outer.value_or(Outer());
  PLAIT_RETURN_IF_ERROR(takeSites(mesh, outer));
  std::string text = mesh == "1" ? "pp=1,dp=1,ep=1,cp=1,tp=1" : mesh;
  text += (text.empty() || further.empty() ? "" : ",") + further;
  planner::Pins pins;
  if (!text.empty()) {
    auto parsed = planner::parsePins(text);
    if (!parsed.ok())
      return parsed.status();
    pins = std::move(*parsed);
  }
  // 2. Options with names of their own.
  Status status = Status::success();
  visitStrategy(
      [&](const Field &field, const auto &own, auto &pin) {
        if (own && pin && status.ok())
          status = fail(field.name, " is given twice");
        if (own)
          pin = own;
      },
      given.pins, pins);
  if (!status.ok())
    return status;
  return pins;
}

//===----------------------------------------------------------------------===//
// What is chosen
//===----------------------------------------------------------------------===//

/// So the compiler obeys what was chosen instead of choosing again: every field
/// of the strategy, by the list of fields, the mesh and the precision.
void plait::pinChoice(const Configuration &choice, Precision precision,
                      CompileOptions &options) {
  options.mesh = choice.mesh.print();
  visitStrategy(
      [](const Field &, auto &pin, const auto &value) { pin = value; },
      options.pins, choice);
  options.pins.precision = precision;
}

/// Leaves one of the sites that a cluster is divided among: whole nodes, or
/// equal parts of one.
static Status divide(planner::Cluster &cluster, planner::Training &training) {
  int64_t sites = training.outer.countSites();
  if (cluster.sites && cluster.sites != sites)
    return fail("`cluster` has ", cluster.sites,
                " sites far apart, but `mesh` has ",
                training.outer.isOn() ? std::to_string(sites) : "none",
                ": expected sites=", cluster.sites,
                ", and an `outer` such as average:8");
  if (cluster.nodes % sites == 0) {
    cluster.nodes /= int(sites);
  } else if (cluster.nodes == 1 && cluster.devicesPerNode % sites == 0) {
    cluster.devicesPerNode /= int(sites);
    training.sitesOfNode = int(sites);
  } else {
    return fail("`cluster` is of ", cluster.nodes, " x ",
                cluster.devicesPerNode,
                " devices, which cannot be divided among ", sites, " sites");
  }
  // Once for a search, since splitting large matrices takes longer than an
  // estimate.
  Result<double> messages = countMessages("`outer`", training.outer);
  if (messages.ok())
    training.siteMessages = *messages;
  return messages.status();
}

/// From text to values: cluster, training, and whether what will be chosen can
/// be compiled. Fails before the model is profiled, which takes longer.
Status ChoiceState::prepare() {
  PLAIT_RETURN_IF_ERROR(takeSites(options));
  Result<planner::Cluster> parsed = planner::parseCluster(options.cluster);
  if (!parsed.ok())
    return parsed.status();
  cluster = std::move(*parsed);
  PLAIT_RETURN_IF_ERROR(checkBackend(options, cluster));
  Result<planner::Training> made =
      makeTraining(options, planning, cluster.device);
  if (!made.ok())
    return made.status();
  training = *made;
  PLAIT_RETURN_IF_ERROR(divide(cluster, training));
  space = planner::getAbilities(training.framework).space;
  // All replicas hold what is compressed whole, and what it is made of.
  std::erase_if(space.zero, [this](int zero) {
    return !checkZero(training.compress, zero).ok() ||
           (training.matrixStateBytes > 0 &&
            !checkZeroOfMatrices(training.compress, zero).ok());
  });
  if (training.outer.isOn())
    std::erase_if(space.zero, [](int zero) { return zero > 2; });
  // NCCL begins messages in their order, in which the forwards of a chunk hold
  // up what comes back for the next one (lib/Plan/CheckProgress.cpp). The plan
  // is mended by earlier receives (postReceives()), which searching does not
  // count: only who asks for such a schedule gets it.
  if (!cluster.device.isProcessor && planning.framework == "plait" &&
      !planning.pins.schedule)
    std::erase_if(space.schedule, [](const std::string &name) {
      auto generator = schedule::findGenerator(name);
      return generator.ok() && (*generator)->holdsAll &&
             (*generator)->minChunks > 1;
    });
  // Options that contradict the cluster are found here, too.
  // Before the search: what cannot be compiled need not be looked for.
  // A prediction is also for devices that there is no code for.
  if (planning.compiles || !options.target.empty())
    if (Result<TargetSettings> settings = makeTargetSettings(options);
        !settings.ok())
      return settings.status();
  return Status::success();
}

/// What a cluster is given for is decided anew.
bool ChoiceState::open() {
  source = model->source.get();
  if (!source) {
    undecided = model->getUndecided();
    source = undecided.get();
    if (!source)
      return model->messages.report(
          fail("`cluster` needs a model, but ", model->options.model,
               " is IR after phase ",
               stringifyPhase(getPhase(*model->decided)).str()));
    model->messages.note(model->options.model +
                         " has a mesh or a configuration, which the planner "
                         "chooses anew");
  }
  if (!options.pins.sequence)
    training.sequence = source->getSequence().value_or(training.sequence);
  return true;
}

/// Says what may be a mistake of the user: a cluster of which the mesh uses
/// less than there is, and an option without effect.
void ChoiceState::tell() const {
  if (result->idleDevices > 0)
    model->messages.warn(planner::describeIdle(*result));
  ConfigurationPins given = options.pins;
  static_cast<StrategyPins &>(given) = planning.pins;
  if (planning.framework == "plait") // others divide among other ranks
    for (const std::string &line :
         findIdlePins(given, result->configuration.mesh))
      model->messages.note(line);
}

/// Whether the compiler can say what memory the choice takes. Plans of other
/// frameworks, in fp16, or for devices that no code can be made for are
/// predicted only.
bool ChoiceState::canPlace() const {
  return planning.framework == "plait" &&
         training.precision != Precision::FP16 &&
         makeTargetSettings(options).ok();
}

/// As a compilation will.
Status ChoiceState::checkSize(const Configuration &choice) const {
  Status size = checkStepSize(int64_t(choice.mesh[Axis::PP]) * choice.chunks,
                              choice.microbatches(training));
  return size.ok() ? size
                   : fail("the choice (", planner::print(choice),
                          ") cannot be compiled: ", size.message());
}

/// The fastest choice that fits as the compiler places it. An estimate is the
/// last word where nothing can be placed, and where a step that is only
/// predicted is too large for a plan.
Result<planner::SearchResult> ChoiceState::findFastest() {
  if (planning.pins.expertExchange == ExpertExchange::Rows &&
      profile->countExperts() == 0)
    return fail("rows of experts are to be exchanged (`expert-exchange` rows), "
                "but the model has none");
  std::string note;
  auto placeIfPossible = [&](const Configuration &choice,
                             planner::Estimate &estimate) {
    note.clear();
    if (!canPlace())
      return Status::success();
    Status size = checkSize(choice);
    if (size.ok())
      return place(choice, estimate);
    if (planning.compiles)
      return size;
    note = "memory is estimated, inputs not counted: " + size.message();
    return Status::success();
  };
  Result<planner::SearchResult> result = planner::search(
      *profile, cluster, training, space, planning.pins, placeIfPossible);
  if (result.ok() && !note.empty())
    result->notes.push_back(std::move(note));
  return result;
}

/// Has the loss computed in chunks where nothing fits: that takes little time,
/// but more of it than nothing. What is said of the model as it was asked for
/// is the answer where that does not fit either.
Result<planner::SearchResult> ChoiceState::findBest() {
  constexpr int chunks = 8;
  Result<planner::SearchResult> whole = findFastest();
  if (whole.ok() || options.pins.lossChunks || planning.framework != "plait")
    return whole;
  training.lossChunks = chunks;
  options.pins.lossChunks = chunks;
  Result<planner::SearchResult> result = findFastest();
  if (result.ok()) {
    result->notes.push_back("the loss is computed in " + print(chunks) +
                            " chunks of rows (`loss-chunks`): as a whole "
                            "nothing fits");
    return result;
  }
  training.lossChunks = 1;
  options.pins.lossChunks.reset();
  return whole;
}

/// What the model's attention means for the training: its dropout, its document
/// mask and the size of its heads are not known before it has been read, and
/// what findAttention() has assumed is corrected here.
Status ChoiceState::setAttention() {
  AttentionTraits traits = profile->findAttentionTraits();
  training.dropout = traits.has(AttentionTrait::Dropout);
  if (!training.flashAttention || planning.framework != "plait")
    return Status::success();
  FusedBy library =
      cluster.device.isProcessor ? FusedBy::Processors : FusedBy::Cudnn;
  if (options.pins.attention != AttentionKind::Flash &&
      !isFusedByDefault(library, training.sequence)) {
    training.flashAttention = false;
    return Status::success();
  }
  fused = checkAttentionTraits(traits, library);
  // Of devices that there is no code for nothing is known.
  auto target = codegen::TargetGPU::get(cluster.device.target);
  if (fused.ok() && target)
    fused = profile->checkFusedAttention(target->getArchitecture());
  if (fused.ok())
    return Status::success();
  if (options.pins.attention == AttentionKind::Flash)
    return fail("`attention` is flash, which ", cluster.device.name,
                " does not compute for this model: ", fused.message());
  training.flashAttention = false;
  return Status::success();
}

/// Searched anew: with less memory for scores another plan is the best. Hosts,
/// idle devices and orders that are searched for are left out unless they are
/// asked for: where scores take no memory they gain little, and take most of a
/// search's time.
std::string ChoiceState::describeFused(const planner::SearchResult &result) {
  planner::Training other = training;
  other.flashAttention = true;
  SearchSpace plain = space;
  planner::Pins pins = planning.pins;
  if (!pins.offload)
    plain.offload = SearchSpace().offload;
  if (!pins.devices && !pins.isMeshGiven())
    pins.devices = cluster.devices();
  if (!pins.schedule)
    std::erase_if(plain.schedule, [](const std::string &name) {
      auto generator = schedule::findGenerator(name);
      return generator.ok() && (*generator)->searches;
    });
  double seconds = result.estimate.iterationSeconds;
  Result<std::optional<double>> least =
      planner::findLeastSeconds(*profile, cluster, other, plain, pins, seconds);
  return least.ok() && *least
             ? planner::describeFaster(seconds, **least, "fused")
             : "";
}

/// The profile imports the model several times, with different batches: as the
/// compilation does, pinned shardings included.
bool ChoiceState::start() {
  Messages &messages = model->messages;
  if (!messages.report(prepare()) || !open())
    return false;
  messages.progress({"planning"});
  auto import = [this](int64_t batch) -> FailureOr<OwningOpRef<ModuleOp>> {
    auto module = model->get(*source, batch, training.sequence);
    if (failed(module) || failed(model->pinShardings(**module)))
      return failure();
    return module;
  };
  // Other programs have their epilogues in Framework::kernelPasses.
  bool isOwn = planner::getAbilities(training.framework).version.empty();
  EpilogueKind epilogues = options.pins.epilogues.value_or(getUsualEpilogues(
      isOwn && !cluster.device.isProcessor, cluster.device.target));
  profile =
      ModelProfile::create(model->context, import, training.precision, cluster,
                           training.compress, epilogues, training.framework);
  return profile && messages.report(setAttention());
}

/// Why attention is not fused is said whether or not something was found.
Status ChoiceState::search() {
  Result<planner::SearchResult> found = findBest();
  if (!fused.ok())
    noteUnfusedAttention(model->messages, fused,
                         found.ok() ? describeFused(*found) : "");
  if (!found.ok())
    return fail(Code::NothingFits, found.status().message());
  result = std::move(*found);
  tell();
  pinChoice(result->configuration, training.precision, options);
  return Status::success();
}

/// Searches once more with other pins, or with none, in the same profile.
Result<planner::WhyNot> ChoiceState::whyNot(const std::string &others) const {
  Result<planner::Pins> pins =
      others.empty() ? planner::Pins() : planner::parsePins(others);
  if (!pins.ok())
    return pins.status();
  return planner::whyNot(*result, *profile, cluster, training, space, *pins);
}

//===----------------------------------------------------------------------===//
// The handle
//===----------------------------------------------------------------------===//

Model Choice::getModel() const { return Model(state->model); }

const CompileOptions &Choice::getOptions() const { return state->options; }

const planner::SearchResult &Choice::getResult() const {
  return *state->result;
}

planner::ReportInput Choice::describe() const {
  return {*state->result, state->cluster, state->training,
          getModelName(state->model->options.model)};
}

Result<planner::WhyNot> Choice::whyNot(const std::string &pins) const {
  return state->whyNot(pins);
}

/// That nothing was found is an answer where somebody asks whether there is
/// something.
Result<Choice> Session::plan(const Model &model, const CompileOptions &given,
                             const PlanningOptions &planning) {
  Messages &messages = model.get().messages;
  messages.begin();
  auto state = std::make_shared<ChoiceState>(model.share(), given, planning);
  if (!state->start())
    return messages.getFailure();
  Status found = state->search();
  if (found.ok())
    return Choice(std::move(state));
  if (!planning.isTentative)
    messages.report(found);
  return planning.isTentative ? found : messages.getFailure();
}
