//===- Errors.h - Failures as callers of C see them -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CAPI_ERRORS_H
#define PLAIT_LIB_CAPI_ERRORS_H

#include "plait-c/plait.h"
#include "plait/Support/Reporter.h"

#include <exception>
#include <new>
#include <string>

namespace plait::capi {

/// Makes an error of a failure, and of what was said beside it. Names of
/// options lose their backquotes. Null where there is no memory for one.
plait_error *makeError(const Message &failure, const std::string &hint = "");
/// The same of a status, which has failed.
plait_error *makeError(const Status &failure);

/// Returns what a call returns that there is no memory for. It is never freed.
plait_error *outOfMemory();

/// Calls `work`, which returns an error or null. No exception gets out.
template <typename Work> plait_error *guarded(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc &) {
    return outOfMemory();
  } catch (const std::exception &error) {
    return makeError(fail("internal error: ", error.what()));
  }
}

} // namespace plait::capi

/// Returns early from a function that returns an error or null.
#define PLAIT_CAPI_TRY(expression)                                             \
  do {                                                                         \
    if (::plait::Status plaitStatus = (expression); !plaitStatus.ok())         \
      return ::plait::capi::makeError(plaitStatus);                            \
  } while (false)

#endif // PLAIT_LIB_CAPI_ERRORS_H
