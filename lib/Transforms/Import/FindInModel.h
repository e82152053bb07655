//===- FindInModel.h - What passes change in a model ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_IMPORT_FINDINMODEL_H
#define PLAIT_LIB_TRANSFORMS_IMPORT_FINDINMODEL_H

#include "plait/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/Twine.h"

namespace plait {

/// Returns `@loss` of a model; fails where `module` is IR of a later phase,
/// with `what`, such as "in which documents are not masked any more".
mlir::FailureOr<mlir::func::FuncOp> findModel(mlir::ModuleOp module,
                                              const llvm::Twine &what);

/// Returns the parameters whose name `pattern` matches, at least one; `*`
/// matches anything. Fails with `what`, which says what the pattern is for,
/// where it is none.
mlir::FailureOr<llvm::SmallVector<nn::ParameterOp>>
findParameters(mlir::ModuleOp module, llvm::StringRef pattern,
               llvm::StringRef what);

/// Puts an nn.stop_gradient behind `read`, so that its parameter has no
/// gradient of it.
void stopGradient(SlotOpInterface read);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_IMPORT_FINDINMODEL_H
