//===- OpInterfaces.cpp - Interfaces that passes rely on ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The defaults of interface methods. They look at types alone, so that an op
// which says nothing of its cost is taken for an elementwise one: one operation
// for each element that it makes, and every operand and result moved once.
//
//===----------------------------------------------------------------------===//

#include "plait/Interfaces/OpInterfaces.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;
using namespace plait;

#include "plait/Interfaces/OpInterfaces.cpp.inc"

int64_t plait::detail::countElements(Value value) {
  return cast<RankedTensorType>(value.getType()).getNumElements();
}

/// Counts the elements of all results that are tensors.
int64_t plait::detail::countResultElements(Operation *op) {
  int64_t elements = 0;
  for (Type type : op->getResultTypes())
    if (auto tensor = dyn_cast<RankedTensorType>(type))
      elements += tensor.getNumElements();
  return elements;
}

/// Counts as if the op ran alone; an operand that is passed twice counts twice.
int64_t plait::detail::countOperandAndResultBytes(Operation *op) {
  int64_t bytes = 0;
  auto count = [&](Type type) {
    if (auto tensor = dyn_cast<RankedTensorType>(type))
      bytes += tensor.getNumElements() * tensor.getElementTypeBitWidth() / 8;
  };
  llvm::for_each(op->getOperandTypes(), count);
  llvm::for_each(op->getResultTypes(), count);
  return bytes;
}

/// `letter` in "lhs,rhs->result", of the first two operands and the first
/// result of `op`.
int64_t plait::detail::getExtent(Operation *op, StringRef spec, char letter) {
  // The first tensor that has the letter decides; that the others agree is
  // verified ((C2) of nn.matmul).
  unsigned tensor = 0, dim = 0;
  for (char own : spec) {
    if (own == letter) {
      Value value = tensor < 2 ? op->getOperand(tensor) : op->getResult(0);
      return cast<RankedTensorType>(value.getType()).getDimSize(dim);
    }
    if (own == ',' || own == '>') {
      ++tensor;
      dim = 0;
    } else {
      ++dim;
    }
  }
  return 0;
}
