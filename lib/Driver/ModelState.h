//===- ModelState.h - Models on their way into the compiler -----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_DRIVER_MODELSTATE_H
#define PLAIT_LIB_DRIVER_MODELSTATE_H

#include "Messages.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Driver/Session.h"
#include "plait/Import/ModelSource.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

namespace plait {

/// An imported model: what Model is a handle of. Modules that are made of it
/// are in its context, and must not outlive it.
struct ModelState {
  ModelState(const ModelOptions &options, Reporter &reporter,
             const AddDialects &addDialects);

  /// Reads the file. Failures have been reported.
  mlir::LogicalResult open();

  /// Returns the model for `batch` sequences, over all data-parallel ranks, of
  /// `sequence` tokens, changed as the options say. `from` is the source, or
  /// another of the same model. Failures have been reported.
  mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
  get(ModelSource &from, int64_t batch, int64_t sequence);

  /// Returns a copy of what is decided already, as a model that has nothing
  /// decided; null where a phase after import has done more.
  std::unique_ptr<ModelSource> getUndecided();

  /// Gives the parameters of a model the shardings that the options pin.
  /// Failures have been reported.
  mlir::LogicalResult pinShardings(mlir::ModuleOp module);

  ModelOptions options;
  Messages messages;
  mlir::MLIRContext context;
  /// Hands all diagnostics of the context to `messages`.
  mlir::ScopedDiagnosticHandler handler;
  /// The text of the model's config.json; empty: it has none.
  std::string config;
  /// The model, for any batch and sequence; null: it is `decided`.
  std::unique_ptr<ModelSource> source;
  /// IR that says already what it is compiled for, changed as the options say.
  mlir::OwningOpRef<mlir::ModuleOp> decided;

private:
  mlir::LogicalResult edit(mlir::ModuleOp module);
};

/// Tells why GPUs take the slower attention, for which nobody has asked, and
/// what that costs, where it is known.
void noteUnfusedAttention(Messages &messages, const Status &reason,
                          const std::string &cost = "");

} // namespace plait

#endif // PLAIT_LIB_DRIVER_MODELSTATE_H
