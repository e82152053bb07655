//===- Assemble.cpp - PTX to a cubin --------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Assembles PTX to a cubin by the toolkit's ptxas. A machine without the
// toolkit compiles plans as well: the driver then compiles the PTX when a plan
// is loaded.
//
//===----------------------------------------------------------------------===//

#include "../RunTool.h"
#include "NVPTXLibrary.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

/// A ptxas that is there and fails is an error: the PTX would fail in the
/// driver, too.
FailureOr<std::optional<std::vector<char>>>
codegen::assemble(StringRef ptx, StringRef architecture, MLIRContext *context) {
  // The folder is where the toolkit's installer puts it.
  llvm::ErrorOr<std::string> assembler =
      findTool("ptxas", "ptxas", "/usr/local/cuda/bin");
  if (!assembler)
    return std::optional<std::vector<char>>();
  std::string option = ("-arch=" + architecture).str();
  Tool tool{*assembler, "ptx", "cubin", {option}};
  FailureOr<std::vector<char>> cubin =
      runTool(tool, ptx, "cannot assemble the kernels", context);
  if (failed(cubin))
    return failure();
  return std::optional(std::move(*cubin));
}
