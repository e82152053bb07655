//===- LiveBytes.cpp - What a workspace holds, step by step ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LiveBytes.h"

using namespace plait;

/// Differences first, then their running sum.
LiveBytes::LiveBytes(const Workspace &workspace, size_t steps)
    : live(steps + 1) {
  for (auto &[value, lifetime] : workspace.lifetimes) {
    live[lifetime.first] += lifetime.bytes;
    live[lifetime.last + 1] -= lifetime.bytes;
  }
  // What lies where something was that is released takes nothing.
  for (auto &[argument, read] : workspace.released)
    live[read.last + 1] -= read.bytes;
  for (size_t step = 1; step < live.size(); ++step)
    live[step] += live[step - 1];
  peak = *llvm::max_element(live);
}

bool LiveBytes::change(llvm::ArrayRef<Lifetime> more, int64_t sign) {
  bool fits = true;
  for (const Lifetime &lifetime : more)
    for (int64_t step = lifetime.first; step <= lifetime.last; ++step) {
      live[step] += sign * lifetime.bytes;
      fits = fits && live[step] <= peak;
    }
  return fits;
}

bool LiveBytes::add(llvm::ArrayRef<Lifetime> more) {
  if (change(more, 1))
    return true;
  change(more, -1);
  return false;
}
