//===- LossGradient.h - Gradient of the loss --------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The gradient of a loss with respect to itself is one. What follows from it
// and from forward values alone, element by element or along rows, needs
// nothing of the backward pass: for cross-entropy, (softmax - one hot) of the
// logits. As a part of the forward pass it fuses with the loss, which has just
// read the logits, and is what is kept for the backward pass in their place.
// (Liger Kernel, Hsu et al. 2024, computes it there for the same reason.)
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_GRADIENTS_LOSSGRADIENT_H
#define PLAIT_LIB_TRANSFORMS_GRADIENTS_LOSSGRADIENT_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace plait {

/// Makes backward ops of a joint function that computes a loss forward ones:
/// those above, unless what they leave takes more bytes than what they read and
/// nobody else needs. Layers' ops stay where they are. With `inChunks` the
/// matmuls that take the gradient of the logits become forward ones, too, so
/// that no pass has all of it (nn-chunk-loss).
void computeLossGradientEarly(mlir::func::FuncOp joint, bool inChunks);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_GRADIENTS_LOSSGRADIENT_H
