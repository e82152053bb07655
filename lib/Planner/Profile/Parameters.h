//===- Parameters.h - Parameters that blocks read ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_PROFILE_PARAMETERS_H
#define PLAIT_LIB_PLANNER_PROFILE_PARAMETERS_H

#include "plait/Planner/Work.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace plait {

/// The symbols of what functions add to: parameters that are trained, and
/// accumulators of the loss; and of what is tied.
struct Sums {
  llvm::DenseSet<mlir::Attribute> whole;
  llvm::DenseSet<mlir::Attribute> partial; // ranks of tp have parts of the sum
  llvm::DenseSet<mlir::Attribute> shared;  // several stages read it

  bool contains(mlir::Attribute symbol) const {
    return whole.contains(symbol) || partial.contains(symbol);
  }
};

/// Finds them while types have shardings, and stages one function each.
Sums findSums(mlir::ModuleOp module);

/// Lists the parameters that a stage reads, by whether tp splits them.
std::vector<planner::ParameterGroup> findParameters(mlir::ModuleOp module,
                                                    mlir::func::FuncOp forward,
                                                    mlir::func::FuncOp backward,
                                                    const Sums &sums);

} // namespace plait

#endif // PLAIT_LIB_PLANNER_PROFILE_PARAMETERS_H
