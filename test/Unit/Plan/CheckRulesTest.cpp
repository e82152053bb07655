//===- CheckRulesTest.cpp - The plan checker, further rules ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rules that no compiler breaks: values that no enumeration has, steps whose
// numbers are impossible, references that cannot be compared. CheckTest.cpp has
// the others.
//
//===----------------------------------------------------------------------===//

#include "TestPlan.h"
#include "plait/Plan/Container.h"
#include "plait/Support/Collectives.h"
#include "plait/Support/MemoryPlaces.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::test;

namespace {

struct Case {
  const char *name;
  void (*damage)(fb::PlanT &);
  const char *message; // a part of it
};

std::string nameOf(const ::testing::TestParamInfo<Case> &info) {
  return info.param.name;
}

using P = fb::PlanT;

//===----------------------------------------------------------------------===//
// Steps and structure
//===----------------------------------------------------------------------===//

fb::GemmStepT &gemmOf(P &plan) {
  return stepOf<fb::GemmStepT>(*plan.programs[0], 0, 0);
}
fb::CollectiveStepT &sumOf(P &plan) {
  return stepOf<fb::CollectiveStepT>(*plan.programs[0], 0, 1);
}

/// Makes a gather of that sum.
fb::CollectiveStepT &gatherOf(P &plan) {
  fb::CollectiveStepT &step = sumOf(plan);
  step.kind = uint8_t(CollectiveKind::AllGather);
  step.outer = 1;
  step.chunk = 18;
  step.output = std::make_unique<fb::Ref>(0, -1);
  return step;
}
fb::RowSelectionT &addRows(fb::CollectiveStepT &step) {
  step.rows = std::make_unique<fb::RowSelectionT>();
  step.rows->ids = std::make_unique<fb::Ref>(0, -1);
  step.rows->width = 6;
  step.rows->choices = 2;
  step.rows->experts = 3;
  return *step.rows;
}

/// Copies to the host what the kernel before it reads from the device.
void addCopyToHost(P &plan) {
  fb::CopyStepT copy;
  copy.kind = fb::CopyKind::ToHost;
  copy.source = std::make_unique<fb::Ref>(2048, -1);
  copy.target = std::make_unique<fb::Ref>(0, 1);
  copy.bytes = 16;
  append(plan.programs[0]->functions[0]->steps).step.Set(std::move(copy));
}

class CheckRules : public ::testing::TestWithParam<Case> {};

TEST_P(CheckRules, Refuses) {
  P plan = makePlan();
  GetParam().damage(plan);
  EXPECT_NE(findFault(plan).find(GetParam().message), std::string::npos)
      << findFault(plan);
}

const Case cases[] = {
    {"ParameterTwice",
     [](P &p) { p.parameters[1]->name = p.parameters[0]->name; },
     "parameter 'weight' exists twice"},
    {"NoMesh", [](P &p) { p.mesh.clear(); }, "the mesh has no axes"},
    {"MeshHuge", [](P &p) { p.mesh[1]->size = 1u << 31; },
     "makes 4294967296 ranks, allowed are 1 to 16777216"},
    {"FloatsAlike",
     [](P &p) {
       append(p.float_inputs).name = "x";
       append(p.float_inputs).name = "x";
     },
     "has two float inputs 'x'"},
    {"FloatNamedBadly", [](P &p) { append(p.float_inputs).name = "a b"; },
     "float input 0 is called 'a b', expected letters"},
    {"FloatsMany",
     [](P &p) {
       for (int i = 0; i < 17; ++i)
         append(p.float_inputs).name = "x" + std::to_string(i);
     },
     "has 17 float inputs, expected at most 16"},
    {"FloatEmpty",
     [](P &p) {
       append(p.float_inputs).name = "x";
       p.float_inputs[0]->shape = {3, 0};
     },
     "float input 'x' has no numbers"},
    {"FloatHuge",
     [](P &p) {
       append(p.float_inputs).name = "x";
       p.float_inputs[0]->shape = {1u << 31, 1u << 31};
     },
     "numbers, expected at most 1073741824"},
    {"FloatMissing",
     [](P &p) { p.programs[0]->inputs[0]->kind = fb::InputKind::Features; },
     "input is of float input 0, which the plan does not have so"},
    {"SavedShape", [](P &p) { p.parameters[0]->saved_shape = {1, 1}; },
     "is saved as another number of elements than"},
    {"InputSorted", [](P &p) { p.programs[0]->inputs[0]->sorted = 1 << 20; },
     "ends beyond the 4096 bytes"},
    {"InputSortedMuch",
     [](P &p) { p.programs[0]->inputs[0]->sorted = UINT32_MAX; },
     "input of kind 0 is sorted by 4294967295 tokens, expected tokens and "
     "fewer "
     "than 2147483647"},
    {"InputSortedTargets",
     [](P &p) {
       p.programs[0]->inputs[0]->kind = fb::InputKind::Targets;
       p.programs[0]->inputs[0]->sorted = 5;
     },
     "input of kind 1 is sorted by 5 tokens"},
    {"InputKind",
     [](P &p) { p.programs[0]->inputs[0]->kind = fb::InputKind(9); },
     "input has unknown kind 9"},
    {"RegionCategory",
     [](P &p) { p.programs[0]->regions[0]->category = fb::Category(99); },
     "region 'weight' has unknown category 99"},
    {"Direction",
     [](P &p) { p.programs[0]->actions[1]->direction = fb::Direction(7); },
     "has unknown direction 7"},
    {"KernelExtent",
     [](P &p) { stepOf<fb::KernelStepT>(*p.programs[0], 0, 2).extent = -1; },
     "extent -1 and grain 4 must not be negative"},
    {"CollectiveReadsHost",
     [](P &p) {
       p.programs[0]->host_bytes = 4096;
       stepOf<fb::CollectiveStepT>(*p.programs[0], 0, 1).input =
           std::make_unique<fb::Ref>(getBegin(MemoryPlace::Host), -1);
     },
     "ends beyond the 4096 bytes of the arena"},
    {"CollectiveWritesHost",
     [](P &p) {
       p.programs[0]->host_bytes = 4096;
       stepOf<fb::CollectiveStepT>(*p.programs[0], 0, 1).output =
           std::make_unique<fb::Ref>(getBegin(MemoryPlace::Host), -1);
     },
     "ends beyond the 4096 bytes of the arena"},
    {"SlotOnBothSides", addCopyToHost,
     "of which copies to or from another place use one end alone"},
    {"GemmAccumulate", [](P &p) { gemmOf(p).accumulate = fb::Accumulate(7); },
     "unknown accumulate 7"},
    {"GemmWritesTwice",
     [](P &p) {
       gemmOf(p).batch = {2};
       gemmOf(p).a_batch = gemmOf(p).b_batch = gemmOf(p).c_batch = {0};
     },
     "writes all of batch dimension 0 to one place"},
    {"CollectiveKind", [](P &p) { sumOf(p).kind = 200; },
     "unknown collective 200 or reduction 0"},
    {"CollectiveDType", [](P &p) { sumOf(p).dtype = fb::DType(50); },
     "unknown dtype 50"},
    {"CollectiveMiddle", [](P &p) { sumOf(p).middle = 2; },
     "all-reduce has blocks with a middle of 2, only an all-to-all cuts two "
     "dimensions"},
    {"RowsOfSum", [](P &p) { addRows(sumOf(p)); },
     "all-reduce over axis 1 with outer 3 has rows; expected an all-gather or "
     "a "
     "reduce-scatter over another axis than 0 with outer 1"},
    {"RowsWidth", [](P &p) { addRows(gatherOf(p)).width = 4; },
     "has rows of 4 elements in blocks of 18, expected a divisor"},
    {"RowsExperts", [](P &p) { addRows(gatherOf(p)).experts = 0; },
     "has rows with 2 choices and 0 experts a rank, expected 1 or more and 1 "
     "to "},
    {"RowsIds", [](P &p) { addRows(gatherOf(p)).ids.reset(); },
     "has rows without ids"},
    {"RowsChoices",
     [](P &p) {
       gatherOf(p).kind = uint8_t(CollectiveKind::ReduceScatter);
       addRows(sumOf(p));
     },
     "has rows with 2 choices and 3 experts a rank, expected 1 and 1 to "},
    {"RowsOfBlock",
     [](P &p) {
       p.programs[0]->arena_bytes = uint64_t(1) << 40;
       addRows(gatherOf(p)).width = 2;
       sumOf(p).chunk = int64_t(1) << 32;
     },
     "has blocks of 2147483648 rows, at most 2147483647 are supported"},
    {"CollectiveInPlace",
     [](P &p) { sumOf(p).kind = uint8_t(CollectiveKind::AllGather); },
     "all-gather reads and writes the same place"},
};

INSTANTIATE_TEST_SUITE_P(Cases, CheckRules, ::testing::ValuesIn(cases), nameOf);

//===----------------------------------------------------------------------===//
// References
//===----------------------------------------------------------------------===//

/// A plan of two ranks, and one of one rank that it can be compared with.
struct Pair {
  P plan, reference;
};

/// One program that has "w" and does nothing.
P makeHolder(uint32_t ranks) {
  P plan = makeArenaPlan(ranks, 4096);
  plan.model_type = plan.schedule = "test";
  plan.recompute = "none";
  plan.vocab_size = 100;
  plan.sequence = plan.micro_batch = plan.global_batch = 2;
  plan.microbatches = 1;
  plan.programs[0]->metrics = 64;
  fb::ParameterT &parameter = append(plan.parameters);
  parameter.name = parameter.file_name = "w";
  parameter.shape = parameter.file_shape = parameter.box_shape = {4};
  parameter.box_begin = {0};
  fb::ShardT &shard = append(plan.programs[0]->shards);
  append(shard.dims);
  shard.local_shape = {4};
  shard.owner = true;
  shard.weight = 1024;
  shard.gradient = 1088;
  return plan;
}

struct ReferenceCase {
  const char *name;
  void (*damage)(Pair &);
  const char *message;
};

class CheckReference : public ::testing::TestWithParam<ReferenceCase> {};

std::string findFault(Pair &pair) {
  pair.plan.reference = plan::packPlan(pair.reference);
  return test::findFault(pair.plan);
}

TEST(CheckPlan, AcceptsAReference) {
  Pair pair = {makeHolder(2), makeHolder(1)};
  EXPECT_EQ(findFault(pair), "");
}

TEST_P(CheckReference, Refuses) {
  Pair pair = {makeHolder(2), makeHolder(1)};
  GetParam().damage(pair);
  EXPECT_EQ(findFault(pair),
            std::string("reference plan: ") + GetParam().message);
}

const ReferenceCase references[] = {
    {"Nested",
     [](Pair &p) { p.reference.reference = plan::packPlan(makeHolder(1)); },
     "has a reference of its own"},
    {"Ranks", [](Pair &p) { p.reference = makeHolder(2); },
     "runs on 2 ranks, not on 1"},
    {"Vocabulary", [](Pair &p) { p.reference.vocab_size = 7; },
     "has a vocabulary of 7, the plan of 100"},
    {"ReducePrecision", [](Pair &p) { p.plan.reduce_precision = "bf16"; },
     "rounds gradients to fp32, the plan to bf16"},
    {"Parameters",
     [](Pair &p) {
       p.reference.parameters.clear();
       p.reference.programs[0]->shards.clear();
     },
     "has 0 parameters, the plan 1"},
    {"Name", [](Pair &p) { p.reference.parameters[0]->name = "v"; },
     "parameter 0 is 'v', in the plan 'w'"},
    {"Frozen", [](Pair &p) { p.reference.parameters[0]->init_value = 2; },
     "has another shape, initialiser or place in files for 'w'"},
};

INSTANTIATE_TEST_SUITE_P(References, CheckReference,
                         ::testing::ValuesIn(references),
                         [](const auto &info) { return info.param.name; });

} // namespace
