//===- Controls.cpp - What steers the steps of a run ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Controls.h"

#include <cmath>

using namespace plait;
using namespace plait::runtime;

static float &entry(StepScalars &scalars, fb::Scalar index) {
  return scalars[static_cast<size_t>(index)];
}

StepScalars Controls::scalars(uint64_t step) const {
  StepScalars scalars = {};
  double power = static_cast<double>(step);
  entry(scalars, fb::Scalar::LearningRate) = float(learningRate(step));
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

Status Controls::judge(uint64_t step, const StepMetrics &metrics) const {
  Status status = checkMetrics(metrics);
  if (status.ok())
    return status;
  return fail("step ", step, ": ", status.message(),
              step > 1 ? "; try a lower --lr" : "");
}
