//===- Futex.cpp - Waiting without spinning -------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Futexes of the kernel (futex(2)), private to the process: a waiter sleeps,
// since there may be more ranks than cores and a spinning one would take a core
// from whom it waits for. std::atomic::wait() has no time limit, which is why
// the system call is made here.
//
//===----------------------------------------------------------------------===//

#include "Futex.h"

#include <climits>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

/// The kernel compares the plain 32 bits of the atomic.
static uint32_t *address(std::atomic<uint32_t> &word) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) &&
                std::atomic<uint32_t>::is_always_lock_free);
  return reinterpret_cast<uint32_t *>(&word);
}

/// Sleeps in slices: `aborted` is another word than the one slept on, and
/// setting it wakes nobody. A change wakes at once; the slices only bound how
/// late an abort or the time limit is noticed. The load acquires, so that what
/// was written before the change is visible after Changed. A change between
/// load and system call is safe: the kernel returns if the word is not `old`.
WaitResult runtime::waitWhileEqual(std::atomic<uint32_t> &word, uint32_t old,
                                   const std::atomic<bool> &aborted,
                                   std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  // How long an abort may go unnoticed.
  constexpr timespec glance = {0, 50'000'000};
  Clock::time_point start = Clock::now();
  while (word.load(std::memory_order_acquire) == old) {
    if (aborted.load(std::memory_order_relaxed))
      return WaitResult::Aborted;
    if (Clock::now() - start > limit)
      return WaitResult::TimedOut;
    syscall(SYS_futex, address(word), FUTEX_WAIT_PRIVATE, old, &glance, nullptr,
            0);
  }
  return WaitResult::Changed;
}

/// May return early, by a signal or a wake-up of others; callers look again.
void runtime::waitBriefly(std::atomic<uint32_t> &word, uint32_t old,
                          std::chrono::nanoseconds limit) {
  constexpr int64_t second = 1'000'000'000;
  timespec left = {limit.count() / second, limit.count() % second};
  syscall(SYS_futex, address(word), FUTEX_WAIT_PRIVATE, old, &left, nullptr, 0);
}

/// Costs a system call also where nobody sleeps: waiters are not counted.
void runtime::wakeAll(std::atomic<uint32_t> &word) {
  syscall(SYS_futex, address(word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
          nullptr, 0);
}
