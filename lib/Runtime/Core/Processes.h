//===- Processes.h - Agreement between processes ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The same calls for a run of one process and of several.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_PROCESSES_H
#define PLAIT_LIB_RUNTIME_CORE_PROCESSES_H

#include "Core/StatusText.h"
#include "plait/Runtime/Communicator.h"
#include "plait/Runtime/Executor.h"
#include "plait/Runtime/Rendezvous.h"
#include "plait/Support/Fields.h"

#include <algorithm>
#include <functional>
#include <future>
#include <optional>

namespace plait::runtime {

/// Returns what all processes have given.
inline Result<std::vector<std::string>> tellAll(Executor &executor,
                                                const std::string &mine) {
  if (Rendezvous *processes = executor.processes())
    return processes->exchange(mine);
  return std::vector<std::string>{mine};
}

/// Returns what the process of rank 0 has given.
inline Result<std::string> tellFromFirst(Rendezvous *processes,
                                         const std::string &mine) {
  return processes ? processes->broadcast(mine) : mine;
}

/// How it went for all of them: the first failure. Unlike after
/// Rendezvous::agree(), a run may go on.
inline Status agreeOn(Executor &executor, const Status &mine) {
  auto all = tellAll(executor, packStatus(mine));
  if (!all.ok())
    return all.status();
  for (const std::string &one : *all)
    PLAIT_RETURN_IF_ERROR(unpackStatus(one));
  return Status::success();
}

/// How a task of each process has ended in all of them; nothing while it goes
/// on in one. Waits for the own one for as long as `patience`.
inline Result<std::optional<Status>>
askAll(Executor &executor, const std::shared_future<Status> &task,
       std::chrono::milliseconds patience) {
  constexpr char doneWord[] = "done";
  std::string mine; // nothing while it goes on
  if (task.wait_for(patience) == std::future_status::ready)
    mine = task.get().ok() ? doneWord : packStatus(task.get());
  auto all = tellAll(executor, mine);
  if (!all.ok())
    return all.status();
  std::optional<Status> ended = Status::success();
  for (const std::string &one : *all) {
    if (one.empty())
      return std::optional<Status>();
    if (ended->ok() && one != doneWord)
      ended = unpackStatus(one);
  }
  return ended;
}

/// How long processes that wait for each other's tasks say nothing.
constexpr std::chrono::milliseconds askingPause(50);

/// Returns when `done` is ready in all processes, however long that takes.
inline Status awaitAll(Executor &executor,
                       const std::shared_future<void> &done) {
  while (true) {
    bool isDone = done.wait_for(askingPause) == std::future_status::ready;
    auto all = tellAll(executor, isDone ? "" : "busy");
    if (!all.ok())
      return all.status();
    if (std::all_of(all->begin(), all->end(),
                    [](const std::string &one) { return one.empty(); }))
      return Status::success();
  }
}

/// Does `job` in all processes, and agrees on how it went. Of Rendezvous it
/// calls sendToFirst() and receiveFrom() only. It may take longer than the time
/// limit of the run; a process that is stopped may not. `stop`, which may be
/// empty, lets a job that waits for something else fail, where the run does.
inline Status doTogether(Executor &executor, std::function<Status()> job,
                         const std::function<void()> &stop = {}) {
  if (!executor.processes())
    return job();
  std::shared_future<Status> task =
      std::async(std::launch::async, std::move(job));
  while (true) {
    auto ended = askAll(executor, task, askingPause);
    if (ended.ok() && *ended)
      return **ended;
    if (ended.ok())
      continue;
    // A job that has failed and let the others fail says more.
    bool isOver = task.wait_for(askingPause) == std::future_status::ready;
    Status own = isOver ? task.get() : Status::success();
    executor.processes()->disconnect(); // a job that goes on may wait for them
    if (stop)
      stop();
    task.wait();
    return own.ok() || followsAnother(own) ? ended.status() : own;
  }
}

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_PROCESSES_H
