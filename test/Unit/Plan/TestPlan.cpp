//===- TestPlan.cpp - Small plans for tests -------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestPlan.h"
#include "plait/Support/Collectives.h"

#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <stdlib.h>

using namespace plait;
using namespace plait::test;

namespace {

// Where things are in the arenas of both programs.
enum : uint64_t {
  scalars = 0,
  metrics = 64,
  tokens = 128,
  weight = 256,        // 4 x 6 local
  matrix = 4 * 256,    // the constant A, 3 x 4
  result = 5 * 256,    // 3 x 6, one for each microbatch
  constants = 7 * 256, // the metrics
  arenaBytes = 16 * 256
};
constexpr uint64_t resultBytes = 3 * 6 * 4;

fb::Ref arena(uint64_t offset) { return fb::Ref(offset, -1); }
fb::Ref slot(int index) { return fb::Ref(0, index); }

template <typename T> T &addStep(fb::FunctionT &function, T value) {
  fb::StepT &step = append(function.steps);
  step.step.Set(std::move(value));
  return *static_cast<T *>(step.step.value);
}

void addConstant(fb::PlanT &plan, fb::ProgramT &program, uint64_t offset,
                 const std::vector<float> &values) {
  fb::ConstantT &constant = append(program.constants);
  constant.offset = offset;
  constant.data = plan.data.size();
  fb::DataT &data = append(plan.data);
  data.bytes.resize(values.size() * 4);
  std::memcpy(data.bytes.data(), values.data(), data.bytes.size());
}

void addShard(fb::ProgramT &program, uint32_t parameter,
              std::vector<int64_t> shape, bool splitRows) {
  fb::ShardT &shard = append(program.shards);
  shard.parameter = parameter;
  append(shard.dims).axes =
      splitRows ? std::vector<uint8_t>{1} : std::vector<uint8_t>{};
  append(shard.dims);
  shard.local_shape = std::move(shape);
  shard.owner = true;
  shard.weight = weight;
  shard.gradient = weight + 128;
  for (auto [name, offset] : {std::pair("moment1", 256), {"moment2", 384}}) {
    fb::StateSlotT &slot = append(shard.state);
    slot.name = name;
    slot.offset = weight + offset;
  }
}

fb::ActionT makeAction(fb::ActionKind kind, uint32_t microbatch, int function) {
  fb::ActionT action;
  action.kind = kind;
  action.microbatch = microbatch;
  action.function = function;
  action.first = microbatch == 0;
  return action;
}

fb::ActionT makeTransfer(fb::ActionKind kind, uint32_t microbatch,
                         uint32_t peer) {
  fb::ActionT action = makeAction(kind, microbatch, -1);
  action.peer = peer;
  action.buffer = result + microbatch * 128;
  action.bytes = resultBytes;
  return action;
}

/// The function both programs end with: metrics = max over pp of the constant.
void addFinish(fb::ProgramT &program) {
  fb::FunctionT &finish = append(program.functions);
  finish.name = "finish";
  fb::CopyStepT copy;
  copy.source = std::make_unique<fb::Ref>(arena(constants));
  copy.target = std::make_unique<fb::Ref>(arena(metrics));
  copy.bytes = 12;
  addStep(finish, std::move(copy));
  fb::CollectiveStepT reduce;
  reduce.kind = uint8_t(CollectiveKind::AllReduce);
  reduce.reduction = fb::Reduction::Max;
  reduce.axis = 0;
  reduce.members = {0, 1};
  reduce.outer = 1;
  reduce.chunk = 3;
  reduce.input = std::make_unique<fb::Ref>(arena(metrics));
  reduce.output = std::make_unique<fb::Ref>(arena(metrics));
  addStep(finish, std::move(reduce));
  append(program.actions, makeAction(fb::ActionKind::Optimizer, 0, 1));
}

void setProgram(fb::ProgramT &program) {
  program.arena_bytes = arenaBytes;
  program.scalars = scalars;
  program.metrics = metrics;
}

void addRegion(fb::ProgramT &program, const char *name, fb::Category category,
               uint64_t offset, uint64_t bytes) {
  fb::RegionT &region = append(program.regions);
  region.name = name;
  region.category = category;
  region.offset = offset;
  region.bytes = bytes;
  region.last_action = program.actions.size() - 1;
}

void fillFirstStage(fb::PlanT &plan, fb::ProgramT &program) {
  setProgram(program);
  addShard(program, 0, {4, 6}, true);
  addConstant(plan, program, matrix, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  addConstant(plan, program, constants, {2, 1, 8});
  append(program.inputs) = {};
  fb::InputT &input = *program.inputs.back();
  input.offset = tokens;
  input.microbatches = 2;
  input.rows = 2;
  input.columns = 2;

  fb::FunctionT &forward = append(program.functions);
  forward.name = "forward";
  forward.slots = {"out", "tokens"};
  forward.slot_bytes = {resultBytes, 16};
  fb::GemmStepT gemm;
  gemm.m = 3, gemm.n = 6, gemm.k = 4;
  gemm.a_row = 4, gemm.a_col = 1;
  gemm.b_row = 6, gemm.b_col = 1;
  gemm.c_row = 6;
  gemm.a = std::make_unique<fb::Ref>(arena(matrix));
  gemm.b = std::make_unique<fb::Ref>(arena(weight));
  gemm.c = std::make_unique<fb::Ref>(slot(0));
  addStep(forward, std::move(gemm));
  fb::CollectiveStepT reduce;
  reduce.axis = 1;
  reduce.outer = 3;
  reduce.chunk = 6;
  reduce.input = std::make_unique<fb::Ref>(slot(0));
  reduce.output = std::make_unique<fb::Ref>(slot(0));
  addStep(forward, std::move(reduce));
  fb::KernelStepT kernel;
  kernel.kernel = 0;
  kernel.args = {slot(0), slot(1)};
  kernel.scalars = {fb::RankScalar(0, 0, -1, true)};
  kernel.extent = 18;
  kernel.grain = 4;
  addStep(forward, std::move(kernel));

  for (uint32_t i = 0; i < 2; ++i) {
    fb::ActionT &run =
        append(program.actions, makeAction(fb::ActionKind::Forward, i, 0));
    run.bindings = {result + i * 128, tokens + i * 16};
    append(program.actions, makeTransfer(fb::ActionKind::Send, i, 1));
  }
  for (uint32_t i = 0; i < 2; ++i)
    append(program.actions, makeTransfer(fb::ActionKind::WaitSend, i, 1));
  addFinish(program);
  addRegion(program, "weight", fb::Category::Parameters, weight, 96);
  addRegion(program, "result", fb::Category::Activations, result, 256);
}

void fillSecondStage(fb::PlanT &plan, fb::ProgramT &program) {
  setProgram(program);
  addShard(program, 1, {3, 6}, false);
  addConstant(plan, program, constants, {0, 3, 4});
  fb::FunctionT &forward = append(program.functions);
  forward.name = "accumulate";
  forward.slots = {"in"};
  forward.slot_bytes = {resultBytes};
  fb::FillStepT fill;
  fill.target = std::make_unique<fb::Ref>(arena(weight + 128));
  fill.bytes = resultBytes;
  fill.first_microbatch_only = true;
  addStep(forward, std::move(fill));
  fb::KernelStepT kernel;
  kernel.kernel = 1;
  kernel.args = {arena(weight + 128), slot(0)};
  kernel.extent = 18;
  kernel.grain = 100;
  addStep(forward, std::move(kernel)).scalars = {};
  for (uint32_t i = 0; i < 2; ++i) {
    append(program.actions, makeTransfer(fb::ActionKind::Recv, i, 0));
    append(program.actions, makeAction(fb::ActionKind::Forward, i, 0))
        .bindings = {result + i * 128};
  }
  addFinish(program);
  addRegion(program, "in", fb::Category::Activations, result, 256);
}

void addParameter(fb::PlanT &plan, const char *name, std::vector<int64_t> shape,
                  fb::InitKind init, float value, float std) {
  fb::ParameterT &parameter = append(plan.parameters);
  parameter.name = name;
  parameter.file_name = std::string("transformer.") + name;
  parameter.box_begin.assign(shape.size(), 0);
  parameter.shape = parameter.file_shape = parameter.box_shape = shape;
  parameter.init = init;
  parameter.init_value = value;
  parameter.init_std = std;
}

} // namespace

static void addMesh(fb::PlanT &plan, uint32_t stages, uint32_t tensor) {
  for (auto [name, size] : {std::pair("pp", stages), {"tp", tensor}}) {
    fb::MeshAxisT &axis = append(plan.mesh);
    axis.name = name;
    axis.size = size;
  }
}

fb::PlanT test::makeArenaPlan(uint32_t ranks, uint64_t bytes) {
  fb::PlanT plan;
  addMesh(plan, 1, ranks);
  append(plan.programs).arena_bytes = bytes;
  return plan;
}

std::vector<uint8_t> test::packWorkspacePlan(uint64_t workspace,
                                             uint64_t bytes) {
  fb::PlanT plan = makeArenaPlan(1, workspace + bytes);
  plan.programs[0]->library_workspace = workspace;
  plan.programs[0]->library_workspace_bytes = bytes;
  return plan::packPlan(plan);
}

fb::PlanT test::makePlan() {
  fb::PlanT plan;
  plan.model_type = "test";
  plan.vocab_size = 100;
  plan.sequence = 2;
  plan.micro_batch = 2;
  plan.microbatches = 2;
  plan.global_batch = 4;
  plan.schedule = "test";
  plan.recompute = "none";
  addMesh(plan, 2, 2);
  addParameter(plan, "weight", {8, 6}, fb::InitKind::Normal, 0, 0.5f);
  addParameter(plan, "sum", {3, 6}, fb::InitKind::Constant, 0.5f, 0);
  append(plan.kernels).symbol = "plait_test_scale";
  append(plan.kernels).symbol = "plait_test_add";
  plan.locations = {"test.mlir:1:1"};
  fillFirstStage(plan, append(plan.programs));
  fillSecondStage(plan, append(plan.programs));
  return plan;
}

std::string test::findFault(const fb::PlanT &plan) {
  std::vector<uint8_t> bytes = plan::packPlan(plan);
  Status status = plan::checkPlan(*fb::GetPlan(bytes.data()));
  return status.ok() ? "" : status.message();
}

std::string test::makeDirectory() {
  /// Removes what the tests of this process made.
  struct Directories {
    std::vector<std::string> paths;
    ~Directories() {
      for (const std::string &path : paths)
        std::filesystem::remove_all(path);
    }
  };
  static Directories made;
  std::string path = ::testing::TempDir() + "/plait-test-XXXXXX";
  EXPECT_NE(mkdtemp(path.data()), nullptr);
  made.paths.push_back(path);
  return path;
}

std::vector<uint8_t> test::readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void test::writeFile(const std::string &path,
                     const std::vector<uint8_t> &bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char *>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}
