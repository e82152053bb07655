//===- Harness.h - Functions of nn ops, and their gradients ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_COMPILER_GRADIENT_HARNESS_H
#define PLAIT_TEST_UNIT_COMPILER_GRADIENT_HARNESS_H

#include "Interpreter.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "plait/Dialect/NN/IR/NNBuilder.h"

#include <gtest/gtest.h>

namespace plait::test {

/// What is compared: constants of ops are fp32, whose rounding is 6e-8 of the
/// value; sums of some tens of products of numbers of order 1 follow. Central
/// differences with a step of 1e-5 add about 1e-10.
inline constexpr double kTolerance = 1e-5;

void expectNear(const Array &actual, const Array &expected,
                const std::string &what);

/// The gradients of sum(result * cotangent) with respect to everything that
/// `result` depends on, by the ops' own products. They are built at the end of
/// `block`, which holds the ops; null where none flows.
llvm::DenseMap<mlir::Value, mlir::Value>
differentiate(mlir::Block &block, mlir::Value result, mlir::Value cotangent);

/// A block in which a test builds a function of its inputs.
class GradientHarness {
public:
  GradientHarness();

  mlir::Value input(Array array);
  mlir::Value ids(llvm::ArrayRef<int64_t> shape, std::vector<double> numbers);
  mlir::RankedTensorType type(llvm::ArrayRef<int64_t> shape);

  /// Compares with central differences for every float input that `result`
  /// depends on.
  void checkGradients(mlir::Value result);

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::OpBuilder builder;
  nn::NNBuilder nn;
  Interpreter interpreter;
  std::vector<mlir::Value> inputs; // floats only

private:
  mlir::Value add(Array array, mlir::Type element);
};

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_COMPILER_GRADIENT_HARNESS_H
