//===- Companions.cpp - What rows of experts take besides -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Companions.h"

#include "Measure.h"

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"

using namespace mlir;
using namespace plait;

/// Counts the elements that `op` has a kernel read and write; 0: none.
static double countMoved(Operation *op, const planner::Operation &operation) {
  // They are sent nowhere, but copied like others; a sum is made of what lies
  // where it is.
  if (auto combine = dyn_cast<dist::CombineOp>(op)) {
    double members = countElements(combine.getInput().getType()) /
                     countElements(combine.getType());
    return 2 * operation.collectivePerSequence / members;
  }
  auto grouped = dyn_cast<GroupedOpInterface>(op);
  if (!grouped || grouped.makesMatrices())
    return 0;
  return countElements(op->getResult(0).getType()) -
         double(operation.batch) * double(operation.m) * double(operation.n);
}

std::optional<planner::Operation>
plait::makeCompanion(Operation *op, const planner::Operation &operation) {
  double elements = countMoved(op, operation);
  if (elements <= 0)
    return std::nullopt;
  planner::Operation kernel;
  kernel.kind = planner::OperationKind::Kernel;
  kernel.name = operation.name;
  kernel.pass = operation.pass;
  kernel.again = operation.again;
  kernel.elementsPerSequence = elements;
  return kernel;
}
