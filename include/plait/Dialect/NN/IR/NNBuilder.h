//===- NNBuilder.h - Arithmetic on tensors, as expressions ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Gradients and decompositions are formulas; this lets them read as such.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_NNBUILDER_H
#define PLAIT_DIALECT_NN_IR_NNBUILDER_H

#include "mlir/IR/Builders.h"
#include "plait/Dialect/NN/IR/NN.h"

namespace plait::nn {

/// Creates nn ops with plain types. Arguments are evaluated in an order that
/// the C++ compiler chooses: bind each new value to a name before using it as
/// an argument beside another new one.
class NNBuilder {
public:
  NNBuilder(mlir::OpBuilder &builder, mlir::Location loc)
      : builder(builder), loc(loc) {}

  template <typename OpTy, typename... Args>
  mlir::Value unary(mlir::Value x, Args &&...args) {
    return OpTy::create(builder, loc, dist::plainType(x.getType()), x,
                        std::forward<Args>(args)...);
  }
  template <typename OpTy> mlir::Value binary(mlir::Value a, mlir::Value b) {
    return OpTy::create(builder, loc, dist::plainType(a.getType()), a, b);
  }

  mlir::Value add(mlir::Value a, mlir::Value b) { return binary<AddOp>(a, b); }
  mlir::Value sub(mlir::Value a, mlir::Value b) { return binary<SubOp>(a, b); }
  mlir::Value mul(mlir::Value a, mlir::Value b) { return binary<MulOp>(a, b); }
  mlir::Value div(mlir::Value a, mlir::Value b) { return binary<DivOp>(a, b); }
  /// Tells where the two are equal, in bf16: gradients keep it for the backward
  /// pass.
  mlir::Value equal(mlir::Value a, mlir::Value b) {
    auto type = dist::plainType(a.getType()).clone(builder.getBF16Type());
    return EqualOp::create(builder, loc, type, a, b);
  }
  mlir::Value neg(mlir::Value x) { return unary<NegOp>(x); }
  mlir::Value exp(mlir::Value x) { return unary<ExpOp>(x); }
  mlir::Value scale(mlir::Value x, double amount) {
    return unary<ScaleOp>(x, builder.getF32FloatAttr(amount));
  }
  mlir::Value shift(mlir::Value x, double amount) {
    return unary<ShiftOp>(x, builder.getF32FloatAttr(amount));
  }

  /// `x` with elements of type `element`: itself where it has them.
  mlir::Value cast(mlir::Value x, mlir::Type element);
  /// `x` in f32, in which sums, exponentials and the like are computed.
  mlir::Value widen(mlir::Value x) { return cast(x, builder.getF32Type()); }
  /// `x` with the element type of `like`.
  mlir::Value castLike(mlir::Value x, mlir::Value like) {
    return cast(x, mlir::getElementTypeOrSelf(like));
  }

  /// A tensor of one number, of the shape of `like`.
  mlir::Value fillLike(mlir::Value like, double amount);
  mlir::Value broadcast(mlir::Value x, llvm::ArrayRef<int64_t> shape,
                        llvm::ArrayRef<int64_t> dims);
  /// Repeats a tensor without the last dimension of `like` along it.
  mlir::Value broadcastRows(mlir::Value x, mlir::Value like);
  /// Repeats a vector along all dimensions of `like` but its last.
  mlir::Value broadcastColumns(mlir::Value x, mlir::Value like);
  mlir::Value reduce(mlir::Value x, llvm::ArrayRef<int64_t> dims,
                     ReduceKind kind = ReduceKind::Sum);
  /// The sum over the last dimension.
  mlir::Value sumRows(mlir::Value x);
  /// The sum over all dimensions but the last.
  mlir::Value sumColumns(mlir::Value x);
  mlir::Value sumAll(mlir::Value x);
  /// The contraction whose result has the extents that `spec` implies, in
  /// `element` (null: the operands' element type).
  mlir::Value matmul(mlir::Value lhs, mlir::Value rhs, const llvm::Twine &spec,
                     mlir::Type element = {});

  mlir::OpBuilder &builder;
  mlir::Location loc;
};

} // namespace plait::nn

#endif // PLAIT_DIALECT_NN_IR_NNBUILDER_H
