//===- Workers.h - Mapping of kernel loops to workers -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The emitters of loops (EmitRows.cpp, EmitColumns.cpp, EmitScatter.cpp) say
// what is looped over and what is combined; workers say which thread does what.
// On a processor one thread computes a parallel index alone, and gets a range
// of indices. On a GPU a *team* of threads shares one: its members deal the
// loop inside of it out among themselves, as cards are dealt, and combine their
// partial results afterwards, in one fixed order.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CODEGEN_KERNEL_WORKERS_H
#define PLAIT_LIB_CODEGEN_KERNEL_WORKERS_H

#include "Emitter.h"

namespace plait::codegen {

class Workers {
public:
  explicit Workers(Emitter &emitter) : emitter(emitter) {}
  virtual ~Workers() = default;

  /// The threads of a team.
  int64_t members = 1;
  /// This thread's number in its team, i64; null: it is alone.
  mlir::Value member;
  /// Teams that stand side by side in kernels over columns: each thread of a
  /// row has a vector of columns of its own. `neighbour` is the number of this
  /// thread's; null: 0.
  int64_t neighbours = 1;
  mlir::Value neighbour;
  /// Whether a costly value is better stored than computed twice.
  bool keepsCostly = true;
  /// Whether the last vector of a row may reach beyond its end.
  bool readsBeyondRows = false;
  /// Rows of at least so many numbers do not stay near the threads from one
  /// sweep to the next: a sweep less is worth more arithmetic. 0: all rows do.
  int64_t leastOnline = 0;
  /// Parallel indices of a kernel that scatters: enough for all threads.
  int64_t tableBlocks = 64;

  /// Calls `body` where this thread is to compute the parallel index it is
  /// given, of `count`. If anything is `carried`, all indices are computed by
  /// one call of the kernel, in order; `body` replaces the carried values,
  /// which become those of all indices, combined as `roles` say.
  virtual void forIndices(int64_t count, llvm::ArrayRef<FusionRole> roles,
                          llvm::SmallVectorImpl<mlir::Value> &carried,
                          llvm::function_ref<void(mlir::Value)> body) = 0;

  /// A loop over what the team shares, from `first` to `last` by `step`, begins
  /// for this thread at `begin` and goes on by `members` times `step`. What the
  /// loop counts is `shift` less than the index it is at: 0, or this thread's
  /// place, so that a loop with as many iterations for all members has bounds
  /// that do not depend on the thread.
  struct Share {
    mlir::Value begin;
    mlir::Value shift; ///< Null: 0.
  };
  Share deal(mlir::Value first, int64_t count, int64_t step);
  mlir::Value dealtIndex(const Share &share, mlir::Value counter) {
    return share.shift ? emitter.add(counter, share.shift) : counter;
  }

  /// Combines the members' partial results, scalars or vectors; every member
  /// gets all. All threads of the kernel must come here.
  virtual void combine(llvm::ArrayRef<FusionRole> roles,
                       llvm::MutableArrayRef<mlir::Value> partials) {}

  /// Calls `body` for the numbers in [0, count) for which `test`, an i1, holds,
  /// in order. No value of `test` is at hand in `body`.
  virtual void forMatches(int64_t count,
                          llvm::function_ref<mlir::Value(mlir::Value)> test,
                          llvm::function_ref<void(mlir::Value)> body) = 0;

protected:
  Emitter &emitter;
};

} // namespace plait::codegen

#endif // PLAIT_LIB_CODEGEN_KERNEL_WORKERS_H
