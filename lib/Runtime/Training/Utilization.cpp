//===- Utilization.cpp - How much of its devices a run uses ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Utilization.h"

#include "plait/Plan/Ranks.h"

#include <cstdio>

using namespace plait;
using namespace plait::runtime;

Utilization::Utilization(const plan::fb::Plan &plan)
    : flops(plan.model_flops()) {
  if (plan.cluster())
    peak = plan.cluster()->peak_flops() * plan::Mesh(plan).ranks();
}

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
