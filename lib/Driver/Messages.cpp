//===- Messages.cpp - What a session tells its reporter -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two kinds of errors become one: statuses, which have a code, and diagnostics
// of MLIR, which have a place. A diagnostic gets the code of what is being
// done, or that of the option that it names.
//
//===----------------------------------------------------------------------===//

#include "Messages.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Location.h"

using namespace mlir;
using namespace plait;

/// The place in the model; empty if it is not known.
///
/// Where the text was read, then what part of the model it is of: of nested
/// locations the outermost of either kind counts.
static std::string describePlace(Location location) {
  std::string position, part;
  location->walk([&](Location loc) {
    auto file = dyn_cast<FileLineColLoc>(loc);
    if (file && position.empty())
      position = (file.getFilename().getValue() + ":" + Twine(file.getLine()) +
                  ":" + Twine(file.getColumn()))
                     .str();
    auto name = dyn_cast<NameLoc>(loc);
    if (name && part.empty())
      part = name.getName().getValue().str();
    return WalkResult::advance();
  });
  return position + (position.empty() || part.empty() ? "" : ": ") + part;
}

void Messages::send(Message message) {
  if (message.severity == Severity::Warning &&
      !warnings.insert(message.getLine()).second)
    return;
  if (message.severity == Severity::Error && first.ok())
    first = Status::failure(message.getLine(), message.code);
  reporter.message(message);
}

void Messages::note(const Twine &text) {
  Message message;
  message.severity = Severity::Note;
  message.text = text.str();
  send(std::move(message));
}

void Messages::warn(const Twine &text) {
  Message message;
  message.severity = Severity::Warning;
  message.text = text.str();
  send(std::move(message));
}

bool Messages::report(const Status &status) {
  if (status.ok())
    return true;
  Message message;
  message.code = status.code() == Code::Failed ? cause : status.code();
  message.field = status.field();
  message.text = status.message();
  send(std::move(message));
  return false;
}

void Messages::report(Diagnostic &diagnostic) {
  DiagnosticSeverity severity = diagnostic.getSeverity();
  if (severity == DiagnosticSeverity::Remark)
    return;
  Message message;
  message.place = describePlace(diagnostic.getLocation());
  message.text = diagnostic.str();
  if (severity == DiagnosticSeverity::Error) {
    // Names the option, if the text is about one.
    Status status = Status::failure(message.text);
    message.code = status.code() == Code::Failed ? cause : status.code();
    message.field = status.field();
  } else {
    message.severity = severity == DiagnosticSeverity::Warning
                           ? Severity::Warning
                           : Severity::Note;
  }
  send(std::move(message));
  for (Diagnostic &note : diagnostic.getNotes())
    report(note);
}

const Status &Messages::getFailure() const {
  assert(!first.ok() && "what fails has reported an error");
  return first;
}
