//===- Status.h - Errors without exceptions ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The error type of the parts that know nothing of LLVM: lib/Plan, lib/Schedule
// and lib/Runtime. A message is one line, lower case, without a full stop; it
// names the culprit, the value and the bound. Where the culprit is an option,
// its name stands in backquotes, as "`micro-batch` is 0, expected at least 1":
// which front end the option comes from, and how it is spelt there, only that
// front end knows: it replaces them by spellFields() (plait/Support/Fields.h).
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_STATUS_H
#define PLAIT_SUPPORT_STATUS_H

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace plait {

/// The cause of a failure, as far as a caller can do something about it. The
/// numbers are stable: none is ever given to another cause. docs/Errors.md
/// says what each means.
enum class Code : uint16_t {
  Success = 0,
  Failed = 1,         // no other code says more
  WrongCall = 2,      // an argument or an order of calls that is not allowed
  InvalidOption = 10, // an option's value, alone or beside other options
  CannotRead = 20,    // a file that cannot be opened or read
  CannotWrite = 21,   // an output that cannot be written
  DiskFull = 22,      // the same, since its disk or quota is full
  InvalidModel = 30,  // a model or IR that is refused
  NotCompiled = 31,   // a model that is right, and cannot be compiled as asked
  NothingFits = 40,   // the planner has found no configuration
  DoesNotFit = 41,    // more memory than there is
  WrongPlan = 50,     // the proof has found that a plan computes another thing
  Released = 60,      // another rank has failed, this one only follows
  TimedOut = 61,      // somebody was waited for longer than allowed
};

/// Success, or one line that says what went wrong, with its code and where it
/// is about an option the name of that.
class [[nodiscard]] Status {
public:
  static Status success() { return Status(); }
  /// Has a code of its own where `message` begins with the name of an option:
  /// it is about that then.
  static Status failure(std::string message, Code code = Code::Failed) {
    Status status;
    bool isAboutOption = code == Code::Failed && message.starts_with('`');
    status.cause = isAboutOption ? Code::InvalidOption : code;
    status.text = std::move(message);
    return status;
  }

  bool ok() const { return !text.has_value(); }
  /// Only valid when !ok().
  const std::string &message() const { return *text; }
  /// Code::Success when ok().
  Code code() const { return cause; }
  /// Returns the option that is to blame, the first one that the message names;
  /// empty: none.
  std::string field() const {
    size_t begin = cause == Code::InvalidOption ? text->find('`') : text->npos;
    size_t end = begin == text->npos ? begin : text->find('`', begin + 1);
    return end == text->npos ? "" : text->substr(begin + 1, end - begin - 1);
  }

private:
  std::optional<std::string> text;
  Code cause = Code::Success;
};

/// A value, or the reason why there is none.
template <typename T> class [[nodiscard]] Result {
public:
  Result(T value) : content(std::move(value)) {}
  Result(Status failure) : state(std::move(failure)) {}

  bool ok() const { return state.ok(); }
  const Status &status() const { return state; }
  /// Only valid when ok().
  T &operator*() { return *content; }
  const T &operator*() const { return *content; }
  T *operator->() { return &*content; }
  const T *operator->() const { return &*content; }

private:
  std::optional<T> content;
  Status state = Status::success();
};

/// Builds a failure from anything that streams: `fail("rank ", r, " …")`.
template <typename... Parts> Status fail(const Parts &...parts) {
  std::ostringstream out;
  (out << ... << parts);
  return Status::failure(out.str());
}
/// Builds one with its code.
template <typename... Parts> Status fail(Code code, const Parts &...parts) {
  std::ostringstream out;
  (out << ... << parts);
  return Status::failure(out.str(), code);
}

} // namespace plait

/// Returns early from a function that returns Status or Result<T>.
#define PLAIT_RETURN_IF_ERROR(expression)                                      \
  do {                                                                         \
    if (::plait::Status plaitStatus = (expression); !plaitStatus.ok())         \
      return plaitStatus;                                                      \
  } while (false)

#endif // PLAIT_SUPPORT_STATUS_H
