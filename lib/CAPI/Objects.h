//===- Objects.h - What sessions of C are made of ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CAPI_OBJECTS_H
#define PLAIT_LIB_CAPI_OBJECTS_H

#include "Errors.h"
#include "Handles.h"
#include "plait/Plan/Container.h"
#include "plait/Runtime/Rendezvous.h"

#include <vector>

namespace plait::capi {

/// The reporter of a session: hands on what is no error, and keeps errors with
/// the notes behind them for the call that fails. May be called by any thread.
class Listener : public Reporter {
public:
  void set(plait_listener function, void *user);
  void message(const Message &message) override;
  /// Begins a call.
  void forget();
  /// Returns the error of the call, which has failed with `failure`.
  plait_error *makeError(const Status &failure);

private:
  std::mutex mutex; // of all below, and while the listener is called
  plait_listener function = nullptr;
  void *user = nullptr;
  std::vector<Message> kept;
};

struct SessionObject : Object {
  const void *handle = nullptr; // its own, which those out of it hang on
  Gate gate;
  Listener listener;
  /// Those of the launcher, where this session has joined them.
  std::shared_ptr<runtime::Rendezvous> processes;

  const char *kind() const override { return "session"; }
  Result<std::string> describe() override;
  SessionObject &session() override { return *this; }
};

/// An object that has come out of a session.
struct OwnedObject : Object {
  explicit OwnedObject(std::shared_ptr<SessionObject> owner)
      : owner(std::move(owner)) {}
  SessionObject &session() override { return *owner; }

  std::shared_ptr<SessionObject> owner;
};

struct PlanObject : OwnedObject {
  PlanObject(std::shared_ptr<SessionObject> owner, plan::PlanFile file,
             std::string path)
      : OwnedObject(std::move(owner)), file(std::move(file)),
        path(std::move(path)) {}
  const char *kind() const override { return "plan"; }
  Result<std::string> describe() override;

  plan::PlanFile file;
  std::string path;
};

/// Names what `T` is, for messages.
template <typename T> constexpr const char *kindOf = "handle";
template <> inline constexpr const char *kindOf<SessionObject> = "session";
template <> inline constexpr const char *kindOf<PlanObject> = "plan";

/// Finds the object that `handle` names, which has to be a `T`.
template <typename T> Result<std::shared_ptr<T>> find(const void *handle) {
  auto found = findObject(handle, kindOf<T>);
  if (!found.ok())
    return found.status();
  auto object = std::dynamic_pointer_cast<T>(*found);
  if (!object)
    return fail(Code::WrongCall, "the handle of a ", (*found)->kind(),
                " is given, expected that of a ", kindOf<T>);
  return object;
}

/// Fails where a pointer that has to be given is null; `what` is its name.
inline Status checkGiven(const void *pointer, const char *what) {
  return pointer ? Status::success() : fail(Code::WrongCall, what, " is null");
}

/// Does a call that names `handle`, alone in its session: `work` gets the
/// object, which has to be a `T`, and returns an error or null.
template <typename T, typename Work>
plait_error *call(const void *handle, Work work) {
  return guarded([&]() -> plait_error * {
    auto object = find<T>(handle);
    if (!object.ok())
      return makeError(object.status());
    SessionObject &session = (*object)->session();
    PLAIT_CAPI_TRY(session.gate.enter());
    std::unique_ptr<Gate, void (*)(Gate *)> leave(
        &session.gate, [](Gate *gate) { gate->leave(); });
    session.listener.forget();
    return work(*object);
  });
}

/// Returns a copy that plait_text_free() frees.
char *copyText(const std::string &text);

} // namespace plait::capi

#endif // PLAIT_LIB_CAPI_OBJECTS_H
