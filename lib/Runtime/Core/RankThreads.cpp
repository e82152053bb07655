//===- RankThreads.cpp - One thread a rank --------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A generation counter starts the jobs: a thread compares it with the last one
// that it has seen, so that a wake-up that comes early or late starts nothing
// twice. run() is over when all threads have come back; after a failure it
// waits for them for `patience` only, since a thread that hangs in a library
// cannot be ended.
//
//===----------------------------------------------------------------------===//

#include "RankThreads.h"

#include "plait/Runtime/Communicator.h"

using namespace plait;
using namespace plait::runtime;

/// Threads start last and find all members made; they wait for the first run().
RankThreads::RankThreads(std::vector<uint32_t> numbers,
                         std::chrono::milliseconds patience, Failed onFailure,
                         Stuck onStuck)
    : ranks(std::move(numbers)), patience(patience),
      onFailure(std::move(onFailure)), onStuck(std::move(onStuck)) {
  for (uint32_t index = 0; index < ranks.size(); ++index)
    threads.emplace_back([this, index] { serve(index); });
}

/// No job is running here: run() has returned, or has never been called.
RankThreads::~RankThreads() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  started.notify_all();
  for (std::thread &thread : threads)
    thread.join();
}

/// 1. Publish the job. `newJob` outlives it, for run() returns after all
///    threads.
/// 2. Wait, for however long the job takes, until all are back or one has
///    failed.
/// 3. After a failure give the others `patience` to notice that they are
///    released.
Status RankThreads::run(const std::function<Status(uint32_t)> &newJob) {
  std::unique_lock lock(mutex);
  // 1. Threads see it by its generation.
  job = &newJob;
  running = threads.size();
  result = Status::success();
  ++generation;
  started.notify_all();
  // 2. No limit: the ranks have their own.
  finished.wait(lock, [&] { return running == 0 || !result.ok(); });
  // 3. Where there was no failure this returns at once.
  auto isDone = [&] { return running == 0; };
  if (!finished.wait_for(lock, patience, isDone)) {
    onStuck(result);
    finished.wait(lock, isDone);
  }
  return result;
}

/// The job runs without the lock: ranks wait for each other in it.
void RankThreads::serve(uint32_t index) {
  uint64_t seen = 0;
  while (true) {
    const std::function<Status(uint32_t)> *current;
    {
      std::unique_lock lock(mutex);
      started.wait(lock, [&] { return stopping || generation != seen; });
      if (stopping)
        return;
      seen = generation;
      current = job;
    }
    Status status = (*current)(index);
    // Before `running` falls, so that run() never returns without the failure.
    if (!status.ok())
      report(index, status);
    std::lock_guard lock(mutex);
    if (--running == 0)
      finished.notify_one();
  }
}

/// The lock is held while `onFailure` looks at what the other ranks do and
/// releases them: their own failures, which follow from this, come after it. A
/// failure that follows no other one replaces one that does, whatever came
/// first.
void RankThreads::report(uint32_t index, const Status &status) {
  std::lock_guard lock(mutex);
  if (result.ok())
    whatOthersDo = onFailure(index);
  else if (!followsAnother(result) || followsAnother(status))
    return;
  result = fail(status.code(), "rank ", ranks[index], ": ", status.message(),
                whatOthersDo);
  finished.notify_one();
}
