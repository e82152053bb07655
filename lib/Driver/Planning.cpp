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

#include "plait/Driver/Planning.h"
#include "plait/Configuration/Optimizers.h"
#include "plait/Dialect/NN/IR/NN.h"

#include "Memory.h"
#include "Model.h"
#include "Settings.h"
#include "plait/Import/HuggingFace.h"
#include "plait/Plan/Files.h"
#include "plait/Planner/Profile.h"
#include "plait/Planner/Report.h"
#include "plait/Schedule/Generators.h"
#include "plait/Support/PieceOverlap.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

#include <deque>

using namespace mlir;
using namespace plait;
using planner::Configuration;
using planner::SearchSpace;

//===----------------------------------------------------------------------===//
// What is given
//===----------------------------------------------------------------------===//

/// What is not given is what one would train in on the device; compiled plans
/// know no fp16.
/// 1. What is given, if plans can be compiled in it and the device multiplies
///    in it.
/// 2. fp32 on processors.
/// 3. bf16 where the device has it; fp16 for predictions on those that have
///    nothing better.
static Result<Precision> findPrecision(const CompileOptions &options,
                                       const PlanningOptions &planning,
                                       const planner::Device &device) {
  // 1. Given.
  if (std::optional<Precision> given = options.pins.precision) {
    TrainingConfiguration asked;
    asked.precision = *given;
    if (planning.compiles)
      PLAIT_RETURN_IF_ERROR(checkExecutable(asked));
    if (device.peak(*given) > 0)
      return *given;
    return fail("--precision is ", print(*given), ", which ", device.name,
                " has no matmuls in");
  }
  // 2. Processors.
  if (device.isProcessor)
    return Precision::FP32;
  // 3. GPUs.
  if (device.peak(Precision::BF16) > 0)
    return Precision::BF16;
  bool half = !planning.compiles && device.peak(Precision::FP16) > 0;
  return half ? Precision::FP16 : Precision::FP32;
}

/// Whether attention is fused. Where nothing is given, what a compilation does:
/// only GPUs fuse it then, and not in fp32. A hardware file lists the
/// efficiency of fused attention where the device has it. Processors compute
/// flash attention in blocks of their own, whatever is listed.
static Result<bool> findAttention(const CompileOptions &options,
                                  Precision precision,
                                  const planner::Device &device) {
  AttentionKind kind = options.pins.attention.value_or(AttentionKind::Auto);
  bool hasFused =
      !device.attention.forward.empty() && precision != Precision::FP32;
  if (kind == AttentionKind::Auto)
    return hasFused && !device.isProcessor;
  if (kind == AttentionKind::Flash && !hasFused && !device.isProcessor)
    return fail("--attention is flash, which ", device.name,
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
  training.globalBatch = given->globalBatch;
  training.sequence = given->sequence;
  // Of one parameter; weight and gradient come on top.
  training.stateBytes =
      double((*findOptimizer(given->optimizer))->getStateBytes());
  Result<Precision> precision = findPrecision(options, planning, device);
  if (!precision.ok())
    return precision.status();
  training.precision = *precision;
  training.reducePrecision = given->reducePrecision;
  training.tensorOverlap =
      options.pins.tensorOverlap.value_or(getUsualPieces(!device.isProcessor));
  Result<bool> flash = findAttention(options, *precision, device);
  if (!flash.ok())
    return flash.status();
  training.flashAttention = *flash;
  // Other frameworks are predicted with their own habits, and not compiled.
  Result<planner::Framework> framework =
      planner::findFramework(planning.framework);
  if (!framework.ok())
    return framework.status();
  training.framework = *framework;
  return training;
}

//===----------------------------------------------------------------------===//
// What is chosen
//===----------------------------------------------------------------------===//

/// Pins what was chosen. So the compiler obeys what was chosen instead of
/// choosing again: every field of the strategy, by the list of fields, the mesh
/// and the precision.
static void pin(const Configuration &choice, Precision precision,
                CompileOptions &options) {
  options.mesh = choice.mesh.print();
  visitStrategy(
      [](const Field &, auto &pin, const auto &value) { pin = value; },
      options.pins, choice);
  options.pins.precision = precision;
}

namespace {

/// One search and what is told of it. References to the options: they stay
/// where they are, and outlive this.
class Planning {
public:
  Planning(const CompileOptions &options, const PlanningOptions &planning)
      : options(options), planning(planning), context(options) {}

  /// Reads what is given and profiles the model. Failures have been printed.
  bool start();
  /// After start().
  Result<planner::SearchResult> search();
  /// After search(): says why attention is not fused, where that was not asked
  /// for, and what it costs.
  void tellOfAttention(const Result<planner::SearchResult> &result);
  /// All of it. Failures have been printed.
  std::optional<Configuration> run();
  /// Of the choice of run(), the memory of which was placed; null: it was not.
  std::shared_ptr<LoweredModel> takeLowered() { return std::move(lowered); }
  /// Of that choice, where its schedule is searched for by costs.
  const std::optional<schedule::Schedule> &getOrder() const { return order; }
  /// Of the model that was profiled.
  Precision getPrecision() const { return training.precision; }
  /// What there is to tell of `result`, which must stay where it is. `index` is
  /// the cluster's among those with prices.
  planner::ReportInput describe(const planner::SearchResult &result,
                                size_t index = 0) const;

private:
  Status prepare();
  bool open();
  Status setAttention();
  std::string describeFused(const planner::SearchResult &result);
  bool canPlace(const Configuration &choice) const;
  Status checkSize(const Configuration &choice) const;
  Status findOrder(const Configuration &choice);
  Status place(const Configuration &choice, planner::Estimate &estimate);
  Status tell(const planner::SearchResult &result);
  Result<std::string> answerWhyNot(const planner::SearchResult &result);

  const CompileOptions &options;
  const PlanningOptions &planning;
  ModelContext context;
  std::unique_ptr<ModelSource> source;
  planner::Cluster cluster;
  planner::Training training;
  SearchSpace space = SearchSpace::all();
  std::unique_ptr<ModelProfile> profile;
  Status fused = Status::success(); // attention; or why it is not
  // Of the last choice: as it is compiled, if it is for use, and the order that
  // it was predicted with.
  std::shared_ptr<LoweredModel> lowered;
  std::optional<schedule::Schedule> order;
};

} // namespace

/// From text to values: cluster, training, and whether what will be chosen can
/// be compiled. Fails before the model is profiled, which takes longer.
Status Planning::prepare() {
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
  // Options that contradict the cluster are found here, too.
  // Before the search: what cannot be compiled need not be looked for.
  // A prediction is also for devices that there is no code for.
  if (planning.compiles || !options.target.empty())
    if (Result<Settings> settings = makeSettings(options); !settings.ok())
      return settings.status();
  return Status::success();
}

/// Failures have been printed.
bool Planning::open() {
  FailureOr<OpenedModel> opened = openModel(context, options);
  if (failed(opened))
    return false;
  if (!opened->source)
    return report(fail("--cluster needs a model, but ", options.model,
                       " is IR after phase ",
                       stringifyPhase(getPhase(*opened->module)).str()));
  if (opened->isReplanned)
    printNote(options.model + " has a mesh or a configuration, which the "
                              "planner chooses anew");
  source = std::move(opened->source);
  if (!options.pins.sequence)
    training.sequence = source->getSequence().value_or(training.sequence);
  return true;
}

/// Colours and width are those of the terminal, if there is one.
static planner::TextOptions getTextOptions() {
  planner::TextOptions text;
  text.color = llvm::sys::Process::StandardOutHasColors();
  if (unsigned columns = llvm::sys::Process::StandardOutColumns())
    text.width = columns;
  return text;
}

/// The comparison with what `whyNot` asks for, as text. Searches once more with
/// those pins, in the same profile.
Result<std::string>
Planning::answerWhyNot(const planner::SearchResult &result) {
  // As --pin has them.
  Result<planner::Pins> pins = planner::parsePins(planning.whyNot);
  if (!pins.ok())
    return pins.status();
  Result<planner::WhyNot> answer =
      planner::whyNot(result, *profile, cluster, training, space, *pins);
  if (!answer.ok())
    return answer.status();
  return planner::explainText(*answer, result, getTextOptions());
}

/// A projection needs to know how many tokens are trained; one price is for
/// all.
planner::ReportInput Planning::describe(const planner::SearchResult &result,
                                        size_t index) const {
  planner::ReportInput input{result, cluster, training,
                             getModelName(options.model), planning.asked};
  if (planning.trainTokens <= 0)
    return input;
  // Without prices a projection has times only.
  input.goal = planner::Goal{planning.trainTokens, std::nullopt};
  if (!planning.prices.empty())
    input.goal->price = planning.prices[index % planning.prices.size()];
  input.goal->currency = planning.currency;
  if (planning.days > 0)
    input.goal->days = planning.days;
  return input;
}

/// Nothing is printed unless all that was asked for can be had.
/// 1. Read and make everything that may fail.
/// 2. Write the files.
/// 3. Print the text, which so follows a complete output, and warn.
Status Planning::tell(const planner::SearchResult &result) {
  // 1. Nothing is printed so far.
  planner::ReportInput input = describe(result);
  // A profile of another mesh than the choice's is refused.
  if (!planning.profile.empty()) {
    Result<planner::Measured> measured =
        planner::readMeasured(planning.profile, result.configuration);
    if (!measured.ok())
      return measured.status();
    input.measured = std::move(*measured);
  }
  clearProgress();
  if (options.progress)
    llvm::errs() << planner::describeSearch(result) << "\n";
  std::string text;
  if (planning.explain)
    text += planner::explainText(input, getTextOptions());
  else if (input.goal || planning.predict)
    text += planner::summaryText(input, getTextOptions());
  if (!planning.whyNot.empty()) {
    Result<std::string> answer = answerWhyNot(result);
    if (!answer.ok())
      return answer.status();
    text += *answer;
  }
  // 2. Files.
  if (!planning.report.empty())
    PLAIT_RETURN_IF_ERROR(planner::writeHtmlReport(input, planning.report));
  if (!planning.trace.empty())
    PLAIT_RETURN_IF_ERROR(planner::writeTrace(input, planning.trace));
  if (!planning.json.empty())
    PLAIT_RETURN_IF_ERROR(writeTextFile(planning.json, planner::toJson(input)));
  // 3. Text.
  getText(options) << text;
  // A cluster of which the mesh uses less than there is may be a mistake of the
  // user, and so may an option without effect.
  if (result.idleDevices > 0)
    printWarning(planner::describeIdle(result));
  ConfigurationPins given = options.pins;
  static_cast<StrategyPins &>(given) = planning.pins;
  if (planning.framework == "plait") // others divide among other ranks
    for (const std::string &line :
         findIdlePins(given, result.configuration.mesh))
      printNote(line);
  return Status::success();
}

/// Whether the compiler can say what memory the choice takes. Plans of other
/// frameworks, in fp16, or for devices that no code can be made for are
/// predicted only.
bool Planning::canPlace(const Configuration &choice) const {
  return planning.framework == "plait" &&
         training.precision != Precision::FP16 && makeSettings(options).ok();
}

/// As a compilation will.
Status Planning::checkSize(const Configuration &choice) const {
  Status size = checkStepSize(int64_t(choice.mesh[Axis::PP]) * choice.chunks,
                              choice.microbatches(training));
  return size.ok() ? size
                   : fail("the choice (", planner::print(choice),
                          ") cannot be compiled: ", size.message());
}

/// Whether one microbatch is through before the next one begins, on one rank.
/// Then each is placed where the one before it was, since nothing else is live
/// at its time: a step of more only has larger inputs.
static bool runsOneByOne(const Configuration &choice) {
  Result<const schedule::Generator *> generator =
      schedule::findGenerator(choice.schedule);
  return choice.mesh[Axis::PP] == 1 && choice.chunks == 1 && generator.ok() &&
         (*generator)->memoryBound({1, 1, /*microbatches=*/2}, 0, 0) == 1;
}

/// The compiler knows no costs: what it would find is another order.
Status Planning::findOrder(const Configuration &choice) {
  std::string reason;
  const planner::Work *work =
      profile->get(choice.mesh[Axis::TP], choice.sequenceParallel, reason);
  if (!work)
    return fail(reason);
  Result<std::optional<schedule::Schedule>> found =
      planner::findOrder(*work, cluster, training, choice);
  if (found.ok())
    order = std::move(*found);
  return found.status();
}

/// Replaces the estimated memory by the compiler's placement. Lowers the model
/// as the compilation will; where there is a compilation, it goes on from there
/// instead of lowering a second time. For a prediction alone, few microbatches
/// stand for all where they run one by one.
Status Planning::place(const Configuration &choice,
                       planner::Estimate &estimate) {
  if (options.progress)
    showProgress("placing the memory of the choice");
  PLAIT_RETURN_IF_ERROR(findOrder(choice));
  // A copy: whether this is the choice is not known before its memory is.
  auto lower = [&](int64_t microbatches) {
    CompileOptions chosen = options;
    pin(choice, training.precision, chosen);
    chosen.order = order;
    chosen.pins.globalBatch =
        microbatches * choice.microBatch * choice.mesh.batchParts();
    return lowerModel(std::move(chosen));
  };
  // Inputs of as many are whole lines of memory.
  constexpr int64_t few = 32;
  int64_t all = choice.microbatches(training), some = all;
  if (!planning.compiles && all > 3 * few && runsOneByOne(choice))
    some = few + all % few;
  std::shared_ptr<LoweredModel> placed = lower(some), more;
  if (placed && some < all)
    more = lower(some + few);
  if (!placed || (some < all && !more))
    return fail("the choice (", planner::print(choice), ") does not compile");
  estimate.memory = placed->memory;
  if (more)
    estimate.memory = continueMemory(placed->memory, more->memory,
                                     double(all - some - few) / few);
  estimate.isPlaced = true;
  // Beside the arena, as the estimate counts it.
  for (planner::StageMemory &memory : estimate.memory)
    memory.reserved = cluster.device.reservedBytes;
  if (planning.compiles)
    lowered = std::move(placed);
  return Status::success();
}

/// The fastest choice that fits as the compiler places it. An estimate is the
/// last word where nothing can be placed, and where a step that is only
/// predicted is too large for a plan.
Result<planner::SearchResult> Planning::search() {
  std::string note;
  auto placeIfPossible = [&](const Configuration &choice,
                             planner::Estimate &estimate) {
    note.clear();
    if (!canPlace(choice))
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

/// What the model's attention means for the training: its dropout, its document
/// mask and the size of its heads are not known before it has been read, and
/// what findAttention() has assumed is corrected here.
Status Planning::setAttention() {
  nn::AttentionUse use = profile->findAttentionUse();
  training.dropout = use.drops;
  if (!training.flashAttention || cluster.device.isProcessor ||
      planning.framework != "plait")
    return Status::success();
  fused = checkFusedAttention(use);
  // Of devices that there is no code for nothing is known.
  auto target = codegen::TargetGPU::get(cluster.device.target);
  if (fused.ok() && target)
    fused = profile->checkFusedAttention(target->getArchitecture());
  if (fused.ok())
    return Status::success();
  if (options.pins.attention == AttentionKind::Flash)
    return fail("--attention is flash, which ", cluster.device.name,
                " does not compute for this model: ", fused.message());
  training.flashAttention = false;
  return Status::success();
}

/// Searched anew: with less memory for scores another plan is the best.
std::string Planning::describeFused(const planner::SearchResult &result) {
  planner::Training other = training;
  other.flashAttention = true;
  Result<planner::SearchResult> found =
      planner::search(*profile, cluster, other, space, planning.pins);
  return found.ok() ? planner::describeFaster(result, *found, "fused") : "";
}

void Planning::tellOfAttention(const Result<planner::SearchResult> &result) {
  if (!fused.ok())
    noteUnfusedAttention(fused, result.ok() ? describeFused(*result) : "");
}

/// The profile imports the model several times, with different batches: as the
/// compilation does, pinned shardings included.
bool Planning::start() {
  if (!report(prepare()) || !open())
    return false;
  if (options.progress)
    showProgress("planning");
  auto import = [this](int64_t batch) -> FailureOr<OwningOpRef<ModuleOp>> {
    auto module = importModel(*source, options, batch, training.sequence);
    if (failed(module) || failed(pinShardings(**module, options)))
      return failure();
    return module;
  };
  profile =
      ModelProfile::create(*context.get(), import, training.precision, cluster);
  return profile && report(setAttention());
}

/// That nothing was found is an answer where somebody asks for it (`notFound`).
std::optional<Configuration> Planning::run() {
  if (!start())
    return std::nullopt;
  Result<planner::SearchResult> result = search();
  tellOfAttention(result);
  if (!result.ok() && planning.notFound) {
    *planning.notFound = result.status().message();
    return std::nullopt;
  }
  if (!report(result.status()) || !report(tell(*result)))
    return std::nullopt;
  return result->configuration;
}

/// One for all clusters, or one each.
static Status checkPrices(const PlanningOptions &planning, size_t clusters) {
  size_t prices = planning.prices.size();
  if (prices <= 1 || prices == clusters)
    return Status::success();
  return fail("--price has ", prices, " values for ", clusters,
              clusters == 1 ? " cluster" : " clusters", ", expected 1",
              clusters == 1 ? "" : " or " + std::to_string(clusters));
}

/// 1. A session for each case. That one has no configuration is a row of the
///    table.
/// 2. The table, as JSON, as a page and as text. Deques, for rows refer to
/// sessions and
///    results, which must not move.
bool plait::compare(const CompileOptions &options,
                    const PlanningOptions &planning,
                    const std::vector<PlanningCase> &cases) {
  if (!report(checkPrices(planning, cases.size())))
    return false;
  // What is compared refers to all three. Sessions keep references to their
  // options.
  std::vector<CompileOptions> each(cases.size(), options);
  std::deque<Planning> sessions;
  std::deque<planner::SearchResult> results;
  std::vector<planner::Compared> compared;
  // 1. Rows.
  for (auto [i, one] : llvm::enumerate(cases)) {
    each[i].cluster = one.cluster;
    if (one.globalBatch)
      each[i].pins.globalBatch = one.globalBatch;
    if (one.sequence)
      each[i].pins.sequence = one.sequence;
    Planning &session = sessions.emplace_back(each[i], planning);
    if (!session.start())
      return false;
    planner::Compared &row = compared.emplace_back();
    row.cluster = one.cluster;
    row.label = one.label;
    Result<planner::SearchResult> found = session.search();
    session.tellOfAttention(found);
    if (!found.ok()) {
      row.failure = found.status().message();
      continue;
    }
    results.push_back(std::move(*found));
    row.report.emplace(session.describe(results.back(), i));
  }
  // 2. The table.
  clearProgress();
  if (!planning.json.empty() &&
      !report(writeTextFile(planning.json, planner::compareJson(compared))))
    return false;
  if (!planning.report.empty() &&
      !report(planner::writeHtmlComparison(compared, planning.asked,
                                           planning.report)))
    return false;
  getText(options) << planner::compareText(compared, getTextOptions());
  return true;
}

/// True without a change of the options where only a prediction was asked for,
/// or where nothing was found and that is said in `notFound`.
bool plait::choose(CompileOptions &options, const PlanningOptions &planning) {
  if (!report(checkPrices(planning, 1)))
    return false;
  Planning session(options, planning);
  std::optional<Configuration> choice = session.run();
  if (!choice)
    return planning.notFound && !planning.notFound->empty();
  if (!planning.compiles)
    return true;
  pin(*choice, session.getPrecision(), options);
  options.order = session.getOrder();
  options.lowered = session.takeLowered();
  return true;
}
