//===- ModelSource.h - A model for any batch and sequence -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The planner asks for a model at several sizes, and a compilation at the one
// that was chosen. A config.json is imported for each; a model that was written
// as IR has one size in its types, which are rewritten: whatever follows from
// the batch or the sequence of the tokens gets the extent that is asked for.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_IMPORT_MODELSOURCE_H
#define PLAIT_IMPORT_MODELSOURCE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace plait {

/// One model at any size.
class ModelSource {
public:
  virtual ~ModelSource() = default;

  /// The tokens of a sequence where nobody says how many; nothing where the
  /// source does not say it either.
  virtual std::optional<int64_t> getSequence() const = 0;

  /// Whether the model has one batch only: the sequences of a microbatch depend
  /// on each other, or something is written for so many.
  virtual bool hasFixedBatch() const = 0;

  /// The nn module, as plait/Import/HuggingFace.h describes it, for a
  /// microbatch of `batch` sequences over all data-parallel ranks, of
  /// `sequence` tokens each. Failure has been reported as a diagnostic.
  virtual mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
  get(int64_t batch, int64_t sequence) = 0;
};

/// The model of a config.json with this text, as importConfig() has it;
/// `ignoredFields` are those of ImportOptions. Nothing is built before the
/// model is asked for.
std::unique_ptr<ModelSource>
makeConfigSource(mlir::MLIRContext &context, std::string file, std::string text,
                 std::vector<std::string> ignoredFields);

/// The model `module`, an undecided one as importMLIR() gives it, verified for
/// its phase.
std::unique_ptr<ModelSource>
makeModuleSource(mlir::OwningOpRef<mlir::ModuleOp> module);

/// Whether IR says already what it is compiled for, for which its types were
/// made: it has a mesh, a schedule, a configuration, a target or a cluster, or
/// is of a phase after import.
bool isDecided(mlir::ModuleOp module);

/// Takes that out of a module of phase import, and leaves the model. Shardings
/// of parameters that were pinned stay.
void removeDecisions(mlir::ModuleOp module);

} // namespace plait

#endif // PLAIT_IMPORT_MODELSOURCE_H
