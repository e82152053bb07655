//===- Remarks.h - Remarks of passes ----------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `--remarks-filter='dist-assign-.*'` prints the remarks of the passes that it
// matches. Without it nobody listens, and what takes long need not be found.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_REMARKS_H
#define PLAIT_LIB_TRANSFORMS_REMARKS_H

#include "mlir/IR/Remarks.h"
#include "mlir/IR/SymbolTable.h"

namespace plait {

inline bool hasRemarks(mlir::MLIRContext *context) {
  return context->getRemarkEngine() != nullptr;
}

/// Under which name, pass and function a remark about `op` stands.
inline mlir::remark::RemarkOpts about(mlir::Operation *op, llvm::StringRef name,
                                      llvm::StringRef pass) {
  auto function = op->getParentOfType<mlir::SymbolOpInterface>();
  return mlir::remark::RemarkOpts::name(name).category(pass).function(
      function ? function.getName() : "");
}

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_REMARKS_H
