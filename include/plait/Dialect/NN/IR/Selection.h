//===- Selection.h - What ids select ----------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Several ops take entries of a tensor that ids name. Who asks how many ids
// there may be need not know them by name.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_SELECTION_H
#define PLAIT_DIALECT_NN_IR_SELECTION_H

#include "plait/Dialect/NN/IR/NN.h"

namespace plait::nn {

/// Says that an op takes the entries of `from` that `ids` name, along `dim`, of
/// which a rank has those from `begin` on.
struct Selection {
  mlir::Value ids, from;
  int64_t dim = 0;
  BeginAttr begin;
  int64_t limit = 0; // entries of the whole; 0: not said

  /// Counts the entries of the rank that runs the op.
  int64_t getEntries() const;
};

/// Returns what `op` selects; without ids where it selects nothing.
Selection findSelection(mlir::Operation *op);

} // namespace plait::nn

#endif // PLAIT_DIALECT_NN_IR_SELECTION_H
