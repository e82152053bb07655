//===- Model.h - Models on their way into the compiler ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_DRIVER_MODEL_H
#define PLAIT_LIB_DRIVER_MODEL_H

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Driver/Driver.h"
#include "plait/Import/ModelSource.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringSet.h"

namespace plait {

/// A context with all dialects that a model may use, which prints diagnostics
/// as plaitc does: one line each, with the place in the model where it is
/// known. A warning that has been printed is not printed again: each phase
/// verifies what the one before has left.
class ModelContext {
public:
  explicit ModelContext(const CompileOptions &options);
  mlir::MLIRContext *get() { return &context; }

private:
  void print(mlir::Diagnostic &diagnostic);

  mlir::MLIRContext context;
  llvm::StringSet<> warnings;
  mlir::ScopedDiagnosticHandler handler;
};

/// Whether the model is a .mlir file.
bool isText(const CompileOptions &options);

/// What GPUs do not compute of such attention in one step; fails with that.
Status checkFusedAttention(nn::AttentionUse use);

/// Tells why GPUs take the slower attention, for which nobody has asked, and
/// what that costs, where it is known.
void noteUnfusedAttention(const Status &reason, const std::string &cost = "");

/// Takes dropout out of a model, gives it a document mask, and takes weight
/// decay off parameters, as the options say. Failures, such as IR that is no
/// model any more, have been reported.
mlir::LogicalResult adaptModel(mlir::ModuleOp module,
                               const CompileOptions &options);

/// A model, or the IR that a compilation has left.
struct OpenedModel {
  /// The model, for any batch and sequence; null: it is `module`.
  std::unique_ptr<ModelSource> source;
  /// IR that says already what it is compiled for, adapted to the options.
  mlir::OwningOpRef<mlir::ModuleOp> module;
  /// Whether the source is of such IR, of phase import, without what it said.
  bool isReplanned = false;
};

/// Opens it. What a cluster is given for is decided anew. Failures have been
/// reported.
mlir::FailureOr<OpenedModel> openModel(ModelContext &context,
                                       const CompileOptions &options);

/// The model of `source` for `batch` sequences, over all data-parallel ranks,
/// of `sequence` tokens, adapted to the options. Failures have been reported.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
importModel(ModelSource &source, const CompileOptions &options, int64_t batch,
            int64_t sequence);

/// Gives the parameters of a model the shardings that the options pin. Failures
/// have been reported.
mlir::LogicalResult pinShardings(mlir::ModuleOp module,
                                 const CompileOptions &options);

/// Where text for people goes.
llvm::raw_ostream &getText(const CompileOptions &options);

/// "plaitc: error: …" on standard error.
void printError(const llvm::Twine &message);
/// "plaitc: note: …".
void printNote(const llvm::Twine &message);
/// "plaitc: warning: …".
void printWarning(const llvm::Twine &message);
/// Replaces the line of a terminal on standard error that says what is being
/// done; messages clear it first.
void showProgress(const llvm::Twine &what);
void clearProgress();
/// Prints a failure; returns whether there was none.
bool report(const Status &status);
/// What is told of what was written, in one line with its end; empty where that
/// was to standard output.
std::string describeWritten(const CompileOptions &options,
                            const llvm::Twine &what);

} // namespace plait

#endif // PLAIT_LIB_DRIVER_MODEL_H
