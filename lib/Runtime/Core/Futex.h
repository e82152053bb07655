//===- Futex.h - Waiting without spinning -----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Waits on a 32-bit word with the kernel's futex, which takes a time limit
// where std::atomic::wait does not. Waiters look up from time to time, so that
// abort() needs to know nobody's word.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_FUTEX_H
#define PLAIT_LIB_RUNTIME_CORE_FUTEX_H

#include <atomic>
#include <chrono>
#include <cstdint>

namespace plait::runtime {

enum class WaitResult { Changed, TimedOut, Aborted };

/// Returns when `word` differs from `old`, after `limit`, or when `aborted` is
/// set.
WaitResult waitWhileEqual(std::atomic<uint32_t> &word, uint32_t old,
                          const std::atomic<bool> &aborted,
                          std::chrono::milliseconds limit);

/// Returns when `word` may differ from `old`, or after `limit`.
void waitBriefly(std::atomic<uint32_t> &word, uint32_t old,
                 std::chrono::nanoseconds limit);

/// Wakes everybody who waits on `word`.
void wakeAll(std::atomic<uint32_t> &word);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_FUTEX_H
