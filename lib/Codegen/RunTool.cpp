//===- RunTool.cpp - Programs that turn files into files ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs a program of the toolchain (the linker, ptxas) on bytes and takes what
// it makes. The programs read and write files, so there are temporary ones,
// which are removed when this returns, whatever happens.
//
//===----------------------------------------------------------------------===//

#include "RunTool.h"

#include "plait/Plan/Files.h"

#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

llvm::ErrorOr<std::string> codegen::findTool(StringRef onPath, StringRef name,
                                             StringRef folder) {
  llvm::ErrorOr<std::string> found = llvm::sys::findProgramByName(onPath);
  return found ? found : llvm::sys::findProgramByName(name, {folder});
}

/// A temporary file for the program to read or write.
static Result<TemporaryFile> createTemporary(StringRef suffix) {
  SmallString<128> prefix;
  llvm::sys::path::system_temp_directory(/*ErasedOnReboot=*/true, prefix);
  llvm::sys::path::append(prefix, "plait-kernels");
  return TemporaryFile::create(prefix.str().str(), "." + suffix.str());
}

/// A stream that is destroyed with an error that nobody has looked at ends the
/// program, hence clear_error().
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

/// Returns, on failure, the first line of what the program printed to `log`.
static std::optional<std::string> run(const Tool &tool, StringRef input,
                                      StringRef output, StringRef log) {
  SmallVector<StringRef> arguments = {tool.path};
  arguments.append(tool.options);
  arguments.append({"-o", output, input});
  // Nothing to read from, and one file for what it prints to either stream.
  std::optional<StringRef> redirects[] = {StringRef(), log, log};
  std::string message;
  // Without a shell: arguments are passed as they are, and have no quoting to
  // get wrong.
  if (llvm::sys::ExecuteAndWait(tool.path, arguments, std::nullopt, redirects,
                                0, 0, &message) == 0)
    return std::nullopt;
  auto text = llvm::MemoryBuffer::getFile(log);
  if (text && !(*text)->getBuffer().empty())
    return (*text)->getBuffer().split('\n').first.str();
  return message;
}

/// 1. Make the three files, so that their names are this process's own.
/// 2. Write the input and run the program. The first line of what it prints is
/// the reason of a failure.
/// 3. Read what it has made.
FailureOr<std::vector<char>> codegen::runTool(const Tool &tool, StringRef input,
                                              StringRef purpose,
                                              MLIRContext *context) {
  Location loc = UnknownLoc::get(context);
  auto report = [&](const std::string &reason) {
    return emitError(loc) << purpose << ": a temporary file: " << reason;
  };
  // 1.
  Result<TemporaryFile> in = createTemporary(tool.inputSuffix),
                        out = createTemporary(tool.outputSuffix),
                        log = createTemporary("log");
  for (const Result<TemporaryFile> *file : {&in, &out, &log})
    if (!file->ok())
      return report(file->status().message());
  // 2.
  if (std::error_code error = writeFile(in->getName(), input))
    return report(error.message());
  if (std::optional<std::string> reason =
          run(tool, in->getName(), out->getName(), log->getName()))
    return emitError(loc) << purpose << ": " << *reason;
  // 3.
  auto bytes = llvm::MemoryBuffer::getFile(out->getName());
  if (!bytes)
    return emitError(loc, "cannot read '")
           << out->getName() << "': " << bytes.getError().message();
  StringRef buffer = (*bytes)->getBuffer();
  return std::vector<char>(buffer.begin(), buffer.end());
}
