//===- RunTool.h - Programs that turn files into files ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CODEGEN_RUNTOOL_H
#define PLAIT_LIB_CODEGEN_RUNTOOL_H

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/ErrorOr.h"
#include <string>
#include <vector>

namespace plait::codegen {

/// A program to run on one temporary file, which it turns into another.
struct Tool {
  llvm::StringRef path;
  llvm::StringRef inputSuffix, outputSuffix; ///< Of the files, without a dot.
  llvm::SmallVector<llvm::StringRef> options;
};

/// Finds the program `onPath` on the path, or else `name` in `folder`.
llvm::ErrorOr<std::string>
findTool(llvm::StringRef onPath, llvm::StringRef name, llvm::StringRef folder);

/// Runs `path options… -o OUTPUT INPUT`, INPUT having the bytes `input`, and
/// returns those of OUTPUT. Leaves no file behind. On failure an error that
/// begins with `purpose` ("cannot link the kernels") and goes on with the first
/// line that the program wrote is emitted at an unknown location.
llvm::FailureOr<std::vector<char>> runTool(const Tool &tool,
                                           llvm::StringRef input,
                                           llvm::StringRef purpose,
                                           mlir::MLIRContext *context);

} // namespace plait::codegen

#endif // PLAIT_LIB_CODEGEN_RUNTOOL_H
