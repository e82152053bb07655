//===- Units.h - Ops of a function on their way to kernels ------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which ops will be one kernel, and what depends on what among them. What may
// join is up to FormClusters.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_LOWERING_UNITS_H
#define PLAIT_LIB_TRANSFORMS_LOWERING_UNITS_H

#include "Fusion.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"

#include <vector>

namespace plait {

using Shape = mlir::SmallVector<int64_t, 5>;

inline Shape shapeOf(mlir::Value value) {
  return Shape(mlir::cast<mlir::RankedTensorType>(value.getType()).getShape());
}

/// Tells whether an op is a sum over everything. It is sequential: only its
/// like joins it.
bool sumsAll(mlir::Operation *op);

/// Returns the iteration space of an op on its own.
Shape spaceOf(mlir::Operation *op);

/// Ops that will be one kernel, or a single other op.
struct Unit {
  mlir::SmallVector<mlir::Operation *> ops;
  Shape space;
  bool closed = false, hasTotal = false; // takes no more ops; one sumsAll()

  void add(mlir::Operation *op);
  void clear() { *this = {{}, std::move(space), closed}; }
};

/// The units of a block. At first each op is one, but free ones (isFree()) that
/// no op needs in memory. Units are known by their numbers.
class Units {
public:
  explicit Units(mlir::Block &block);

  Unit &operator[](int unit) { return units[unit]; }
  bool contains(mlir::Operation *op) const { return unitOf.contains(op); }
  /// Returns the unit of an op; 0 for ops that are in none.
  int find(mlir::Operation *op) const { return unitOf.lookup(op); }
  /// Returns the ops that must come before `op`, free ones looked through.
  mlir::ArrayRef<mlir::Operation *> getSources(mlir::Operation *op) const;
  /// Tells whether any op compares floats; most functions compare nothing.
  bool compare() const { return hasComparisons; }

  /// Finds anew what comes before `op`, which is new or reads other values.
  void findSources(mlir::Operation *op);
  /// Makes `op`, which is new, one of `unit`: what it reads is made before that
  /// unit anyway.
  void add(mlir::Operation *op, int unit);
  /// Makes the ops of unit `from` some of unit `into`. A path through another
  /// unit may lead between them neither way.
  void merge(int from, int into);

  /// Tells whether a path leads from unit `from` through another unit to unit
  /// `to`. Looks only at units between the two in a topological order.
  bool hasOuterPath(int from, int to);
  /// Tells whether a value is needed outside of the kernel that holds the ops
  /// `inside`: free ops are copied into kernels, and ops that nobody reads any
  /// more go.
  bool
  isReadOutside(mlir::Value value,
                const llvm::SmallPtrSetImpl<mlir::Operation *> &inside) const;
  /// Finds what other ops than `members` read of their results.
  mlir::SmallVector<mlir::Value>
  findOutputs(mlir::ArrayRef<mlir::Operation *> members) const;

  /// Sorts the ops of each unit, and returns a topological order of the units
  /// that stays close to the program's: one comes where its last op is, or
  /// before the first that needs it. That a value is accumulated is no need: a
  /// kernel for sums of a whole layer would else have all of the layer's input
  /// gradients before its weight gradients, and so hold what these read.
  mlir::SmallVector<int> order();

private:
  /// Calls `body` for each unit that `to`, or what that needs, reads, and for
  /// that reader, as far as they are at place `least` of the topological order
  /// or behind it; their marks are `searches` then. Ends where `body` returns
  /// true, and returns whether it did.
  bool visitNeeded(int to, int least,
                   llvm::function_ref<bool(int unit, int reader)> body);

  mlir::Block &block;
  std::vector<Unit> units;
  llvm::DenseMap<mlir::Operation *, int> unitOf;
  llvm::DenseMap<mlir::Operation *, mlir::SmallVector<mlir::Operation *>>
      before;
  bool hasComparisons = false;
  /// The units in a topological order, and the place of each in it; those
  /// without ops stand anywhere. At first it is the program's order, and it is
  /// kept up to date where units become one (after Pearce and Kelly 2006).
  std::vector<int> sorted, places;
  uint32_t searches = 0;       // for paths
  std::vector<uint32_t> marks; // by unit: the last search that has met it
};

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_LOWERING_UNITS_H
