//===- Handles.cpp - Objects that callers of C name -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One table for the process, which is never destroyed: threads may hold handles
// while the process ends.
//
//===----------------------------------------------------------------------===//

#include "Handles.h"

#include "plait-c/plait.h"

#include <map>
#include <vector>

using namespace plait;
using namespace plait::capi;

namespace {

struct Entry {
  std::shared_ptr<Object> object;
  uintptr_t parent; // 0: none
};

struct Table {
  std::mutex mutex;
  std::map<uintptr_t, Entry> entries;
  uintptr_t next = first;

  /// No page begins so low, and no number is 0: what follows a handle as if it
  /// were an address fails at once. Odd, so that it looks like none.
  static constexpr uintptr_t first = 0x101, step = 2;
};

Table &table() {
  static Table &shared = *new Table;
  return shared;
}

uintptr_t numberOf(const void *handle) {
  return reinterpret_cast<uintptr_t>(handle);
}

} // namespace

Status Gate::enter() {
  if (inside.load() == std::this_thread::get_id())
    return fail(Code::WrongCall, "a listener has called its own session");
  mutex.lock();
  inside = std::this_thread::get_id();
  return Status::success();
}

void Gate::leave() {
  inside = std::thread::id();
  mutex.unlock();
}

void *capi::addHandle(std::shared_ptr<Object> object, const void *parent) {
  Table &shared = table();
  std::lock_guard lock(shared.mutex);
  uintptr_t number = shared.next;
  shared.entries[number] = {std::move(object), numberOf(parent)};
  shared.next += Table::step;
  return reinterpret_cast<void *>(number);
}

Result<std::shared_ptr<Object>> capi::findObject(const void *handle,
                                                 const char *what) {
  if (!handle)
    return fail(Code::WrongCall, "the ", what, " is null");
  Table &shared = table();
  std::lock_guard lock(shared.mutex);
  uintptr_t number = numberOf(handle);
  auto found = shared.entries.find(number);
  if (found != shared.entries.end())
    return found->second.object;
  bool wasOne = number >= Table::first && number < shared.next &&
                (number - Table::first) % Table::step == 0;
  return fail(Code::WrongCall, "the ", what,
              wasOne ? " was closed before" : " is no handle of this library");
}

std::vector<std::shared_ptr<Object>> capi::removeHandle(const void *handle) {
  Table &shared = table();
  std::lock_guard lock(shared.mutex);
  std::vector<std::shared_ptr<Object>> removed;
  std::vector<uintptr_t> numbers = {numberOf(handle)};
  // Children have larger numbers than their parents.
  for (size_t i = 0; i < numbers.size(); ++i)
    for (const auto &[number, entry] : shared.entries)
      if (entry.parent == numbers[i])
        numbers.push_back(number);
  for (uintptr_t number : numbers)
    if (auto node = shared.entries.extract(number))
      removed.push_back(std::move(node.mapped().object));
  return removed;
}
