//===- LinkObject.cpp - An object to a shared object ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Target.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

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

/// A temporary file that is removed with the remover.
static std::error_code createTemporary(StringRef suffix,
                                       SmallVectorImpl<char> &path,
                                       llvm::FileRemover &remover) {
  std::error_code error =
      llvm::sys::fs::createTemporaryFile("plait-kernels", suffix, path);
  if (!error)
    remover.setFile(Twine(StringRef(path.data(), path.size())));
  return error;
}

static std::error_code writeFile(StringRef path, StringRef bytes) {
  std::error_code error;
  llvm::raw_fd_ostream stream(path, error);
  if (error)
    return error;
  stream << bytes;
  stream.close();
  error = stream.error();
  stream.clear_error();
  return error;
}

/// Runs the linker; on failure, the first line of what it printed to `log`.
static std::optional<std::string> runLinker(StringRef linker, StringRef input,
                                            StringRef output, StringRef log) {
  StringRef arguments[] = {linker,
                           "-shared",
                           "--no-undefined",
                           "--build-id=none",
                           "--hash-style=gnu",
                           "-z",
                           "noexecstack",
                           "-z",
                           "max-page-size=4096",
                           "-o",
                           output,
                           input};
  std::optional<StringRef> redirects[] = {StringRef(), log, log};
  std::string message;
  if (llvm::sys::ExecuteAndWait(linker, arguments, std::nullopt, redirects, 0,
                                0, &message) == 0)
    return std::nullopt;
  auto text = llvm::MemoryBuffer::getFile(log);
  if (text && !(*text)->getBuffer().empty())
    return (*text)->getBuffer().split('\n').first.str();
  return message;
}

FailureOr<std::vector<char>> codegen::linkObject(StringRef object,
                                                 MLIRContext *context) {
  Location loc = UnknownLoc::get(context);
  llvm::ErrorOr<std::string> linker = findLinker();
  if (!linker)
    return emitError(loc, "cannot link the kernels: no ld.lld-22 on the path "
                          "and no ld.lld in " PLAIT_LLVM_TOOLS_DIR);
  SmallString<128> input, output, log;
  llvm::FileRemover removeInput, removeOutput, removeLog;
  std::error_code error = createTemporary("o", input, removeInput);
  if (!error)
    error = createTemporary("so", output, removeOutput);
  if (!error)
    error = createTemporary("log", log, removeLog);
  if (!error)
    error = writeFile(input, object);
  if (error)
    return emitError(loc, "cannot write the kernels to a temporary file: ")
           << error.message();
  if (std::optional<std::string> reason =
          runLinker(*linker, input, output, log))
    return emitError(loc, "cannot link the kernels: ") << *reason;
  auto bytes = llvm::MemoryBuffer::getFile(output);
  if (!bytes)
    return emitError(loc, "cannot read '")
           << output << "': " << bytes.getError().message();
  StringRef buffer = (*bytes)->getBuffer();
  return std::vector<char>(buffer.begin(), buffer.end());
}
