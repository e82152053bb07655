//===- TrainSteps.h - A few steps of a plan ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_RUNTIME_TRAINSTEPS_H
#define PLAIT_TEST_UNIT_RUNTIME_TRAINSTEPS_H

#include "plait/Runtime/Executor.h"

#include <vector>

namespace plait::test {

/// The metrics of three steps on random tokens, from the weights that there
/// are.
inline Result<std::vector<runtime::StepMetrics>>
trainThreeSteps(runtime::Executor &executor, const plan::fb::Plan &plan) {
  auto batches = runtime::Batches::random(5, plan);
  if (!batches.ok())
    return batches.status();
  std::vector<runtime::StepMetrics> all;
  runtime::StepScalars scalars = {1e-3f, 0.9f, 0.999f, 1e-8f,
                                  0.01f, 1.0f, 0,      0};
  float decay1 = 1, decay2 = 1;
  for (uint64_t step = 1; step <= 3; ++step) {
    scalars[6] = 1 - (decay1 *= 0.9f);
    scalars[7] = 1 - (decay2 *= 0.999f);
    auto metrics = executor.runStep(step, *batches, scalars);
    if (!metrics.ok())
      return metrics.status();
    all.push_back(*metrics);
  }
  return all;
}

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_RUNTIME_TRAINSTEPS_H
