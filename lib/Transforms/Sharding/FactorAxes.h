//===- FactorAxes.h - The axes that split factors ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What mesh axes that split the factors of an op mean for the types of its
// operands and results.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_SHARDING_FACTORAXES_H
#define PLAIT_LIB_TRANSFORMS_SHARDING_FACTORAXES_H

#include "plait/Analysis/FactorClasses.h"
#include "plait/Configuration/Compressors.h"
#include "plait/Dialect/Dist/IR/Dist.h"

namespace plait {

/// The axes that split each factor of an op; null where none does.
using FactorAxes = llvm::SmallVector<mlir::ArrayAttr>;

/// The sharding of a tensor whose dimensions run along `dims`, partial over the
/// axes of reduced factors if `isResult`.
dist::ShardingAttr getSharding(mlir::FlatSymbolRefAttr mesh,
                               const FactorRule &rule, const FactorAxes &axes,
                               const FactorRule::DimFactors &dims,
                               bool isResult);

/// Has a linear op read the partial sums from which its operands were combined,
/// where nothing else reads these: ranks then combine once what it makes of
/// them, as of attention and MLP that read the same input. Axes of the sums do
/// not split the op.
void readPartialSums(ShardableOpInterface op, FactorAxes &axes);

/// Gives the results of `op` the types that splitting its factors, those of its
/// `rule`, by `axes` implies, and reshards operands that lie otherwise.
void applyFactorAxes(ShardableOpInterface op, const FactorRule &rule,
                     mlir::FlatSymbolRefAttr mesh, const FactorAxes &axes);

/// "12 and 16": the multiples of `parts` next to `extent`, which it does not
/// divide.
std::string listNearest(int64_t extent, int64_t parts);

/// Divides a parameter over all axes that divide state and do not split it
/// already: along its first dimension that splits into so many equal blocks, or
/// else axis by axis, as far as there are such dimensions.
dist::ShardingAttr divideState(dist::MeshOp mesh, mlir::RankedTensorType type,
                               dist::ShardingAttr sharding);

/// The same of what replicas compress of `value`, which is read of a parameter:
/// each gets whole chunks, neighbours. Where other ranks have parts of the
/// gradient as well, or there are no whole chunks for each, as it is.
dist::ShardingAttr divideChunks(dist::MeshOp mesh, mlir::Value value,
                                dist::ShardingAttr stored,
                                const Compression &compression);

/// Whether `op` only moves elements, so that partial sums may be combined after
/// it as well as before.
bool movesElements(mlir::Operation *op);

/// `value` under `sharding`: itself, or a reshard created by `builder`.
mlir::Value reshard(mlir::OpBuilder &builder, mlir::Value value,
                    dist::ShardingAttr sharding);

/// The same for all users of `value`, before the first one of each layer, so
/// that it need not be kept from one to another; users outside of layers are
/// far from each other.
void reshardForLayers(mlir::OpBuilder &builder, mlir::Value value,
                      dist::ShardingAttr sharding);

/// Shards ops that were created among sharded values: classes take the axes of
/// the operands from outside and of the `seeds` (a value and the sharding it
/// should get), larger tensors first; then every op is given its types.
void shardNewOps(
    llvm::ArrayRef<mlir::Operation *> ops,
    llvm::ArrayRef<std::pair<mlir::Value, dist::ShardingAttr>> seeds,
    mlir::FlatSymbolRefAttr mesh);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_SHARDING_FACTORAXES_H
