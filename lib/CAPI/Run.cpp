//===- Run.cpp - Runs that callers of C step ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// plait-run's loop, turned inside out: its options come as JSON, and each step
// is a call.
//
//===----------------------------------------------------------------------===//

#include "RunObject.h"
#include "plait/Runtime/RunOptions.h"
#include "plait/Runtime/Weights.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

using namespace plait;
using namespace plait::capi;

/// Returns the processes of the launcher, which can be joined once: MPI starts
/// once in a process. They part when the session that joined them has ended.
/// Null: this process is alone.
static Result<std::shared_ptr<runtime::Rendezvous>>
joinProcesses(SessionObject &session, std::chrono::milliseconds limit) {
  static std::mutex joining;
  static bool haveMet = false;
  if (!runtime::Rendezvous::isLaunched())
    return std::shared_ptr<runtime::Rendezvous>();
  std::lock_guard lock(joining);
  if (session.processes.use_count() > 1)
    return fail(Code::WrongCall, "another run of the launcher's processes is "
                                 "open: close it first");
  if (session.processes)
    return session.processes;
  if (haveMet)
    return fail(Code::WrongCall, "the launcher's processes have met in another "
                                 "session of this process");
  auto joined = runtime::Rendezvous::join(limit, &session.listener);
  if (!joined.ok())
    return joined.status();
  haveMet = true;
  session.processes = std::move(*joined);
  return session.processes;
}

/// Tells the other processes, which would wait, that one has failed.
static plait_error *failRun(RunObject &object, const Status &failure) {
  if (object.processes)
    object.processes->disconnect();
  return object.session().listener.makeError(failure);
}

/// 1. Options, which say how long others are waited for.
/// 2. The processes of the run, and whether all have the same plan.
/// 3. Ranks, weights, outputs.
static Status begin(RunObject &object, const char *text) {
  plan::PlanFile &file = object.plan->file;
  // 1.
  auto options = RunOptions::fromJson(text ? text : "{}", object.plan->path);
  if (!options.ok())
    return options.status();
  // 2.
  auto processes = joinProcesses(object.session(), options->getTimeLimit());
  if (!processes.ok())
    return processes.status();
  object.processes = std::move(*processes);
  runtime::Rendezvous *others = object.processes.get();
  if (others)
    PLAIT_RETURN_IF_ERROR(runtime::agreeOnPlan(*others, object.plan->path,
                                               Status::success(), &file));
  // 3.
  auto train = options->finish(file, others);
  if (!train.ok())
    return train.status();
  train->executor.reporter = &object.session().listener;
  train->givesRows = train->tokens.empty() && train->text.empty();
  auto run = runtime::TrainingRun::begin(file.plan(), *train);
  if (!run.ok())
    return run.status();
  object.run = std::move(*run);
  return Status::success();
}

plait_error *plait_run_begin(plait_plan *plan, const char *options,
                             plait_run **run) {
  return call<PlanObject>(plan, [&](auto &source) -> plait_error * {
    PLAIT_CAPI_TRY(checkGiven(run, "run"));
    auto object = std::make_shared<RunObject>(source);
    if (Status begun = begin(*object, options); !begun.ok())
      return failRun(*object, begun);
    *run = static_cast<plait_run *>(
        addHandle(std::move(object), source->owner->handle));
    return nullptr;
  });
}

/// A program of an earlier version has less of it.
static Status checkStep(const plait_step *step) {
  PLAIT_RETURN_IF_ERROR(checkGiven(step, "step"));
  constexpr size_t least = offsetof(plait_step, named_losses), most = 1 << 16;
  return step->size >= least && step->size <= most
             ? Status::success()
             : fail(Code::WrongCall, "step->size is ", step->size,
                    ", expected sizeof(plait_step), ", sizeof(plait_step));
}

static void fill(double (&values)[PLAIT_MOST_NAMED_LOSSES],
                 const std::vector<runtime::NamedLoss> &losses) {
  static_assert(PLAIT_MOST_NAMED_LOSSES == plan::kMostNamedLosses);
  std::ranges::fill(values, std::numeric_limits<double>::quiet_NaN());
  std::ranges::transform(losses, values, &runtime::NamedLoss::value);
}

/// Writes as much as the caller's structure has.
static void fill(plait_step &target, const plan::fb::Plan &plan,
                 const runtime::StepReport &report) {
  plait_step step = {};
  step.size = target.size;
  step.step = report.step;
  step.loss = runtime::at(report.metrics, plan::fb::Metric::Loss);
  step.gradient_norm = runtime::at(report.metrics, plan::fb::Metric::GradNorm);
  step.learning_rate = report.learningRate;
  step.tokens = report.tokens();
  step.seconds = report.seconds;
  step.skipped = report.verdict.skipped;
  step.rolled_back = report.verdict.rollsBack;
  step.evaluation_loss = report.evaluation
                             ? report.evaluation->loss
                             : std::numeric_limits<double>::quiet_NaN();
  fill(step.named_losses, runtime::getNamedLosses(plan, report.metrics));
  fill(step.evaluation_named_losses,
       report.evaluation
           ? runtime::getNamedLosses(plan, report.evaluation->means)
           : std::vector<runtime::NamedLoss>());
  std::memcpy(&target, &step, std::min(sizeof(step), target.size));
}

plait_error *plait_run_step(plait_run *run, const int32_t *tokens, size_t count,
                            plait_step *step) {
  return call<RunObject>(run, [&](auto &object) -> plait_error * {
    PLAIT_CAPI_TRY(checkStep(step));
    if (!tokens && count)
      return makeError(
          fail(Code::WrongCall, count, " tokens are said, tokens is null"));
    auto report = tokens ? object->run->step(std::span(tokens, count))
                         : object->run->step();
    if (!report.ok())
      return failRun(*object, report.status());
    fill(*step, object->plan->file.plan(), *report);
    return nullptr;
  });
}

plait_error *plait_run_save(plait_run *run, const char *directory) {
  return call<RunObject>(run, [&](auto &object) -> plait_error * {
    PLAIT_CAPI_TRY(checkGiven(directory, "directory"));
    PLAIT_CAPI_TRY(object->run->save(directory));
    return nullptr;
  });
}

plait_error *plait_run_checkpoint(plait_run *run) {
  return call<RunObject>(run, [&](auto &object) -> plait_error * {
    PLAIT_CAPI_TRY(object->run->checkpoint());
    return nullptr;
  });
}
