//===- Wait.h - Waiting for a GPU -------------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_WAIT_H
#define PLAIT_LIB_RUNTIME_CUDA_WAIT_H

#include "plait/Support/Status.h"

#include <chrono>
#include <thread>

namespace plait::runtime {

/// A thousandth of a short step, and little work for the host.
inline constexpr std::chrono::microseconds usualGlance(20);

/// Returns when `isDone()`, a Result<bool>, or when it or `check(since)`, asked
/// in between, has failed; `since` is when the waiting began. With a glance of
/// 0 the thread does nothing else meanwhile.
template <typename IsDone, typename Check>
Status waitUntil(IsDone isDone, Check check,
                 std::chrono::microseconds glance = usualGlance) {
  auto since = std::chrono::steady_clock::now();
  while (true) {
    Result<bool> done = isDone();
    if (!done.ok())
      return done.status();
    if (*done)
      return Status::success();
    PLAIT_RETURN_IF_ERROR(check(since));
    if (glance.count())
      std::this_thread::sleep_for(glance);
    else
      std::this_thread::yield();
  }
}

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_WAIT_H
