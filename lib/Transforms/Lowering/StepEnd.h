//===- StepEnd.h - What a step ends with, by parameter ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The functions that reduce gradients and update parameters do the same to many
// parameters. Found here is what they do to one, in a form that can be
// compared.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_LOWERING_STEPEND_H
#define PLAIT_LIB_TRANSFORMS_LOWERING_STEPEND_H

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <optional>
#include <string>

namespace plait {

/// What the end of a step does to one parameter.
struct ParameterEnd {
  nn::ParameterOp parameter;
  /// Of one rank's block, in f32.
  mlir::RankedTensorType type;
  /// The all-reduces of the gradient, in order, and where their result is
  /// stored; none: `reduced` is null.
  llvm::SmallVector<dist::AllReduceOp> reductions;
  nn::WriteOp reduced;
  /// The sum of the gradient's squares, a number on its way into a sum over
  /// parameters; null: not counted here.
  mlir::Value norm;
  /// The stores of the update, an expression of the parameter's own tensors at
  /// the same place and of numbers that all parameters share. Empty: something
  /// else.
  llvm::SmallVector<nn::WriteOp> updates;
  /// Whether there is a bf16 copy to compute with, and whether the value itself
  /// is read all the same.
  bool hasCopy = false, valueIsRead = false;
  /// Whether its pack is divided over replicas.
  bool isDivided = false;
  /// Equal for parameters to which the same is done.
  std::string key;
};

/// Looks at the functions of one rank, and keeps no track of changes.
class StepEndAnalysis {
public:
  StepEndAnalysis(llvm::ArrayRef<mlir::func::FuncOp> functions,
                  mlir::func::FuncOp reduce, mlir::func::FuncOp optimizer);

  /// Nothing where the rank does not have the parameter, where it uses it in
  /// more than one shape, and where its gradient is reduced otherwise.
  std::optional<ParameterEnd> analyze(nn::ParameterOp parameter);
  /// Whether the rank has the parameter.
  bool holds(nn::ParameterOp parameter) const;

private:
  struct Accesses {
    llvm::SmallVector<nn::ReadOp> reads;
    llvm::SmallVector<nn::WriteOp> writes;
  };
  friend class UpdateReader;

  void addAccesses(mlir::func::FuncOp function);
  static llvm::DenseMap<mlir::Attribute, Accesses>
  collect(mlir::func::FuncOp function);
  bool readReductions(ParameterEnd &end);
  void readNorm(ParameterEnd &end);
  void readUpdate(ParameterEnd &end);
  unsigned numberOf(mlir::Value scalar) {
    return numbers.try_emplace(scalar, numbers.size()).first->second;
  }

  llvm::DenseMap<mlir::Attribute, Accesses> reduceAccesses, updateAccesses;
  /// By symbol; null: of several shapes.
  llvm::DenseMap<mlir::Attribute, mlir::RankedTensorType> types;
  llvm::DenseMap<mlir::Attribute, bool> copies;
  llvm::DenseMap<mlir::Value, unsigned> numbers;
};

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_LOWERING_STEPEND_H
