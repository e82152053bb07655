//===- Check.cpp - Proves a plan sound ------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The parts in their order: each relies on what those before it have shown.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Check.h"

#include "plait/Plan/Defaults.h"
#include "plait/Plan/Ranks.h"
#include "plait/Plan/Sites.h"

#include <tuple>
#include <vector>

using namespace plait;
using namespace plait::plan;

/// Only GPUs send in a way that can make ranks wait in a circle.
static Status checkOne(const fb::Plan &plan) {
  PLAIT_RETURN_IF_ERROR(checkStructure(plan));
  PLAIT_RETURN_IF_ERROR(checkMemory(plan));
  PLAIT_RETURN_IF_ERROR(checkCommunication(plan));
  if (isCuda(plan))
    PLAIT_RETURN_IF_ERROR(checkProgress(plan, LaunchOrder::Routes));
  PLAIT_RETURN_IF_ERROR(checkNumbers(plan));
  return checkSites(plan);
}

/// Collects what a parameter is, but for where ranks have it.
static auto describe(const fb::Parameter &parameter) {
  auto list = [](const flatbuffers::Vector<int64_t> &sizes) {
    return std::vector<int64_t>(sizes.begin(), sizes.end());
  };
  return std::tuple(parameter.name()->str(), list(*parameter.shape()),
                    parameter.file_name()->str(), list(*parameter.file_shape()),
                    list(*parameter.box_begin()), list(*parameter.box_shape()),
                    parameter.init(), parameter.init_value(),
                    parameter.init_std(), parameter.frozen(), parameter.rate(),
                    parameter.unsaved());
}

/// The reference must be comparable: one rank, the same model and batch, the
/// same parameters under the same numbers.
static Status checkReference(const fb::Plan &plan, const fb::Plan &reference) {
  // References do not nest: depth is bounded here.
  PLAIT_RETURN_IF_ERROR(checkOne(reference));
  if (reference.reference())
    return fail("has a reference of its own");
  if (uint32_t ranks = RankGrid(reference).ranks(); ranks != 1)
    return fail("runs on ", ranks, " ranks, not on 1");
  if (reference.global_batch() != plan.global_batch() ||
      reference.sequence() != plan.sequence())
    return fail("has batches of ", reference.global_batch(), " x ",
                reference.sequence(), ", the plan ", plan.global_batch(), " x ",
                plan.sequence());
  if (reference.vocab_size() != plan.vocab_size())
    return fail("has a vocabulary of ", reference.vocab_size(),
                ", the plan of ", plan.vocab_size());
  // What differs between both is then rounding and order alone.
  if (precisionOf(reference) != precisionOf(plan))
    return fail("computes in ", precisionOf(reference), ", the plan in ",
                precisionOf(plan));
  if (reducePrecisionOf(reference) != reducePrecisionOf(plan))
    return fail("rounds gradients to ", reducePrecisionOf(reference),
                ", the plan to ", reducePrecisionOf(plan));
  if (reference.parameters()->size() != plan.parameters()->size())
    return fail("has ", reference.parameters()->size(),
                " parameters, the plan ", plan.parameters()->size());
  // A comparison of both goes by number.
  for (uint32_t i = 0; i < plan.parameters()->size(); ++i)
    if (reference.parameters()->Get(i)->name()->str() !=
        plan.parameters()->Get(i)->name()->str())
      return fail("parameter ", i, " is '",
                  reference.parameters()->Get(i)->name()->str(),
                  "', in the plan '", plan.parameters()->Get(i)->name()->str(),
                  "'");
  for (uint32_t i = 0; i < plan.parameters()->size(); ++i)
    if (describe(*reference.parameters()->Get(i)) !=
        describe(*plan.parameters()->Get(i)))
      return fail("has another shape, initialiser or place in files for '",
                  plan.parameters()->Get(i)->name()->str(), "'");
  return Status::success();
}

/// The reference is a whole plan inside the plan, and has to be as sound; its
/// payload was verified together with the outer one.
Status plan::checkPlan(const fb::Plan &plan) {
  PLAIT_RETURN_IF_ERROR(checkOne(plan));
  if (!plan.reference())
    return Status::success();
  Status status = checkReference(plan, *plan.reference_nested_root());
  return status.ok() ? status : fail("reference plan: ", status.message());
}
