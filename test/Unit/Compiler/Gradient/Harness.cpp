//===- Harness.cpp - Functions of nn ops, and their gradients ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

#include <cmath>

using namespace mlir;
using namespace plait;
using namespace plait::test;

void test::expectNear(const Array &actual, const Array &expected,
                      const std::string &what) {
  ASSERT_EQ(actual.data.size(), expected.data.size()) << what;
  for (size_t i = 0; i < actual.data.size(); ++i)
    EXPECT_NEAR(actual.data[i], expected.data[i],
                kTolerance * (1.0 + std::abs(expected.data[i])))
        << what << ", element " << i;
}

static MLIRContext &withDialects(MLIRContext &context) {
  context.loadDialect<nn::NNDialect, dist::DistDialect>();
  return context;
}

GradientHarness::GradientHarness()
    : module(ModuleOp::create(UnknownLoc::get(&withDialects(context)))),
      builder(OpBuilder::atBlockEnd(module->getBody())),
      nn(builder, module->getLoc()) {}

RankedTensorType GradientHarness::type(ArrayRef<int64_t> shape) {
  return RankedTensorType::get(shape, builder.getF32Type());
}

Value GradientHarness::add(Array array, Type element) {
  auto tensor = RankedTensorType::get(array.shape, element);
  Value value = module->getBody()->addArgument(tensor, module->getLoc());
  interpreter.set(value, std::move(array));
  return value;
}

Value GradientHarness::input(Array array) {
  inputs.push_back(add(std::move(array), builder.getF32Type()));
  return inputs.back();
}

Value GradientHarness::ids(ArrayRef<int64_t> shape,
                           std::vector<double> numbers) {
  return add(Array(shape, std::move(numbers)), builder.getI32Type());
}

llvm::DenseMap<Value, Value> test::differentiate(Block &block, Value result,
                                                 Value cotangent) {
  SmallVector<Operation *> ops;
  for (Operation &op : block)
    ops.push_back(&op);
  auto builder = OpBuilder::atBlockEnd(&block);
  nn::NNBuilder nn(builder, result.getLoc());
  llvm::DenseMap<Value, Value> gradients{{result, cotangent}};
  for (Operation *op : llvm::reverse(ops)) {
    SmallVector<Value> cotangents;
    for (Value value : op->getResults())
      cotangents.push_back(gradients.lookup(value));
    if (llvm::none_of(cotangents, [](Value value) { return bool(value); }))
      continue;
    // What depends on indices only, as nn.valid, passes nothing on.
    auto differentiable = dyn_cast<DifferentiableOpInterface>(op);
    if (!differentiable)
      continue;
    SmallVector<Value> flows = differentiable.buildVJP(builder, cotangents);
    for (auto [operand, flow] : llvm::zip_equal(op->getOperands(), flows)) {
      if (!flow)
        continue;
      // As the differentiation pass does, which has tests of its own.
      flow = nn.castLike(flow, operand);
      EXPECT_EQ(operand.getType(), flow.getType());
      Value &sum = gradients[operand];
      sum = sum ? nn.add(sum, flow) : flow;
    }
  }
  return gradients;
}

void GradientHarness::checkGradients(Value result) {
  Value cotangent =
      add(random(cast<RankedTensorType>(result.getType()).getShape(), 99),
          builder.getF32Type());
  auto gradients = differentiate(*module->getBody(), result, cotangent);
  const std::vector<double> weights = interpreter.get(cotangent).data;
  auto evaluate = [&] {
    double sum = 0.0;
    const Array &array = interpreter.get(result);
    for (size_t i = 0; i < weights.size(); ++i)
      sum += array.data[i] * weights[i];
    return sum;
  };
  constexpr double step = 1e-5;
  for (auto [index, input] : llvm::enumerate(inputs)) {
    Value gradient = gradients.lookup(input);
    ASSERT_TRUE(gradient) << "input " << index << " has no gradient";
    Array actual = interpreter.get(gradient);
    Array point = interpreter.get(input);
    Array expected(point.shape);
    for (size_t i = 0; i < point.data.size(); ++i) {
      Array moved = point;
      moved.data[i] = point.data[i] + step;
      interpreter.set(input, moved);
      double above = evaluate();
      moved.data[i] = point.data[i] - step;
      interpreter.set(input, moved);
      expected.data[i] = (above - evaluate()) / (2.0 * step);
    }
    interpreter.set(input, point);
    expectNear(actual, expected, "input " + std::to_string(index));
  }
}
