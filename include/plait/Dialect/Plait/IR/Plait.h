//===- Plait.h - The plait dialect ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a module is compiled for, as attributes; the contracts are in
// PlaitAttrs.td.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_PLAIT_IR_PLAIT_H
#define PLAIT_DIALECT_PLAIT_IR_PLAIT_H

#include "mlir/IR/Attributes.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "plait/Configuration/Configuration.h"

#include "plait/Dialect/Plait/IR/PlaitDialect.h.inc"
#include "plait/Dialect/Plait/IR/PlaitEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "plait/Dialect/Plait/IR/PlaitAttrs.h.inc"

namespace plait {

/// The module's; the defaults where it has none.
TrainingConfiguration getConfiguration(mlir::ModuleOp module);
/// Null where the module has none.
ConfigurationAttr getConfigurationAttr(mlir::ModuleOp module);
void setConfiguration(mlir::ModuleOp module,
                      const TrainingConfiguration &configuration);
/// Leaves the model without what it was to be compiled for.
void removeConfiguration(mlir::ModuleOp module);

/// The last phase that is complete. Setting it also records what the phases up
/// to it have read: of the configuration, of target and cluster, and the
/// `mesh`, which is the module's as --mesh writes it (see dist.mesh).
Phase getPhase(mlir::ModuleOp module);
void setPhase(mlir::ModuleOp module, Phase phase, llvm::StringRef mesh);

/// Fails where that has changed since, with a message that names what, the
/// phase and both values. What no phase has read yet may be anything, as may
/// all where nothing is recorded.
Status checkRead(mlir::ModuleOp module, llvm::StringRef mesh);

/// Whether anything is recorded.
bool hasReadRecord(mlir::ModuleOp module);

/// Null where the module has none, and `set` removes it then.
TargetAttr getTarget(mlir::ModuleOp module);
void setTarget(mlir::ModuleOp module, TargetAttr target);
ClusterAttr getCluster(mlir::ModuleOp module);
void setCluster(mlir::ModuleOp module, ClusterAttr cluster);

/// How fast the module's cluster is. Where none is known, a device of 100
/// TFLOP/s with 625 GB/s of memory, and links of 100 GB/s whose start costs
/// what 64 KiB do: nobody's, but models of any size are split for them.
RatesAttr getRates(mlir::ModuleOp module);
/// Returns the link of `axis` in getRates(); fails with an error where there is
/// none.
mlir::FailureOr<LinkAttr> getLink(mlir::ModuleOp module, llvm::StringRef axis);

/// Get and set the FLOPs of the model for a microbatch of all data-parallel
/// ranks; 0 where that is not known. Of a large model they are more than 64
/// bits hold.
double getModelFlops(mlir::ModuleOp module);
void setModelFlops(mlir::ModuleOp module, double flops);

/// The config.json that the model came from; empty where there is none.
llvm::StringRef getConfigJson(mlir::ModuleOp module);
void setConfigJson(mlir::ModuleOp module, llvm::StringRef text);

/// The first name in a location: where in the model an op comes from. Null
/// where there is none.
mlir::StringAttr findOrigin(mlir::Location location);

/// Writes the name in the location of each op below `module` as the attribute
/// `plait.origin`, for IR that is written without locations.
void keepOrigins(mlir::ModuleOp module);

/// The inverse, where the attribute is. Block arguments lose their locations
/// either way, so that a module that was written and read is the one that was
/// not.
void restoreOrigins(mlir::ModuleOp module);

} // namespace plait

#endif // PLAIT_DIALECT_PLAIT_IR_PLAIT_H
