//===- Terminal.h - What plaitc prints --------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAITC_TERMINAL_H
#define PLAIT_TOOLS_PLAITC_TERMINAL_H

#include "plait/Support/Reporter.h"

#include "llvm/Support/raw_ostream.h"

#include <string>

namespace CLI {
class App;
} // namespace CLI

namespace plait {

/// Prints messages on standard error, with options as they are spelt on the
/// command line; there, too, if it is a terminal, what is being done, in a line
/// that is rewritten. Text for people goes to standard output, unless something
/// else is written there.
class Terminal : public Reporter {
public:
  explicit Terminal(const CLI::App &app);

  void message(const Message &message) override;
  void progress(const Progress &progress) override;

  /// Print "plaitc: error: …", and so on.
  void error(const std::string &text) { tell(Severity::Error, text); }
  void warn(const std::string &text) { tell(Severity::Warning, text); }
  void note(const std::string &text) { tell(Severity::Note, text); }
  /// Prints a failure; returns whether there was none.
  bool report(const Status &status);

  /// Prints a line on standard error where somebody watches.
  void watch(const std::string &line);
  /// Prints text for people, behind a clean line.
  void print(const std::string &text);
  /// Leaves standard output to what is written there.
  void moveTextToErrors() { text = &llvm::errs(); }

private:
  void tell(Severity severity, const std::string &text);
  void clear();

  const CLI::App &app;
  bool isWatched;          // standard error is a terminal
  bool hasLine = false;    // the last line of it says what is being done
  llvm::raw_ostream *text; // for people
};

} // namespace plait

#endif // PLAIT_TOOLS_PLAITC_TERMINAL_H
