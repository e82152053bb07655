//===- Trainer.cpp - The training loop ------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Trainer.h"

#include "Rendezvous.h"
#include "Setup.h"
#include "plait/Runtime/Profiler.h"
#include "plait/Runtime/Utilization.h"
#include "plait/Runtime/Weights.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

float &entry(StepScalars &scalars, fb::Scalar index) {
  return scalars[static_cast<size_t>(index)];
}

/// The log: one JSON object a line, complete after every step. It begins where
/// an earlier run ended: what took hours to write is never destroyed.
class StepLog {
public:
  static Result<StepLog> open(const std::string &path) {
    StepLog log;
    if (path.empty())
      return log;
    log.path = path;
    log.file.reset(isStandardOutput(path)
                       ? fdopen(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0), "a")
                       : std::fopen(path.c_str(), "ae"));
    if (!log.file)
      return fail("cannot write '", path, "': ", std::strerror(errno));
    return log;
  }

  Status write(uint64_t step, const StepMetrics &metrics, double learningRate,
               double seconds, const Utilization &utilization) {
    if (!file)
      return Status::success();
    double tokens = at(metrics, fb::Metric::TokenCount);
    std::fprintf(
        file.get(),
        "{\"step\": %llu, \"loss\": %.9g, \"grad_norm\": %.9g, "
        "\"lr\": %.9g, \"tokens\": %.0f, \"step_seconds\": %.9g, "
        "\"tokens_per_second\": %.9g%s}\n",
        static_cast<unsigned long long>(step), at(metrics, fb::Metric::Loss),
        at(metrics, fb::Metric::GradNorm), learningRate, tokens, seconds,
        tokens / seconds, utilization.printFields(seconds).c_str());
    if (std::fflush(file.get()) != 0)
      return fail("cannot write '", path, "': ", std::strerror(errno));
    return Status::success();
  }

private:
  struct Close {
    void operator()(std::FILE *file) const { std::fclose(file); }
  };

  std::string path;
  std::unique_ptr<std::FILE, Close> file;
};

Status printMemory(Executor &executor) {
  auto lines = executor.describeMemory();
  if (!lines.ok())
    return lines.status();
  if (!lines->empty())
    std::fprintf(stderr, "%s\n", lines->c_str());
  return Status::success();
}

/// What the steps of a run come to.
struct Progress {
  explicit Progress(const fb::Plan &plan) : utilization(plan) {}

  uint64_t steps = 0;
  StepMetrics metrics = {}; // of the last one
  double tokens = 0;
  Utilization utilization;
  Clock::time_point start = Clock::now();

  /// ", 1234.5 tokens/s, 12.3 GFLOP/s, MFU 5.3 %".
  std::string printSpeed() const {
    double elapsed = secondsSince(start);
    char text[64];
    std::snprintf(text, sizeof(text), ", %.1f tokens/s", tokens / elapsed);
    return text + utilization.print(elapsed / double(steps));
  }
};

void printProgress(const Progress &progress, uint64_t steps) {
  if (!isatty(STDERR_FILENO))
    return;
  uint64_t step = progress.steps;
  double left =
      secondsSince(progress.start) / double(step) * double(steps - step);
  std::fprintf(stderr, "\rstep %llu/%llu, loss %.4f%s, %.0f s left   ",
               static_cast<unsigned long long>(step),
               static_cast<unsigned long long>(steps),
               at(progress.metrics, fb::Metric::Loss),
               progress.printSpeed().c_str(), left);
  if (step == steps)
    std::fputc('\n', stderr);
}

void printSummary(const fb::Plan &plan, const Progress &progress,
                  const TrainOptions &options) {
  std::FILE *out = options.summary;
  std::fprintf(out, "%llu ", static_cast<unsigned long long>(progress.steps));
  if (progress.steps < options.steps)
    std::fprintf(out, "of %llu ",
                 static_cast<unsigned long long>(options.steps));
  std::fprintf(out, "steps, loss %.6f%s, arena bytes",
               at(progress.metrics, fb::Metric::Loss),
               progress.printSpeed().c_str());
  for (const fb::Program *program : *plan.programs())
    std::fprintf(out, " %llu",
                 static_cast<unsigned long long>(program->arena_bytes()));
  std::fprintf(out, "\n");
}

/// Whether any process was interrupted. All have to end after the same step:
/// none waits for one that is gone.
Result<bool> isInterrupted(Executor &executor, const TrainOptions &options) {
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

/// The steps, until all are done or the run is interrupted.
Status runSteps(Executor &executor, const Batches &batches,
                const TrainOptions &options, StepLog &log, Progress &progress) {
  for (uint64_t step = 1; step <= options.steps; ++step) {
    Result<bool> interrupted = isInterrupted(executor, options);
    if (!interrupted.ok())
      return interrupted.status();
    if (*interrupted)
      return step > 1 ? Status::success()
                      : Status::failure("interrupted before the first step");
    Clock::time_point start = Clock::now();
    Result<StepMetrics> metrics =
        executor.runStep(step, batches, scalarsOf(options, step));
    if (!metrics.ok())
      return metrics.status();
    double seconds = secondsSince(start);
    if (Profiler *profiler = options.executor.profiler)
      profiler->addStep(seconds);
    if (Status status = checkMetrics(*metrics); !status.ok())
      return fail("step ", step, ": ", status.message(),
                  step > 1 ? "; try a lower --lr" : "");
    progress.steps = step;
    progress.metrics = *metrics;
    progress.tokens += at(*metrics, fb::Metric::TokenCount);
    PLAIT_RETURN_IF_ERROR(log.write(step, *metrics, options.learningRate,
                                    seconds, progress.utilization));
    // Libraries take memory in the step that is walked and in that recorded.
    if (step == std::min<uint64_t>(2, options.steps))
      PLAIT_RETURN_IF_ERROR(printMemory(executor));
    if (executor.leads())
      printProgress(progress, options.steps);
  }
  return Status::success();
}

} // namespace

Status runtime::checkMetrics(const StepMetrics &metrics) {
  double loss = at(metrics, fb::Metric::Loss);
  double norm = at(metrics, fb::Metric::GradNorm);
  if (double count = at(metrics, fb::Metric::TokenCount); !(count > 0))
    return fail("the step counts ", count,
                " tokens, and the loss is the mean over them");
  if (!std::isfinite(loss))
    return fail("the loss is ", loss);
  if (!std::isfinite(norm))
    return fail("the gradient norm is ", norm);
  return Status::success();
}

StepScalars runtime::scalarsOf(const TrainOptions &options, uint64_t step) {
  StepScalars scalars = {};
  double power = static_cast<double>(step);
  entry(scalars, fb::Scalar::LearningRate) = float(options.learningRate);
  entry(scalars, fb::Scalar::Beta1) = float(options.beta1);
  entry(scalars, fb::Scalar::Beta2) = float(options.beta2);
  entry(scalars, fb::Scalar::Epsilon) = float(options.epsilon);
  entry(scalars, fb::Scalar::WeightDecay) = float(options.weightDecay);
  entry(scalars, fb::Scalar::MaxGradNorm) = float(options.gradClip);
  // In double: 1 - beta^t cancels in the first steps.
  entry(scalars, fb::Scalar::BiasCorrection1) =
      float(1.0 - std::pow(options.beta1, power));
  entry(scalars, fb::Scalar::BiasCorrection2) =
      float(1.0 - std::pow(options.beta2, power));
  return scalars;
}

Result<Batches> runtime::openBatches(const fb::Plan &plan,
                                     const TrainOptions &options) {
  Result<Batches> batches =
      !options.tokens.empty()
          ? Batches::fromTokenFile(options.tokens, options.tokenType, plan)
      : !options.text.empty() ? Batches::fromTextFile(options.text, plan)
                              : Batches::random(options.seed, plan);
  if (batches.ok() && options.shuffle)
    batches->shuffle(options.seed);
  if (batches.ok())
    batches->drawKeys(options.seed);
  return batches;
}

Status runtime::agree(Executor &executor, const Status &mine) {
  Rendezvous *processes = executor.processes();
  return processes ? processes->agree(mine) : mine;
}

Result<std::unique_ptr<Executor>>
runtime::startExecutor(const fb::Plan &plan, const TrainOptions &options) {
  auto executor = Executor::create(plan, options.executor);
  if (!executor.ok())
    return executor.status();
  if (const std::string &placement = (*executor)->placement();
      !placement.empty())
    std::fprintf(stderr, "%s\n", placement.c_str());
  if (options.weights.empty()) {
    PLAIT_RETURN_IF_ERROR(initializeWeights(**executor, options.seed));
    return executor;
  }
  Result<WeightFiles> files = WeightFiles::open(options.weights);
  if (!files.ok())
    return files.status();
  PLAIT_RETURN_IF_ERROR(loadWeights(**executor, *files));
  return executor;
}

void runtime::warnOfUnusedWeights(const fb::Plan &plan,
                                  const TrainOptions &options) {
  if (options.weights.empty())
    return;
  Result<WeightFiles> files = WeightFiles::open(options.weights);
  if (!files.ok()) // startExecutor says so
    return;
  std::vector<std::string> names = findUnusedTensors(plan, *files);
  if (names.empty())
    return;
  constexpr size_t most = 5;
  std::string list = names.front();
  for (size_t i = 1; i < std::min(most, names.size()); ++i)
    list += ", " + names[i];
  if (names.size() > most)
    list += " and " + std::to_string(names.size() - most) + " more";
  std::fprintf(stderr,
               "plait-run: warning: weights '%s' has what the model has no "
               "place for: %s\n",
               options.weights.c_str(), list.c_str());
}

Status runtime::train(const fb::Plan &plan, const TrainOptions &options) {
  Result<Batches> batches = openBatches(plan, options);
  if (!batches.ok())
    return batches.status();
  auto executor = startExecutor(plan, options);
  if (!executor.ok())
    return executor.status();
  if (options.executor.profiler && (*executor)->processes())
    return fail("a profile needs all ranks in one process, this one has ",
                (*executor)->ranks().size(), " of ",
                (*executor)->mesh().ranks());
  bool leads = (*executor)->leads();
  if (leads)
    warnOfUnusedWeights(plan, options);
  Result<StepLog> log = StepLog::open(leads ? options.log : "");
  Status prepared = log.status();
  if (prepared.ok() && leads && !options.save.empty())
    prepared = prepareToSave(options.save);
  PLAIT_RETURN_IF_ERROR(agree(**executor, prepared));

  Progress progress(plan);
  PLAIT_RETURN_IF_ERROR(
      runSteps(**executor, *batches, options, *log, progress));
  if (leads)
    printSummary(plan, progress, options);
  if (options.save.empty())
    return Status::success();
  return agree(**executor, saveWeights(**executor, options.save));
}
