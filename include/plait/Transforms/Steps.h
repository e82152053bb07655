//===- Steps.h - Memory of a program's steps --------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_STEPS_H
#define PLAIT_TRANSFORMS_STEPS_H

#include "plait/Dialect/Plan/IR/PlanIR.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseMap.h"
#include <optional>

namespace plait {

/// The buffers of a program by name, and the addresses that follow from them.
/// The program must outlive it and keep its buffers.
class ProgramMemory {
public:
  explicit ProgramMemory(plan::ProgramOp program);

  /// Null: the program has no such buffer.
  plan::BufferOp find(mlir::FlatSymbolRefAttr name) const {
    return buffers.lookup(name.getAttr()).op;
  }

  /// Bytes of the arena.
  struct Range {
    int64_t begin, end;
  };
  /// Returns what `action` binds to slot `slot` of its callee. Of the model's
  /// inputs, whose buffers hold all microbatches, that is one microbatch.
  Range getBound(plan::ActionOp action, int64_t slot) const;
  /// The buffer that a transfer moves.
  Range getMoved(plan::ActionOp action) const;
  /// Returns where `memory` is when `action` calls its function.
  Range resolve(plan::ActionOp action, plan::MemoryAttr memory) const;
  /// Bytes of one microbatch's rows in a buffer of the model's inputs.
  int64_t getInputStride(plan::BufferOp buffer) const {
    return int64_t(buffer.getBytes()) / microbatches;
  }

private:
  struct Buffer {
    plan::BufferOp op;
    bool isInput = false; // of the model: told by its name, once
  };
  Range getRange(plan::ActionOp action, mlir::Attribute buffer) const;

  llvm::DenseMap<mlir::StringAttr, Buffer> buffers;
  int64_t microbatches = 1;
};

/// The functions that a program calls, in the order of their first calls, found
/// in `symbols`.
llvm::SmallVector<plan::FunctionOp>
getCalled(plan::ProgramOp program, mlir::SymbolTableCollection &symbols);

/// Fails with an error unless every program of `module` calls functions of
/// steps that no other one calls, binds to each slot as many bytes as it has,
/// and has the buffers that their steps name.
mlir::LogicalResult verifySteps(mlir::ModuleOp module);

/// Returns the least elements of a bucket of gradients that `ranks` ranks
/// reduce, on the module's target. The rule is in plait/Support/Buckets.h,
/// which has no MLIR: the planner goes by it, too, so that it predicts as many
/// buckets as there are. Sums that go on in fewer elements begin sooner, and
/// take longer in all; the pass that cuts them, and the one that makes packs,
/// ask here.
int64_t getBucketElements(mlir::ModuleOp module, int64_t ranks);

/// Bytes that a device needs for `program`: the arena and, on GPUs, what
/// libraries may use. To a processor the host's memory is its own.
int64_t getDeviceBytes(plan::ProgramOp program);

} // namespace plait

#endif // PLAIT_TRANSFORMS_STEPS_H
