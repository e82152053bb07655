//===- Messages.h - What a session tells its reporter -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_DRIVER_MESSAGES_H
#define PLAIT_LIB_DRIVER_MESSAGES_H

#include "plait/Support/Reporter.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/Twine.h"

namespace plait {

/// Messages on their way to a reporter: one line each, with the place in the
/// model where it is known. A warning that has been given is not given again:
/// each phase verifies what the one before has left.
class Messages {
public:
  /// `reporter` must live longer.
  explicit Messages(Reporter &reporter) : reporter(reporter) {}

  /// The code of errors that have none of their own, until it is set again.
  void setCode(Code code) { cause = code; }

  void note(const llvm::Twine &text);
  void warn(const llvm::Twine &text);
  /// Reports a failure; returns whether there was none.
  bool report(const Status &status);
  /// Reports a diagnostic with its notes. Remarks say what was decided, and are
  /// for pass developers.
  void report(mlir::Diagnostic &diagnostic);
  void progress(const Progress &progress) { reporter.progress(progress); }

  /// Begins what getFailure() will be asked about.
  void begin() {
    first = Status::success();
    cause = Code::NotCompiled;
  }
  /// Returns the first error since begin(); there must be one.
  const Status &getFailure() const;

private:
  void send(Message message);

  Reporter &reporter;
  Code cause = Code::Failed;
  Status first = Status::success();
  llvm::StringSet<> warnings;
};

} // namespace plait

#endif // PLAIT_LIB_DRIVER_MESSAGES_H
