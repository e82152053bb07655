//===- Terminal.cpp - What plaitc prints ----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All messages have one form, whoever they are from. They come after a clean
// line, and so does the output.
//
//===----------------------------------------------------------------------===//

#include "Terminal.h"

#include "plait/Support/CommandLine.h"

#include <unistd.h>

using namespace plait;

Terminal::Terminal(const CLI::App &app)
    : app(app), isWatched(isatty(STDERR_FILENO)), text(&llvm::outs()) {}

/// "[3/10] stage"; what is not counted is told alone.
void Terminal::progress(const Progress &progress) {
  if (!isWatched)
    return;
  clear();
  if (progress.ofReference)
    llvm::errs() << "reference ";
  if (progress.steps > 0)
    llvm::errs() << "[" << progress.step << "/" << progress.steps << "] ";
  llvm::errs() << progress.what;
  hasLine = true;
}

/// Carriage return and "erase to the end of the line".
void Terminal::clear() {
  if (hasLine)
    llvm::errs() << "\r\033[K";
  hasLine = false;
}

void Terminal::message(const Message &message) {
  tell(message.severity, message.getLine());
}

void Terminal::tell(Severity severity, const std::string &line) {
  clear();
  tool::printMessage(app,
                     severity == Severity::Error     ? "error"
                     : severity == Severity::Warning ? "warning"
                                                     : "note",
                     line);
}

bool Terminal::report(const Status &status) {
  if (!status.ok())
    error(status.message());
  return status.ok();
}

void Terminal::watch(const std::string &line) {
  clear();
  if (isWatched)
    llvm::errs() << line << "\n";
}

void Terminal::print(const std::string &what) {
  clear();
  *text << what;
}
