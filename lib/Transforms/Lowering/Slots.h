//===- Slots.h - Slots of functions -----------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A function of a virtual stage reads and writes what its action binds to its
// slots. What crosses to another stage, and what comes from the data, has a
// slot of its own. Residuals stay within their stage: those that are made by
// one function and read for the last time by one other live equally long for
// every microbatch, so they lie side by side in one slot, and are one buffer a
// microbatch. A model has tens of residuals a layer, and two or three such
// sets.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_LOWERING_SLOTS_H
#define PLAIT_LIB_TRANSFORMS_LOWERING_SLOTS_H

#include "plait/Support/MemoryPlaces.h"
#include "plait/Transforms/StageFunctions.h"

#include <optional>
#include <string>

namespace plait {

/// One slot of a function.
struct Slot {
  pipe::PortAttr port; // what it is for; null where `residuals` says it
  std::optional<unsigned> residuals; // a set of the stage's
  int64_t bytes = 0;
  MemoryPlace place = MemoryPlace::Arena; // where what is bound lies

  /// Describes it for messages: "output 0", "residuals 1".
  std::string getText() const;
};

/// The place of a tensor.
struct SlotPlace {
  unsigned slot;
  int64_t offset; // bytes
};

/// The residuals of one virtual stage, each in its set.
class StageResiduals {
public:
  StageResiduals() = default;
  /// `functions` are all those of the stage; `inFlight` is how often a rank
  /// holds the residuals of a stage at once. Large blocks leave gaps that
  /// nothing fits, so that a set is no more than about a 400th of these.
  StageResiduals(llvm::ArrayRef<mlir::func::FuncOp> functions,
                 int64_t inFlight);

  struct Place {
    unsigned set;
    int64_t offset;        // bytes in the set, a multiple of plan::kAlignment
    MemoryPlace memory;    // of all of the set
    pipe::ActionKind last; // the action after which nobody needs the set
  };
  Place locate(pipe::PortAttr residual) const { return places.at(residual); }
  int64_t getBytes(unsigned set) const { return bytes[set]; }

private:
  llvm::DenseMap<pipe::PortAttr, Place> places;
  llvm::SmallVector<int64_t> bytes; // of the sets
};

/// The slots of one function, but for its workspace, which is the last.
struct FunctionSlots {
  llvm::SmallVector<Slot> slots;
  llvm::SmallVector<SlotPlace> arguments, results;
  /// Arguments that nobody needs any more when the function has read them: what
  /// it makes later may lie there.
  llvm::SmallVector<mlir::BlockArgument> released;

  /// An argument or a result without a port has a slot of its own.
  FunctionSlots(mlir::func::FuncOp function, const StageResiduals &residuals);
};

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_LOWERING_SLOTS_H
