//===- ChunkedOps.h - Ops repeated for chunks of rows -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ops of one function that treat rows alike, repeated for some rows at a time.
// Who finds the ops says which of their values have rows, and along which
// dimension; what is taken from outside is cut by nn.chunk, and what others
// take is put together by nn.concat or added up. Nothing is changed before
// split().
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_GRADIENTS_CHUNKEDOPS_H
#define PLAIT_LIB_TRANSFORMS_GRADIENTS_CHUNKEDOPS_H

#include "plait/Interfaces/FactorRule.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <optional>

namespace plait {

using OpSet = llvm::SetVector<mlir::Operation *>;

/// The factors of an op that ranks execute; none: it does not say them. Moving
/// between ranks needs the dimension that it moves along whole.
std::optional<FactorRule> findFactorRule(mlir::Operation *op);

/// The dimension of a value that runs along `factor`; -1: none does.
int64_t findDim(const FactorRule::DimFactors &dims, int factor);

struct ChunkedOps {
  OpSet ops; // in the order of the function
  /// The dimension of the rows of values of the ops; -1: they are sums over
  /// rows.
  llvm::MapVector<mlir::Value, int64_t> rows;
  /// The dimension of the rows of what the ops take; -1: it has none.
  llvm::MapVector<mlir::OpOperand *, int64_t> inputs;
  llvm::SmallVector<mlir::Value> results; // that others take

  /// Brings the ops into the order of the function.
  void sort();
  /// Finds the rows of operands and results of `op`, by the factor that known
  /// ones run along, or dimension `rowDim` of the results that have rows; else
  /// says what is in the way.
  std::optional<std::string>
  findRows(mlir::Operation *op, int64_t rowDim,
           llvm::function_ref<bool(mlir::Value)> hasRows);
  /// Finds the results; else says which of them `check` refuses, cannot be
  /// added up or, but with `mayLieApart`, put together, or leads back to the
  /// ops.
  std::optional<std::string>
  findResults(llvm::function_ref<std::optional<std::string>(mlir::Value)> check,
              bool mayLieApart = false);
  /// Repeats the ops for each of `parts` chunks, and erases them.
  void split(int64_t parts);

private:
  std::optional<std::string> checkInputs();
  void moveUsers();
  mlir::IRMapping cloneChunk(mlir::OpBuilder &builder, int64_t part,
                             int64_t parts);
};

/// Computes the experts of each layer in as many chunks as the module asks for;
/// fails with an error where that cannot be.
llvm::LogicalResult chunkExperts(mlir::ModuleOp module);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_GRADIENTS_CHUNKEDOPS_H
