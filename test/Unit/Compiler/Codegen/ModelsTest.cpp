//===- ModelsTest.cpp - Every kernel of real plans on both backends -------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiles small models up to their clusters, and computes every cluster with
// the processor's kernel, which other tests hold against formulas and against
// whole trained models, and with the GPU's.
//
//===----------------------------------------------------------------------===//

#include "Harness.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"
#include "plait/Driver/Session.h"
#include "plait/InitAll.h"
#include "gtest/gtest.h"

#include "mlir/Parser/Parser.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <unistd.h>

using namespace plait;
using namespace plait::test;

namespace {

struct Subject {
  const char *name, *folder, *mesh;
  bool sequenceParallel;
  Precision precision = Precision::FP32;
  unsigned zero = 0;
  int64_t vocabulary = 0; ///< In place of the model's own, if not 0.
  const char *gpu = "sm_80";
  bool lossAlone = false; ///< Of 4 tokens: rows of real length.
};

class Models : public testing::TestWithParam<Subject> {};

/// One cluster's kernels and the memory they work on.
struct Case {
  codegen::KernelInfo host, gpu;
  std::vector<mlir::RankedTensorType> types;
  std::vector<size_t> pitches; // what rows lie apart, in elements
  size_t inputs = 0;

  size_t countStored(size_t index) const {
    auto shape = types[index].getShape();
    size_t extent = shape.empty() ? 1 : shape.back();
    return types[index].getNumElements() / extent * pitches[index];
  }
};

} // namespace

INSTANTIATE_TEST_SUITE_P(
    All, Models,
    testing::Values(
        Subject{"Gpt2", PLAIT_MODELS "/gpt2-nano", "1", false},
        Subject{"Gpt2Mesh", PLAIT_MODELS "/gpt2-nano", "pp=2,dp=2,tp=2", false},
        Subject{"Llama", PLAIT_GOLDEN "/llama-small-test", "1", false},
        Subject{"LlamaMesh", PLAIT_GOLDEN "/llama-small-test", "pp=2,dp=2,tp=2",
                true},
        Subject{"Gpt2Half", PLAIT_MODELS "/gpt2-nano", "1", false,
                Precision::BF16},
        Subject{"LlamaHalfMesh", PLAIT_GOLDEN "/llama-small-test",
                "pp=2,dp=2,tp=2", true, Precision::BF16},
        Subject{"Gpt2Divided", PLAIT_MODELS "/gpt2-nano", "dp=4", false,
                Precision::FP32, 1},
        Subject{"Experts", PLAIT_GOLDEN "/qwen3-moe-small-test", "ep=2", false},
        Subject{"ExpertsHalf", PLAIT_GOLDEN "/mixtral-small-test", "tp=2", true,
                Precision::BF16},
        // Rows of the logits lie apart, and GPUs' last vectors reach between
        // them.
        Subject{"Gpt2Odd", PLAIT_MODELS "/gpt2-nano", "1", false,
                Precision::FP32, 0, 97},
        Subject{"Gpt2OddHalf", PLAIT_MODELS "/gpt2-nano", "1", false,
                Precision::BF16, 0, 97},
        // Other architectures have other instructions. Those of sm_100 on pairs
        // of floats are not known to the interpreter.
        Subject{"Gpt2HalfHopper", PLAIT_MODELS "/gpt2-nano", "1", false,
                Precision::BF16, 0, 0, "sm_90"},
        Subject{"Vocabulary", PLAIT_MODELS "/gpt2-nano", "1", false,
                Precision::FP32, 0, 50257, "sm_90", true}),
    [](const auto &info) { return std::string(info.param.name); });

/// The model's configuration, with another vocabulary, in a folder of its own.
static std::string changeVocabulary(const Subject &model,
                                    const std::filesystem::path &folder) {
  std::ifstream file(std::string(model.folder) + "/config.json");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << std::regex_replace(
      text, std::regex("\"vocab_size\": [0-9]+"),
      "\"vocab_size\": " + std::to_string(model.vocabulary));
  return folder;
}

static mlir::OwningOpRef<mlir::ModuleOp> lower(const Subject &model,
                                               mlir::MLIRContext &context) {
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() /
      ("plait-models-" + std::to_string(getpid()) + model.name + ".model");
  struct : Reporter {
    void message(const Message &message) override {
      EXPECT_NE(message.severity, Severity::Error) << message.getLine();
    }
  } reporter;
  Session session(reporter);
  auto imported = session.import({.model = model.vocabulary
                                               ? changeVocabulary(model, folder)
                                               : std::string(model.folder)});
  CompileOptions options;
  options.mesh = model.mesh;
  options.pins.sequenceParallel = model.sequenceParallel;
  options.pins.precision = model.precision;
  options.pins.zero = model.zero;
  options.pins.globalBatch = model.lossAlone ? 1 : 4;
  options.pins.sequence = model.lossAlone ? 4 : 24;
  auto text = session.lower(*imported, options, "lower");
  std::filesystem::remove_all(folder);
  return mlir::parseSourceString<mlir::ModuleOp>(*text, &context);
}

/// Numbers that functions are at ease with: around 1, and small indices.
static void fill(Buffer &buffer, mlir::Type element, unsigned seed) {
  if (buffer.isHalf()) {
    for (size_t index = 0; index < buffer.size(); ++index)
      buffer.halves()[index] =
          BFloat16(0.5f + (index * 7 + seed) % 128 / 128.0f);
    return;
  }
  buffer.randomize(seed, 0.5f, 1.5f);
  if (element.isInteger(32))
    for (size_t index = 0; index < buffer.size(); ++index)
      buffer.ints()[index] = (index * 7 + seed) % 23;
}

static float valueAt(Buffer &buffer, size_t index) {
  return buffer.isHalf() ? float(buffer.halves()[index]) : buffer[index];
}

/// What lies between rows is nobody's.
static void expectAlike(Buffer &want, Buffer &got, mlir::RankedTensorType type,
                        size_t pitch, const std::string &label) {
  size_t extent = type.getRank() ? type.getShape().back() : 1;
  if (type.getElementType().isInteger(32)) {
    EXPECT_EQ(0, std::memcmp(want.start, got.start, want.size() * 4)) << label;
    return;
  }
  // Sums of up to 4096 numbers of about 1 in two orders, some of which cancel
  // out afterwards; halves may be rounded to the other side.
  size_t numbers = 0;
  double tolerance = 2e-5 + (want.isHalf() ? 0x1p-7 : 0);
  for (size_t index = 0; index < want.size(); ++index) {
    if (index % pitch >= extent)
      continue;
    float one = valueAt(want, index), other = valueAt(got, index);
    if (std::isnan(one) && std::isnan(other))
      continue;
    ++numbers;
    ASSERT_NEAR(one, other, tolerance * (1 + std::abs(one)))
        << label << " at " << index;
  }
  EXPECT_GT(numbers, 0u) << label << " is nothing but NaN";
}

static bool hasLogits(plan::ClusterOp cluster, int64_t vocabulary) {
  return llvm::any_of(cluster->getOperandTypes(), [&](mlir::Type type) {
    auto shape = mlir::cast<mlir::RankedTensorType>(type).getShape();
    return shape.size() > 1 && shape.back() == vocabulary;
  });
}

static void compare(const Case &one, HostCode &host, PtxModule &gpu) {
  for (int64_t first : {1, 0}) {
    std::vector<int64_t> scalars;
    for (const codegen::RankScalar &scalar : one.gpu.scalars)
      scalars.push_back(scalar.firstMicrobatch ? first : scalar.bias);
    std::vector<std::unique_ptr<Buffer>> own, other;
    std::vector<void *> pointers;
    std::vector<PtxBuffer> buffers;
    for (auto [index, type] : llvm::enumerate(one.types)) {
      size_t count = one.countStored(index);
      bool half = type.getElementType().isBF16();
      own.push_back(std::make_unique<Buffer>(count, half));
      other.push_back(std::make_unique<Buffer>(count, half));
      fill(*own.back(), type.getElementType(), index);
      fill(*other.back(), type.getElementType(), index);
      pointers.push_back(own.back()->start);
      buffers.push_back(
          {other.back()->start, other.back()->bytes(), index >= one.inputs});
    }
    host.call(one.host.symbol, pointers, scalars, 0, one.host.extent);
    int64_t blocks = llvm::divideCeil(one.gpu.extent, one.gpu.indicesPerBlock);
    EXPECT_EQ(gpu.launch(one.gpu.symbol, blocks, buffers, scalars, false), "");
    for (size_t index = one.inputs; index < one.types.size(); ++index)
      expectAlike(
          *own[index], *other[index], one.types[index], one.pitches[index],
          one.gpu.symbol + " result " + std::to_string(index - one.inputs));
  }
}

TEST_P(Models, KernelsAgree) {
  mlir::DialectRegistry registry;
  registerAllDialects(registry);
  mlir::MLIRContext context(registry);
  auto module = lower(GetParam(), context);
  ASSERT_TRUE(module);
  auto host =
      codegen::KernelLibrary::create(&context, codegen::TargetCPU::getHost());
  auto gpu = codegen::KernelLibrary::create(
      &context, *codegen::TargetGPU::get(GetParam().gpu));
  std::vector<Case> cases;
  std::set<std::string> seen;
  module->walk([&](plan::ClusterOp cluster) {
    if (GetParam().lossAlone && !hasLogits(cluster, GetParam().vocabulary))
      return;
    auto hostInfo = host->add(cluster);
    auto gpuInfo = gpu->add(cluster);
    ASSERT_TRUE(mlir::succeeded(hostInfo) && mlir::succeeded(gpuInfo));
    EXPECT_EQ(hostInfo->scalars, gpuInfo->scalars);
    if (!seen.insert(gpuInfo->symbol).second)
      return;
    Case one{*hostInfo, *gpuInfo, {}, {}, cluster.getNumOperands()};
    auto add = [&](mlir::Value value) {
      one.types.push_back(mlir::cast<mlir::RankedTensorType>(value.getType()));
      one.pitches.push_back(plan::getRowPitch(value));
    };
    llvm::for_each(cluster->getOperands(), add);
    llvm::for_each(cluster->getResults(), add);
    cases.push_back(std::move(one));
  });
  auto hostObjects = host->finish(), gpuObjects = gpu->finish();
  ASSERT_TRUE(mlir::succeeded(hostObjects) && mlir::succeeded(gpuObjects));
  HostCode code;
  ASSERT_EQ(code.load(hostObjects->front().data), "");
  PtxModule ptx;
  const std::vector<char> &text = gpuObjects->front().data;
  ASSERT_EQ(ptx.parse({text.begin(), text.end()}), "");
  EXPECT_GT(cases.size(), GetParam().lossAlone ? 0u : 30u);
  for (const Case &one : cases)
    compare(one, code, ptx);
}
