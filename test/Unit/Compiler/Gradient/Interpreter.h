//===- Interpreter.h - Evaluates nn ops, in double precision ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the ops mean, written as plainly as possible and independently of the
// code generator. Only for tests: slow, and sizes are tiny.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_COMPILER_GRADIENT_INTERPRETER_H
#define PLAIT_TEST_UNIT_COMPILER_GRADIENT_INTERPRETER_H

#include "plait/Dialect/NN/IR/NN.h"

#include <map>
#include <vector>

namespace plait::test {

/// A row-major tensor; integers are held as doubles too.
struct Array {
  llvm::SmallVector<int64_t> shape;
  std::vector<double> data;

  /// A tensor of zeros.
  explicit Array(llvm::ArrayRef<int64_t> shape = {});
  Array(llvm::ArrayRef<int64_t> shape, std::vector<double> data);
  double &at(llvm::ArrayRef<int64_t> index);
};

/// Evaluates values on demand. Inputs (block arguments) are set first. An op
/// without a rule here goes by its decomposition.
class Interpreter {
public:
  void set(mlir::Value input, Array array);
  const Array &get(mlir::Value value);

private:
  void evaluate(mlir::Operation *op);
  void evaluateDecomposition(mlir::Operation *op);

  llvm::DenseMap<mlir::Value, Array> inputs;
  /// By address: a reference stays valid while others are added.
  std::map<void *, Array> results;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<mlir::Value>> parts;
};

/// A tensor of normally distributed numbers, the same for the same seed.
Array random(llvm::ArrayRef<int64_t> shape, unsigned seed);

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_COMPILER_GRADIENT_INTERPRETER_H
