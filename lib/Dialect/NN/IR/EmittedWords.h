//===- EmittedWords.h - Arithmetic of hashes in kernels ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_DIALECT_NN_IR_EMITTEDWORDS_H
#define PLAIT_LIB_DIALECT_NN_IR_EMITTEDWORDS_H

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Support/DropoutMask.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace plait::nn {

/// The arithmetic of DropoutMask.h, emitted.
struct EmittedWords {
  using Word = mlir::Value;

  template <typename OpTy>
  mlir::Value emit(mlir::Value a, mlir::Value b) const {
    return OpTy::create(context.builder, context.loc, a, b);
  }
  mlir::Value constant(uint32_t value) const {
    return context.getConstant(
        context.builder.getI32IntegerAttr(static_cast<int32_t>(value)));
  }
  mlir::Value add(mlir::Value a, mlir::Value b) const {
    return emit<mlir::arith::AddIOp>(a, b);
  }
  mlir::Value multiply(mlir::Value a, uint32_t b) const {
    return emit<mlir::arith::MulIOp>(a, constant(b));
  }
  mlir::Value exclusiveOr(mlir::Value a, mlir::Value b) const {
    return emit<mlir::arith::XOrIOp>(a, b);
  }
  mlir::Value shiftRight(mlir::Value a, unsigned bits) const {
    return emit<mlir::arith::ShRUIOp>(a, constant(bits));
  }

  ElementContext &context;
};

} // namespace plait::nn

#endif // PLAIT_LIB_DIALECT_NN_IR_EMITTEDWORDS_H
