//===- ModelTest.cpp - Imported models against PyTorch ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loss and gradient norm of the first step of the golden runs, by the ops'
// meaning alone: what fails here is not the fault of any pass.
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "plait/Import/HuggingFace.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cmath>
#include <cstring>

using namespace mlir;
using namespace plait;
using namespace plait::test;

namespace {
class ModelTest : public ::testing::TestWithParam<std::string> {
protected:
  std::string getPath(StringRef file) {
    return (Twine(PLAIT_GOLDEN "/") + GetParam() + "/" + file).str();
  }
  std::string readFile(StringRef file);
  llvm::json::Object readJSON(StringRef text);
  void load();
  void setTokens();
  void setParameters();
  double getGradientNorm(Value lossSum, double count);

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  func::FuncOp loss;
  llvm::json::Object golden;
  int64_t batch, sequence;
  Interpreter interpreter;
};
} // namespace

std::string ModelTest::readFile(StringRef file) {
  auto buffer = llvm::MemoryBuffer::getFile(getPath(file));
  EXPECT_TRUE(bool(buffer)) << file.str();
  return buffer ? (*buffer)->getBuffer().str() : "";
}

llvm::json::Object ModelTest::readJSON(StringRef text) {
  auto value = llvm::json::parse(text);
  EXPECT_TRUE(bool(value));
  return std::move(*value->getAsObject());
}

void ModelTest::load() {
  golden = readJSON(readFile("golden.json"));
  batch = *golden.getObject("recipe")->getInteger("global_batch");
  sequence = *golden.getObject("recipe")->getInteger("seq");
  auto imported = importHuggingFace(context, getPath(""), {batch, sequence});
  ASSERT_TRUE(succeeded(imported));
  module = std::move(*imported);
  loss = module->lookupSymbol<func::FuncOp>(nn::kLossFunction);
}

/// Sample k is the tokens from k * sequence; its targets are one further.
void ModelTest::setTokens() {
  std::string bytes = readFile("tokens.bin");
  for (int64_t shift : {0, 1}) {
    Array ids({batch, sequence});
    for (int64_t i = 0; i < batch * sequence; ++i) {
      uint16_t token;
      std::memcpy(&token, bytes.data() + 2 * (i + shift), sizeof(token));
      ids.data[i] = token;
    }
    interpreter.set(loss.getArgument(shift), ids);
  }
}

/// The place in the file's tensor of element `i` of a parameter's box.
static int64_t findPlace(nn::FileAttr file, int64_t i) {
  int64_t place = 0, stride = 1;
  for (int64_t dim = file.getShape().size() - 1; dim >= 0; --dim) {
    place += stride * (file.getBegin()[dim] + i % file.getBox()[dim]);
    i /= file.getBox()[dim];
    stride *= file.getShape()[dim];
  }
  return place;
}

/// Reads the boxes of the parameters; all are in fp32.
void ModelTest::setParameters() {
  std::string bytes = readFile("model.safetensors");
  uint64_t length;
  std::memcpy(&length, bytes.data(), sizeof(length));
  const size_t data = sizeof(length) + length;
  auto header = readJSON(StringRef(bytes).substr(sizeof(length), length));
  for (auto read : loss.getOps<nn::ReadOp>()) {
    auto parameter = module->lookupSymbol<nn::ParameterOp>(read.getSymbol());
    nn::FileAttr file = parameter.getFileAttr();
    Array array(cast<RankedTensorType>(parameter.getType()).getShape());
    std::string name = file.getName().str();
    if (size_t star = name.find('*'); star != std::string::npos) {
      // A tensor for each expert or head.
      int64_t tensors = file.getShape().front();
      int64_t count = array.data.size() / tensors;
      for (int64_t index = 0; index < tensors; ++index) {
        std::string own = name;
        own.replace(star, 1, std::to_string(index));
        const auto *entry = header.getObject(own);
        ASSERT_TRUE(entry) << own;
        int64_t first = *(*entry->getArray("data_offsets"))[0].getAsInteger();
        for (int64_t i = 0; i < count; ++i) {
          float x;
          std::memcpy(&x, &bytes[data + first + 4 * i], 4);
          array.data[index * count + i] = x;
        }
      }
      interpreter.set(read, std::move(array));
      continue;
    }
    const auto *entry = header.getObject(name);
    ASSERT_TRUE(entry) << name;
    int64_t first = *(*entry->getArray("data_offsets"))[0].getAsInteger();
    for (size_t i = 0; i < array.data.size(); ++i) {
      float x;
      std::memcpy(&x, &bytes[data + first + 4 * findPlace(file, i)], 4);
      array.data[i] = x;
    }
    interpreter.set(read, std::move(array));
  }
}

double ModelTest::getGradientNorm(Value lossSum, double count) {
  Block &body = loss.getBody().front();
  auto builder = OpBuilder::atBlockEnd(&body);
  nn::NNBuilder nn(builder, loss.getLoc());
  Value seed = nn.fillLike(lossSum, 1.0);
  auto gradients = differentiate(body, lossSum, seed);
  // A tied parameter is read twice.
  std::map<std::string, Value> sums;
  for (auto read : loss.getOps<nn::ReadOp>()) {
    Value gradient = gradients.lookup(read);
    auto parameter = SymbolTable::lookupNearestSymbolFrom<nn::ParameterOp>(
        loss, read.getSymbolAttr());
    // What is not trained is said to be so.
    EXPECT_EQ(!gradient, parameter.getRateFactor() == 0.0)
        << read.getSymbol().str();
    if (!gradient)
      continue;
    Value &sum = sums[read.getSymbol().str()];
    sum = sum ? nn.add(sum, gradient) : gradient;
  }
  double squares = 0.0;
  for (const auto &[name, sum] : sums)
    for (double x : interpreter.get(sum).data)
      squares += x * x / (count * count);
  return std::sqrt(squares);
}

TEST_P(ModelTest, FirstStep) {
  load();
  ASSERT_FALSE(HasFatalFailure());
  setTokens();
  setParameters();
  ASSERT_FALSE(HasFatalFailure());

  for (auto route : llvm::make_early_inc_range(loss.getOps<nn::RouteOp>())) {
    OpBuilder inner(route);
    route->replaceAllUsesWith(route.decompose(inner));
    route.erase();
  }
  auto entropy = *loss.getOps<nn::SoftmaxCrossEntropyOp>().begin();
  OpBuilder builder(entropy);
  SmallVector<Value> parts = entropy.decompose(builder);
  loss.getBody().front().getTerminator()->erase();
  entropy.erase();

  const auto *step = (*golden.getArray("steps"))[0].getAsObject();
  double count = interpreter.get(parts[1]).data[0];
  EXPECT_EQ(count, batch * sequence);
  double mean = interpreter.get(parts[0]).data[0] / count;
  double expected = *step->getNumber("loss");
  EXPECT_NEAR(mean, expected, kTolerance * expected);
  double norm = *step->getNumber("grad_norm");
  EXPECT_NEAR(getGradientNorm(parts[0], count), norm, kTolerance * norm);
}

INSTANTIATE_TEST_SUITE_P(
    Golden, ModelTest,
    ::testing::Values(
        "deepseek-v2-small-test", "qwen2-moe-small-test",
        "deepseek-v3-small-test", "gemma-small-test", "gemma2-small-test",
        "gemma3-small-test", "gpt-oss-small-test", "gpt2-small-test",
        "granite-small-test", "llama-small-test", "llama3-small-test",
        "mistral-small-test", "mixtral-small-test", "olmo2-small-test",
        "olmo3-small-test", "olmoe-small-test", "phi3-small-test",
        "qwen2-small-test", "qwen2-yarn-small-test", "qwen3-small-test",
        "qwen3-moe-small-test", "smollm3-small-test", "cohere-small-test",
        "glm-small-test", "glm4-small-test", "neox-small-test",
        "phi-small-test", "stablelm-small-test", "starcoder2-small-test",
        "cohere-plus-small-test", "stablelm2-small-test", "olmo-small-test"),
    [](const auto &info) {
      std::string name = info.param;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });
