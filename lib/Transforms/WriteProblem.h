//===- WriteProblem.h - What a pass has solved, as data ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Passes that claim an optimum have the option `problem`: the problem as it was
// solved, with the solution, so that others can solve it, too. docs/Phases.md
// says what is in the files.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_WRITEPROBLEM_H
#define PLAIT_LIB_TRANSFORMS_WRITEPROBLEM_H

#include "plait/Plan/Files.h"

#include "mlir/IR/Operation.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

namespace plait {

/// Writes `problem` to `path`, "-" for standard output, as OutputFile does; an
/// error is emitted at `op`. Numbers are written with all their digits.
inline mlir::LogicalResult writeProblem(mlir::Operation *op,
                                        mlir::StringRef path,
                                        llvm::json::Value problem) {
  std::string text = llvm::formatv("{0}\n", problem).str();
  Status status = writeTextFile(path.str(), text);
  if (!status.ok())
    return op->emitError(status.message());
  return mlir::success();
}

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_WRITEPROBLEM_H
