//===- RankThreads.h - One thread a rank ------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_RANKTHREADS_H
#define PLAIT_LIB_RUNTIME_CORE_RANKTHREADS_H

#include "plait/Support/Status.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace plait::runtime {

/// Threads that live as long as the object and do the same job side by side.
class RankThreads {
public:
  /// Called on the thread of the rank that fails first, to release the ranks
  /// that wait for it. Returns what else is to be said.
  using Failed = std::function<std::string(uint32_t index)>;
  /// Called where a rank does not come back for `patience` after another one
  /// has failed, with that failure. Where it returns the rank is waited for.
  using Stuck = std::function<void(const Status &failure)>;

  /// One thread for each of `ranks`.
  RankThreads(std::vector<uint32_t> ranks, std::chrono::milliseconds patience,
              Failed onFailure, Stuck onStuck);
  ~RankThreads();

  /// Calls `job` on every thread and returns when all have returned: the
  /// failure that happened first, with the rank's number in front, or the first
  /// that does not follow another one, as that of a connection that is lost:
  /// all are released then, and who waits for it may be the last to say so.
  /// Called from one thread outside. `index` counts the ranks of the
  /// constructor.
  Status run(const std::function<Status(uint32_t index)> &job);

private:
  void serve(uint32_t index);
  void report(uint32_t index, const Status &status);

  std::vector<uint32_t> ranks;
  std::chrono::milliseconds patience;
  Failed onFailure;
  Stuck onStuck;
  std::mutex mutex;                          // of all below except the threads
  std::condition_variable started, finished; // or failed
  const std::function<Status(uint32_t)> *job = nullptr;
  uint64_t generation = 0;
  uint32_t running = 0;
  bool stopping = false;
  Status result = Status::success();
  std::string whatOthersDo; // said at the first failure
  std::vector<std::thread> threads;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_RANKTHREADS_H
