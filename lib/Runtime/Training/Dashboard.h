//===- Dashboard.h - A run as a page ----------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_DASHBOARD_H
#define PLAIT_LIB_RUNTIME_TRAINING_DASHBOARD_H

#include "Curve.h"
#include "plait/Runtime/Observer.h"

#include <nlohmann/json.hpp>

#include <chrono>
#include <string>

namespace plait::runtime {

/// An HTML file that needs nothing else: curves, memory, settings. It is
/// replaced as a whole, at most once in two seconds, and a browser that shows
/// it loads it again while the run goes on. A run that is resumed goes on with
/// the curves that are there.
class Dashboard : public Observer {
public:
  explicit Dashboard(std::string path) : path(std::move(path)) {}

  Status beginRun(const RunInfo &run) override;
  Status endStep(const StepReport &step) override;
  Status endRun(const RunState &state, const Status &outcome) override;

private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds interval{2};

  /// `outcome` is what the page says of the run.
  Status write(const std::string &outcome);
  void takeOver();

  std::string path;
  const RunInfo *run = nullptr;
  Clock::time_point start, written, described;
  uint64_t last = 0;  // step
  double earlier = 0; // seconds that the run took before it was resumed
  // Loss, gradient norm, learning rate, tokens/s, MFU, resident bytes.
  Curve<6> steps;
  Curve<1> evaluations; // loss
  // Of a recent watched step; null before the first one.
  nlohmann::ordered_json timeline, ranks;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_DASHBOARD_H
