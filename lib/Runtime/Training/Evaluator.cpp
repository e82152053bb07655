//===- Evaluator.cpp - The loss on data that is held out ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The loss on held-out data, by the forward passes of the training plan: there
// is no second plan, and no second copy of the weights. The means of batches
// are weighted with their tokens: the result is the mean over all tokens.
//
//===----------------------------------------------------------------------===//

#include "Evaluator.h"

#include "Setup.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Metrics.h"

#include <algorithm>

using namespace plait;
using namespace plait::runtime;

/// Whether the forward passes of the plan are what an evaluation needs.
/// A plan with dropout drops elements in every forward pass.
static Status checkPlan(const fb::Plan &plan) {
  if (takesInput(plan, fb::InputKind::Keys))
    return Status::failure("the plan drops elements at random, which an "
                           "evaluation must not: compile with `dropout` off");
  for (uint32_t i = 0; i < plan::length(plan.programs()); ++i)
    if (auto steps = plan::countMetricSteps(plan, i); !steps.ok())
      return fail("the plan cannot evaluate: ", steps.status().message());
  return Status::success();
}

/// A single pass over whole batches, unless the options ask for less: what does
/// not fill a batch is left out in every evaluation alike.
Result<std::optional<Evaluator>> Evaluator::open(const fb::Plan &plan,
                                                 const TrainOptions &options) {
  bool isText = options.evalTokens.empty();
  const std::string &path = isText ? options.evalText : options.evalTokens;
  if (path.empty())
    return std::optional<Evaluator>();
  PLAIT_RETURN_IF_ERROR(checkPlan(plan));
  Result<Batches> batches =
      isText ? Batches::fromText(path, plan)
             : Batches::fromTokens(path, options.tokenType, plan);
  if (!batches.ok())
    return batches.status();
  takeSite(plan, options, *batches);
  PLAIT_RETURN_IF_ERROR(setDocumentEnd(plan, options, *batches));
  auto samples = batches->order().passSamples();
  if (!samples)
    return fail(isText ? "`eval-text`" : "`eval-tokens`", " '", path,
                "' has weights, but an evaluation weighs all samples equally");
  uint64_t most = *samples / uint64_t(plan.global_batch());
  if (most == 0)
    return fail("'", path, "' has ", *samples, " samples, a batch needs ",
                plan.global_batch());
  if (options.evalSteps > most)
    return fail("`eval-steps` is ", options.evalSteps, ", '", path, "' has ",
                most, " batches");
  uint64_t steps = options.evalSteps ? options.evalSteps : most;
  return std::optional(Evaluator(std::move(*batches), steps, options));
}

Result<std::optional<Evaluation>>
Evaluator::run(Executor &executor,
               const std::function<Result<bool>()> &interrupted) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point start = Clock::now();
  double sum = 0, tokens = 0;
  StepMetrics means = {}; // sums, until the end
  // Always from the first batch on. Its own step numbers: the run's are not
  // touched.
  for (uint64_t step = 1; step <= steps; ++step) {
    Result<bool> stops = interrupted();
    if (!stops.ok())
      return stops.status();
    if (*stops)
      return std::optional<Evaluation>();
    auto metrics =
        executor.runStep(step, batches, StepScalars(), StepScope::Evaluate);
    if (!metrics.ok())
      return fail(metrics.status().code(),
                  "evaluation: ", metrics.status().message());
    double count = at(*metrics, fb::Metric::TokenCount);
    if (count == 0) // as may be with weights, and the loss is none
      continue;
    sum += at(*metrics, fb::Metric::Loss) * count;
    tokens += count;
    for (size_t i = 0; i < means.size(); ++i)
      means[i] += (*metrics)[i] * float(count);
  }
  if (!(tokens > 0))
    return fail("evaluation: its ", steps, " steps count ", tokens,
                " tokens, and the loss is the mean over them");
  for (float &mean : means)
    mean /= float(tokens);
  std::chrono::duration<double> seconds = Clock::now() - start;
  return std::optional(
      Evaluation{sum / tokens, tokens, seconds.count(), means});
}
