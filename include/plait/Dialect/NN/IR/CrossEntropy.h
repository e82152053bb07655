//===- CrossEntropy.h - The loss of each target -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_CROSSENTROPY_H
#define PLAIT_DIALECT_NN_IR_CROSSENTROPY_H

#include "plait/Dialect/NN/IR/NNBuilder.h"

namespace plait::nn {

/// The losses of targets, and which of them count: both f32, of the targets'
/// shape. The sum of their products is the loss of nn.softmax_cross_entropy.
struct CrossEntropies {
  mlir::Value losses;
  mlir::Value valid; // 1, or 0 of a target that is ignored
};

/// Creates what computes them of the operands of `entropy`, with primitives.
CrossEntropies buildCrossEntropies(NNBuilder &nn,
                                   SoftmaxCrossEntropyOp entropy);

} // namespace plait::nn

#endif // PLAIT_DIALECT_NN_IR_CROSSENTROPY_H
