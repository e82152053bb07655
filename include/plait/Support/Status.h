//===- Status.h - Errors without exceptions ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The error type of the parts that know nothing of LLVM: lib/Plan, lib/Schedule
// and lib/Runtime. A message is one line, lower case, without a full stop; it
// names the culprit, the value and the bound.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_STATUS_H
#define PLAIT_SUPPORT_STATUS_H

#include <optional>
#include <sstream>
#include <string>
#include <utility>

namespace plait {

/// Success, or one line that says what went wrong.
class [[nodiscard]] Status {
public:
  static Status success() { return Status(); }
  static Status failure(std::string message) {
    Status status;
    status.text = std::move(message);
    return status;
  }

  bool ok() const { return !text.has_value(); }
  /// Only valid when !ok().
  const std::string &message() const { return *text; }

private:
  std::optional<std::string> text;
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

} // namespace plait

/// Returns early from a function that returns Status or Result<T>.
#define PLAIT_RETURN_IF_ERROR(expression)                                      \
  do {                                                                         \
    if (::plait::Status plaitStatus = (expression); !plaitStatus.ok())         \
      return plaitStatus;                                                      \
  } while (false)

#endif // PLAIT_SUPPORT_STATUS_H
