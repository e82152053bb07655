//===- TrainedValues.cpp - What needs a gradient ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One walk forward, as a value stands behind what it is made of. Profile and
// count of FLOPs ask it before there is a backward pass; what is differentiated
// in the end, Differentiate.cpp decides.
//
//===----------------------------------------------------------------------===//

#include "plait/Analysis/TrainedValues.h"

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/NN/IR/Parameters.h"

using namespace mlir;
using namespace plait;

llvm::DenseSet<Value> plait::findTrainedValues(func::FuncOp loss) {
  llvm::DenseSet<Value> trained;
  for (Operation &op : loss.getBody().front()) {
    if (op.hasTrait<StopsGradient>())
      continue;
    bool depends = nn::getSlotAccess(&op) == nn::SlotAccess::Read ||
                   llvm::any_of(op.getOperands(), [&](Value operand) {
                     return trained.contains(operand);
                   });
    for (Value result : op.getResults())
      if (depends && isa<FloatType>(getElementTypeOrSelf(result.getType())))
        trained.insert(result);
  }
  return trained;
}
