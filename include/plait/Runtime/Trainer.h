//===- Trainer.h - The training loop and the comparison ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What plait-run does, without its command line.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_TRAINER_H
#define PLAIT_RUNTIME_TRAINER_H

#include "plait/Runtime/Executor.h"
#include "plait/Support/Status.h"

#include <cstdint>
#include <string>

namespace plait::runtime {

struct TrainOptions {
  std::string weights; // empty: from the initialisers and the seed
  std::string tokens;  // one of tokens and text is set, except for check()
  std::string text;
  std::string log;  // empty: none
  std::string save; // empty: do not save
  uint64_t steps = 20;
  uint64_t seed = 0;
  bool shuffle = false;
  double learningRate = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weightDecay = 0.01;
  double gradClip = 1.0; // 0: no clipping
  ExecutorOptions executor;
};

/// Trains for `steps` steps. Writes one JSON object a step to the log, progress
/// to stderr when that is a terminal, and a summary to stdout; of several
/// processes, that of rank 0 does. Fails as soon as the loss is not a finite
/// number.
Status train(const fb::Plan &plan, const TrainOptions &options);

/// Runs one step of the plan and of its reference plan from the same weights on
/// the same data with a learning rate of 0, prints how the gradients differ,
/// worst first, and fails when the loss differs by more than 1e-5 or a gradient
/// by more than 1e-4, both relative (plans in bf16: 2^-12 and 2^-5). Without
/// data it draws random tokens. Of several processes, that of rank 0 runs the
/// reference, compares and prints; all return the same verdict.
Status check(const fb::Plan &plan, const TrainOptions &options);

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_TRAINER_H
