//===- Processes.h - What processes tell each other -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The same calls for a run of one process and of several.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CHECKPOINT_PROCESSES_H
#define PLAIT_LIB_RUNTIME_CHECKPOINT_PROCESSES_H

#include "plait/Runtime/Executor.h"
#include "plait/Runtime/Rendezvous.h"

namespace plait::runtime {

/// What all processes have given.
inline Result<std::vector<std::string>> tellAll(Executor &executor,
                                                const std::string &mine) {
  if (Rendezvous *processes = executor.processes())
    return processes->exchange(mine);
  return std::vector<std::string>{mine};
}

/// How it went for all of them; waits for as long as the others take. Unlike
/// after Rendezvous::agree(), a run may go on where it failed.
inline Status agreeOn(Executor &executor, const Status &mine) {
  Rendezvous *processes = executor.processes();
  if (!processes)
    return mine;
  constexpr auto forEver = Rendezvous::Wait::ForEver;
  auto all = processes->gather(mine.ok() ? "" : mine.message(), forEver);
  if (!all.ok())
    return all.status();
  std::string first; // of the processes that have failed
  for (const std::string &one : *all)
    if (first.empty())
      first = one;
  auto verdict = processes->broadcast(first, forEver);
  if (!verdict.ok())
    return verdict.status();
  return verdict->empty() ? Status::success() : Status::failure(*verdict);
}

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CHECKPOINT_PROCESSES_H
