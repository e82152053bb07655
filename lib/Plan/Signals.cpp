//===- Signals.cpp - Signal handling --------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Handlers do what POSIX allows in them: atomics, write(), unlink(), _exit().
// The rest of a program asks receivedInterrupt() between steps.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Signals.h"

#include "plait/Plan/Files.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <initializer_list>
#include <unistd.h>

using namespace plait;

/// The first signal that was kept; later ones do not change it.
static std::atomic<int> deferred = 0;
static std::atomic<bool> isToldToEnd = false; // by more than SIGUSR1
static const char *deferringTool = nullptr;
/// Ends a progress line that is on the terminal.
static const char *lineEnd = "";

/// Sets a handler unless the signal is ignored, as nohup and shells that start
/// background jobs ask for.
static void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction before;
  if (sigaction(signal, nullptr, &before) != 0 || before.sa_handler == SIG_IGN)
    return;
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(signal, &action, nullptr);
}

static void removeAndDie(int signal) {
  removeTemporaryFiles();
  // SA_RESETHAND: the default action follows as soon as this returns.
  raise(signal);
}

/// 1. The second order to end is obeyed at once.
/// 2. The first signal is kept and answered. SIGUSR1 does not count as an
///    order.
static void defer(int signal) {
  int error = errno;
  int none = 0;
  // 1. What a launcher passes on may come before or after what it was told
  // itself, as when SLURM cancels a job.
  if (signal != SIGUSR1 && isToldToEnd.exchange(true)) {
    removeTemporaryFiles();
    _exit(128 + signal);
  }
  // 2. Writing may change errno, which the interrupted code may be about to
  //    read.
  if (!deferred.compare_exchange_strong(none, signal) || !deferringTool)
    return;
  // write() alone is allowed here.
  for (const char *part :
       {lineEnd, deferringTool,
        signal == SIGINT    ? ": SIGINT"
        : signal == SIGTERM ? ": SIGTERM"
                            : ": SIGUSR1",
        ": stops after this step; a second one ends it at once\n"})
    (void)!write(STDERR_FILENO, part, std::strlen(part));
  errno = error;
}

/// All signals that end a process and can be handled, crashes included. Of a
/// file that reaches the limit of its size, write() tells who writes it.
void plait::removeTemporaryFilesOnSignals() {
  for (int signal : {SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGPIPE, SIGXCPU,
                     SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV})
    handle(signal, removeAndDie, SA_RESETHAND);
  handle(SIGXFSZ, SIG_IGN, 0);
}

/// SA_RESTART: calls of the system go on as if nothing had happened.
void plait::deferInterrupts(const char *tool) {
  deferringTool = tool;
  lineEnd = isatty(STDERR_FILENO) ? "\n" : "";
  for (int signal : {SIGINT, SIGTERM, SIGUSR1})
    handle(signal, defer, SA_RESTART);
}

int plait::receivedInterrupt() { return deferred; }
