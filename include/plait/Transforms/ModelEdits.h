//===- ModelEdits.h - What is changed in a model ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The passes of phase import, which are run where somebody asks for them.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_MODELEDITS_H
#define PLAIT_TRANSFORMS_MODELEDITS_H

#include "plait/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/Twine.h"

#include <string>
#include <vector>

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace plait {

/// Changes that are asked for; by default there are none.
struct ModelEdits {
  bool removesDropout = false;
  bool insertsDocumentMask = false;
  bool weighsTargets = false;
  std::vector<std::string> withoutDecay; // names of parameters, as patterns
  std::vector<std::string> frozen;       // likewise
  std::vector<std::string> rateFactors;  // such a pattern and "=0.1"
  std::vector<std::string> optimizers;   // such a pattern and "=lion"
  std::vector<std::string> balance;      // "bias=0.001"
};

/// Adds the passes that `edits` ask for.
void buildModelEdits(mlir::OpPassManager &manager, const ModelEdits &edits);

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

} // namespace plait

#endif // PLAIT_TRANSFORMS_MODELEDITS_H
