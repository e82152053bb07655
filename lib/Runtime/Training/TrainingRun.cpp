//===- TrainingRun.cpp - A training run, step by step ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A training run from its options to its outputs. The parts that know something
// of their own are elsewhere: what a step is given and whether it was good
// (Controls), data (Batches), checkpoints (Progress), evaluation (Evaluator),
// who is slow (Watch) and who looks on (Observer). Here is the order in which
// they are made, asked and ended.
//
// All processes of a run go through this code together. What one of them alone
// can fail at, a file that only rank 0 writes for example, is agreed on before
// any of them goes on: one that returned by itself would leave the others
// waiting.
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/TrainingRun.h"

#include "Ahead.h"
#include "Best.h"
#include "Controls.h"
#include "Core/Guard.h"
#include "Evaluator.h"
#include "KeptChoices.h"
#include "Observers.h"
#include "Progress.h"
#include "RunSettings.h"
#include "SampleLog.h"
#include "Setup.h"
#include "SiteRun.h"
#include "Stragglers.h"
#include "Watch.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Sites.h"
#include "plait/Runtime/Communicator.h"
#include "plait/Runtime/Rendezvous.h"
#include "plait/Runtime/Weights.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <sstream>

using namespace plait;
using namespace plait::runtime;

std::vector<NamedLoss> runtime::getNamedLosses(const fb::Plan &plan,
                                               const StepMetrics &metrics) {
  std::vector<NamedLoss> losses;
  size_t first = size_t(fb::Metric::Count);
  for (uint32_t i = 0; i < plan::length(plan.named_losses()); ++i)
    losses.push_back({plan.named_losses()->Get(i)->str(), metrics[first + i]});
  return losses;
}

namespace {

using Clock = std::chrono::steady_clock;

/// The parts of a run, beside its executor.
struct Parts {
  Batches batches;
  std::optional<Evaluator> evaluator;
  std::optional<Controls> controls;     // nothing: settings may still be kept
  std::unique_ptr<SampleLog> sampleLog; // null: none
  std::optional<Best> best;             // nothing: none is kept

  /// Sets the steps of `options` where it has epochs. Leaves the controls to
  /// setControls() where `options` may get settings of a checkpoint.
  static Result<Parts> create(const fb::Plan &plan, TrainOptions &options) {
    completeSettings(options, plan);
    auto batches = openBatches(plan, options);
    if (!batches.ok())
      return batches.status();
    PLAIT_RETURN_IF_ERROR(setSteps(options, *batches, 0));
    Parts parts = {std::move(*batches), {}, {}, nullptr, {}};
    // Not later than can be: no device has been asked for anything yet.
    if (options.resume.empty() && options.trains())
      PLAIT_RETURN_IF_ERROR(parts.setControls(plan, options));
    auto evaluator = Evaluator::open(plan, options);
    if (!evaluator.ok())
      return evaluator.status();
    parts.evaluator = std::move(*evaluator);
    return parts;
  }

  /// Counts the steps of epochs again when `state` is known, or is another one
  /// than before: with another global batch, or without some batches, they are
  /// another number.
  Status countSteps(Executor &executor, TrainOptions &options,
                    const RunState &state);
  /// Fails where `options`, which are complete, contradict each other.
  Status setControls(const fb::Plan &plan, const TrainOptions &options);
  /// Begins the log of samples, and finds the best weights so far.
  Status openRecords(Executor &executor, const TrainOptions &options);
};

/// Schedules of the learning rate depend on the number of steps.
Status Parts::countSteps(Executor &executor, TrainOptions &options,
                         const RunState &state) {
  if (!options.epochs)
    return Status::success();
  PLAIT_RETURN_IF_ERROR(setSteps(options, batches, state.step));
  if (executor.leads()) {
    std::ostringstream text;
    text << *options.epochs << " epochs of " << batches.order().samples()
         << " samples end with step " << options.steps;
    executor.tell(Severity::Info, text.str());
  }
  if (controls)
    controls->renewSchedule();
  return Status::success();
}

/// Whether replicas have something of their own from step to step.
static bool keepsErrors(const fb::Plan &plan) {
  for (const fb::Program *program : *plan.programs())
    for (uint32_t i = 0; i < plan::length(program->shards()); ++i) {
      const auto *state = program->shards()->Get(i)->state();
      for (uint32_t j = 0; j < plan::length(state); ++j)
        if (state->Get(j)->own_axis())
          return true;
    }
  return false;
}

/// Gradients are compressed before it is known whether they are finite.
Status Parts::setControls(const fb::Plan &plan, const TrainOptions &options) {
  if (options.onNonFinite == NonFinitePolicy::Skip && plan.outer())
    return fail("`on-nan` is skip, but sites count their steps together, and "
                "one of them would skip alone (`outer` is ",
                plan::describeOuter(plan), ")");
  if (options.onNonFinite == NonFinitePolicy::Skip && keepsErrors(plan))
    return fail("`on-nan` is skip, but when a step is skipped, replicas have "
                "already fed back what they did not send (`compress` is ",
                plan::compressOf(plan), ")");
  auto created = Controls::create(options, getOptions(plan));
  if (created.ok())
    controls = std::move(*created);
  return created.status();
}

Status Parts::openRecords(Executor &executor, const TrainOptions &options) {
  if (!options.best.empty()) {
    auto opened = Best::open(executor, options);
    if (!opened.ok())
      return opened.status();
    best = std::move(*opened);
  }
  if (options.sampleLog.empty())
    return Status::success();
  auto log = SampleLog::open(options.sampleLog, executor, batches);
  PLAIT_RETURN_IF_ERROR(agree(executor, log.status()));
  sampleLog = std::move(*log);
  return Status::success();
}

/// The run of this process. Members refer to those above them.
class Steps : public TrainingRun {
public:
  Steps(const fb::Plan &ofAll, std::unique_ptr<SiteRun> site,
        const TrainOptions &given)
      : ofAll(ofAll), apart(std::move(site)),
        plan(apart ? apart->plan() : ofAll), chosen(given) {
    chosen.executor.sites = apart ? apart->member() : nullptr;
  }

  Status prepare();

  const RunState &state() const override { return reached; }
  const TrainOptions &options() const override { return chosen; }
  Executor &executor() override { return *ranks; }
  Result<bool> isInterrupted() override;
  Result<StepReport> step() override;
  Result<StepReport> stepOn() override;
  Result<StepReport> step(std::span<const int32_t> rows) override;
  Result<std::optional<Evaluation>> evaluate() override;
  Status checkAlive() const override;
  Status save(const std::string &directory) override;
  Status checkpoint() override;
  Status end(const Status &outcome) override;
  Status finish() override;
  void close() override;

private:
  Status setWeights();
  Status openOutputs();
  Status checkReady(bool givesRows) const;
  Result<StepReport> take(bool goesOn = false);
  Result<StepReport> runStep(bool goesOn);
  Result<StepMetrics> execute(uint64_t step, bool goesOn);
  Result<bool> findInterruption();
  Status evaluateStep(StepReport &report);
  void tellOfStep(const StepReport &report) const;
  Status rollBack();
  Status printMemory();

  const fb::Plan &ofAll;          // sites
  std::unique_ptr<SiteRun> apart; // null: all sites are here
  const fb::Plan &plan;           // of those that are here
  TrainOptions chosen;            // of which the steps may change
  RunState reached;
  std::optional<Parts> parts;
  std::optional<Watch> watch;
  std::unique_ptr<Executor> ranks;
  std::optional<runtime::Progress> progress;
  std::optional<RunInfo> info;
  Observers observers;
  uint64_t settled = 0;    // the step after which no library takes memory
  bool isWatched = false;  // observers wait for the end
  bool endsHere = false;   // was interrupted when a step had begun
  Clock::time_point ended; // of the last step
  Status failure = Status::success(); // that has ended the run
};

/// While a checkpoint is copied, the processes tell each other beside the step
/// when all have copied, in a thread of its own: the ranks' threads compute,
/// and wait for that only before they change anything. Of two failures the own
/// one is reported rather than one that followed from another process's.
Result<StepMetrics> Steps::execute(uint64_t step, bool goesOn) {
  StepScalars next = parts->controls->scalars({step, reached.updates + 1});
  bool mayGoOn = goesOn && !endsHere && mayGoOnAhead(plan, chosen, step);
  auto run = [&] {
    return ranks->runStep(step, parts->batches,
                          parts->controls->scalars(reached),
                          parts->controls->scope(), mayGoOn ? &next : nullptr);
  };
  if (!progress->holdsStep())
    return run();
  // Whichever fails, the other may wait for processes that then end.
  Rendezvous &processes = *ranks->processes();
  auto beside = std::async(std::launch::async, [&] {
    Status status = progress->duringStep();
    if (!status.ok())
      processes.disconnect();
    return status;
  });
  Result<StepMetrics> metrics = run();
  if (!metrics.ok())
    processes.disconnect();
  Status copied = beside.get();
  bool isOwn = !metrics.ok() && !followsAnother(metrics.status());
  return copied.ok() || isOwn ? metrics : copied;
}

/// The step after the one that was reached.
/// 1. Do the step, and measure how long it takes without what follows; one that
///    began before the last one ended, from there.
/// 2. Compare replicas, and collect what has been noted; both are collective.
/// 3. Judge. A verdict comes from metrics that all processes have, so that all
///    come to the same.
/// 4. Count the step, skipped or not: the data goes on.
/// 5. Evaluate, unless the step is taken back, tell the observers, and keep
///    weights that are the best so far.
Result<StepReport> Steps::runStep(bool goesOn) {
  Controls &controls = *parts->controls;
  uint64_t step = reached.step + 1;
  // 1.
  watch->beforeStep(step);
  Clock::time_point start = ranks->isAhead() ? ended : Clock::now();
  Result<StepMetrics> metrics = execute(step, goesOn);
  if (!metrics.ok())
    return metrics.status();
  ended = Clock::now();
  double seconds = std::chrono::duration<double>(ended - start).count();
  // 2.
  if (uint64_t every = chosen.executor.guardEvery; every && step % every == 0)
    PLAIT_RETURN_IF_ERROR(checkReplicas(*ranks, step));
  PLAIT_RETURN_IF_ERROR(watch->afterStep(*ranks, step, seconds));
  // 3.
  Result<Verdict> verdict = controls.judge(step, *metrics);
  if (!verdict.ok())
    return verdict.status();
  // 4.
  reached.step = step;
  reached.updates += !verdict->skipped;
  reached.tokens += at(*metrics, fb::Metric::TokenCount);
  PLAIT_RETURN_IF_ERROR(ranks->meetSites(reached, /*begins=*/false, true));
  if (parts->sampleLog)
    PLAIT_RETURN_IF_ERROR(parts->sampleLog->endStep(step));
  // 5.
  StepReport report = {
      step, *metrics,        controls.learningRate(step), seconds, *verdict,
      {},   watch->watched()};
  if (!verdict->rollsBack)
    PLAIT_RETURN_IF_ERROR(evaluateStep(report));
  tellOfStep(report);
  PLAIT_RETURN_IF_ERROR(
      tell(observers, [&](Observer &one) { return one.endStep(report); }));
  if (report.evaluation && parts->best)
    PLAIT_RETURN_IF_ERROR(parts->best->offer(*ranks, step, *report.evaluation));
  return report;
}

/// All processes come to the same verdict: one tells it.
void Steps::tellOfStep(const StepReport &report) const {
  if (!ranks->leads())
    return;
  if (!report.verdict.warning.empty())
    ranks->warn(report.verdict.warning);
  if (!report.watched)
    return;
  for (uint32_t rank : report.watched->changed()) {
    bool isSlow = report.watched->ranks()[rank].isSlow;
    ranks->tell(isSlow ? Severity::Warning : Severity::Note,
                report.watched->describe(rank));
  }
}

/// A step that is rolled back must not get into a checkpoint.
Result<StepReport> Steps::take(bool goesOn) {
  Result<StepReport> report = runStep(goesOn);
  Status status = report.status();
  if (status.ok())
    status = report->verdict.rollsBack ? rollBack() : progress->afterStep();
  if (status.ok() && reached.step == settled)
    status = printMemory();
  if (status.ok())
    return report;
  failure = status;
  return status;
}

Status Steps::checkAlive() const {
  return failure.ok() ? Status::success()
                      : fail("the run has failed: ", failure.message());
}

/// A refusal leaves the run as it was.
Status Steps::checkReady(bool givesRows) const {
  PLAIT_RETURN_IF_ERROR(checkAlive());
  if (givesRows != chosen.givesRows)
    return Status::failure(
        givesRows
            ? "rows are given, but the run reads its data from files"
            : "the run has no data of its own: give the rows of the step");
  if (isDone())
    return fail("all ", chosen.steps, " steps of the run are done");
  return Status::success();
}

Result<StepReport> Steps::step() {
  PLAIT_RETURN_IF_ERROR(checkReady(/*givesRows=*/false));
  return take();
}

Result<StepReport> Steps::stepOn() {
  PLAIT_RETURN_IF_ERROR(checkReady(/*givesRows=*/false));
  return take(/*goesOn=*/true);
}

Result<StepReport> Steps::step(std::span<const int32_t> rows) {
  PLAIT_RETURN_IF_ERROR(checkReady(/*givesRows=*/true));
  PLAIT_RETURN_IF_ERROR(parts->batches.setRows(rows));
  return take();
}

Result<std::optional<Evaluation>> Steps::evaluate() {
  PLAIT_RETURN_IF_ERROR(checkAlive());
  if (!parts->evaluator)
    return std::optional<Evaluation>();
  auto evaluation =
      parts->evaluator->run(*ranks, [this] { return isInterrupted(); });
  if (!evaluation.ok())
    return fail(evaluation.status().code(), "after step ", reached.step, ": ",
                evaluation.status().message());
  return evaluation;
}

/// Evaluates, where that is due. An evaluation that was interrupted leaves no
/// result; the run then ends after this step anyway.
Status Steps::evaluateStep(StepReport &report) {
  if (!parts->evaluator || !parts->evaluator->isDue(report.step))
    return Status::success();
  auto evaluation = evaluate();
  if (!evaluation.ok())
    return evaluation.status();
  report.evaluation = *evaluation;
  return Status::success();
}

/// The step that has begun is done before the run ends, and none after it.
Result<bool> Steps::isInterrupted() {
  Result<bool> any = endsHere ? true : findInterruption();
  if (!any.ok() || !ranks->isAhead())
    return any;
  endsHere = *any;
  return false;
}

/// Whether any process was interrupted. All have to end after the same step:
/// none waits for one that is gone.
Result<bool> Steps::findInterruption() {
  bool mine = chosen.interrupted && chosen.interrupted();
  Rendezvous *processes = ranks->processes();
  if (!processes || !chosen.interrupted)
    return mine;
  auto all = processes->exchange(mine ? "interrupted" : "");
  if (!all.ok())
    return all.status();
  return std::any_of(all->begin(), all->end(),
                     [](const std::string &one) { return !one.empty(); });
}

/// The data goes on behind the step, and so ends as many steps earlier.
Status Steps::rollBack() {
  PLAIT_RETURN_IF_ERROR(progress->rollBack());
  return parts->countSteps(*ranks, chosen, reached);
}

/// Prints what a device's libraries have taken: known when they have run.
Status Steps::printMemory() {
  auto lines = ranks->describeMemory();
  if (!lines.ok())
    return lines.status();
  if (!lines->empty())
    ranks->tell(Severity::Info, *lines);
  return Status::success();
}

/// Whether processes train alike: each reads options and data by itself, from
/// what may be different disks, and would go on with its own.
Status compareProcesses(const Result<Parts> &parts,
                        const TrainOptions &options) {
  Rendezvous *processes = options.executor.processes;
  if (!processes)
    return parts.status();
  PLAIT_RETURN_IF_ERROR(processes->agree(parts.status()));
  PLAIT_RETURN_IF_ERROR(compareSettings(*processes, options.settings));
  std::string data = parts->batches.describe();
  std::string site = options.sites.site
                         ? "site " + std::to_string(*options.sites.site)
                         : "no site";
  return processes->agreeOn(
      std::vector<SharedValue>{{data, "data " + data}, {site, site}});
}

/// Weights and state, from a checkpoint if there is one, and what is learned
/// with: only then are all settings known. If they are good, the run takes the
/// directory of its own checkpoints.
Status Steps::setWeights() {
  Result<runtime::Progress> begun =
      runtime::Progress::begin(*ranks, chosen, parts->batches, reached);
  PLAIT_RETURN_IF_ERROR(agree(*ranks, begun.status()));
  progress.emplace(std::move(*begun));
  PLAIT_RETURN_IF_ERROR(parts->countSteps(*ranks, chosen, reached));
  if (!chosen.trains())
    chosen.steps = reached.step; // which is the last one
  else if (!parts->controls)
    PLAIT_RETURN_IF_ERROR(agree(*ranks, parts->setControls(plan, chosen)));
  return agree(*ranks, progress->openCheckpoints());
}

/// The process of rank 0 has them; all agree on how that went.
Status Steps::openOutputs() {
  bool leads = ranks->leads();
  if (leads)
    warnOfUnused(*ranks, chosen);
  Result<Observers> made = leads ? makeObservers(chosen) : Observers();
  Status prepared = made.status();
  if (prepared.ok() && leads && !chosen.save.empty())
    prepared = prepareToSave(chosen.save);
  info.emplace(RunInfo{plan, chosen, Utilization(plan), reached});
  if (prepared.ok())
    observers = std::move(*made);
  isWatched = prepared.ok() && !isDone();
  if (isWatched)
    prepared =
        tell(observers, [&](Observer &one) { return one.beginRun(*info); });
  return agree(*ranks, prepared);
}

/// 1. Read the options and open the data, which needs no device; all processes
///    have to have the same.
/// 2. Make the executor. The notes that Watch adds to its options come first,
///    and so does what copies in memory will take, which the check of memory
///    counts, and what an earlier start has chosen.
/// 3. Weights.
/// 4. Outputs. Libraries take memory in the step that is walked and in that
///    recorded.
Status Steps::prepare() {
  // 1.
  Result<Parts> made = Parts::create(ofAll, chosen);
  PLAIT_RETURN_IF_ERROR(compareProcesses(made, chosen));
  parts.emplace(std::move(*made));
  if (!chosen.checkpoint.replica.empty())
    chosen.executor.copyBytes = [this] {
      return replicaBytes(plan, chosen.checkpoint, chosen.executor.processes);
    };
  // 2.
  watch.emplace(plan, chosen);
  findChoices(chosen);
  auto executor = makeExecutor(plan, chosen);
  if (!executor.ok())
    return executor.status();
  ranks = std::move(*executor);
  // 3.
  PLAIT_RETURN_IF_ERROR(setWeights());
  if (apart)
    PLAIT_RETURN_IF_ERROR(apart->checkSteps(chosen.steps));
  PLAIT_RETURN_IF_ERROR(
      ranks->meetSites(reached, /*begins=*/true, /*resumed=*/reached.step));
  // 4.
  PLAIT_RETURN_IF_ERROR(parts->openRecords(*ranks, chosen));
  PLAIT_RETURN_IF_ERROR(
      watch->beginRun(*ranks, reached.step + 1, chosen.steps));
  settled = std::min(reached.step + 2, chosen.steps);
  warnOfSites(*ranks, chosen, reached);
  return openOutputs();
}

Status Steps::checkpoint() {
  PLAIT_RETURN_IF_ERROR(checkAlive());
  if (chosen.checkpoint.directory.empty())
    return Status::failure("the run has no directory for checkpoints");
  return agree(*ranks, progress->finish());
}

Status Steps::save(const std::string &directory) {
  PLAIT_RETURN_IF_ERROR(checkAlive());
  return saveModel(*ranks, chosen, directory);
}

/// Whatever the end was: a page must not say "running" for ever.
Status Steps::end(const Status &outcome) {
  if (apart && outcome.ok() && isDone())
    apart->leave();
  if (!std::exchange(isWatched, false))
    return Status::success();
  return tell(observers,
              [&](Observer &one) { return one.endRun(reached, outcome); });
}

Status Steps::finish() {
  PLAIT_RETURN_IF_ERROR(checkAlive());
  Status saved = chosen.save.empty() ? Status::success() : save(chosen.save);
  // Some of these are better than none.
  Status finished = agree(*ranks, progress->finish());
  Status kept = parts->best ? parts->best->finish(*ranks) : Status::success();
  for (const Status &status : {saved, finished, kept})
    PLAIT_RETURN_IF_ERROR(status);
  return Status::success();
}

/// A failure of those who watch is nobody's concern any more.
void Steps::close() {
  (void)end(failure);
  if (failure.ok())
    failure = Status::failure("it was closed");
  observers = {};
  parts->sampleLog.reset();
  progress.reset();
}

} // namespace

Result<std::unique_ptr<TrainingRun>>
TrainingRun::begin(const fb::Plan &plan, const TrainOptions &options) {
  auto site = SiteRun::create(plan, options);
  if (!site.ok())
    return site.status();
  auto run = std::make_unique<Steps>(plan, std::move(*site), options);
  PLAIT_RETURN_IF_ERROR(run->prepare());
  return std::unique_ptr<TrainingRun>(std::move(run));
}
