//===- Trainer.cpp - The training loop ------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A training run from its first step to its last.
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Trainer.h"

#include "plait/Runtime/TrainingRun.h"

#include <cmath>
#include <cstdio>

using namespace plait;
using namespace plait::runtime;

/// An interruption is only looked at between steps: a step is done by all ranks
/// or by none. Before the first one it is a failure, as there is nothing to
/// save.
static Status runSteps(TrainingRun &run) {
  const uint64_t start = run.state().step;
  while (!run.isDone()) {
    Result<bool> interrupted = run.isInterrupted();
    if (!interrupted.ok())
      return interrupted.status();
    if (*interrupted)
      return run.state().step > start
                 ? Status::success()
                 : Status::failure("interrupted before the first step");
    PLAIT_RETURN_IF_ERROR(run.stepOn().status());
  }
  return Status::success();
}

/// A run without steps says what its weights are worth.
static Status tellEvaluation(TrainingRun &run) {
  Result<std::optional<Evaluation>> found = run.evaluate();
  if (!found.ok())
    return found.status();
  if (!*found || !run.executor().leads())
    return Status::success();
  char text[160];
  std::snprintf(text, sizeof(text),
                "step %llu, loss on held-out data %.6f, perplexity %.2f, "
                "%.0f tokens",
                static_cast<unsigned long long>(run.state().step),
                (*found)->loss, std::exp((*found)->loss), (*found)->tokens);
  run.executor().result(text);
  return Status::success();
}

/// The run's own failure is reported before that of those who watch.
Status runtime::train(const fb::Plan &plan, const TrainOptions &options) {
  auto run = TrainingRun::begin(plan, options);
  if (!run.ok())
    return run.status();
  Status outcome = options.trains() ? runSteps(**run) : tellEvaluation(**run);
  Status told = (*run)->end(outcome);
  PLAIT_RETURN_IF_ERROR(outcome);
  PLAIT_RETURN_IF_ERROR(told);
  return (*run)->finish();
}
