//===- Controls.cpp - Controls of a training loop -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The inputs of a step that change from step to step, and what follows from the
// metrics that come back. Everything is computed from options, counters and
// metrics that all processes have alike, so that all of them decide the same
// without asking each other.
//
//===----------------------------------------------------------------------===//

#include "Controls.h"

#include "plait/Plan/Scalars.h"

#include <cmath>
#include <numeric>

using namespace plait;
using namespace plait::runtime;

/// Steps that may be skipped one after the other: beyond, it is not the data
/// that is bad.
constexpr uint64_t mostSkipped = 10;

/// Returns the entry with the number that the plan's schema gives the scalar.
static float &entry(StepScalars &scalars, fb::Scalar index) {
  return scalars[static_cast<size_t>(index)];
}

/// The order is that of causes: without tokens the loss is not a number.
Status runtime::checkMetrics(const StepMetrics &metrics) {
  if (double count = at(metrics, fb::Metric::TokenCount); !(count > 0))
    return fail("the step counts ", count,
                " tokens, and the loss is the mean over them");
  if (double loss = at(metrics, fb::Metric::Loss); !std::isfinite(loss))
    return fail("the loss is ", loss);
  if (double norm = at(metrics, fb::Metric::GradNorm); !std::isfinite(norm))
    return fail("the gradient norm is ", norm);
  return Status::success();
}

Result<Controls> Controls::create(const TrainOptions &options,
                                  std::vector<PlanOption> optimizer) {
  Result<LearningRate> rate = LearningRate::create(options);
  if (!rate.ok())
    return rate.status();
  for (const PlanOption &option : optimizer)
    // False of a NaN too.
    if (double value = option.choose(options);
        !(value >= option.least && value <= option.most))
      return fail("`", option.name, "` is ", value, ", the plan takes ",
                  option.least, " to ", option.most);
  return Controls(options, std::move(optimizer), *rate);
}

/// The rate follows steps, and the bias corrections follow updates: a step that
/// was skipped has left the optimizer's moments as they were.
StepScalars Controls::scalars(const RunState &state) const {
  StepScalars scalars = {};
  double power = static_cast<double>(state.updates + 1);
  entry(scalars, fb::Scalar::LearningRate) =
      float(learningRate(state.step + 1));
  entry(scalars, fb::Scalar::MaxGradNorm) = float(options->gradClip);
  for (const PlanOption &option : optimizer) {
    double value = option.name == plan::kStepOption
                       ? double((state.step + 1) % plan::kMostStepNumber)
                       : option.choose(*options);
    scalars[option.scalar] = float(value);
    // In double: 1 - beta^t cancels in the first steps.
    if (option.correction)
      scalars[option.correction] = float(1.0 - std::pow(value, power));
  }
  return scalars;
}

/// 1. A good step ends a row of skipped ones, and is held against the losses
///    before it.
/// 2. One whose loss or norm is not finite is rolled back or skipped where the
///    options say so; one without tokens ends the run.
/// 3. Too many skipped steps in a row end it as well.
Result<Verdict> Controls::judge(uint64_t step, const StepMetrics &metrics) {
  Status status = checkMetrics(metrics);
  // 1.
  if (status.ok()) {
    skippedInARow = 0;
    return judgeLoss(step, at(metrics, fb::Metric::Loss));
  }
  std::string text = fail("step ", step, ": ", status.message()).message();
  // 2.
  bool isCounted = at(metrics, fb::Metric::TokenCount) > 0;
  bool mayGoOn = !isFinite(metrics) && isCounted;
  if (mayGoOn && options->onNonFinite == NonFinitePolicy::RollBack)
    return Verdict{.rollsBack = true, .warning = text};
  if (!mayGoOn || options->onNonFinite == NonFinitePolicy::Stop)
    return fail(text, step > 1 && isCounted ? "; try a lower `lr`" : "");
  // 3.
  if (++skippedInARow > mostSkipped)
    return fail(text, ", and ", mostSkipped, " steps before it were skipped");
  return Verdict{.skipped = true, .warning = text + ", the step is skipped"};
}

/// Holds the loss against those before it.
/// Against mean and standard deviation of a window of losses. Until the window
/// is full nothing is a spike: the first losses fall steeply. A spike that is
/// only warned of is a part of the next window.
Result<Verdict> Controls::judgeLoss(uint64_t step, double loss) {
  if (options->onSpike == SpikePolicy::Ignore)
    return Verdict();
  Verdict verdict;
  if (losses.size() == options->spikeSteps) {
    double count = double(losses.size());
    double mean = std::accumulate(losses.begin(), losses.end(), 0.0) / count;
    double squares = 0;
    for (double one : losses)
      squares += (one - mean) * (one - mean);
    double deviation = std::sqrt(squares / count);
    if (loss > mean + options->spikeDeviations * deviation) {
      verdict.warning = fail("step ", step, ": the loss is ", loss,
                             ", more than ", options->spikeDeviations,
                             " deviations of ", deviation, " above ", mean,
                             ", the mean of the last ", losses.size(), " steps")
                            .message();
      if (options->onSpike == SpikePolicy::Stop)
        return Status::failure(verdict.warning);
      verdict.rollsBack = options->onSpike == SpikePolicy::RollBack;
      if (verdict.rollsBack)
        return verdict; // later ones are not held against it
    }
    losses.pop_front();
  }
  losses.push_back(loss);
  return verdict;
}
