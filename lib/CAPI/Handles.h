//===- Handles.h - Objects that callers of C name ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A handle is a number that is never given twice, so that one that was closed,
// or that is none, is found out and not followed. What it names lives on while
// a call is in it or a tensor of it is held.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CAPI_HANDLES_H
#define PLAIT_LIB_CAPI_HANDLES_H

#include "plait/Support/Reporter.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace plait::capi {

/// Lets one thread in at a time. A second entry of the same thread, as out of a
/// listener, fails instead of waiting for itself.
class Gate {
public:
  Status enter();
  void leave();

private:
  std::mutex mutex;
  std::atomic<std::thread::id> inside;
};

struct SessionObject;

/// An object that a handle names.
struct Object {
  virtual ~Object() = default;
  /// Returns what it is: "session", "model", "plan" or "run".
  virtual const char *kind() const = 0;
  /// The session that it has come out of; a session's own is itself.
  virtual SessionObject &session() = 0;
  /// Lets go of files and processes: the handle is gone, memory may be in use.
  virtual void close() {}
  /// Returns what plait_describe() does.
  virtual Result<std::string> describe() = 0;
};

/// Gives a handle to `object`. With `parent`, that of another object, it is
/// closed with that.
void *addHandle(std::shared_ptr<Object> object, const void *parent = nullptr);

/// Finds what `handle` names. Fails where it is null, closed, or none; `what`
/// is what it should be, for messages.
Result<std::shared_ptr<Object>> findObject(const void *handle,
                                           const char *what);

/// Forgets `handle`, which names something, and all that it is the parent of.
/// Returns them, for the caller to let go of.
std::vector<std::shared_ptr<Object>> removeHandle(const void *handle);

} // namespace plait::capi

#endif // PLAIT_LIB_CAPI_HANDLES_H
