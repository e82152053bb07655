//===- LearningRate.h - The learning rate of a step -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With p the peak, m the least rate, W the warm-up's steps and T those of the
// schedule, the rate of step n (from 1) is, for s = n - 1 < W,
//   p s / W
// and from then on
//   m + (p - m) f(x),  x = (s - W) / (T - W), at most 1
// where f(x) is 1 (constant), 1 - x (linear) or (1 + cos(pi x)) / 2 (cosine).
// WSD (Hu et al. 2024, "MiniCPM") stays at p until the last T steps of the run,
// and then f is the cosine of x = (s - steps + T) / T.
//
// These are get_constant_schedule_with_warmup,
// get_polynomial_decay_schedule_with_warmup with power 1 (with m = 0
// get_linear_schedule_with_warmup), get_cosine_with_min_lr_schedule_with_warmup
// and get_wsd_schedule of Hugging Face transformers, but that a rate stays
// at m where the cosine would rise again, and that every warm-up begins at 0.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_LEARNINGRATE_H
#define PLAIT_LIB_RUNTIME_TRAINING_LEARNINGRATE_H

#include "plait/Runtime/Trainer.h"

namespace plait::runtime {

class LearningRate {
public:
  /// Fails where the options contradict each other.
  static Result<LearningRate> create(const TrainOptions &options);

  /// TrainOptions::decaySteps, or what they are where nobody says so; nothing
  /// where the rate does not decay.
  static std::optional<uint64_t> decaySteps(const TrainOptions &options);

  /// Takes the options' steps when they have changed on the way, as those of an
  /// epoch do where batches are left out. Too few of them for warm-up and decay
  /// are no failure any more: the decay has those that are left.
  void follow(const TrainOptions &options);

  /// Returns the rate of step `step`, from 1.
  double at(uint64_t step) const;

private:
  /// The part of the peak that is left when `progress`, in [0, 1], of the decay
  /// is over.
  using Decay = double (*)(double progress);

  LearningRate() = default;

  double peak = 0, least = 0;
  uint64_t warmup = 0;
  // Steps done when the decay begins and when it is over.
  uint64_t begin = 0, end = 0;
  Decay decay = nullptr;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_LEARNINGRATE_H
