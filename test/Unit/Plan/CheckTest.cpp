//===- CheckTest.cpp - The plan checker -----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A sound plan passes; for every rule there is a plan that breaks it alone.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Check.h"

#include "TestPlan.h"
#include "plait/Plan/Container.h"
#include "plait/Support/MemoryPlaces.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace plait;
using namespace plait::test;

namespace {

// Of the test plan's arena.
constexpr uint64_t matrixOffset = 1024, spareOffset = 2048, arenaBytes = 4096;

std::unique_ptr<fb::Ref> at(uint64_t offset) {
  return std::make_unique<fb::Ref>(offset, -1);
}

/// The plan's GEMM, with an epilogue and none of what that needs.
fb::GemmStepT &addEpilogue(fb::PlanT &plan, fb::Epilogue kind) {
  auto &gemm = stepOf<fb::GemmStepT>(*plan.programs[0], 0, 0);
  gemm.epilogue = kind;
  return gemm;
}

/// Divides the optimizer's state of the second stage's parameter.
fb::DivisionT &divide(fb::PlanT &plan) {
  plan.zero = 1;
  fb::ShardT &shard = *plan.programs[1]->shards[0];
  shard.division = std::make_unique<fb::DivisionT>();
  shard.division->axis = 1;
  shard.division->elements = 32;
  shard.division->begin = 32;
  shard.division->reduced = spareOffset;
  return *shard.division;
}

/// The same, in blocks of its blocks.
std::vector<std::unique_ptr<fb::DimShardingT>> &divideBlocks(fb::PlanT &plan) {
  plan.zero = 2;
  fb::ShardT &shard = *plan.programs[1]->shards[0];
  for (auto &dim : shard.dims)
    shard.state_dims.push_back(std::make_unique<fb::DimShardingT>(*dim));
  shard.state_dims[1]->axes = {1};
  return shard.state_dims;
}

/// Says which machines the plan is for.
fb::ClusterT &describe(fb::PlanT &plan) {
  plan.cluster = std::make_unique<fb::ClusterT>();
  plan.cluster->nodes = 1;
  plan.cluster->devices_per_node = 8;
  plan.cluster->memory_bytes = 1000;
  plan.cluster->peak_flops = 1e12;
  return *plan.cluster;
}

struct Case {
  const char *name;
  void (*damage)(fb::PlanT &);
  const char *message; // a part of it
};

class CheckTest : public ::testing::TestWithParam<Case> {};

TEST(CheckPlan, AcceptsASoundPlan) { EXPECT_EQ(findFault(makePlan()), ""); }

TEST(CheckPlan, AcceptsDividedState) {
  fb::PlanT plan = makePlan();
  divide(plan);
  EXPECT_EQ(findFault(plan), "");
}

TEST_P(CheckTest, Refuses) {
  fb::PlanT plan = makePlan();
  GetParam().damage(plan);
  EXPECT_NE(findFault(plan).find(GetParam().message), std::string::npos)
      << findFault(plan);
}

using P = fb::PlanT;

const Case structureCases[] = {
    {"MeshSize", [](P &p) { p.mesh[1]->size = 0; }, "makes 0 ranks"},
    {"MeshHuge", [](P &p) { p.mesh[1]->size = 1u << 31; }, "allowed are 1 to"},
    {"Programs", [](P &p) { p.programs.pop_back(); }, "1 programs for a pp"},
    {"Batch", [](P &p) { p.global_batch = 5; }, "global_batch is 5"},
    {"LossesAlike", [](P &p) { p.named_losses = {"z", "z"}; },
     "names two losses 'z'"},
    {"LossNamedBadly", [](P &p) { p.named_losses = {"a b"}; },
     "named loss 0 is 'a b', expected letters"},
    {"LossesMany", [](P &p) { p.named_losses.resize(14, "z"); },
     "names 14 losses, expected at most 13"},
    {"Backend", [](P &p) { p.backend = "abacus"; },
     "backend 'abacus' is unknown, known are cpu and cuda"},
    {"BlockThreads",
     [](P &p) {
       p.backend = "cuda";
       p.kernels[0]->block_threads = 1025;
       p.kernels[0]->indices_per_block = 1;
     },
     "'plait_test_scale' has blocks of 1025 threads for 1 indices"},
    {"BlockIndices",
     [](P &p) {
       p.backend = "cuda";
       p.kernels[0]->block_threads = 32;
     },
     "threads for 0 indices"},
    {"LibraryWorkspace",
     [](P &p) { p.programs[0]->library_workspace_bytes = 4097; },
     "library workspace of 4097 bytes"},
    {"LibraryWorkspaceAlignment",
     [](P &p) { p.programs[0]->library_workspace = 128; },
     "library workspace at byte 128 is not aligned to 256"},
    {"Vocabulary", [](P &p) { p.vocab_size = 0; }, "vocab_size is 0"},
    {"ParameterName", [](P &p) { p.parameters[1]->name = "weight"; },
     "'weight' exists twice"},
    {"ParameterBox", [](P &p) { p.parameters[0]->box_begin[0] = 1; },
     "ends beyond dimension 0"},
    {"ParameterRate", [](P &p) { p.parameters[0]->rate = -1; },
     "multiplies the learning rate by -1, expected 0 to 1e+06"},
    {"ParameterRateIsNoNumber",
     [](P &p) { p.parameters[0]->rate = std::nan(""); },
     "multiplies the learning rate by nan"},
    {"ParameterShape", [](P &p) { p.parameters[0]->shape[0] = 9; },
     "54 elements, its slice"},
    {"ShardRange",
     [](P &p) { p.programs[0]->shards[0]->state[1]->offset = 4096 - 64; },
     "ends beyond the 4096 bytes of the arena"},
    {"ShardAlignment", [](P &p) { p.programs[0]->shards[0]->weight += 4; },
     "not aligned to 64"},
    {"ShardAxis", [](P &p) { p.programs[0]->shards[0]->dims[0]->axes = {2}; },
     "split over axis 2"},
    {"ShardAxisTwice",
     [](P &p) { p.programs[0]->shards[0]->dims[0]->axes = {1, 1}; },
     "is split twice over axis 1"},
    {"Scalars", [](P &p) { p.programs[0]->scalars = 4096; }, "scalars of 32"},
    {"Constant", [](P &p) { p.programs[0]->constants[0]->offset = 4096; },
     "constant of 48 bytes"},
    {"ConstantData", [](P &p) { p.programs[1]->constants[0]->data = 3; },
     "constant is table 3 of 3"},
    {"ConstantPart", [](P &p) { p.programs[0]->constants[0]->bytes = 49; },
     "constant has 48 bytes, of which a rank takes 49"},
    {"ConstantBegin", [](P &p) { p.programs[0]->constants[0]->bytes = 24; },
     "from the sum of 0 numbers on"},
    {"ConstantRange",
     [](P &p) {
       p.programs[0]->constants[0]->bytes = 24;
       p.programs[0]->constants[0]->begin = {fb::RankScalar(0, 25, 1, false)};
     },
     "begin of constant is up to 25, allowed are 0 to 24"},
    {"InputKeys",
     [](P &p) { p.programs[0]->inputs[0]->kind = fb::InputKind::Keys; },
     "input is 2 x 2 x 2 on each of 1 ranks, the plan feeds 2 x 2 x 1"},
    {"Input", [](P &p) { p.programs[0]->inputs[0]->rows = 1; },
     "input is 2 x 1 x 2"},
    {"InputOfContext",
     [](P &p) {
       p.mesh[1]->name = "cp";
       p.programs[0]->inputs[0]->columns = 3;
     },
     "on each of 2 ranks"},
    {"RegionLife", [](P &p) { p.programs[0]->regions[0]->last_action = 99; },
     "lives over actions 0 to 99"},
    {"Kernel",
     [](P &p) { stepOf<fb::KernelStepT>(*p.programs[0], 0, 2).kernel = 2; },
     "step 2 (KernelStep): kernel 2, there are 2"},
    {"ArgumentSizes",
     [](P &p) {
       stepOf<fb::KernelStepT>(*p.programs[0], 0, 2).arg_bytes = {72};
     },
     "step 2 (KernelStep): has sizes of 1 of 2 arguments"},
    {"ArgumentTooLarge",
     [](P &p) {
       stepOf<fb::KernelStepT>(*p.programs[0], 0, 2).arg_bytes = {72, 17};
     },
     "argument of 17 bytes at 0 ends beyond the 16 bytes of slot 'tokens'"},
    {"Outputs",
     [](P &p) { stepOf<fb::KernelStepT>(*p.programs[0], 0, 2).outputs = 3; },
     "step 2 (KernelStep): writes 3 of 2 arguments"},
    {"KernelSlot",
     [](P &p) {
       stepOf<fb::KernelStepT>(*p.programs[0], 0, 2).args[0] = fb::Ref(0, 2);
     },
     "slot 2 of 2"},
    {"KernelScalar",
     [](P &p) {
       stepOf<fb::KernelStepT>(*p.programs[0], 0, 2).scalars[0] =
           fb::RankScalar(0, 1, 2, false);
     },
     "names axis 2"},
    {"GemmRange",
     [](P &p) { stepOf<fb::GemmStepT>(*p.programs[0], 0, 0).m = 4; },
     "ends beyond the 72 bytes of slot 'out'"},
    {"GemmOverflow",
     [](P &p) {
       stepOf<fb::GemmStepT>(*p.programs[0], 0, 0).b_row = INT64_MAX / 2;
     },
     "B has an impossible size"},
    {"GemmStrides",
     [](P &p) { stepOf<fb::GemmStepT>(*p.programs[0], 0, 0).a_col = 2; },
     "matrix A of 3 x 4 has strides 4 and 2"},
    {"GemmBatch",
     [](P &p) { stepOf<fb::GemmStepT>(*p.programs[0], 0, 0).batch = {2}; },
     "batch strides"},
    {"GemmType",
     [](P &p) {
       stepOf<fb::GemmStepT>(*p.programs[0], 0, 0).dtype = fb::DType::I32;
     },
     "has dtype 2 and c_dtype 0"},
    {"GemmResultType",
     [](P &p) {
       stepOf<fb::GemmStepT>(*p.programs[0], 0, 0).c_dtype = fb::DType::BF16;
     },
     "has dtype 0 and c_dtype 1"},
    {"GemmMixedRange",
     [](P &p) {
       auto &gemm = stepOf<fb::GemmStepT>(*p.programs[0], 0, 0);
       gemm.dtype = gemm.c_dtype = fb::DType::BF16;
       gemm.m = 7;
     },
     "C of 84 bytes at 0 ends beyond the 72 bytes of slot 'out'"},
    {"Epilogue",
     [](P &p) {
       stepOf<fb::GemmStepT>(*p.programs[0], 0, 0).epilogue = fb::Epilogue(5);
     },
     "unknown epilogue 5"},
    {"EpilogueWithoutBias",
     [](P &p) {
       stepOf<fb::GemmStepT>(*p.programs[0], 0, 0).epilogue =
           fb::Epilogue::BiasGelu;
     },
     "has epilogue BiasGelu and no bias"},
    {"EpilogueWithBias",
     [](P &p) { addEpilogue(p, fb::Epilogue::Gelu).bias = at(matrixOffset); },
     "has epilogue Gelu and a bias"},
    {"BiasWithoutEpilogue",
     [](P &p) { addEpilogue(p, fb::Epilogue::None).bias = at(matrixOffset); },
     "has epilogue None and a bias"},
    {"EpilogueWithGeluInput",
     [](P &p) {
       auto &gemm = addEpilogue(p, fb::Epilogue::Bias);
       gemm.bias = at(matrixOffset);
       gemm.gelu_input = at(spareOffset);
     },
     "has epilogue Bias and an input of GELU"},
    {"GeluGradientWithoutInput",
     [](P &p) { addEpilogue(p, fb::Epilogue::GeluGradient); },
     "GELU's input is missing"},
    {"GeluInputRange",
     [](P &p) {
       addEpilogue(p, fb::Epilogue::Gelu).gelu_input = at(arenaBytes - 64);
     },
     "GELU's input of 72 bytes at 4032 ends beyond the 4096 bytes of the "
     "arena"},
    {"GeluInputOverlap",
     [](P &p) {
       auto &gemm = addEpilogue(p, fb::Epilogue::Gelu);
       gemm.gelu_input = std::make_unique<fb::Ref>(*gemm.c);
     },
     "GELU's input at byte 0 overlaps C at byte 0"},
    {"BiasRange",
     [](P &p) {
       addEpilogue(p, fb::Epilogue::Bias).bias = at(arenaBytes - 16);
     },
     "bias of 24 bytes at 4080 ends beyond the 4096 bytes of the arena"},
    {"EpilogueBatch",
     [](P &p) {
       auto &gemm = addEpilogue(p, fb::Epilogue::Gelu);
       gemm.batch = gemm.a_batch = gemm.b_batch = gemm.c_batch = {1};
     },
     "has epilogue Gelu and 1 batch dimensions, allowed are none"},
    {"BatchDims",
     [](P &p) {
       auto &gemm = addEpilogue(p, fb::Epilogue::None);
       gemm.batch = gemm.a_batch = gemm.b_batch = gemm.c_batch =
           std::vector<int64_t>(11, 1);
     },
     "has 11 batch dimensions, allowed 10"},
    {"EpilogueAccumulate",
     [](P &p) {
       addEpilogue(p, fb::Epilogue::Gelu).accumulate =
           fb::Accumulate::AddUnlessFirst;
     },
     "has epilogue Gelu and adds to C"},
    {"CollectiveType",
     [](P &p) {
       stepOf<fb::CollectiveStepT>(*p.programs[0], 0, 1).dtype = fb::DType::I32;
     },
     "reduces I32, only f32 and bf16 are supported"},
    {"ZeroStage", [](P &p) { p.zero = 4; }, "zero is 4, allowed are 0 to 3"},
    {"DivisionOfZero0", [](P &p) { divide(p).axis = 1, p.zero = 0; },
     "shard of 'sum' is divided, but the plan's zero is 0"},
    {"DivisionAxis", [](P &p) { divide(p).axis = 2; },
     "shard of 'sum' is divided over axis 2, allowed are 1 to 1"},
    {"DivisionOfStages", [](P &p) { divide(p).axis = 0; },
     "shard of 'sum' is divided over axis 0, allowed are 1 to 1"},
    {"DivisionTwice", [](P &p) { divide(p).inner_axes = {1}; },
     "shard of 'sum' is divided over axis 1 twice"},
    {"DivisionInnerAxis", [](P &p) { divide(p).inner_axes = {2}; },
     "shard of 'sum' is divided over axis 2, allowed are 1 to 1"},
    {"DivisionOfSplit",
     [](P &p) { divide(p), p.programs[1]->shards[0]->dims[1]->axes = {1}; },
     "shard of 'sum' is split and divided over axis 1"},
    {"DivisionEmpty", [](P &p) { divide(p).elements = 0; },
     "a rank's part of shard of 'sum' has 0 elements"},
    {"DivisionHuge", [](P &p) { divide(p).elements = uint64_t(1) << 63; },
     "has 9223372036854775808 elements, allowed are 1 to 4096"},
    {"DivisionRange", [](P &p) { divide(p).reduced = 4096; },
     "reduced gradient of shard of 'sum' of 128 bytes at 4096 ends beyond"},
    {"DivisionPack", [](P &p) { divide(p).begin = 47; },
     "has 18 elements from element 47 on of a pack of 64"},
    {"DivisionMoments",
     [](P &p) {
       divide(p), p.programs[1]->shards[0]->state[0]->offset = 4096 - 64;
     },
     "moment1 of shard of 'sum' of 128 bytes at 4032 ends beyond"},
    {"StateOfZero1", [](P &p) { divideBlocks(p), p.zero = 1; },
     "state of shard of 'sum' is divided, but the plan's zero is 1"},
    {"StateTwice", [](P &p) { divide(p), divideBlocks(p); },
     "state of shard of 'sum' is divided twice"},
    {"StateRank", [](P &p) { divideBlocks(p).pop_back(); },
     "state of shard of 'sum' has 1 dimensions, expected 2"},
    {"StateAxis", [](P &p) { divideBlocks(p)[1]->axes = {2}; },
     "state of shard of 'sum' is split over axis 2, allowed are 1 to 1"},
    {"StateAcrossBlocks",
     [](P &p) {
       divideBlocks(p);
       p.programs[1]->shards[0]->dims[0]->axes = {1};
     },
     "state of shard of 'sum' does not split the blocks of dimension 0"},
    {"StateFrozen",
     [](P &p) { divideBlocks(p), p.parameters[1]->frozen = true; },
     "shard of 'sum' is frozen and divided"},
    {"WithoutMaster",
     [](P &p) {
       fb::ShardT &shard = *p.programs[1]->shards[0];
       shard.compute_dtype = fb::DType::BF16;
       shard.compute_weight = shard.weight;
     },
     "shard of 'sum' is trained, but has no master of its bf16 copy"},
    {"ModelFlops", [](P &p) { p.model_flops = -1; },
     "model_flops is -1, expected a number of at least 0"},
    {"ClusterEmpty", [](P &p) { describe(p).nodes = 0; },
     "the cluster has 0 nodes of 8 devices"},
    {"ClusterMemory", [](P &p) { describe(p).reserved_bytes = 1000; },
     "the cluster's devices reserve 1000 bytes of 1000"},
    {"ClusterPeak", [](P &p) { describe(p).peak_flops = NAN; },
     "the cluster's devices have a peak of nan FLOP/s"},
    {"Precision", [](P &p) { p.precision = "fp8"; },
     "precision 'fp8' is unknown"},
    {"ReducePrecision", [](P &p) { p.reduce_precision = "fp16"; },
     "reduce-precision 'fp16' is unknown, known are fp32 and bf16"},
    {"ComputeType",
     [](P &p) { p.programs[0]->shards[0]->compute_dtype = fb::DType::I32; },
     "shard of 'weight' computes in dtype 2"},
    {"ComputeCopyOfFp32",
     [](P &p) { p.programs[0]->shards[0]->compute_dtype = fb::DType::BF16; },
     "has a bf16 copy, but the plan's precision is fp32"},
    {"ComputeCopyRange",
     [](P &p) {
       p.precision = "bf16";
       p.programs[0]->shards[0]->compute_dtype = fb::DType::BF16;
       p.programs[0]->shards[0]->compute_weight = 4096;
     },
     "compute copy of shard of 'weight' of 48 bytes at 4096 ends beyond"},
    {"CollectiveRange",
     [](P &p) { stepOf<fb::CollectiveStepT>(*p.programs[0], 0, 1).chunk = 7; },
     "input of 84 bytes"},
    {"CollectiveMember",
     [](P &p) {
       stepOf<fb::CollectiveStepT>(*p.programs[0], 1, 1).members = {0, 2};
     },
     "has member 2"},
    {"CollectiveSubgroup",
     [](P &p) {
       stepOf<fb::CollectiveStepT>(*p.programs[0], 0, 1).members = {0};
     },
     "only the pipeline axis has subgroups"},
    {"Copy",
     [](P &p) { stepOf<fb::CopyStepT>(*p.programs[0], 1, 0).bytes = 5000; },
     "ends beyond the 4096 bytes of the arena"},
    {"CopyKind",
     [](P &p) {
       stepOf<fb::CopyStepT>(*p.programs[0], 1, 0).kind = fb::CopyKind(3);
     },
     "unknown kind of copy 3"},
    {"CopyToHost",
     [](P &p) {
       p.programs[0]->host_bytes = 64;
       stepOf<fb::CopyStepT>(*p.programs[0], 1, 0).kind = fb::CopyKind::ToHost;
     },
     "ends beyond the 64 bytes of the host's memory"},
    {"CopyFromBeyondTheHost",
     [](P &p) {
       auto &copy = stepOf<fb::CopyStepT>(*p.programs[0], 1, 0);
       copy.kind = fb::CopyKind::FromHost;
       copy.source = std::make_unique<fb::Ref>(getBegin(MemoryPlace::Host), -1);
     },
     "source of 12 bytes at 281474976710656 ends beyond the 0 bytes of the "
     "host's memory"},
    {"KernelOnHost",
     [](P &p) {
       p.programs[0]->host_bytes = 4096;
       stepOf<fb::KernelStepT>(*p.programs[1], 0, 1).args[0] =
           fb::Ref(getBegin(MemoryPlace::Host), -1);
     },
     "ends beyond the 4096 bytes of the arena"},
    {"SlotOnHost",
     [](P &p) {
       p.programs[0]->host_bytes = 4096;
       p.programs[0]->actions[0]->bindings[0] = getBegin(MemoryPlace::Host);
     },
     "slot 'out' of 72 bytes at 281474976710656 ends beyond the 4096 bytes of "
     "the arena"},
    {"MessageOnHost",
     [](P &p) {
       p.programs[0]->host_bytes = 4096;
       p.programs[0]->actions[1]->buffer = getBegin(MemoryPlace::Host);
     },
     "ends beyond the 4096 bytes of the arena"},
    {"HostBytes", [](P &p) { p.programs[0]->host_bytes = placeLimit + 1; },
     "bytes is too large"},
    {"Fill",
     [](P &p) {
       stepOf<fb::FillStepT>(*p.programs[1], 0, 0).target =
           std::make_unique<fb::Ref>(0, -2);
     },
     "slot -2"},
    {"Location",
     [](P &p) { p.programs[0]->functions[0]->steps[0]->location = 1; },
     "location 1, there are 1"},
    {"ActionFunction", [](P &p) { p.programs[0]->actions[0]->function = 7; },
     "action 0: Forward calls function 7"},
    {"ActionBindings",
     [](P &p) { p.programs[0]->actions[0]->bindings.pop_back(); },
     "binds 1 slots of 'forward'"},
    {"ActionBindingRange",
     [](P &p) { p.programs[0]->actions[0]->bindings[0] = 4096 - 64; },
     "slot 'out' of 72 bytes"},
    {"ActionPeer", [](P &p) { p.programs[0]->actions[1]->peer = 0; },
     "has peer 0"},
    {"ActionMicrobatch",
     [](P &p) { p.programs[0]->actions[0]->microbatch = 2; },
     "microbatch 2, there are 2"}};

const Case otherCases[] = {
    {"MemoryOverlap", [](P &p) { p.programs[0]->regions[1]->offset = 320; },
     "region 'result' (bytes 320 to 576, actions 0 to 6) overlaps 'weight'"},
    {"MemoryNotCarried",
     [](P &p) { p.programs[0]->regions[0]->last_action = 5; },
     "region 'weight' (bytes 256 to 352, actions 0 to 5) is carried over to "
     "the "
     "next step, and does not live for all of the 7 actions"},
    {"MemoryCategory",
     [](P &p) {
       p.programs[0]->regions[0]->category = fb::Category::Activations;
     },
     "at 256 is in no region of category Parameters"},
    {"MessageSize", [](P &p) { p.programs[1]->actions[0]->bytes = 64; },
     "program 1, action 0 (Recv, microbatch 0): receives 64 bytes, the sender "
     "posts 72"},
    {"MessageLost",
     [](P &p) {
       p.programs[1]->actions[0]->direction = fb::Direction::Backward;
     },
     "is sent 1, received 0 and waited for 1 times"},
    {"MessageNotAwaited",
     [](P &p) {
       p.programs[0]->regions.clear();
       p.programs[0]->actions.erase(p.programs[0]->actions.begin() + 4);
     },
     "waited for 0 times"},
    {"WaitBeforeSend",
     [](P &p) {
       std::swap(p.programs[0]->actions[1], p.programs[0]->actions[4]);
     },
     "waits for a message that is sent later"},
    {"Deadlock",
     [](P &p) {
       // Stage 0 waits for the receipt of message 0 before it sends message 1,
       // stage 1 receives message 1 first.
       auto &first = p.programs[0]->actions;
       std::rotate(first.begin() + 2, first.begin() + 4, first.begin() + 5);
       std::swap(p.programs[1]->actions[0], p.programs[1]->actions[2]);
     },
     "deadlock: waits for program 1"},
    {"CollectiveMismatch",
     [](P &p) {
       stepOf<fb::CollectiveStepT>(*p.programs[1], 1, 1).reduction =
           fb::Reduction::Sum;
     },
     "all-reduce Max of 1 x 3 F32 meets all-reduce Sum of 1 x 3 F32"},
    {"CollectiveMissing",
     [](P &p) {
       p.programs[1]->regions.clear();
       p.programs[1]->actions.pop_back();
     },
     "is not entered by all 2 members"},
    {"CollectiveStranger",
     [](P &p) {
       stepOf<fb::CollectiveStepT>(*p.programs[1], 1, 1).members = {0};
     },
     "does not count the program as a member"},
    {"NoOwner", [](P &p) { p.programs[1]->shards[0]->owner = false; },
     "'sum' is owned by no program"},
    {"TwoOwners",
     [](P &p) {
       p.programs[1]->shards[0]->parameter = 0;
       p.programs[1]->shards[0]->local_shape = {8, 6};
       for (uint64_t *offset : {&p.programs[1]->shards[0]->gradient,
                                &p.programs[1]->shards[0]->state[0]->offset,
                                &p.programs[1]->shards[0]->state[1]->offset})
         *offset = 0;
     },
     "'weight' is owned by programs 0 and 1"},
    {"ShardShape",
     [](P &p) { p.programs[0]->shards[0]->dims[0]->axes.clear(); },
     "has 4 elements in dimension 0, its sharding of 8 implies 8"}};

std::string nameOf(const ::testing::TestParamInfo<Case> &info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Structure, CheckTest,
                         ::testing::ValuesIn(structureCases), nameOf);
INSTANTIATE_TEST_SUITE_P(Other, CheckTest, ::testing::ValuesIn(otherCases),
                         nameOf);

TEST(CheckPlan, AcceptsMixedPrecision) {
  fb::PlanT plan = makePlan();
  plan.precision = "bf16";
  plan.programs[0]->shards[0]->compute_dtype = fb::DType::BF16;
  plan.programs[0]->shards[0]->compute_weight = 2048;
  auto &gemm = stepOf<fb::GemmStepT>(*plan.programs[0], 0, 0);
  gemm.dtype = fb::DType::BF16;
  EXPECT_EQ(findFault(plan), "");
  gemm.c_dtype = fb::DType::BF16;
  EXPECT_EQ(findFault(plan), "");
}

TEST(CheckPlan, AcceptsEpilogues) {
  for (fb::Epilogue kind : fb::EnumValuesEpilogue())
    for (bool keeps : {false, true}) {
      fb::PlanT plan = makePlan();
      fb::GemmStepT &gemm = addEpilogue(plan, kind);
      bool bends = kind >= fb::Epilogue::Gelu;
      if (kind == fb::Epilogue::Bias || kind == fb::Epilogue::BiasGelu)
        gemm.bias = at(matrixOffset);
      if (kind == fb::Epilogue::GeluGradient || (bends && keeps))
        gemm.gelu_input = at(spareOffset);
      EXPECT_EQ(findFault(plan), "") << fb::EnumNameEpilogue(kind);
    }
}

/// How messages that end at both ends at once wait for one another.
std::string findCircle(const fb::PlanT &plan, plan::LaunchOrder order) {
  std::vector<uint8_t> bytes = plan::packPlan(plan);
  Status status = plan::checkProgress(*fb::GetPlan(bytes.data()), order);
  return status.ok() ? "" : status.message();
}

TEST(CheckProgress, TellsWhoWaitsForWhom) {
  fb::PlanT plan = makePlan();
  EXPECT_EQ(findCircle(plan, plan::LaunchOrder::Routes), "");
  // Both are sent before one is waited for, so buffers would do; but on one
  // route the first has to be received before the second.
  std::swap(plan.programs[1]->actions[0], plan.programs[1]->actions[2]);
  std::string story = findCircle(plan, plan::LaunchOrder::Routes);
  for (const char *part :
       {"deadlock: program 0, action ", ", received by program 1, action ",
        "waits for the first of these"})
    EXPECT_NE(story.find(part), std::string::npos) << story;
}

TEST(CheckMemory, AllowsReuseOverTime) {
  fb::PlanT plan = makePlan();
  auto &regions = plan.programs[0]->regions;
  regions[0]->category = fb::Category::Activations;
  regions[0]->offset = spareOffset;
  regions[0]->last_action = 2;
  regions[1]->first_action = 3;
  regions[1]->offset = regions[0]->offset;
  EXPECT_EQ(findFault(plan), "");
  regions[1]->first_action = 2;
  EXPECT_NE(findFault(plan), "");
}

} // namespace
