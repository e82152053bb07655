//===- ExpertRows.h - Ops on rows of split experts --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which ops work on rows of experts that an axis splits, so that the axis does
// not split the tokens there: a rank takes the tokens of all ranks along the
// axis, and computes those rows that its own experts take.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_SHARDING_EXPERTROWS_H
#define PLAIT_LIB_TRANSFORMS_SHARDING_EXPERTROWS_H

#include "FactorAxes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

namespace plait {

class ExpertRows {
public:
  /// The axis that splits experts; null, and no op: none of several ranks does.
  mlir::StringAttr axis;

  /// Finds the ops of the loss. Fails with an error where there are no experts
  /// to split, or fewer than ranks.
  mlir::LogicalResult find(mlir::func::FuncOp function, dist::MeshOp mesh);

  bool contains(mlir::Operation *op) const { return ops.contains(op); }
  /// Whether a result is left as it is, for other ops on rows.
  bool keeps(mlir::Value result) const;
  /// The dimension of experts; none: `value` is no experts' matrices.
  std::optional<int64_t> findExperts(mlir::Value value) const {
    auto found = matrices.find(value);
    return found == matrices.end() ? std::nullopt
                                   : std::optional(found->second);
  }
  /// `axes` of a factor of an op on rows, or of a dimension, without the axis,
  /// or with it in front if experts are along it.
  mlir::ArrayAttr place(mlir::ArrayAttr axes, bool hasExperts) const;
  /// Reshards operands of an op on rows, each once for all ops that take it.
  void bring(ShardableOpInterface op, mlir::FlatSymbolRefAttr mesh,
             const FactorAxes &axes);

private:
  mlir::LogicalResult addOwner(ShardableOpInterface op, const FactorRule &rule,
                               int factor, int64_t ranks);
  void addUser(ShardableOpInterface op);
  void addSource(mlir::Operation *op);

  llvm::DenseSet<mlir::Operation *> ops;
  /// The ids by which rows belong to one rank each.
  llvm::DenseMap<mlir::Value, mlir::Value> owners;
  llvm::DenseMap<mlir::Value, int64_t> matrices;
  llvm::DenseMap<std::pair<mlir::Value, mlir::Attribute>, mlir::Value> brought;
};

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_SHARDING_EXPERTROWS_H
