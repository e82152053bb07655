//===- IterationSpace.h - The loops of a cluster ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The tensors of a cluster share dimensions: the last dimension of a bias is
// the last of what it is added to. The space has one dimension per such class.
// Neighbouring dimensions that all tensors have both or neither of collapse
// into one *group*, which one loop runs over. A tensor without a group repeats
// along it.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_ANALYSIS_ITERATIONSPACE_H
#define PLAIT_ANALYSIS_ITERATIONSPACE_H

#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Interfaces/OpInterfaces.h"
#include "llvm/ADT/DenseMap.h"
#include <optional>

namespace plait {

/// Stands in place of a dimension of the space: of extent 1, or indexed by
/// data.
inline constexpr int64_t kNoDim = -1;

/// A set of groups, as bits.
using GroupSet = uint64_t;

/// Dimensions of the space that one loop runs over.
struct Group {
  int64_t extent = 1;
  llvm::SmallVector<int64_t> dims; ///< Outermost first.
};

/// An op that sums up or takes the maximum.
struct Reduction {
  mlir::Operation *op;
  GroupSet reduced; ///< Empty: all dimensions it reduces have extent 1.
};

class IterationSpace {
public:
  /// Fails, with an error at the cluster or an op of it, where the tensors do
  /// not fit one space.
  static llvm::FailureOr<IterationSpace> analyze(plan::ClusterOp cluster);

  /// Outermost first; empty for a cluster of scalars.
  llvm::ArrayRef<Group> getGroups() const { return groups; }
  /// The group of the contiguous dimension: the last. -1: there is none.
  int64_t getInner() const { return static_cast<int64_t>(groups.size()) - 1; }
  llvm::ArrayRef<Reduction> getReductions() const { return reductions; }

  int64_t getExtent(int64_t dim) const { return extents[dim]; }
  int64_t getGroup(int64_t dim) const { return groupOfDim[dim]; }
  /// Returns, for each dimension of the tensor, the dimension of the space or
  /// kNoDim. Inputs of the cluster repeat differently at each use, so they have
  /// no dimensions of their own.
  llvm::ArrayRef<int64_t> getDims(mlir::Value value) const;
  llvm::ArrayRef<int64_t> getDims(mlir::OpOperand &use) const;
  GroupSet getGroups(llvm::ArrayRef<int64_t> dims) const;

private:
  friend class SpaceBuilder;
  llvm::SmallVector<int64_t> extents;
  llvm::SmallVector<int64_t> groupOfDim;
  llvm::SmallVector<Group> groups;
  llvm::SmallVector<Reduction> reductions;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<int64_t>> valueDims;
  llvm::DenseMap<mlir::OpOperand *, llvm::SmallVector<int64_t>> useDims;
};

/// How an op takes part in a kernel; every op of a cluster is fusable.
FusionRole getRole(mlir::Operation *op);

/// Returns what an op of role Reindex reads; nothing for all others.
std::optional<IndexMap> findIndexMap(mlir::Operation *op);

/// The value of the attribute that FusableOpInterface::getCallAttrName names;
/// the op has one.
int64_t getCallValue(mlir::Operation *op);

} // namespace plait

#endif // PLAIT_ANALYSIS_ITERATIONSPACE_H
