//===- Level.cpp - What a reader of a plan has to know --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Level.h"

#include <algorithm>

using namespace plait;
using namespace plait::plan;

/// Whether `isRight` holds for an element of a list, which may be absent.
template <typename List, typename Predicate>
static bool any(const List *list, Predicate isRight) {
  return list && std::any_of(list->begin(), list->end(), isRight);
}

static bool hasGroupedGemms(const fb::Plan &plan) {
  return any(plan.programs(), [](const fb::Program *program) {
    return any(program->functions(), [](const fb::Function *function) {
      return any(function->steps(), [](const fb::Step *step) {
        return step->step_type() == fb::StepKind::GroupedGemmStep;
      });
    });
  });
}

static bool hasOwnState(const fb::Plan &plan) {
  return any(plan.programs(), [](const fb::Program *program) {
    return any(program->shards(), [](const fb::Shard *shard) {
      return any(shard->state(), [](const fb::StateSlot *slot) {
        return slot->own_axis() > 0;
      });
    });
  });
}

static bool isCompressed(const fb::Plan &plan) { return plan.compress(); }
static bool hasOptions(const fb::Plan &plan) { return plan.options(); }
static bool hasNamedLosses(const fb::Plan &plan) { return plan.named_losses(); }

std::span<const Feature> plan::getFeatures() {
  static constexpr Feature features[] = {
      {"GroupedGemmStep", 1, hasGroupedGemms},
      {"StateSlot.own_axis", 1, hasOwnState},
      {"Plan.compress", 1, isCompressed},
      {"Plan.options", 1, hasOptions},
      {"OptimizerOption", 1, hasOptions},
      {"Plan.named_losses", 1, hasNamedLosses},
  };
  return features;
}

uint32_t plan::getLevel(const fb::Plan &plan) {
  uint32_t level = 0;
  for (const Feature &feature : getFeatures())
    if (feature.level > level && feature.isUsed(plan))
      level = feature.level;
  return level;
}
