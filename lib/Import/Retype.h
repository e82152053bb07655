//===- Retype.h - A model in the types of another size ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_IMPORT_RETYPE_H
#define PLAIT_LIB_IMPORT_RETYPE_H

#include "mlir/IR/BuiltinOps.h"

namespace plait {

/// Makes a model whose loss function is for some batch and sequence one for
/// `batch` sequences of `sequence` tokens. An error, at the op, where something
/// in it holds for the written size only: a parameter that runs along the
/// sequence, a constant number of targets.
mlir::LogicalResult retypeModel(mlir::ModuleOp module, int64_t batch,
                                int64_t sequence);

/// Whether `module`, a model, is one for the batch that it is written for
/// alone: its loss is no sum over sequences, or something in it holds for that
/// batch.
bool hasFixedBatch(mlir::ModuleOp module);

/// Fails, with an error at `loc`, unless indices can count the tokens of a
/// microbatch of that size.
mlir::LogicalResult checkSize(mlir::Location loc, int64_t batch,
                              int64_t sequence);

} // namespace plait

#endif // PLAIT_LIB_IMPORT_RETYPE_H
