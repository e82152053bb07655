//===- FusionTest.cpp - Random functions through fusion and kernels -------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Whatever fusion makes of a function of fusable ops, code generation accepts
// it and the kernels compute what the ops mean (see
// ../Gradient/Interpreter.h). Other draws: --gtest_random_seed=N.
//
//===----------------------------------------------------------------------===//

#include "Harness.h"
#include "RandomFunction.h"

#include "../Gradient/Interpreter.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Transforms/Passes.h"
#include "gtest/gtest.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace plait;
using namespace plait::test;

namespace {

/// Runs the clusters of a function, one after the other.
class Runner {
public:
  explicit Runner(func::FuncOp function)
      : function(function), library(codegen::KernelLibrary::create(
                                function.getContext(), defaultTarget())) {}

  /// An empty string, or what is wrong.
  std::string compile();
  void run();
  Buffer &at(Value value) {
    std::unique_ptr<Buffer> &buffer = buffers[value];
    if (!buffer)
      buffer = std::make_unique<Buffer>(
          cast<RankedTensorType>(value.getType()).getNumElements(),
          getElementTypeOrSelf(value).isBF16());
    return *buffer;
  }

private:
  void launch(plan::ClusterOp cluster);
  void multiply(nn::MatmulOp op);

  func::FuncOp function;
  std::unique_ptr<codegen::KernelLibrary> library;
  llvm::DenseMap<Operation *, codegen::KernelInfo> infos;
  llvm::DenseMap<Value, std::unique_ptr<Buffer>> buffers;
  HostCode code;
  PtxModule module;
};

} // namespace

std::string Runner::compile() {
  bool failed = false;
  function.walk([&](plan::ClusterOp cluster) {
    auto info = library->add(cluster);
    failed |= mlir::failed(info);
    if (!failed)
      infos[cluster] = *info;
  });
  auto objects = library->finish();
  if (failed || mlir::failed(objects))
    return "does not compile";
  const std::vector<char> &data = objects->front().data;
  return onGPU() ? module.parse(std::string(data.begin(), data.end()))
                 : code.load(data);
}

void Runner::launch(plan::ClusterOp cluster) {
  const codegen::KernelInfo &info = infos[cluster];
  SmallVector<Value> values(cluster.getOperands());
  llvm::append_range(values, cluster.getResults());
  std::vector<PtxBuffer> places;
  std::vector<void *> pointers;
  for (Value value : values) {
    places.push_back({at(value).start, at(value).bytes()});
    pointers.push_back(at(value).start);
  }
  std::vector<int64_t> scalars; // no rank, but what ops are given
  for (const codegen::RankScalar &scalar : info.scalars)
    scalars.push_back(scalar.bias);
  if (!onGPU())
    return code.call(info.symbol, pointers, scalars, 0, info.extent);
  int64_t blocks = llvm::divideCeil(info.extent, info.indicesPerBlock);
  EXPECT_EQ(module.launch(info.symbol, blocks, places, scalars, false), "");
}

/// Functions are drawn with products of elements only.
void Runner::multiply(nn::MatmulOp op) {
  Buffer &lhs = at(op.getLhs()), &rhs = at(op.getRhs());
  Buffer &result = at(op.getResult());
  for (size_t index = 0; index < result.size(); ++index)
    result[index] = lhs[index] * rhs[index];
}

void Runner::run() {
  for (Operation &op : function.getBody().front().without_terminator()) {
    if (auto cluster = dyn_cast<plan::ClusterOp>(op))
      launch(cluster);
    else
      multiply(cast<nn::MatmulOp>(op));
  }
}

/// The same numbers for an argument of both.
static void setArgument(unsigned seed, BlockArgument argument,
                        Interpreter &interpreter, BlockArgument formed,
                        Runner &runner) {
  auto type = cast<RankedTensorType>(argument.getType());
  Buffer &buffer = runner.at(formed);
  bool ids = type.getElementType().isInteger();
  buffer.randomize(seed + argument.getArgNumber());
  std::vector<double> data(buffer.size());
  for (size_t index = 0; index < data.size(); ++index) {
    // Some name no row.
    if (ids)
      buffer.ints()[index] = int32_t(buffer[index] * 3) + 4;
    data[index] = ids ? buffer.ints()[index] : buffer[index];
  }
  interpreter.set(argument, Array(type.getShape(), std::move(data)));
}

static void expectResults(func::FuncOp meant, Interpreter &interpreter,
                          func::FuncOp formed, Runner &runner) {
  Operation *wanted = meant.getBody().front().getTerminator();
  Operation *made = formed.getBody().front().getTerminator();
  for (unsigned result = 0; result < wanted->getNumOperands(); ++result) {
    const Array &want = interpreter.get(wanted->getOperand(result));
    Buffer &have = runner.at(made->getOperand(result));
    double largest = 0, error = 0;
    for (size_t index = 0; index < want.data.size(); ++index) {
      largest = std::max(largest, std::abs(want.data[index]));
      error = std::max(error, std::abs(want.data[index] - have[index]));
    }
    // A few hundred roundings in f32 of numbers near 1.
    EXPECT_LE(error, 1e-4 * (1 + largest)) << "result " << result;
  }
}

static void checkSeed(unsigned seed) {
  MLIRContext context;
  context.loadDialect<nn::NNDialect, plan::PlanDialect, func::FuncDialect>();
  bool bf16 = seed % 4 == 3;
  std::string text = drawFunction(seed, bf16);
  SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + text);
  auto meant = parseSourceString<ModuleOp>(text, &context);
  ASSERT_TRUE(meant);
  OwningOpRef<ModuleOp> formed = meant->clone();
  PassManager manager(&context);
  manager.addPass(createFormClustersPass());
  ASSERT_TRUE(succeeded(manager.run(*formed)));
  auto meantFunction = *meant->getOps<func::FuncOp>().begin();
  auto formedFunction = *formed->getOps<func::FuncOp>().begin();
  Runner runner(formedFunction);
  ASSERT_EQ(runner.compile(), "");
  // What is rounded depends on what is stored.
  if (bf16)
    return;
  Interpreter interpreter;
  for (auto [argument, other] :
       llvm::zip(meantFunction.getArguments(), formedFunction.getArguments()))
    setArgument(seed, argument, interpreter, other, runner);
  runner.run();
  expectResults(meantFunction, interpreter, formedFunction, runner);
}

TEST(Fusion, RandomFunctions) {
  constexpr unsigned kDraws = 40;
  unsigned first = GTEST_FLAG_GET(random_seed) * kDraws;
  for (unsigned seed = first; seed < first + kDraws && !HasFailure(); ++seed)
    checkSeed(seed);
}
