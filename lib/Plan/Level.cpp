//===- Level.cpp - What a reader of a plan has to know --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Level.h"

#include "plait/Configuration/Compressors.h"
#include "plait/Configuration/Mesh.h"
#include "plait/Plan/Communicators.h"
#include "plait/Plan/Masters.h"
#include "plait/Plan/Scalars.h"

#include <algorithm>

using namespace plait;
using namespace plait::plan;

/// Whether `isRight` holds for an element of a list, which may be absent.
template <typename List, typename Predicate>
static bool any(const List *list, Predicate isRight) {
  return list && std::any_of(list->begin(), list->end(), isRight);
}

template <typename Predicate>
static bool anyStep(const fb::Plan &plan, Predicate isRight) {
  return any(plan.programs(), [&](const fb::Program *program) {
    return any(program->functions(), [&](const fb::Function *function) {
      return any(function->steps(), isRight);
    });
  });
}

static bool hasGroupedGemms(const fb::Plan &plan) {
  return anyStep(plan, [](const fb::Step *step) {
    return step->step_type() == fb::StepKind::GroupedGemmStep;
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

/// State that ranks divide by itself.
static bool hasDividedSlots(const fb::Plan &plan) {
  return any(plan.programs(), [](const fb::Program *program) {
    return any(program->shards(), [](const fb::Shard *shard) {
      return any(shard->state(), [](const fb::StateSlot *slot) {
        return slot->division() != nullptr;
      });
    });
  });
}

bool plan::addsToError(const fb::Plan &plan, const fb::Shard &shard) {
  return plan.zero() >= 2 && shard.division() &&
         any(shard.state(), [&](const fb::StateSlot *slot) {
           return slot->name()->string_view() == kErrorState &&
                  slot->offset() == shard.gradient();
         });
}

static bool addsToErrors(const fb::Plan &plan) {
  return any(plan.programs(), [&](const fb::Program *program) {
    return any(program->shards(), [&](const fb::Shard *shard) {
      return addsToError(plan, *shard);
    });
  });
}

/// State that each rank along an axis has of its own, though it splits values.
static bool keepsWhole(const fb::Plan &plan) {
  return any(plan.programs(), [](const fb::Program *program) {
    return any(program->shards(), [](const fb::Shard *shard) {
      return any(shard->state(), [&](const fb::StateSlot *slot) {
        return slot->own_axis() &&
               any(shard->dims(), [&](const fb::DimSharding *dim) {
                 return any(dim->axes(), [&](uint8_t axis) {
                   return axis == slot->own_axis();
                 });
               });
      });
    });
  });
}

static bool hasSettings(const fb::Plan &plan) { return plan.settings(); }
static bool isCompressed(const fb::Plan &plan) { return plan.compress(); }
static bool hasOptions(const fb::Plan &plan) { return plan.options(); }
static bool hasNamedLosses(const fb::Plan &plan) { return plan.named_losses(); }

static bool hasSites(const fb::Plan &plan) { return plan.outer(); }

static bool hasUnsaved(const fb::Plan &plan) {
  return any(plan.parameters(), [](const fb::Parameter *parameter) {
    return parameter->unsaved();
  });
}

/// Who does not know it writes tensors of the same elements.
static bool savesShapes(const fb::Plan &plan) {
  return any(plan.parameters(), [](const fb::Parameter *parameter) {
    return parameter->saved_shape() != nullptr;
  });
}

static bool hasFloatInputs(const fb::Plan &plan) { return plan.float_inputs(); }

static bool isDeterministic(const fb::Plan &plan) {
  return plan.deterministic();
}

/// Who does not know it feeds no order of the tokens.
static bool sortsTokens(const fb::Plan &plan) {
  return any(plan.programs(), [](const fb::Program *program) {
    return any(program->inputs(),
               [](const fb::Input *input) { return input->sorted() > 0; });
  });
}

/// Sites that exchange more than sums.
static bool hasExchanges(const fb::Plan &plan) {
  return plan.outer() && (plan.outer()->graph() || plan.outer()->drop());
}

/// Sites that exchange a fragment of their weights at a time.
static bool hasFragments(const fb::Plan &plan) {
  return plan.outer() && plan.outer()->fragments();
}

/// State that several axes divide by rows of packs.
static bool hasInnerAxes(const fb::Plan &plan) {
  return any(plan.programs(), [](const fb::Program *program) {
    return any(program->shards(), [](const fb::Shard *shard) {
      return shard->division() && shard->division()->inner_axes();
    });
  });
}

/// Sites that compress what they send.
static bool hasMessages(const fb::Plan &plan) {
  return plan.outer() && plan.outer()->graph() &&
         plan.outer()->graph()->string_view().starts_with("compress=");
}

/// Sites that are corrected, or keep what their weights were.
static bool hasCorrections(const fb::Plan &plan) {
  std::string_view scheme =
      plan.outer() ? plan.outer()->scheme()->string_view() : "";
  return scheme == "scaffold" || scheme == "tracking" || scheme == "awc";
}

/// Sites whose moves are scaled down.
static bool hasClipping(const fb::Plan &plan) {
  return plan.outer() && plan.outer()->radius() > 0;
}

static bool hasRates(const fb::Plan &plan) {
  return any(plan.parameters(), [](const fb::Parameter *parameter) {
    return parameter->rate() != 1;
  });
}

static bool hasOwnOptimizers(const fb::Plan &plan) {
  return any(plan.parameters(), [](const fb::Parameter *parameter) {
    return parameter->optimizer() != nullptr;
  });
}

/// A runtime that does not know it writes weights in f32 over those in bf16.
static bool hasRounded(const fb::Plan &plan) {
  return any(plan.programs(), [](const fb::Program *program) {
    return any(program->shards(),
               [](const fb::Shard *shard) { return isRounded(*shard); });
  });
}

/// Who does not know it leaves an option at its default that a run sets for all
/// optimizers.
static bool hasSharedOptions(const fb::Plan &plan) {
  return any(plan.options(), [](const fb::OptimizerOption *option) {
    return option->shared() != nullptr;
  });
}

/// Who does not know what an axis splits gives all of its ranks the same
/// sequences.
static bool hasLaterAxes(const fb::Plan &plan) {
  return any(plan.mesh(), [](const fb::MeshAxis *axis) {
    const AxisFacts *facts = findAxis(axis->name()->string_view());
    return facts && (facts->copiesState() || facts->splitsExperts);
  });
}

/// A window of positions on both sides.
static bool hasWindows(const fb::Plan &plan) {
  return anyStep(plan, [](const fb::Step *step) {
    const fb::AttentionStep *attention = step->step_as_AttentionStep();
    return attention && attention->window() && !attention->causal();
  });
}

static bool hasSoftCaps(const fb::Plan &plan) {
  return anyStep(plan, [](const fb::Step *step) {
    const fb::AttentionStep *attention = step->step_as_AttentionStep();
    return attention && attention->soft_cap() != 0;
  });
}

/// Who does not know that the trainer sets it has the first step each time.
static bool readsStep(const fb::Plan &plan) {
  return any(plan.options(), [](const fb::OptimizerOption *option) {
    return option->name()->string_view() == kStepOption;
  });
}

static bool hasSinks(const fb::Plan &plan) {
  return anyStep(plan, [](const fb::Step *step) {
    const fb::AttentionStep *attention = step->step_as_AttentionStep();
    return attention && attention->sinks();
  });
}

std::span<const Feature> plan::getFeatures() {
  static constexpr Feature features[] = {
      // Who does not know them loses nothing but what they say.
      {"Plan.settings", 0, hasSettings},
      {"Setting", 0, hasSettings},
      {"GroupedGemmStep", 1, hasGroupedGemms},
      {"StateSlot.own_axis", 1, hasOwnState},
      {"Plan.compress", 1, isCompressed},
      {"Plan.options", 1, hasOptions},
      {"OptimizerOption", 1, hasOptions},
      {"Plan.named_losses", 1, hasNamedLosses},
      {"Parameter.rate", 2, hasRates},
      {"AttentionStep.window", 2, hasWindows},
      {"Plan.outer", 2, hasSites},
      {"OuterRule", 2, hasSites},
      {"OuterStep", 2, hasSites},
      {"OuterKind", 2, hasSites},
      {"Plan.lists", 2, hasSites},
      {"ActionList", 2, hasSites},
      {"Action.list", 2, hasSites},
      {"ActionKind.Outer", 2, hasSites},
      {"StateSlot.like_weight", 2, hasSites},
      {"StateSlot.from_weight", 2, hasSites},
      {"Parameter.saved_shape", 3, savesShapes},
      {"Plan.float_inputs", 3, hasFloatInputs},
      {"FloatInput", 3, hasFloatInputs},
      {"Input.float_input", 3, hasFloatInputs},
      {"InputKind.Features", 3, hasFloatInputs},
      {"InputKind.Context", 3, hasFloatInputs},
      {"MeshAxis.name", 3, hasLaterAxes},
      {"OuterRule.drop", 3, hasExchanges},
      {"OuterRule.average", 3, hasExchanges},
      {"OuterRule.graph", 3, hasExchanges},
      {"OuterRule.mixings", 3, hasExchanges},
      {"Mixing", 3, hasExchanges},
      {"SiteExchange", 3, hasExchanges},
      {"OuterStep.others", 3, hasExchanges},
      {"OuterStep.mixed", 3, hasExchanges},
      {"OuterStep.exchange", 3, hasExchanges},
      {"OuterKind.Mix", 3, hasExchanges},
      {"OuterKind.Take", 3, hasExchanges},
      {"OuterKind.Middle", 3, hasExchanges},
      {"Action.exchange", 3, hasExchanges},
      {"ActionList.phase", 3, hasExchanges},
      {"ActionList.except", 3, hasExchanges},
      {"ActionList.mixing", 3, hasExchanges},
      {"AttentionStep.soft_cap", 4, hasSoftCaps},
      {"AttentionStep.sinks", 4, hasSinks},
      {"CollectiveStep.rows", 5, exchangesRows},
      {"RowSelection", 5, exchangesRows},
      {"OuterRule.fragments", 4, hasFragments},
      {"OuterRule.delay", 4, hasFragments},
      {"OuterRule.mix", 4, hasFragments},
      {"OuterKind.Part", 4, hasFragments},
      {"OuterKind.Blend", 4, hasFragments},
      {"Division.inner_axes", 5, hasInnerAxes},
      {"OptimizerOption.name", 5, readsStep},
      {"OuterStep.error", 5, hasMessages},
      {"OuterStep.words", 5, hasMessages},
      {"OuterStep.pieces", 5, hasMessages},
      {"OuterKind.Encode", 5, hasMessages},
      {"OuterKind.Decode", 5, hasMessages},
      {"OuterStep.correction", 5, hasCorrections},
      {"OuterKind.Correct", 5, hasCorrections},
      {"OuterKind.Learn", 5, hasCorrections},
      {"OuterKind.Join", 5, hasCorrections},
      {"OuterKind.Keep", 5, hasCorrections},
      {"Plan.deterministic", 6, isDeterministic},
      {"Parameter.unsaved", 7, hasUnsaved},
      {"Input.sorted", 7, sortsTokens},
      {"StateSlot.division", 8, hasDividedSlots},
      {"OuterRule.radius", 8, hasClipping},
      {"OuterStep.copies", 8, hasClipping},
      {"OuterKind.Squares", 8, hasClipping},
      {"OuterKind.Clip", 8, hasClipping},
      {"Shard.gradient", 9, addsToErrors},
      {"Shard.dims", 10, keepsWhole},
      {"Parameter.optimizer", 11, hasOwnOptimizers},
      {"OptimizerOption.shared", 11, hasSharedOptions},
      {"Shard.weight", 12, hasRounded},
  };
  return features;
}

uint32_t plan::getFormatLevel() {
  return std::ranges::max(getFeatures(), {}, &Feature::level).level;
}

uint32_t plan::getLevel(const fb::Plan &plan) {
  uint32_t level = 0;
  for (const Feature &feature : getFeatures())
    if (feature.level > level && feature.isUsed(plan))
      level = feature.level;
  return level;
}
