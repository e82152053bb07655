//===- Compilation.h - One module on its way to a plan ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_DRIVER_COMPILATION_H
#define PLAIT_LIB_DRIVER_COMPILATION_H

#include "Certificate.h"
#include "LoweredModel.h"
#include "ModelState.h"
#include "plait/Configuration/Mesh.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Schedule/Schedule.h"

#include <optional>

namespace plait {

/// One module on its way through the phases. All that decides about the plan is
/// in the module once it has been imported.
class Compilation {
public:
  /// What is compiled, and who hears of it. `order` is the order of a step as a
  /// value, compute only, where the name of the schedule does not say it; null:
  /// none. All must live longer.
  struct Input {
    ModelState &model;
    ModelSource *source; // the model's, or another of it; null: none
    Messages &messages;
    const schedule::Schedule *order = nullptr;
    bool tellsProgress = true;
    /// Stands for what `model` would import for the batch and sequence that are
    /// compiled, with fewer layers; null: it is imported. Must live longer.
    mlir::ModuleOp fewer = nullptr;
  };

  Compilation(const CompileOptions &options, const Input &input)
      : options(options), input(input), source(input.source) {}

  /// Reads the model, or the IR that an earlier compilation has left, and
  /// writes what it is compiled for into it. Failures have been reported.
  mlir::LogicalResult import();
  /// Continues with what has been lowered, and takes it. Failures have been
  /// reported.
  mlir::LogicalResult adopt(LoweredModel &lowered);
  /// Imports the model of `other` once more, whose reference this compiles:
  /// what the module brings along is for another plan.
  mlir::LogicalResult importReference(const Compilation &other);
  /// Runs the phases that are left up to `last`. What nobody will run need not
  /// be verified.
  mlir::LogicalResult runTo(Phase last, bool verifies = true);
  /// Fails where a rank needs more than a device of the cluster has.
  Status checkMemory() const;
  /// The same of a plan, of which more is known: what sites receive, and what
  /// communicators take.
  Status checkMemory(const plan::fb::PlanT &plan) const;
  mlir::FailureOr<std::unique_ptr<plan::fb::PlanT>> convert();
  mlir::ModuleOp getModule() const { return *module; }
  mlir::OwningOpRef<mlir::ModuleOp> takeModule() { return std::move(module); }
  /// As imported; null where nothing is to be proven.
  mlir::OwningOpRef<mlir::ModuleOp> takeModel() { return std::move(model); }
  /// Null where none was asked for.
  CertificatePtr takeCertificate();
  /// Whether the module is for one batch, over all data-parallel ranks, and
  /// cannot be made for another.
  bool hasFixedBatch() const { return !source || source->hasFixedBatch(); }
  /// The phase after which the module was read.
  Phase getImported() const { return imported; }
  TrainingConfiguration getConfiguration() const {
    return plait::getConfiguration(*module);
  }
  const Mesh &getMesh() const { return mesh; }
  std::string getText();

private:
  void begin();
  Status chooseMesh();
  Status chooseTarget();
  Status readSchedule();
  Status chooseConfiguration();
  Status checkSchedule();
  Status choose();
  mlir::LogicalResult write();
  mlir::LogicalResult keepModel();
  mlir::LogicalResult prove(Phase phase);
  mlir::LogicalResult dump(Phase phase);
  bool isVerified(Phase phase, Phase last) const;
  void show(Phase phase);
  void tellOfUnfused();

  bool report(const Status &status) { return input.messages.report(status); }
  mlir::MLIRContext *getContext() const { return &input.model.context; }

  Status checkMemory(int64_t stage, int64_t bytes, int64_t promised = 0) const;

  const CompileOptions &options;
  Input input;
  bool isReference = false;
  Phase imported = Phase::Import;
  ModelSource *source; // null: the module was read as it is
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::OwningOpRef<mlir::ModuleOp>
      model; // as imported, where the plan is to be proven
  CertificatePtr certificate;
  std::string knownOfKernels; // the certificate's words
  // What is chosen, before there is a module to say it.
  Mesh mesh;
  TargetAttr target;
  ClusterAttr cluster;
  TrainingConfiguration configuration;
  std::optional<schedule::Schedule> order; // where one is given
};

/// Runs the phases up to placed buffers, in silence; null: failures have been
/// reported.
std::unique_ptr<LoweredModel> lowerModel(CompileOptions options,
                                         Compilation::Input input);

} // namespace plait

#endif // PLAIT_LIB_DRIVER_COMPILATION_H
