//===- RankThreads.cpp - One thread a rank --------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RankThreads.h"

#include "plait/Runtime/Communicator.h"

using namespace plait;
using namespace plait::runtime;

RankThreads::RankThreads(std::vector<uint32_t> numbers,
                         std::chrono::milliseconds patience, Failed onFailure,
                         Stuck onStuck)
    : ranks(std::move(numbers)), patience(patience),
      onFailure(std::move(onFailure)), onStuck(std::move(onStuck)) {
  for (uint32_t index = 0; index < ranks.size(); ++index)
    threads.emplace_back([this, index] { serve(index); });
}

RankThreads::~RankThreads() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  started.notify_all();
  for (std::thread &thread : threads)
    thread.join();
}

Status RankThreads::run(const std::function<Status(uint32_t)> &newJob) {
  std::unique_lock lock(mutex);
  job = &newJob;
  running = threads.size();
  result = Status::success();
  ++generation;
  started.notify_all();
  finished.wait(lock, [&] { return running == 0 || !result.ok(); });
  if (!finished.wait_for(lock, patience, [&] { return running == 0; }))
    onStuck(result);
  return result;
}

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
    if (!status.ok())
      report(index, status);
    std::lock_guard lock(mutex);
    if (--running == 0)
      finished.notify_one();
  }
}

void RankThreads::report(uint32_t index, const Status &status) {
  std::lock_guard lock(mutex);
  if (result.ok())
    whatOthersDo = onFailure(index);
  else if (!followsAnother(result) || followsAnother(status))
    return;
  result = fail("rank ", ranks[index], ": ", status.message(), whatOthersDo);
  finished.notify_one();
}
