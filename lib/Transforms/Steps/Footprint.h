//===- Footprint.h - What steps read and write ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which steps of a function may pass each other is decided by the bytes that
// they read and write: never two of which one writes what the other uses.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_STEPS_FOOTPRINT_H
#define PLAIT_LIB_TRANSFORMS_STEPS_FOOTPRINT_H

#include "plait/Transforms/Steps.h"

#include <map>

namespace plait {

/// Bytes of one slot, or of the arena.
struct SlotBytes {
  int64_t slot; // -1: the arena
  int64_t begin, end;
};

/// A set of bytes, as ranges that neither overlap nor touch, so that of those
/// that begin before some byte the last one alone can reach it: `touches` takes
/// the logarithm of the ranges, `add` too but for what it merges.
class ByteSet {
public:
  void add(const SlotBytes &bytes);
  bool touches(const SlotBytes &bytes) const;

private:
  std::map<int64_t, std::map<int64_t, int64_t>> slots; // end by begin
};

/// A use that a step makes of bytes.
struct ResolvedUse {
  SlotBytes bytes;
  bool writes;
};
using ResolvedUses = llvm::SmallVector<ResolvedUse>;

/// The bytes that steps read and write.
class Footprint {
public:
  void add(llvm::ArrayRef<ResolvedUse> uses) {
    for (const ResolvedUse &use : uses)
      (use.writes ? written : read).add(use.bytes);
  }
  /// Two reads never conflict.
  bool conflicts(llvm::ArrayRef<ResolvedUse> uses) const {
    return llvm::any_of(uses, [&](const ResolvedUse &use) {
      return written.touches(use.bytes) ||
             (use.writes && read.touches(use.bytes));
    });
  }

private:
  ByteSet read, written;
};

/// Finds for each slot of a function the first one that some action binds to
/// the same bytes; -1 where these are bytes of the arena that steps name
/// directly.
class Aliases {
public:
  Aliases(plan::FunctionOp function, llvm::ArrayRef<plan::ActionOp> calls,
          const ProgramMemory &memory);

  /// Resolve memory. Slots do not overlap alike in all actions: one that has an
  /// alias counts as a whole.
  SlotBytes resolve(plan::MemoryAttr used) const;
  ResolvedUses resolve(plan::StepOpInterface step) const;

private:
  SlotBytes locate(plan::MemoryAttr used) const;
  void add(plan::ActionOp action);
  int64_t find(int64_t slot) const;
  void join(int64_t left, int64_t right);

  plan::FunctionOp function;
  const ProgramMemory &memory;
  ByteSet named; // of the arena, by steps
  llvm::SmallVector<int64_t> aliases;
};

/// Visits every function that programs of `module` call, once and in the light
/// of all of its calls: its slots may overlap in one and not in another. Fails
/// where verifySteps() or a visit does.
mlir::LogicalResult forEachCalled(
    mlir::ModuleOp module,
    llvm::function_ref<mlir::LogicalResult(plan::FunctionOp, const Aliases &)>
        visit);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_STEPS_FOOTPRINT_H
