//===- Session.cpp - Sessions, plans and what they say --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What there is of the C interface without a compiler and without a run.
//
//===----------------------------------------------------------------------===//

#include "Objects.h"

#include "plait/Support/Fields.h"

#include <cstdlib>
#include <cstring>

using namespace plait;
using namespace plait::capi;

//===----------------------------------------------------------------------===//
// What is said
//===----------------------------------------------------------------------===//

void Listener::set(plait_listener newFunction, void *newUser) {
  std::lock_guard lock(mutex);
  function = newFunction;
  user = newUser;
}

void Listener::forget() {
  std::lock_guard lock(mutex);
  kept.clear();
}

/// Notes behind an error are its hints.
void Listener::message(const Message &message) {
  std::lock_guard lock(mutex);
  bool isOfError = !kept.empty() && message.severity == Severity::Note;
  if (message.severity == Severity::Error || isOfError) {
    kept.push_back(message);
    return;
  }
  static_assert(int(Severity::Info) == PLAIT_INFO &&
                int(Severity::Note) == PLAIT_NOTE &&
                int(Severity::Warning) == PLAIT_WARNING);
  if (function)
    function(user, int(message.severity),
             spellFields(message.getLine(), "").c_str());
}

plait_error *Listener::makeError(const Status &failure) {
  std::lock_guard lock(mutex);
  if (kept.empty())
    return capi::makeError(failure);
  std::string hint;
  for (size_t i = 1; i < kept.size(); ++i)
    hint += (i > 1 ? "\n" : "") + kept[i].getLine();
  return capi::makeError(kept.front(), hint);
}

char *capi::copyText(const std::string &text) {
  auto *copy = static_cast<char *>(std::malloc(text.size() + 1));
  if (!copy)
    throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

const char *plait_version(void) { return PLAIT_VERSION; }

plait_error *plait_session_open(uint32_t version, plait_session **session) {
  return guarded([&]() -> plait_error * {
    PLAIT_CAPI_TRY(checkGiven(session, "session"));
    if (version != PLAIT_C_VERSION)
      return makeError(fail(Code::WrongCall, "the program is of version ",
                            version, " of plait's C interface, the library of ",
                            PLAIT_C_VERSION));
    auto object = std::make_shared<SessionObject>();
    void *handle = addHandle(object);
    object->handle = handle;
    *session = static_cast<plait_session *>(handle);
    return nullptr;
  });
}

plait_error *plait_session_listen(plait_session *session,
                                  plait_listener listener, void *user) {
  return call<SessionObject>(session, [&](auto &object) {
    object->listener.set(listener, user);
    return nullptr;
  });
}

/// Calls that are in the session end first. An object ends where nobody uses it
/// any more.
plait_error *plait_close(void *handle) {
  return guarded([&]() -> plait_error * {
    if (!handle)
      return nullptr;
    auto object = findObject(handle, "handle");
    if (!object.ok())
      return makeError(object.status());
    // Of the object alone: the session's listener may be in a call.
    Gate &gate = (*object)->session().gate;
    PLAIT_CAPI_TRY(gate.enter());
    auto removed = removeHandle(handle);
    for (const std::shared_ptr<Object> &one : removed)
      one->close();
    gate.leave();
    // Children first: runs before what they run.
    while (!removed.empty())
      removed.pop_back();
    return nullptr;
  });
}

plait_error *plait_describe(void *handle, char **json) {
  return call<Object>(handle, [&](auto &object) -> plait_error * {
    PLAIT_CAPI_TRY(checkGiven(json, "json"));
    Result<std::string> text = object->describe();
    PLAIT_CAPI_TRY(text.status());
    *json = copyText(*text);
    return nullptr;
  });
}

plait_error *plait_plan_load(plait_session *session, const char *path,
                             plait_plan **plan) {
  return call<SessionObject>(session, [&](auto &owner) -> plait_error * {
    PLAIT_CAPI_TRY(checkGiven(path, "path"));
    PLAIT_CAPI_TRY(checkGiven(plan, "plan"));
    Result<plan::PlanFile> file = plan::PlanFile::open(path);
    PLAIT_CAPI_TRY(file.status());
    *plan = static_cast<plait_plan *>(
        addHandle(std::make_shared<PlanObject>(owner, std::move(*file), path),
                  owner->handle));
    return nullptr;
  });
}
