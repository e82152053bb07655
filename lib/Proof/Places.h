//===- Places.h - Check of values' addresses --------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The forms of Step.h are those of SSA values, but what a rank executes reads
// and writes memory. This shows for each function whose values have places that
// what an op takes is still where it was put, that a slot of a parameter, by
// its own name or as part of a pack, is one place, and that numbers of the
// trainer are where it puts and looks for them.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_PLACES_H
#define PLAIT_LIB_PROOF_PLACES_H

#include "State.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace plait::proof {

/// Succeeds where nothing has a place yet.
llvm::LogicalResult checkPlaces(mlir::ModuleOp module, const Symbols &symbols,
                                Report &report);

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_PLACES_H
