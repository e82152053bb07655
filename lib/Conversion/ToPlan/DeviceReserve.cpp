//===- DeviceReserve.cpp - What a GPU needs beside its arena --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What counts communicators reads files. So it gets one with nothing but what
// ranks exchange, which is small where the plan may not be.
//
//===----------------------------------------------------------------------===//

#include "DeviceReserve.h"

#include "plait/Plan/Communicators.h"
#include "plait/Plan/Container.h"

using namespace plait;
using namespace plait::plan;

/// Copies what ranks of `plan` exchange.
static fb::PlanT copyExchanges(const fb::PlanT &plan) {
  fb::PlanT copy;
  for (const auto &axis : plan.mesh)
    copy.mesh.push_back(std::make_unique<fb::MeshAxisT>(*axis));
  for (const auto &program : plan.programs) {
    auto &made = copy.programs.emplace_back(std::make_unique<fb::ProgramT>());
    auto &function =
        made->functions.emplace_back(std::make_unique<fb::FunctionT>());
    for (const auto &other : program->functions)
      for (const auto &step : other->steps)
        if (step->step.AsCollectiveStep())
          function->steps.push_back(std::make_unique<fb::StepT>(*step));
    for (const auto &action : program->actions)
      made->actions.push_back(std::make_unique<fb::ActionT>(*action));
  }
  return copy;
}

/// Messages that do not match are for the checker to tell of.
uint64_t plait::findReserve(const fb::PlanT &plan, uint64_t reserved) {
  std::vector<uint8_t> packed = packPlan(copyExchanges(plan));
  const fb::Plan &copy = *fb::GetPlan(packed.data());
  Result<std::vector<Message>> messages = matchMessages(copy);
  return messages.ok()
             ? getReserve(reserved, countCommunicators(copy, *messages))
             : reserved;
}
