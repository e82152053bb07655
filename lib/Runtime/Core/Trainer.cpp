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
#include "plait/Runtime/Weights.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

float &at(StepScalars &scalars, fb::Scalar index) {
  return scalars[static_cast<size_t>(index)];
}
double at(const StepMetrics &metrics, fb::Metric index) {
  return metrics[static_cast<size_t>(index)];
}

/// The log: one JSON object a line, complete after every step.
class StepLog {
public:
  static Result<StepLog> open(const std::string &path) {
    StepLog log;
    if (path.empty())
      return log;
    log.path = path;
    log.file.reset(std::fopen(path.c_str(), "we"));
    if (!log.file)
      return fail("cannot write '", path, "': ", std::strerror(errno));
    return log;
  }

  Status write(uint64_t step, const StepMetrics &metrics, double learningRate,
               double seconds) {
    if (!file)
      return Status::success();
    double tokens = at(metrics, fb::Metric::TokenCount);
    std::fprintf(file.get(),
                 "{\"step\": %llu, \"loss\": %.9g, \"grad_norm\": %.9g, "
                 "\"lr\": %.9g, \"tokens\": %.0f, \"step_seconds\": %.9g, "
                 "\"tokens_per_second\": %.9g}\n",
                 static_cast<unsigned long long>(step),
                 at(metrics, fb::Metric::Loss),
                 at(metrics, fb::Metric::GradNorm), learningRate, tokens,
                 seconds, tokens / seconds);
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

void printProgress(uint64_t step, uint64_t steps, const StepMetrics &metrics,
                   double rate, double elapsed) {
  if (!isatty(STDERR_FILENO))
    return;
  std::fprintf(
      stderr, "\rstep %llu/%llu  loss %.4f  %.0f tokens/s  %.0f s left   ",
      static_cast<unsigned long long>(step),
      static_cast<unsigned long long>(steps), at(metrics, fb::Metric::Loss),
      rate, elapsed / double(step) * double(steps - step));
  if (step == steps)
    std::fputc('\n', stderr);
}

Status printMemory(Executor &executor) {
  auto lines = executor.describeMemory();
  if (!lines.ok())
    return lines.status();
  if (!lines->empty())
    std::fprintf(stderr, "%s\n", lines->c_str());
  return Status::success();
}

void printSummary(const fb::Plan &plan, const StepMetrics &metrics,
                  uint64_t steps, double rate) {
  std::printf("%llu steps, loss %.6f, %.1f tokens/s, arena bytes",
              static_cast<unsigned long long>(steps),
              at(metrics, fb::Metric::Loss), rate);
  for (const fb::Program *program : *plan.programs())
    std::printf(" %llu",
                static_cast<unsigned long long>(program->arena_bytes()));
  std::printf("\n");
}

} // namespace

StepScalars runtime::scalarsOf(const TrainOptions &options, uint64_t step) {
  StepScalars scalars = {};
  double power = static_cast<double>(step);
  at(scalars, fb::Scalar::LearningRate) = float(options.learningRate);
  at(scalars, fb::Scalar::Beta1) = float(options.beta1);
  at(scalars, fb::Scalar::Beta2) = float(options.beta2);
  at(scalars, fb::Scalar::Epsilon) = float(options.epsilon);
  at(scalars, fb::Scalar::WeightDecay) = float(options.weightDecay);
  at(scalars, fb::Scalar::MaxGradNorm) = float(options.gradClip);
  // In double: 1 - beta^t cancels in the first steps.
  at(scalars, fb::Scalar::BiasCorrection1) =
      float(1.0 - std::pow(options.beta1, power));
  at(scalars, fb::Scalar::BiasCorrection2) =
      float(1.0 - std::pow(options.beta2, power));
  return scalars;
}

Result<Batches> runtime::openBatches(const fb::Plan &plan,
                                     const TrainOptions &options) {
  Result<Batches> batches =
      !options.tokens.empty() ? Batches::fromTokenFile(options.tokens, plan)
      : !options.text.empty() ? Batches::fromTextFile(options.text, plan)
                              : Batches::random(options.seed, plan);
  if (batches.ok() && options.shuffle)
    batches->shuffle(options.seed);
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
  Result<StepLog> log = StepLog::open(leads ? options.log : "");
  Status prepared = log.status();
  if (prepared.ok() && leads && !options.save.empty())
    prepared = prepareToSave(options.save);
  PLAIT_RETURN_IF_ERROR(agree(**executor, prepared));

  StepMetrics metrics = {};
  double tokens = 0;
  Clock::time_point start = Clock::now();
  for (uint64_t step = 1; step <= options.steps; ++step) {
    Clock::time_point stepStart = Clock::now();
    Result<StepMetrics> result =
        (*executor)->runStep(step, *batches, scalarsOf(options, step));
    if (!result.ok())
      return result.status();
    metrics = *result;
    double seconds = secondsSince(stepStart);
    if (Profiler *profiler = options.executor.profiler)
      profiler->addStep(seconds);
    tokens += at(metrics, fb::Metric::TokenCount);
    if (!std::isfinite(at(metrics, fb::Metric::Loss)))
      return fail("step ", step, ": the loss is ",
                  at(metrics, fb::Metric::Loss), "; try a lower --lr");
    PLAIT_RETURN_IF_ERROR(
        log->write(step, metrics, options.learningRate, seconds));
    // Libraries take memory in the step that is walked and in that recorded.
    if (step == std::min<uint64_t>(2, options.steps))
      PLAIT_RETURN_IF_ERROR(printMemory(**executor));
    double elapsed = secondsSince(start);
    if (leads)
      printProgress(step, options.steps, metrics, tokens / elapsed, elapsed);
  }
  if (leads)
    printSummary(plan, metrics, options.steps, tokens / secondsSince(start));
  if (options.save.empty())
    return Status::success();
  return agree(**executor, saveWeights(**executor, options.save));
}
