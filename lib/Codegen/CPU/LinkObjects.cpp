//===- LinkObjects.cpp - Objects to a shared object -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Links the kernels' objects to a shared object that the runtime can map: LLVM
// writes relocatable objects only. The linker is LLVM's, of the version that
// has compiled them.
//
//===----------------------------------------------------------------------===//

#include "../RunTool.h"
#include "Target.h"

#include "llvm/Object/ArchiveWriter.h"
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

/// Packs objects into one file, which has the same bytes for the same objects.
/// Without a table of symbols it reads none of them, and cannot fail.
static std::unique_ptr<llvm::MemoryBuffer>
pack(ArrayRef<llvm::SmallString<0>> objects) {
  std::vector<llvm::NewArchiveMember> members;
  for (const llvm::SmallString<0> &object : objects)
    members.emplace_back(llvm::MemoryBufferRef(object, "kernel.o"));
  return llvm::cantFail(llvm::writeArchiveToBuffer(
      members, llvm::SymtabWritingMode::NoSymtab, llvm::object::Archive::K_GNU,
      /*Deterministic=*/true, /*Thin=*/false));
}

/// --no-undefined makes a call of a library a failure here rather than in a
/// run. No build id and a fixed page size: equal kernels give equal bytes.
FailureOr<std::vector<char>>
codegen::linkObjects(ArrayRef<llvm::SmallString<0>> objects,
                     ArrayRef<ExportedKernel> kernels, MLIRContext *context) {
  llvm::ErrorOr<std::string> linker = findLinker();
  if (!linker)
    return emitError(UnknownLoc::get(context),
                     "cannot link the kernels: no ld.lld-22 on the path and "
                     "no ld.lld in " PLAIT_LLVM_TOOLS_DIR);
  std::unique_ptr<llvm::MemoryBuffer> archive = pack(objects);
  std::vector<std::string> names;
  for (const ExportedKernel &kernel : kernels)
    names.push_back("--defsym=" + kernel.symbol + "=" + kernel.function);
  Tool tool{*linker,
            "a",
            "so",
            {"-shared", "--no-undefined", "--build-id=none", "--hash-style=gnu",
             "--strip-all", "-m", "elf_x86_64", "-z", "noexecstack", "-z",
             "max-page-size=4096"}};
  tool.options.append(names.begin(), names.end());
  tool.options.push_back("--whole-archive");
  return runTool(tool, archive->getBuffer(), "cannot link the kernels",
                 context);
}
