//===- Reporter.h - Who hears what a session has to say ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A session prints nothing: it calls a reporter, which belongs to whoever has
// opened the session. Without MLIR, so that any client can implement one.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_REPORTER_H
#define PLAIT_SUPPORT_REPORTER_H

#include "plait/Support/Status.h"

#include <string>
#include <string_view>

namespace plait {

/// How much a message matters: an info tells what is being done, a note
/// explains that or the error before it, a warning tells what may not be meant,
/// and after an error there is no result.
enum class Severity { Info, Note, Warning, Error };

/// One message, of one line.
struct Message {
  Severity severity = Severity::Error;
  /// The cause; Code::Success for notes and warnings, which have none.
  Code code = Code::Success;
  /// The option that is to blame, as CompileOptions and ConfigurationPins name
  /// it, such as "micro-batch"; empty: none.
  std::string field;
  /// The place in the model, "own.mlir:7:3" or "layer 3", or both with ": "
  /// between them; empty where it is not known.
  std::string place;
  /// The text, in which names of options stand in backquotes; see spellFields()
  /// in plait/Support/Status.h. Begins with a small letter, and has no full
  /// stop.
  std::string text;

  /// Returns place and text as one line.
  std::string getLine() const {
    return place.empty() ? text : place + ": " + text;
  }
};

/// Says what is being done, for people who wait.
struct Progress {
  std::string_view what;    // "stage", "planning"
  int step = 0, steps = 0;  // the number of `what`, from 1; 0: not counted
  bool ofReference = false; // the unpartitioned model beside a plan
};

/// Hears what a session does. Calls come from the thread that has called the
/// session, one at a time, before the session's function returns.
class Reporter {
public:
  virtual ~Reporter() = default;

  /// Takes an error, a warning or a note. Notes that belong to an error follow
  /// it. The same warning is given once for each model.
  virtual void message(const Message &message) = 0;
  /// Takes what is being done from now on.
  virtual void progress(const Progress &) {}
  /// Takes a line of what was asked for, such as a row of a comparison, where
  /// the function itself returns only whether it has succeeded.
  virtual void result(const std::string &) {}
};

/// Tells `reporter`, unless it is null, a text that is about nothing else.
inline void tell(Reporter *reporter, Severity severity,
                 const std::string &text) {
  Message message;
  message.severity = severity;
  message.text = text;
  if (reporter)
    reporter->message(message);
}

} // namespace plait

#endif // PLAIT_SUPPORT_REPORTER_H
