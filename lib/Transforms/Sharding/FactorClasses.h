//===- FactorClasses.h - Dimensions that move together ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Dimensions that run along one factor of an op are split together. Taken over
// all ops of a graph, this partitions the dimensions of all values into
// classes: the batch, the sequence, the vocabulary, the heads of layer 3, ….
// Splitting data over ranks is choosing axes for classes.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_SHARDING_FACTORCLASSES_H
#define PLAIT_LIB_TRANSFORMS_SHARDING_FACTORCLASSES_H

#include "plait/Dialect/Dist/IR/Dist.h"
#include "llvm/ADT/DenseMap.h"

namespace plait {

/// Union-find over the dimensions of values.
class FactorClasses {
public:
  /// Joins the dimensions that `op`, a ShardableOpInterface, moves together;
  /// with `reordered` only those whose elements may all be in another order.
  void add(ShardableOpInterface op, bool reordered = false);

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

/// The axes that split each factor of an op; null where none does.
using FactorAxes = llvm::SmallVector<mlir::ArrayAttr>;

/// The sharding of a tensor whose dimensions run along `dims`, partial over the
/// axes of reduced factors if `isResult`.
dist::ShardingAttr getSharding(mlir::FlatSymbolRefAttr mesh,
                               const FactorRule &rule, const FactorAxes &axes,
                               const FactorRule::DimFactors &dims,
                               bool isResult);

/// Gives the results of `op` the types that splitting its factors by `axes`
/// implies, and reshards operands that lie otherwise.
void applyFactorAxes(ShardableOpInterface op, mlir::FlatSymbolRefAttr mesh,
                     const FactorAxes &axes);

/// "12 and 16": the multiples of `parts` next to `extent`, which it does not
/// divide.
std::string listNearest(int64_t extent, int64_t parts);

/// Whether `op` only moves elements, so that partial sums may be combined after
/// it as well as before.
bool movesElements(mlir::Operation *op);

/// `value` under `sharding`: itself, or a reshard created by `builder`.
mlir::Value reshard(mlir::OpBuilder &builder, mlir::Value value,
                    dist::ShardingAttr sharding);

/// Shards ops that were created among sharded values: classes take the axes of
/// the operands from outside and of the `seeds` (a value and the sharding it
/// should get), larger tensors first; then every op is given its types.
void shardNewOps(
    llvm::ArrayRef<mlir::Operation *> ops,
    llvm::ArrayRef<std::pair<mlir::Value, dist::ShardingAttr>> seeds,
    mlir::FlatSymbolRefAttr mesh);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_SHARDING_FACTORCLASSES_H
