//===- Neighbours.h - Values that lie side by side --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Matmuls that read the same tensor, as those of query, key and value do, are
// one call of a library where all else of them lies at equal distances
// (Steps/BatchMatmuls.cpp). Weights and their gradients do, in their packs;
// what is computed has to be placed so.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_LOWERING_NEIGHBOURS_H
#define PLAIT_LIB_TRANSFORMS_LOWERING_NEIGHBOURS_H

#include "PlaceValues.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"

namespace plait {

/// Values of a workspace, each as large as the others, in the order in which
/// they are to lie.
using Neighbours = llvm::SmallVector<mlir::Value, 3>;

/// Finds what matmuls of `function` would have to find side by side, to be one.
/// `places` has what is fixed. No value is in two groups.
llvm::SmallVector<Neighbours>
findNeighbours(mlir::func::FuncOp function,
               const llvm::MapVector<mlir::Value, plan::PlaceAttr> &places,
               const Workspace &workspace);

/// Packs the workspace into the room that `placed` leaves, as packMemory() does
/// with its lifetimes in their order, but for neighbours: if that takes no more
/// memory, they lie side by side.
llvm::SmallVector<int64_t> packNeighbours(const Workspace &workspace,
                                          llvm::ArrayRef<Neighbours> groups,
                                          int64_t &total,
                                          llvm::ArrayRef<PlacedBuffer> placed);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_LOWERING_NEIGHBOURS_H
