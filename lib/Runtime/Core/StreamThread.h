//===- StreamThread.h - A second thread of a rank ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where a device has one stream only, as a processor, what a rank does beside
// computing has a thread of its own.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_STREAMTHREAD_H
#define PLAIT_LIB_RUNTIME_CORE_STREAMTHREAD_H

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace plait::runtime {

/// Lives as long as the object and does one job at a time. start() and finish()
/// are called by one thread, in turn.
class StreamThread {
public:
  explicit StreamThread(std::function<void()> job);
  /// A job that goes on has to end by itself.
  ~StreamThread();

  void start();
  /// Waits until the job has ended.
  void finish();

private:
  void serve();

  std::function<void()> job;
  std::mutex mutex; // of what follows
  std::condition_variable changed;
  bool running = false, stopping = false;
  std::thread thread; // last: uses all of it
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_STREAMTHREAD_H
