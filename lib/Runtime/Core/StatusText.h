//===- StatusText.h - Failures as texts between processes -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Processes tell each other how something has ended: the code goes along, since
// whoever hears of it acts on that.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_STATUSTEXT_H
#define PLAIT_LIB_RUNTIME_CORE_STATUSTEXT_H

#include "plait/Support/Status.h"

#include <charconv>
#include <string>

namespace plait::runtime {

/// Returns the code, a space and the message; empty: success.
inline std::string packStatus(const Status &status) {
  return status.ok()
             ? ""
             : std::to_string(uint32_t(status.code())) + " " + status.message();
}

/// Returns what packStatus() has packed. A text without a code is the message
/// of a failure.
inline Status unpackStatus(const std::string &text) {
  if (text.empty())
    return Status::success();
  uint16_t code = 0;
  const char *end = text.data() + text.size();
  auto [next, error] = std::from_chars(text.data(), end, code);
  if (error != std::errc() || next == end || *next != ' ' || code == 0)
    return Status::failure(text);
  return Status::failure(std::string(next + 1, end), Code(code));
}

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_STATUSTEXT_H
