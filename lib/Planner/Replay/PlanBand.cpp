//===- PlanBand.cpp - Bands of plait's own plans --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The planner's question, asked of a compiled plan.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/PlanBand.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Ranks.h"

using namespace plait;
using namespace plait::planner;
namespace fb = plait::plan::fb;

/// Parts that nobody has measured widen the band.
BandQuestion planner::askBand(std::string_view program, const Device &device,
                              int64_t ranks, bool offloads, bool hasExperts) {
  BandQuestion question{program, device.target, ranks};
  if (offloads)
    question.unmeasured.push_back("CPU offload");
  if (hasExperts)
    question.unmeasured.push_back("experts");
  if (program == "plait" && ranks > 1)
    question.unmeasured.push_back("several GPUs of plait");
  return question;
}

/// Whether rows are multiplied with the matrices of experts.
static bool hasExperts(const fb::Plan &plan) {
  for (const fb::Program *program : *plan.programs())
    for (uint32_t f = 0; f < plan::length(program->functions()); ++f) {
      const auto *steps = program->functions()->Get(f)->steps();
      for (uint32_t i = 0; i < plan::length(steps); ++i)
        if (steps->Get(i)->step_as_GroupedGemmStep())
          return true;
    }
  return false;
}

std::optional<Band> planner::getBand(const fb::Plan &plan,
                                     const Cluster &cluster) {
  if (cluster.device.isProcessor)
    return std::nullopt;
  return getBand(askBand("plait", cluster.device, plan::RankGrid(plan).ranks(),
                         /*offloads=*/plan.offload() != nullptr,
                         hasExperts(plan)));
}

std::string planner::describeBasis(const Band &band) {
  std::string text = band.basis;
  for (const std::string &part : band.unmeasured)
    text += (&part == &band.unmeasured.front()
                 ? "; nobody has measured "
                 : (&part == &band.unmeasured.back() ? " and " : ", ")) +
            part;
  return text;
}
