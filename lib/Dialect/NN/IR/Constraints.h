//===- Constraints.h - Checks that verifiers share --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each fails with an error of the op. And what ops do about the positions of
// their first operand, which are its dimension 1.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_DIALECT_NN_IR_CONSTRAINTS_H
#define PLAIT_LIB_DIALECT_NN_IR_CONSTRAINTS_H

#include "plait/Dialect/NN/IR/NN.h"

namespace plait::nn {

/// Returns the shape of a tensor.
inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value value) {
  return mlir::cast<mlir::RankedTensorType>(value.getType()).getShape();
}

/// Fails unless `value`, if there is one, has exactly this shape.
mlir::LogicalResult verifyShape(mlir::Operation *op, const char *what,
                                mlir::Value value,
                                llvm::ArrayRef<int64_t> expected);

/// Fails where a dimension is reordered that is taken in its own order only.
mlir::LogicalResult verifyInOrder(mlir::Operation *op, BeginAttr begin);

/// Fails for a window, if there is one, that a query is not in itself.
mlir::LogicalResult verifyWindow(mlir::Operation *op,
                                 std::optional<int64_t> window);

/// (C1) and (C2) of `nn.occupied`: `counts` are the elements of tensors in a
/// table of chunks, or of one as it is.
mlir::LogicalResult verifyTensors(mlir::Operation *op, mlir::Value input,
                                  mlir::DenseI64ArrayAttr counts);

/// Whether positions run along `factor`.
template <typename OpTy> bool isPosition(OpTy op, int factor) {
  return op.getFactorRule().operands[0][1] == factor;
}

/// Tells `op` which positions the rank has.
template <typename OpTy>
void localizePositions(OpTy op, int factor, llvm::ArrayRef<RankTerm> begin,
                       int64_t limit) {
  if (isPosition(op, factor))
    op.setBeginAttr(localize(op.getBeginAttr(), op.getContext(), begin, limit));
}

/// Tells it in which order they are stored.
template <typename OpTy>
void orderPositions(OpTy op, int factor, ChunkOrder order) {
  if (isPosition(op, factor))
    op.setBeginAttr(BeginAttr::get(op.getContext(), order));
}

} // namespace plait::nn

#endif // PLAIT_LIB_DIALECT_NN_IR_CONSTRAINTS_H
