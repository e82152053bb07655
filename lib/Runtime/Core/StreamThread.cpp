//===- StreamThread.cpp - A second thread of a rank -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A flag says whether a job runs; it is set by start() and cleared by the
// thread, under one mutex, so that finish() after start() waits for exactly
// that job. The mutex also makes what was written before start() visible to the
// job, and what the job wrote visible after finish().
//
//===----------------------------------------------------------------------===//

#include "StreamThread.h"

using namespace plait::runtime;

/// The thread waits for the first start().
StreamThread::StreamThread(std::function<void()> work)
    : job(std::move(work)), thread([this] { serve(); }) {}

/// A job that runs ends first: serve() looks at `stopping` between jobs only.
StreamThread::~StreamThread() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  changed.notify_all();
  thread.join();
}

/// The job before has ended: finish() came between.
void StreamThread::start() {
  {
    std::lock_guard lock(mutex);
    running = true;
  }
  changed.notify_all();
}

void StreamThread::finish() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return !running; });
}

/// The lock is not held during the job, which may last for a step.
void StreamThread::serve() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return running || stopping; });
    if (!running)
      return;
    lock.unlock();
    job();
    lock.lock();
    running = false;
    changed.notify_all();
  }
}
