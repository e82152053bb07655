//===- LevelTest.cpp - What a reader of a plan has to know ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Level.h"

#include "plait/Plan/Container.h"

#include "TestPlan.h"

#include <gtest/gtest.h>
#include <map>

using namespace plait;
using namespace plait::test;

namespace {

uint32_t getLevel(const fb::PlanT &plan) {
  return plan::getLevel(*fb::GetPlan(plan::packPlan(plan).data()));
}

using Add = void (*)(fb::PlanT &);

void addGroupedGemm(fb::PlanT &plan) {
  append(plan.programs[0]->functions[0]->steps)
      .step.Set(fb::GroupedGemmStepT());
}

void addOwnState(fb::PlanT &plan) {
  fb::StateSlotT &slot = append(plan.programs[0]->shards[0]->state);
  slot.name = "error";
  slot.own_axis = 3; // splits no values
}

void addDividedSlot(fb::PlanT &plan) {
  fb::StateSlotT &slot = append(plan.programs[0]->shards[0]->state);
  slot.name = "sum_error";
  slot.division = std::make_unique<fb::DivisionT>();
}

void addToError(fb::PlanT &plan) {
  fb::ShardT &shard = *plan.programs[0]->shards[0];
  fb::StateSlotT &slot = append(shard.state);
  slot.name = "error";
  slot.offset = shard.gradient;
  shard.division = std::make_unique<fb::DivisionT>();
  plan.zero = 2;
}

void addWholeState(fb::PlanT &plan) {
  addOwnState(plan);
  append(plan.programs[0]->shards[0]->dims).axes = {3};
}

void addInnerAxes(fb::PlanT &plan) {
  fb::ShardT &shard = *plan.programs[0]->shards[0];
  shard.division = std::make_unique<fb::DivisionT>();
  shard.division->inner_axes = {1};
}

void addOption(fb::PlanT &plan) { append(plan.options).name = "beta1"; }

void addSharedOption(fb::PlanT &plan) {
  addOption(plan);
  plan.options.back()->shared = "beta1";
}

void addRule(fb::PlanT &plan) {
  plan.outer = std::make_unique<fb::OuterRuleT>();
  plan.outer->scheme = "average";
}

void addSetting(fb::PlanT &plan) {
  fb::SettingT &setting = append(plan.settings);
  setting.name = "zero";
  setting.value = "1";
}

void addFloats(fb::PlanT &plan) { append(plan.float_inputs).name = "x"; }

void addRounded(fb::PlanT &plan) {
  fb::ShardT &shard = *plan.programs[0]->shards[0];
  shard.compute_dtype = fb::DType::BF16;
  shard.compute_weight = shard.weight;
}

void addSavedShape(fb::PlanT &plan) { plan.parameters[0]->saved_shape = {1}; }

void addGraph(fb::PlanT &plan) {
  addRule(plan);
  plan.outer->graph = "ring";
}

void addDrop(fb::PlanT &plan) {
  addRule(plan);
  plan.outer->drop = 1;
}

void addFragments(fb::PlanT &plan) {
  addRule(plan);
  plan.outer->fragments = 2;
}

void addMessages(fb::PlanT &plan) {
  addRule(plan);
  plan.outer->graph = "compress=int8,chunk=256,decay=1";
}

void addCorrections(fb::PlanT &plan) {
  addRule(plan);
  plan.outer->scheme = "scaffold";
}

void addRadius(fb::PlanT &plan) {
  addRule(plan);
  plan.outer->radius = 1;
}

void addWindow(fb::PlanT &plan) {
  fb::AttentionStepT attention;
  attention.window = 8;
  append(plan.programs[0]->functions[0]->steps).step.Set(attention);
}

void addSoftCap(fb::PlanT &plan) {
  fb::AttentionStepT attention;
  attention.soft_cap = 50;
  append(plan.programs[0]->functions[0]->steps).step.Set(attention);
}

void addSinks(fb::PlanT &plan) {
  fb::AttentionStepT attention;
  attention.sinks = std::make_unique<fb::Ref>(0, -1);
  append(plan.programs[0]->functions[0]->steps).step.Set(attention);
}

void addRows(fb::PlanT &plan) {
  fb::CollectiveStepT gather;
  gather.rows = std::make_unique<fb::RowSelectionT>();
  append(plan.programs[0]->functions[0]->steps).step.Set(std::move(gather));
}

/// How a plan comes to have each feature, and no other that is not listed with
/// it.
const std::map<std::string, Add> additions = {
    {"GroupedGemmStep", addGroupedGemm},
    {"StateSlot.own_axis", addOwnState},
    {"StateSlot.division", addDividedSlot},
    {"Shard.gradient", addToError},
    {"Shard.dims", addWholeState},
    {"Plan.compress", [](fb::PlanT &plan) { plan.compress = "int8:128"; }},
    {"Plan.options", addOption},
    {"OptimizerOption", addOption},
    {"Plan.named_losses", [](fb::PlanT &plan) { plan.named_losses = {"z"}; }},
    {"Parameter.rate", [](fb::PlanT &plan) { plan.parameters[0]->rate = 2; }},
    {"AttentionStep.window", addWindow},
    {"Plan.outer", addRule},
    {"OuterRule", addRule},
    {"OuterStep", addRule},
    {"OuterKind", addRule},
    {"Input.sorted",
     [](fb::PlanT &plan) { append(plan.programs[0]->inputs).sorted = 1; }},
    {"Plan.lists", addRule},
    {"ActionList", addRule},
    {"Action.list", addRule},
    {"ActionKind.Outer", addRule},
    {"StateSlot.like_weight", addRule},
    {"StateSlot.from_weight", addRule},
    {"Parameter.saved_shape", addSavedShape},
    {"Plan.float_inputs", addFloats},
    {"Shard.weight", addRounded},
    {"FloatInput", addFloats},
    {"Input.float_input", addFloats},
    {"InputKind.Features", addFloats},
    {"InputKind.Context", addFloats},
    {"MeshAxis.name",
     [](fb::PlanT &plan) { append(plan.mesh).name = "replicate"; }},
    {"OuterRule.drop", addDrop},
    {"OuterRule.average", addGraph},
    {"OuterRule.graph", addGraph},
    {"OuterRule.mixings", addGraph},
    {"Mixing", addGraph},
    {"SiteExchange", addGraph},
    {"OuterStep.others", addGraph},
    {"OuterStep.mixed", addGraph},
    {"OuterStep.exchange", addGraph},
    {"OuterKind.Mix", addGraph},
    {"OuterKind.Take", addGraph},
    {"OuterKind.Middle", addDrop},
    {"Action.exchange", addGraph},
    {"ActionList.phase", addGraph},
    {"ActionList.except", addGraph},
    {"ActionList.mixing", addGraph},
    {"Plan.settings", addSetting},
    {"Setting", addSetting},
    {"CollectiveStep.rows", addRows},
    {"RowSelection", addRows},
    {"OuterRule.fragments", addFragments},
    {"OuterRule.delay", addFragments},
    {"OuterRule.mix", addFragments},
    {"OuterKind.Part", addFragments},
    {"OuterKind.Blend", addFragments},
    {"OuterStep.correction", addCorrections},
    {"OuterKind.Correct", addCorrections},
    {"OuterKind.Learn", addCorrections},
    {"OuterKind.Join", addCorrections},
    {"OuterKind.Keep", addCorrections},
    {"AttentionStep.soft_cap", addSoftCap},
    {"AttentionStep.sinks", addSinks},
    {"Division.inner_axes", addInnerAxes},
    {"OptimizerOption.name",
     [](fb::PlanT &plan) { append(plan.options).name = "step"; }},
    {"OuterStep.error", addMessages},
    {"OuterStep.words", addMessages},
    {"OuterStep.pieces", addMessages},
    {"OuterKind.Encode", addMessages},
    {"OuterKind.Decode", addMessages},
    {"OuterRule.radius", addRadius},
    {"OuterStep.copies", addRadius},
    {"OuterKind.Squares", addRadius},
    {"OuterKind.Clip", addRadius},
    {"Plan.deterministic", [](fb::PlanT &plan) { plan.deterministic = true; }},
    {"Parameter.optimizer",
     [](fb::PlanT &plan) { plan.parameters[0]->optimizer = "lion"; }},
    {"OptimizerOption.shared", addSharedOption},
    {"Parameter.unsaved",
     [](fb::PlanT &plan) { plan.parameters[0]->unsaved = true; }}};

TEST(Level, IsZeroWithoutFeatures) { EXPECT_EQ(getLevel(makePlan()), 0u); }

TEST(Level, IsThatOfEachFeature) {
  EXPECT_EQ(additions.size(), plan::getFeatures().size());
  for (const plan::Feature &feature : plan::getFeatures()) {
    SCOPED_TRACE(feature.name);
    ASSERT_TRUE(additions.contains(feature.name));
    fb::PlanT plan = makePlan();
    additions.at(feature.name)(plan);
    EXPECT_EQ(getLevel(plan), feature.level);
    EXPECT_LE(feature.level, plan::getFormatLevel());
  }
}

} // namespace
