//===- PaddingAnalysis.h - Analysis of padding to mask ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Dimensions that are split unevenly have padding on the last ranks. What lies
// there is derived op by op (plait/Interfaces/Padding.h), and masked where it
// would count:
//   a sum over the dimension       adds zeros of padding
//   a maximum over it              compares with minus infinity
//   what is stored, sent, returned has zeros in its padding
// so that what is read, received or an argument has zeros there, too. Integers
// only tell places: what is in their padding is never known at such borders.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_COLLECTIVES_PADDINGANALYSIS_H
#define PLAIT_LIB_TRANSFORMS_COLLECTIVES_PADDINGANALYSIS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Interfaces/Padding.h"

#include "llvm/ADT/SetVector.h"

namespace plait {

/// A dimension of a block that is longer than what it holds on some rank: the
/// block begins at `begin`, and elements from `limit` on are padding.
struct Padding {
  int64_t dim;
  llvm::SmallVector<RankTerm> begin;
  int64_t limit;
};

/// The padding of a value of a (global) type.
llvm::SmallVector<Padding> getPadding(dist::MeshOp mesh, mlir::Type type);

/// Finds the masks that a function with global types needs. Changes nothing.
class PaddingAnalysis {
public:
  PaddingAnalysis(mlir::func::FuncOp function, dist::MeshOp mesh)
      : function(function), mesh(mesh) {}

  /// Fails with an error where masks of operands do not help an op.
  mlir::LogicalResult run();

  /// The padding of `value` that is zeroed before anyone uses it: one mask for
  /// all users, in the kernel that computes the value.
  llvm::SmallVector<Padding> getCleared(mlir::Value value) const;
  /// The padding that one use wants to be minus infinity.
  llvm::SmallVector<Padding> getLowered(mlir::OpOperand &use) const;

private:
  using Place = std::pair<mlir::Value, int64_t>; // and a dimension of it

  bool isUneven(mlir::Type type);
  bool isPadded(const FactorRule &rule, mlir::Operation *op, int factor);
  void define(mlir::Value value, int64_t dim, NumberRange range);
  void clear(mlir::Value value, int64_t dim);
  llvm::SmallVector<NumberRange>
  getRangesAlong(mlir::Operation *op, const FactorRule &rule, int factor);
  mlir::LogicalResult maskReduced(ShardableOpInterface op,
                                  const FactorRule &rule, int factor);
  mlir::LogicalResult visit(ShardableOpInterface op);
  void visitMove(mlir::Operation *op);
  mlir::LogicalResult runOnce();

  mlir::func::FuncOp function;
  dist::MeshOp mesh;
  llvm::DenseMap<mlir::Type, bool> uneven; // whether values have padding
  /// The numbers that ops leave in padding, before it is cleared.
  llvm::DenseMap<Place, NumberRange> ranges;
  llvm::DenseSet<Place> cleared;
  llvm::DenseMap<mlir::OpOperand *, llvm::SmallVector<int64_t>> lowered;
  bool changed = false;
};

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_COLLECTIVES_PADDINGANALYSIS_H
