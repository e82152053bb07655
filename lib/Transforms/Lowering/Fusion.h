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

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/SetVector.h"

#include <optional>
#include <unordered_map>
#include <vector>

namespace plait {

/// Whether kernels are made for GPUs, or counted as if they were.
bool isForGPUs(mlir::ModuleOp module);

/// Marks the tokens of which gradients of tables want the order: arguments of
/// stage functions, for GPUs. Gradients of other ids, say of some rows or of
/// those of a document, look at all.
void sortTokens(mlir::ModuleOp module);

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

/// Whether a comparison reads the value, free ops looked through.
bool isCompared(mlir::Value value);

/// Reduces leading dimensions and keeps others, or is the first step of such a
/// reduction (splitColumnSums()).
bool isColumnReduction(mlir::Operation *op);

/// Replaces sums over the leading dimensions of tensors with few columns by
/// sums over all of these but the first, and the sums of those: a GPU has a
/// block of threads for some columns, and then for each index of the first
/// dimension too.
void splitColumnSums(mlir::Block &body);

/// Returns `op`, a reduction, over `dims` of `input` alone.
mlir::Operation *reduceOver(mlir::OpBuilder &builder, mlir::Operation *op,
                            mlir::Value input, llvm::ArrayRef<int64_t> dims);

/// Has what is returned, stored or accumulated come from a kernel, a matmul or
/// a collective: where it does not, an op copies it. Reductions that no kernel
/// does at once become several. What kernels need on both sides of a matmul or
/// a collective is made on both, where that reads less than it has bytes:
/// returns these copies, which belong to those who read them.
llvm::DenseSet<mlir::Operation *> prepareFusion(mlir::Block &body);

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

/// How a kernel computes the ops of a cluster, if one does.
enum class Copies : uint8_t {
  Shared,   ///< Users of a free op share one copy of it.
  Separate, ///< Each user has its own.
  None      ///< There is no kernel either way.
};

/// Finds how a kernel computes the ops `members`, which are in program order,
/// and the free ops that they read, if `outputs` are what it yields.
Copies findCopies(llvm::ArrayRef<mlir::Operation *> members,
                  llvm::ArrayRef<mlir::Value> outputs);

/// Whether all these ops add numbers that are in memory or that another of them
/// computes. A kernel does, however many they are: to ask for each length of
/// such a sum, as the norm of all gradients is, would take the square of it.
bool addNumbers(llvm::ArrayRef<mlir::Operation *> ops);

/// A cluster, in no block yet, of the ops `members` and of copies of the free
/// ops they read; it yields `outputs`.
mlir::OwningOpRef<plan::ClusterOp>
createCluster(llvm::ArrayRef<mlir::Operation *> members,
              llvm::ArrayRef<mlir::Value> outputs, Copies copies);

/// Remembers which clusters have a kernel: layers that are alike ask for the
/// same ones, and building one takes long. Clusters are the same where their
/// ops differ at most in which layers (`nn.layer`) and dropouts (`site`) they
/// name, and in locations.
class KnownClusters {
public:
  /// Returns how many clusters were built to find out.
  int64_t size() const { return clusters.size(); }

  /// Forgets the ops of a function, which may change and be erased from then
  /// on. As long as they are known their operands alone may change.
  void endFunction() { kindOfOp.clear(); }

  /// Returns what findCopies() does.
  Copies find(llvm::ArrayRef<mlir::Operation *> members,
              llvm::ArrayRef<mlir::Value> outputs);

private:
  using Words = std::vector<uintptr_t>;
  struct HashWords {
    size_t operator()(const Words &words) const {
      return llvm::hash_combine_range(words.begin(), words.end());
    }
  };
  /// Facts of an op without its operands.
  struct Kind {
    uintptr_t number;
    bool isFree;
  };

  Kind kindOf(mlir::Operation *op);
  void describe(mlir::OpOperand &use);
  /// Adds the number of a value; returns whether the cluster has it for the
  /// first time.
  bool meet(mlir::Value value);

  // Addresses are hashed, which differ between runs: nothing goes through
  // these in their order.
  std::unordered_map<Words, uintptr_t, HashWords> kinds;
  llvm::DenseMap<mlir::Operation *, Kind> kindOfOp;
  std::unordered_map<Words, Copies, HashWords> clusters;
  // They describe the cluster that is asked about, and are kept for their
  // memory.
  Words words;
  llvm::DenseMap<mlir::Value, uintptr_t> numbers;
};

/// Groups the fusable ops of `function` into clusters.
void formClusters(mlir::func::FuncOp function, KnownClusters &known);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_LOWERING_FUSION_H
