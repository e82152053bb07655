//===- CudnnTest.cpp - What cuDNN makes of our attention ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Asks the library, for GPUs that are not here, whether it computes the
// attention of every model in examples/models, and in how much memory. The
// compiler has to answer the same without it.
//
//===----------------------------------------------------------------------===//

#include "CUDA/CudaAttention.h"
#include "CUDA/CudnnGraph.h"
#include "plait/Plan/Attention.h"

#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>

using namespace plait;
using namespace plait::runtime;

namespace {

/// A GPU as cuDNN 9 writes down what it knows of one.
struct Gpu {
  int architecture;
  int multiprocessors;
  int sharedBytes; // of a block that asks for them

  std::string properties() const {
    return nlohmann::json{{"deviceName", "test"},
                          {"cudaDeviceId", 0},
                          {"deviceVer", architecture * 10},
                          {"driverVer", 13000},
                          {"isTccDriver", 0},
                          {"l2CacheSize", 50 << 20},
                          {"maxBlockSize", {1024, 1024, 64}},
                          {"maxCtasPerSM", 32},
                          {"maxGridSize", {2147483647, 65535, 65535}},
                          {"maxRegistersPerSM", 65536},
                          {"maxSharedMemoryPerBlock", 48 << 10},
                          {"maxSharedMemoryPerBlockOptin", sharedBytes},
                          {"maxThreadsPerBlock", 1024},
                          {"maxThreadsPerSM", 2048},
                          {"memClockRateKHz", 2619000},
                          {"multiProcessorCount", multiprocessors},
                          {"pciDeviceId", 0},
                          {"regsPerBlock", 65536},
                          {"reservedSharedMemoryPerBlock", 1024},
                          {"smClockRateKHz", 1980000},
                          {"supportCoopLaunch", 1},
                          {"totalGlobalMem", int64_t(80) << 30},
                          {"warpSize", 32}}
        .dump();
  }
};

const Gpu gpus[] = {{80, 108, 166912}, {90, 132, 232448}, {100, 148, 232448}};

struct Shape {
  std::string name;
  int64_t batch, heads, kvHeads, length, size, window = 0;
  int64_t earlier = 0; // keys before the position of the first query
  bool causal = true;
};

fb::AttentionStepT makeStep(const Shape &shape, fb::AttentionKind kind) {
  fb::AttentionStepT step;
  step.kind = kind;
  step.dtype = fb::DType::BF16;
  step.batch = shape.batch;
  step.heads = shape.heads;
  step.kv_heads = shape.kvHeads;
  step.queries = shape.length;
  step.keys = shape.earlier + shape.length;
  step.head_size = shape.size;
  // Keys that no query sees, as many as a rank has queries, lie behind the
  // others.
  auto strides = [&](int64_t rows, int64_t heads) {
    int64_t row = heads * shape.size;
    return std::vector<int64_t>{rows * row, row, shape.size};
  };
  step.q_strides = step.out_strides = strides(step.queries, shape.heads);
  step.k_strides = step.v_strides =
      strides(step.keys + (shape.earlier ? shape.length : 0), shape.kvHeads);
  step.scale = 0.125f;
  step.causal = shape.causal;
  step.window = shape.window;
  return step;
}

/// Whether cuDNN computes `step`, in no more memory than the compiler reserves
/// for GPUs of `architecture`.
Status ask(const Gpu &gpu, const fb::AttentionStepT &step, int architecture) {
  return CudnnGraph::findFor(step, gpu.properties(), gpu.architecture,
                             plan::gpuAttentionWorkspace(step, architecture))
      .status();
}

/// cuDNN computes all of forward, backward and deterministic backward where the
/// compiler thinks so, and not all of them otherwise.
void expectAgreement(const Shape &shape) {
  auto forward = makeStep(shape, fb::AttentionKind::Forward);
  auto backward = makeStep(shape, fb::AttentionKind::Backward);
  auto repeatable = makeStep(shape, fb::AttentionKind::Backward);
  repeatable.deterministic = true;
  for (const Gpu &gpu : gpus) {
    Status expected = plan::checkGpuAttention(forward.dtype, shape.length,
                                              shape.size, gpu.architecture);
    bool all = true;
    // A plan for any GPU is one for sm_80.
    for (int architecture : {80, gpu.architecture})
      for (const auto *step : {&forward, &backward, &repeatable}) {
        Status found = ask(gpu, *step, architecture);
        all &= found.ok();
        EXPECT_TRUE(found.ok() || !expected.ok())
            << shape.name << " on sm_" << gpu.architecture << ", "
            << fb::EnumNameAttentionKind(step->kind) << ": " << found.message();
      }
    EXPECT_TRUE(expected.ok() || !all)
        << shape.name << " on sm_" << gpu.architecture << " is taken, but "
        << expected.message();
  }
}

class CudnnTest : public ::testing::Test {
protected:
  void SetUp() override {
    // cuDNN wants a driver to be there. Where there is none, the toolkit's
    // stub, which has the driver's name, takes its place.
    if (!dlopen("libcuda.so.1", RTLD_NOW) &&
        !dlopen(PLAIT_CUDA_STUB, RTLD_NOW | RTLD_GLOBAL))
      GTEST_SKIP() << dlerror();
    if (Status status = loadCudnn(); !status.ok())
      GTEST_SKIP() << status.message();
  }
};

TEST_F(CudnnTest, TakesTheExamples) {
  int models = 0;
  for (const auto &entry : std::filesystem::directory_iterator(PLAIT_MODELS)) {
    std::ifstream file(entry.path() / "config.json");
    if (!file)
      continue;
    ++models;
    auto config = nlohmann::json::parse(file);
    bool gpt2 = config.at("model_type") == "gpt2";
    int64_t heads = config.at(gpt2 ? "n_head" : "num_attention_heads");
    int64_t width = config.at(gpt2 ? "n_embd" : "hidden_size");
    int64_t kvHeads = config.value("num_key_value_heads", heads);
    int64_t length =
        config.at(gpt2 ? "n_positions" : "max_position_embeddings");
    Shape shape = {entry.path().filename(),
                   2,
                   heads,
                   kvHeads,
                   std::min<int64_t>(length, 4096),
                   config.value("head_dim", width / heads)};
    expectAgreement(shape);
    // Of some models in every other layer only, or never in force.
    if (config.contains("sliding_window") &&
        config["sliding_window"].is_number()) {
      shape.window = config["sliding_window"];
      expectAgreement(shape);
    }
  }
  EXPECT_GE(models, 8);
}

TEST_F(CudnnTest, TakesOddSizes) {
  for (const Shape &shape : {Shape{"one position", 1, 2, 2, 1, 64},
                             {"77 positions", 2, 4, 2, 77, 64},
                             {"heads of 40", 2, 4, 1, 100, 40},
                             {"heads of 96", 1, 8, 8, 512, 96},
                             {"heads of 12", 1, 8, 8, 512, 12},
                             {"heads of 256", 1, 8, 8, 512, 256},
                             {"heads of 264", 1, 8, 8, 512, 264},
                             {"window", 1, 8, 8, 512, 64, 100},
                             {"third of four ranks", 2, 8, 2, 512, 64, 0, 1024},
                             {"third, odd", 1, 8, 8, 77, 128, 0, 154},
                             {"third, window", 1, 8, 8, 256, 64, 300, 512},
                             {"to all", 2, 8, 2, 512, 64, 0, 0, false},
                             {"to all, odd", 1, 8, 8, 77, 128, 0, 154, false}})
    expectAgreement(shape);
}

/// Both pieces of a rank's queries in zig-zag order, in what the compiler
/// reserves for a step less what is for gradients to be added and statistics to
/// be copied. It is rank 1 of some: each piece sees other keys than its own,
/// and not all.
void expectPieces(const Shape &shape, int64_t ranks) {
  for (auto kind : {fb::AttentionKind::Forward, fb::AttentionKind::Backward})
    for (bool deterministic : {false, true}) {
      auto step = makeStep(shape, kind);
      step.queries = shape.length / ranks;
      step.chunks = 2 * ranks;
      step.q_strides[0] = step.out_strides[0] /= ranks;
      step.deterministic = deterministic;
      uint64_t taken = plan::attentionStatsBytes(step);
      if (kind == fb::AttentionKind::Backward)
        taken += 2 * plan::attentionTermBytes(step, step.keys / 2);
      for (const Gpu &gpu : gpus)
        for (const auto &piece : cutAttention(step, step.queries)) {
          uint64_t most =
              plan::gpuAttentionWorkspace(step, gpu.architecture) - taken;
          Status found = CudnnGraph::findFor(piece.shape, gpu.properties(),
                                             gpu.architecture, most)
                             .status();
          EXPECT_TRUE(found.ok())
              << shape.name << " on sm_" << gpu.architecture << ", "
              << piece.shape.keys << " keys: " << found.message();
        }
    }
}

TEST_F(CudnnTest, TakesPiecesInZigzagOrder) {
  expectPieces({"two sequences", 2, 8, 2, 1024, 64}, 4);
  expectPieces({"odd chunks", 1, 8, 8, 231 * 2, 128}, 3);
  expectPieces({"window", 1, 8, 8, 1024, 64, 300}, 4);
}

/// There is something to measure on an H100: several engines for either pass,
/// each with a name of its own. Of a deterministic backward pass cuDNN names
/// some of them only.
TEST_F(CudnnTest, NamesEngines) {
  const Gpu &gpu = gpus[1];
  auto names = [&](const Shape &shape, fb::AttentionKind kind,
                   bool deterministic) {
    auto step = makeStep(shape, kind);
    step.deterministic = deterministic;
    auto found = CudnnGraph::findFor(
        step, gpu.properties(), gpu.architecture,
        plan::gpuAttentionWorkspace(step, gpu.architecture));
    EXPECT_TRUE(found.ok()) << found.status().message();
    return found.ok() ? *found : std::vector<std::string>();
  };
  Shape gpt2 = {"GPT-2", 64, 12, 12, 1024, 64};
  for (auto kind : {fb::AttentionKind::Forward, fb::AttentionKind::Backward}) {
    auto found = names(gpt2, kind, false);
    EXPECT_GE(found.size(), 2u);
    EXPECT_EQ(std::set(found.begin(), found.end()).size(), found.size());
    for (const std::string &name : found)
      EXPECT_TRUE(name.starts_with("eng")) << name;
  }
  auto all = names(gpt2, fb::AttentionKind::Backward, false);
  auto repeatable = names(gpt2, fb::AttentionKind::Backward, true);
  EXPECT_LT(repeatable.size(), all.size());
}

} // namespace
