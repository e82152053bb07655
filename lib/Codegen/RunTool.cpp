//===- RunTool.cpp - Programs that turn files into files ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RunTool.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

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

/// On failure, the first line of what the program printed to `log`.
static std::optional<std::string> run(const Tool &tool, StringRef input,
                                      StringRef output, StringRef log) {
  SmallVector<StringRef> arguments = {tool.path};
  arguments.append(tool.options);
  arguments.append({"-o", output, input});
  std::optional<StringRef> redirects[] = {StringRef(), log, log};
  std::string message;
  if (llvm::sys::ExecuteAndWait(tool.path, arguments, std::nullopt, redirects,
                                0, 0, &message) == 0)
    return std::nullopt;
  auto text = llvm::MemoryBuffer::getFile(log);
  if (text && !(*text)->getBuffer().empty())
    return (*text)->getBuffer().split('\n').first.str();
  return message;
}

FailureOr<std::vector<char>> codegen::runTool(const Tool &tool, StringRef input,
                                              StringRef purpose,
                                              MLIRContext *context) {
  Location loc = UnknownLoc::get(context);
  SmallString<128> in, out, log;
  llvm::FileRemover removeIn, removeOut, removeLog;
  std::error_code error = createTemporary(tool.inputSuffix, in, removeIn);
  if (!error)
    error = createTemporary(tool.outputSuffix, out, removeOut);
  if (!error)
    error = createTemporary("log", log, removeLog);
  if (!error)
    error = writeFile(in, input);
  if (error)
    return emitError(loc) << purpose
                          << ": a temporary file: " << error.message();
  if (std::optional<std::string> reason = run(tool, in, out, log))
    return emitError(loc) << purpose << ": " << *reason;
  auto bytes = llvm::MemoryBuffer::getFile(out);
  if (!bytes)
    return emitError(loc, "cannot read '")
           << out << "': " << bytes.getError().message();
  StringRef buffer = (*bytes)->getBuffer();
  return std::vector<char>(buffer.begin(), buffer.end());
}
