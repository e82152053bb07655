//===- LinkObject.cpp - An object to a shared object ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Links the kernels' object to a shared object that the runtime can map: LLVM
// writes relocatable objects only. The linker is LLVM's, of the version that
// has compiled them.
//
//===----------------------------------------------------------------------===//

#include "../RunTool.h"
#include "Target.h"

#include "llvm/Support/Program.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

/// The versioned linker on the path, or the one of the LLVM in use.
static llvm::ErrorOr<std::string> findLinker() {
  llvm::ErrorOr<std::string> linker = llvm::sys::findProgramByName("ld.lld-22");
  if (linker)
    return linker;
  return llvm::sys::findProgramByName("ld.lld", {PLAIT_LLVM_TOOLS_DIR});
}

/// --no-undefined makes a call of a library a failure here rather than in a
/// run. No build id and a fixed page size: equal kernels give equal bytes.
FailureOr<std::vector<char>> codegen::linkObject(StringRef object,
                                                 MLIRContext *context) {
  llvm::ErrorOr<std::string> linker = findLinker();
  if (!linker)
    return emitError(UnknownLoc::get(context),
                     "cannot link the kernels: no ld.lld-22 on the path and "
                     "no ld.lld in " PLAIT_LLVM_TOOLS_DIR);
  Tool tool{*linker,
            "o",
            "so",
            {"-shared", "--no-undefined", "--build-id=none", "--hash-style=gnu",
             "-z", "noexecstack", "-z", "max-page-size=4096"}};
  return runTool(tool, object, "cannot link the kernels", context);
}
