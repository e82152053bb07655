//===- LowRankSum.h - Sums of matrices as two factors -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_GRADIENTS_LOWRANKSUM_H
#define PLAIT_LIB_TRANSFORMS_GRADIENTS_LOWRANKSUM_H

#include "plait/Configuration/CompressionFacts.h"
#include "plait/Dialect/NN/IR/NNBuilder.h"

#include <string>

namespace plait {

/// The sum over all replicas of a matrix of each, as two factors of a rank that
/// is given.
class LowRankSum {
public:
  /// `shape`: of the whole parameter.
  LowRankSum(nn::NNBuilder &nn, llvm::ArrayRef<int64_t> shape, int64_t rank);

  /// The type of the factor that is kept from step to step: of each row of the
  /// other one the columns.
  mlir::RankedTensorType getKeptType();

  struct Sums {
    mlir::Value all;  // what all replicas have sent
    mlir::Value own;  // what this one has sent of it
    mlir::Value kept; // the factor that the next step begins with
  };
  /// Approximates the sum over replicas of what each has as `own`, `kept` being
  /// what the step before has left; `sum` adds up over replicas.
  Sums apply(mlir::Value own, mlir::Value kept,
             llvm::function_ref<mlir::Value(mlir::Value)> sum);

private:
  mlir::Value orthogonalize(mlir::Value vectors, mlir::Value &areKept);
  mlir::Value takeRow(mlir::Value table, mlir::Value mask);
  mlir::Value project(mlir::Value vector, mlir::Value basis);
  mlir::Value shrink(mlir::Value vector);
  mlir::Value square(mlir::Value vector);
  mlir::Value spread(mlir::Value numbers, mlir::Value like);

  nn::NNBuilder &nn;
  int64_t rank;
  llvm::SmallVector<int64_t> rows, columns; // the shapes of both sides
  // The dimensions of both sides and of the rank, as contractions name them.
  std::string rowLetters, columnLetters, rankLetter;
};

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_GRADIENTS_LOWRANKSUM_H
