//===- Fusion.h - Ops as members of kernels ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the parts of fusion share: FormClusters.cpp chooses which ops become one
// kernel, PrepareFusion.cpp makes every op one that a kernel can compute on its
// own, CreateCluster.cpp builds the clusters. What a kernel can compute is
// asked of plait/Analysis/KernelShape.h, nowhere else.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_LOWERING_FUSION_H
#define PLAIT_LIB_TRANSFORMS_LOWERING_FUSION_H

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"

#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/SetVector.h"
#include <optional>

namespace plait {

/// Costs nothing to compute again inside of a kernel: constants, broadcasts,
/// casts that do not round.
bool isFree(mlir::Operation *op);

/// Whether a kernel finds what it reads here in memory only: the user is none,
/// or addresses memory in its own way.
bool needsMemory(mlir::OpOperand &use);

/// Works on other elements than its own: a unit that holds one is not moved
/// whole, and takes no ops of other units but elementwise ones beside an index
/// map.
bool readsElsewhere(mlir::Operation *op);

/// Reads neighbours in memory, the same ones on all ranks: as an elementwise op
/// does, from another element on.
bool readsFixedBlock(mlir::Operation *op);

/// Makes more elements of what is in memory than there are.
bool unpacks(mlir::Operation *op);

/// Has what is returned, stored or accumulated come from a kernel, a matmul or
/// a collective: where it does not, an op copies it. Reductions that no kernel
/// does at once become several.
void prepareFusion(mlir::Block &body);

/// Returns ops of one block as they follow each other there.
inline llvm::SmallVector<mlir::Operation *>
inProgramOrder(llvm::ArrayRef<mlir::Operation *> ops) {
  llvm::SmallVector<mlir::Operation *> sorted(ops);
  llvm::sort(sorted, [](mlir::Operation *a, mlir::Operation *b) {
    return a->isBeforeInBlock(b);
  });
  return sorted;
}

/// Finds what a cluster of the ops `members` reads: free ops are part of it.
llvm::SetVector<mlir::Value>
findInputs(llvm::ArrayRef<mlir::Operation *> members);

/// A cluster, in no block yet, of the ops `members`, which are in program
/// order, and of copies of the free ops they read; it yields `outputs`.
mlir::OwningOpRef<plan::ClusterOp>
createCluster(llvm::ArrayRef<mlir::Operation *> members,
              llvm::ArrayRef<mlir::Value> outputs);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_LOWERING_FUSION_H
