//===- ChildProcess.h - A program that is started and watched ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_SUPERVISOR_CHILDPROCESS_H
#define PLAIT_LIB_RUNTIME_SUPERVISOR_CHILDPROCESS_H

#include "plait/Support/Status.h"

#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace plait::runtime {

/// A child in a process group of its own: what the terminal sends to this
/// program does not reach it. It gets SIGTERM when the thread that has started
/// it ends, however that comes. Destruction kills it.
class ChildProcess {
public:
  ChildProcess() = default;
  ChildProcess(ChildProcess &&other) noexcept { *this = std::move(other); }
  ChildProcess &operator=(ChildProcess &&other) noexcept {
    std::swap(process, other.process);
    std::swap(code, other.code);
    return *this;
  }
  ~ChildProcess();

  /// Looks `words[0]` up in the path. Its standard input is empty; where it is
  /// silent its output goes nowhere.
  static Result<ChildProcess> start(const std::vector<std::string> &words,
                                    bool isSilent = false);

  bool isRunning();
  /// Whether it has started processes that it has not waited for.
  bool hasChildren() const;
  void send(int signal);
  /// Once it has ended: its code, or 128 and the number of its signal; -1 where
  /// that is not known.
  int exitCode() const { return code; }

private:
  pid_t process = -1;
  int code = -1;
};

/// Makes whom children leave behind from now on a child of this process, and
/// lets it be asked how children end, also where the parent had that ignored.
void adoptOrphans();
/// Kills all children, and theirs, and waits for their end.
void killChildren();

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_SUPERVISOR_CHILDPROCESS_H
