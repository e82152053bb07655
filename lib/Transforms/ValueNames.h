//===- ValueNames.h - What crosses between functions has a name -*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_VALUENAMES_H
#define PLAIT_LIB_TRANSFORMS_VALUENAMES_H

#include "plait/Transforms/Names.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace plait {

/// Fails with an error where an argument or a result of `function` lacks the
/// attribute `pipe.value`.
inline mlir::LogicalResult checkValueNames(mlir::func::FuncOp function) {
  auto refuse = [&](llvm::StringRef what, unsigned index) {
    return function.emitError(what) << " " << index
                                    << " has no name; expected the attribute "
                                    << kValueAttr;
  };
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (!function.getArgAttrOfType<mlir::StringAttr>(i, kValueAttr))
      return refuse("argument", i);
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (!function.getResultAttrOfType<mlir::StringAttr>(i, kValueAttr))
      return refuse("result", i);
  return mlir::success();
}

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_VALUENAMES_H
