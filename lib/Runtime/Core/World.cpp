//===- World.cpp - Meeting of the ranks of a process ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How ranks of one process wait for each other. A wait ends by what it waits
// for, by the time limit, or because somebody has given up; the last one gives
// a failure that RankThreads recognises as following another (Code::Released),
// so that what is reported is the cause.
//
//===----------------------------------------------------------------------===//

#include "World.h"

#include "Futex.h"
#include "plait/Runtime/Communicator.h"

using namespace plait;
using namespace plait::runtime;

/// Its caller adds step and operation.
Status Patience::timedOut() const { return failTimedOut(limit); }

/// One word for all states of a slot or generations of a meeting: whoever waits
/// names the value that it has seen, and a change in between is not missed.
Status Patience::wait(std::atomic<uint32_t> &word, uint32_t old) {
  switch (waitWhileEqual(word, old, aborted, limit)) {
  case WaitResult::Changed:
    return Status::success();
  case WaitResult::TimedOut:
    return timedOut();
  case WaitResult::Aborted:
    return failReleased();
  }
  __builtin_unreachable();
}

/// Serves callers that poll something that is no word of memory.
Status Patience::check(std::chrono::steady_clock::time_point since) const {
  if (aborted.load(std::memory_order_relaxed))
    return failReleased();
  return std::chrono::steady_clock::now() - since > limit ? timedOut()
                                                          : Status::success();
}

/// Who fails aborts first and takes down afterwards what others wait for.
Status Patience::blame(const Status &own) const {
  return !own.ok() && aborted ? failReleased() : own;
}

void runtime::wakeWaiters(std::atomic<uint32_t> &word) { wakeAll(word); }
