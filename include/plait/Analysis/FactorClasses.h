//===- FactorClasses.h - Dimensions that move together ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Dimensions that run along one factor of an op belong together: they have one
// extent, and are split together. Taken over all ops of a graph, this
// partitions the dimensions of all values into classes: the batch, the
// sequence, the vocabulary, the heads of layer 3, …. Splitting data over ranks
// is choosing axes for classes; a model for another batch is one whose class of
// the batch has another extent.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_ANALYSIS_FACTORCLASSES_H
#define PLAIT_ANALYSIS_FACTORCLASSES_H

#include "plait/Interfaces/OpInterfaces.h"

#include "llvm/ADT/DenseMap.h"

namespace plait {

/// Union-find over the dimensions of values.
class FactorClasses {
public:
  /// Joins the dimensions that `op` moves together by its `rule`; with
  /// `reordered` only those whose elements may all be in another order.
  void add(ShardableOpInterface op, const FactorRule &rule,
           bool reordered = false);

  /// Has dimension `dim` of two values move together.
  void join(mlir::Value a, mlir::Value b, int64_t dim) {
    parents[find(a, dim)] = find(b, dim);
  }

  /// The representative of dimension `dim` of `value`.
  int find(mlir::Value value, int64_t dim);
  /// The representative of a factor of `op`, or -1 if no dimension runs along
  /// it.
  int findFactor(ShardableOpInterface op, const FactorRule &rule, int factor);

private:
  int root(int node);

  llvm::DenseMap<std::pair<mlir::Value, int64_t>, int> nodes;
  llvm::SmallVector<int> parents;
};

} // namespace plait

#endif // PLAIT_ANALYSIS_FACTORCLASSES_H
