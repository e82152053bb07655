//===- IdenticalFunctions.h - Detection of identical functions --*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The stages of a deep model do the same to other parameters. What costs time
// is done to one function of each kind, so that it does not grow with the
// layers.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_LOWERING_IDENTICALFUNCTIONS_H
#define PLAIT_LIB_TRANSFORMS_LOWERING_IDENTICALFUNCTIONS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace plait {

/// Does to every function of `module` what `transform` does to it. Functions
/// are identical where their bodies differ at most in which parameters
/// (`symbol`) and layers (`nn.layer`) they name, and in locations: the second
/// one and all further ones become copies of the first, with their own names.
/// So `transform` must only change the body, and look neither at what a symbol
/// names nor at the number of a layer; which of them are the same it may ask.
/// Returns how many functions were transformed.
int64_t transformOnce(mlir::ModuleOp module,
                      llvm::function_ref<void(mlir::func::FuncOp)> transform);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_LOWERING_IDENTICALFUNCTIONS_H
