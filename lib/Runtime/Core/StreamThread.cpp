//===- StreamThread.cpp - A second thread of a rank
//-------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamThread.h"

using namespace plait::runtime;

StreamThread::StreamThread(std::function<void()> work)
    : job(std::move(work)), thread([this] { serve(); }) {}

StreamThread::~StreamThread() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  changed.notify_all();
  thread.join();
}

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
