//===- Trainer.cpp - The training loop ------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
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

#include "plait/Runtime/Trainer.h"

#include "Console.h"
#include "Core/Guard.h"
#include "Dashboard.h"
#include "Evaluator.h"
#include "MetricsServer.h"
#include "Progress.h"
#include "SampleLog.h"
#include "Settings.h"
#include "Setup.h"
#include "StepLog.h"
#include "TensorBoard.h"
#include "Watch.h"
#include "plait/Runtime/Communicator.h"
#include "plait/Runtime/Rendezvous.h"
#include "plait/Runtime/Weights.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <future>

using namespace plait;
using namespace plait::runtime;

namespace {

using Clock = std::chrono::steady_clock;
// Empty in all processes but that of rank 0.
using Observers = std::vector<std::unique_ptr<Observer>>;

/// Tells all observers in turn, until one fails.
template <typename Tell> Status tell(const Observers &observers, Tell what) {
  for (const std::unique_ptr<Observer> &observer : observers)
    PLAIT_RETURN_IF_ERROR(what(*observer));
  return Status::success();
}

/// Sets `options.steps` where the length of a run is said in epochs: the steps
/// that are full of their samples, from where `batches` are after `step` on.
/// Epochs count samples of one pass over the data; steps follow from where the
/// run is, as a checkpoint of another global batch may have been resumed, or
/// batches left out. A last batch that is not full is not trained on.
Status setSteps(TrainOptions &options, const Batches &batches, uint64_t step) {
  if (!options.epochs)
    return Status::success();
  std::optional<uint64_t> pass = batches.order().passSamples();
  if (!pass)
    return Status::failure("--epochs needs sources without weights: with them "
                           "no pass has an end");
  // What is whole but for the rounding of decimals is whole.
  double samples = std::floor(*options.epochs * double(*pass) + 1e-6);
  uint64_t begin = batches.positionAfter(step);
  double left = std::max(0.0, samples - double(begin));
  options.steps = step + uint64_t(left) / batches.batchSize();
  return options.steps ? Status::success()
                       : fail("--epochs ", *options.epochs, " of ", *pass,
                              " samples are ", samples, ", a batch needs ",
                              batches.batchSize());
}

/// The parts of a run, beside its executor.
struct Parts {
  Batches batches;
  std::optional<Evaluator> evaluator;
  std::optional<Controls> controls;     // nothing: settings may still be kept
  std::unique_ptr<SampleLog> sampleLog; // null: none

  /// Sets the steps of `options` where it has epochs. Leaves the controls to
  /// setControls() where `options` may get settings of a checkpoint.
  static Result<Parts> create(const fb::Plan &plan, TrainOptions &options) {
    PLAIT_RETURN_IF_ERROR(completeSettings(options, plan));
    auto batches = openBatches(plan, options);
    if (!batches.ok())
      return batches.status();
    PLAIT_RETURN_IF_ERROR(setSteps(options, *batches, 0));
    Parts parts = {std::move(*batches), std::nullopt, std::nullopt, nullptr};
    // Not later than can be: no device has been asked for anything yet.
    if (options.resume.empty())
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
  /// Begins the log of samples.
  Status openLog(Executor &executor, const TrainOptions &options);
};

/// Schedules of the learning rate depend on the number of steps.
Status Parts::countSteps(Executor &executor, TrainOptions &options,
                         const RunState &state) {
  if (!options.epochs)
    return Status::success();
  PLAIT_RETURN_IF_ERROR(setSteps(options, batches, state.step));
  if (executor.leads())
    std::fprintf(stderr, "%g epochs of %llu samples end with step %llu\n",
                 *options.epochs,
                 static_cast<unsigned long long>(batches.order().samples()),
                 static_cast<unsigned long long>(options.steps));
  if (controls)
    controls->renewSchedule();
  return Status::success();
}

Status Parts::setControls(const fb::Plan &plan, const TrainOptions &options) {
  auto created = Controls::create(options, getOptions(plan));
  if (created.ok())
    controls = std::move(*created);
  return created.status();
}

Status Parts::openLog(Executor &executor, const TrainOptions &options) {
  if (options.sampleLog.empty())
    return Status::success();
  auto log = SampleLog::open(options.sampleLog, executor, batches);
  PLAIT_RETURN_IF_ERROR(agree(executor, log.status()));
  sampleLog = std::move(*log);
  return Status::success();
}

/// The steps of a run, from where `state` is.
/// The rules of a run are in run() and runStep(); everything else is asked for.
class Loop {
public:
  /// Everything outlives the loop. `state` is what the run has reached.
  Loop(Executor &executor, Parts &parts, TrainOptions &options, Watch &watch,
       const Observers &observers, Progress &progress, RunState &state)
      : executor(executor), parts(parts), options(options), watch(watch),
        observers(observers), progress(progress), state(state) {}

  /// Until all are done or the run is interrupted.
  Status run();

private:
  Result<bool> runStep();
  Result<StepMetrics> execute(uint64_t step);
  Status evaluate(StepReport &report);
  Result<bool> isInterrupted();
  Status rollBack();
  Status printMemory();

  Executor &executor;
  Parts &parts;
  TrainOptions &options; // of which the steps may change
  Watch &watch;
  const Observers &observers;
  Progress &progress;
  RunState &state;
};

/// An interruption is only looked at between steps: a step is done by all ranks
/// or by none. Before the first one it is a failure, as there is nothing to
/// save.
Status Loop::run() {
  const uint64_t start = state.step;
  // Libraries take memory in the step that is walked and in that recorded.
  const uint64_t settled = std::min(start + 2, options.steps);
  while (state.step < options.steps) {
    Result<bool> interrupted = isInterrupted();
    if (!interrupted.ok())
      return interrupted.status();
    if (*interrupted)
      return state.step > start
                 ? Status::success()
                 : Status::failure("interrupted before the first step");
    Result<bool> isGood = runStep();
    if (!isGood.ok())
      return isGood.status();
    // A step that is rolled back must not get into a checkpoint.
    PLAIT_RETURN_IF_ERROR(*isGood ? progress.afterStep() : rollBack());
    if (state.step == settled)
      PLAIT_RETURN_IF_ERROR(printMemory());
  }
  return Status::success();
}

/// While a checkpoint is copied, the processes tell each other beside the step
/// when all have copied, in a thread of its own: the ranks' threads compute,
/// and wait for that only before they change anything. Of two failures the own
/// one is reported rather than one that followed from another process's.
Result<StepMetrics> Loop::execute(uint64_t step) {
  auto run = [&] {
    return executor.runStep(step, parts.batches, parts.controls->scalars(state),
                            parts.controls->scope());
  };
  if (!progress.holdsStep())
    return run();
  // Whichever fails, the other may wait for processes that then end.
  Rendezvous &processes = *executor.processes();
  auto beside = std::async(std::launch::async, [&] {
    Status status = progress.duringStep();
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

/// The step after the one that was reached; whether it may stay.
/// 1. Do the step, and measure how long it takes without what follows.
/// 2. Compare replicas, and collect what has been noted; both are collective.
/// 3. Judge. A verdict comes from metrics that all processes have, so that all
///    come to the same.
/// 4. Count the step, skipped or not: the data goes on.
/// 5. Evaluate, unless the step is taken back, and tell the observers.
Result<bool> Loop::runStep() {
  Controls &controls = *parts.controls;
  uint64_t step = state.step + 1;
  // 1.
  watch.beforeStep(step);
  Clock::time_point start = Clock::now();
  Result<StepMetrics> metrics = execute(step);
  if (!metrics.ok())
    return metrics.status();
  double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  // 2.
  if (uint64_t every = options.executor.guardEvery; every && step % every == 0)
    PLAIT_RETURN_IF_ERROR(checkReplicas(executor, step));
  PLAIT_RETURN_IF_ERROR(watch.afterStep(executor, step, seconds));
  // 3.
  Result<Verdict> verdict = controls.judge(step, *metrics);
  if (!verdict.ok())
    return verdict.status();
  // 4.
  state.step = step;
  state.updates += !verdict->skipped;
  state.tokens += at(*metrics, fb::Metric::TokenCount);
  if (parts.sampleLog)
    PLAIT_RETURN_IF_ERROR(parts.sampleLog->endStep(step));
  // 5.
  StepReport report = {step,           *metrics, controls.learningRate(step),
                       seconds,        *verdict, {},
                       watch.watched()};
  if (!verdict->rollsBack)
    PLAIT_RETURN_IF_ERROR(evaluate(report));
  PLAIT_RETURN_IF_ERROR(
      tell(observers, [&](Observer &one) { return one.endStep(report); }));
  return !verdict->rollsBack;
}

/// Evaluates, where that is due.
/// An evaluation that was interrupted leaves no result; the run then ends after
/// this step anyway.
Status Loop::evaluate(StepReport &report) {
  if (!parts.evaluator || !parts.evaluator->isDue(report.step))
    return Status::success();
  auto evaluation =
      parts.evaluator->run(executor, [this] { return isInterrupted(); });
  if (!evaluation.ok())
    return fail("after step ", report.step, ": ",
                evaluation.status().message());
  report.evaluation = *evaluation;
  return Status::success();
}

/// Whether any process was interrupted. All have to end after the same step:
/// none waits for one that is gone.
Result<bool> Loop::isInterrupted() {
  bool mine = options.interrupted && options.interrupted();
  Rendezvous *processes = executor.processes();
  if (!processes || !options.interrupted)
    return mine;
  auto all = processes->exchange(mine ? "interrupted" : "");
  if (!all.ok())
    return all.status();
  return std::any_of(all->begin(), all->end(),
                     [](const std::string &one) { return !one.empty(); });
}

/// The data goes on behind the step, and so ends as many steps earlier.
Status Loop::rollBack() {
  PLAIT_RETURN_IF_ERROR(progress.rollBack());
  return parts.countSteps(executor, options, state);
}

/// Prints what a device's libraries have taken, which is known only when they
/// have run.
Status Loop::printMemory() {
  auto lines = executor.describeMemory();
  if (!lines.ok())
    return lines.status();
  if (!lines->empty())
    std::fprintf(stderr, "%s\n", lines->c_str());
  return Status::success();
}

/// Who watches, in the process of rank 0.
/// All outputs are opened before the first step, so that a path that cannot be
/// written does not cost a run. The console comes last: what it prints stands
/// below what others say.
Result<Observers> makeObservers(const TrainOptions &options) {
  Observers observers;
  if (!options.log.empty()) {
    auto log = StepLog::open(options.log);
    if (!log.ok())
      return log.status();
    observers.push_back(std::move(*log));
  }
  if (!options.tensorboard.empty()) {
    auto events = TensorBoard::open(options.tensorboard);
    if (!events.ok())
      return events.status();
    observers.push_back(std::move(*events));
  }
  if (!options.metricsPort.empty()) {
    auto server = MetricsServer::open(options.metricsPort);
    if (!server.ok())
      return server.status();
    observers.push_back(std::move(*server));
  }
  if (!options.dashboard.empty())
    observers.push_back(std::make_unique<Dashboard>(options.dashboard));
  observers.push_back(std::make_unique<Console>());
  return observers;
}

} // namespace

/// Whether processes train alike: each reads options and data by itself, from
/// what may be different disks, and would go on with its own.
static Status compareProcesses(const Result<Parts> &parts,
                               const TrainOptions &options) {
  Rendezvous *processes = options.executor.processes;
  if (!processes)
    return parts.status();
  PLAIT_RETURN_IF_ERROR(processes->agree(parts.status()));
  PLAIT_RETURN_IF_ERROR(compareSettings(*processes, options.settings));
  return processes->agreeOn("data", parts->batches.describe());
}

/// The steps, and those who watch them.
/// Observers hear of the end whatever it was: a page must not say "running" for
/// ever. The run's own failure is reported before theirs.
static Status runSteps(Executor &executor, Parts &parts, TrainOptions &options,
                       Watch &watch, const Observers &observers,
                       Progress &progress, RunState &state) {
  Status outcome =
      Loop(executor, parts, options, watch, observers, progress, state).run();
  Status told = tell(observers,
                     [&](Observer &one) { return one.endRun(state, outcome); });
  return outcome.ok() ? told : outcome;
}

/// 1. Read the options and open the data, which needs no device; all processes
///    have to have the same.
/// 2. Make the executor. The notes that Watch adds to its options come first,
///    and so does what copies in memory will take, which the check of memory
///    counts.
/// 3. Set weights and state, from a checkpoint if there is one, and what is
///    learned with: only then are all settings known. If they are good, take
///    the directory of the run's own checkpoints.
/// 4. Open outputs, in the process of rank 0, and agree on how that went.
/// 5. Do the steps that are left, if any.
/// 6. Write what the run is to leave: weights, then the last checkpoint. A
///    failure of the former does not keep the latter from being written.
Status runtime::train(const fb::Plan &plan, const TrainOptions &given) {
  TrainOptions options = given;
  // 1.
  Result<Parts> parts = Parts::create(plan, options);
  PLAIT_RETURN_IF_ERROR(compareProcesses(parts, options));
  if (!options.checkpoint.replica.empty())
    options.executor.copyBytes = [&] {
      return replicaBytes(plan, options.checkpoint, options.executor.processes);
    };
  // 2.
  Watch watch(plan, options);
  auto executor = makeExecutor(plan, options);
  if (!executor.ok())
    return executor.status();
  // 3.
  RunState state;
  Result<Progress> progress =
      Progress::begin(**executor, options, parts->batches, state);
  PLAIT_RETURN_IF_ERROR(agree(**executor, progress.status()));
  PLAIT_RETURN_IF_ERROR(parts->countSteps(**executor, options, state));
  if (!parts->controls)
    PLAIT_RETURN_IF_ERROR(agree(**executor, parts->setControls(plan, options)));
  PLAIT_RETURN_IF_ERROR(agree(**executor, progress->openCheckpoints()));
  PLAIT_RETURN_IF_ERROR(parts->openLog(**executor, options));
  PLAIT_RETURN_IF_ERROR(
      watch.beginRun(**executor, state.step + 1, options.steps));
  // 4.
  bool leads = (*executor)->leads();
  if (leads)
    warnOfUnusedWeights(plan, options);
  Result<Observers> observers = leads ? makeObservers(options) : Observers();
  Status prepared = observers.status();
  if (prepared.ok() && leads && !options.save.empty())
    prepared = prepareToSave(options.save);
  RunInfo info = {plan, options, Utilization(plan), state};
  bool runs = state.step < options.steps;
  if (prepared.ok() && runs)
    prepared =
        tell(*observers, [&](Observer &one) { return one.beginRun(info); });
  PLAIT_RETURN_IF_ERROR(agree(**executor, prepared));

  // 5.
  if (runs)
    PLAIT_RETURN_IF_ERROR(runSteps(**executor, *parts, options, watch,
                                   *observers, *progress, state));
  // 6.
  Status saved = options.save.empty()
                     ? Status::success()
                     : saveWeights(**executor, options.save, options.weights);
  saved = agree(**executor, saved);
  // One of the two is better than none.
  Status finished = agree(**executor, progress->finish());
  return saved.ok() ? finished : saved;
}
