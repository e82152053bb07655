//===- Utilization.cpp - Utilization of devices ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// FLOP/s and MFU (model FLOPs utilization; Chowdhery et al. 2022, "PaLM",
// appendix B) from the model's operations in a step, which the plan has, and
// the peak of the cluster's devices. Recomputation does not count as work done.
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Utilization.h"

#include "plait/Plan/Ranks.h"

#include <cstdio>

using namespace plait;
using namespace plait::runtime;

/// A plan without a cluster has no peak, and so no MFU.
Utilization::Utilization(const plan::fb::Plan &plan)
    : flops(plan.model_flops()) {
  if (plan.cluster())
    peak = plan.cluster()->peak_flops() * plan::RankGrid(plan).ranks();
}

/// Prints in the largest unit that leaves at least one before the point, or in
/// GFLOP/s.
std::string Utilization::print(double seconds) const {
  if (flops <= 0)
    return "";
  constexpr std::pair<double, const char *> scales[] = {
      {1e18, "EFLOP/s"}, {1e15, "PFLOP/s"}, {1e12, "TFLOP/s"}};
  double scale = 1e9;
  const char *unit = "GFLOP/s";
  for (auto [above, name] : scales)
    if (rate(seconds) >= above) {
      scale = above;
      unit = name;
      break;
    }
  char text[96];
  int end = std::snprintf(text, sizeof(text), ", %.1f %s",
                          rate(seconds) / scale, unit);
  if (peak > 0)
    std::snprintf(text + end, sizeof(text) - size_t(end), ", MFU %.1f %%",
                  100 * mfu(seconds));
  return text;
}

/// The same as fields of a JSON object, each with a comma before it; FLOP/s in
/// full.
std::string Utilization::printFields(double seconds) const {
  if (flops <= 0)
    return "";
  char text[96];
  int end = std::snprintf(text, sizeof(text),
                          ", \"model_flops_per_second\": %.9g", rate(seconds));
  if (peak > 0)
    std::snprintf(text + end, sizeof(text) - size_t(end), ", \"mfu\": %.9g",
                  mfu(seconds));
  return text;
}
