//===- Signals.h - Signal handling ------------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For main() alone: a library does not decide what a signal does.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_SIGNALS_H
#define PLAIT_PLAN_SIGNALS_H

namespace plait {

/// Lets a signal that ends the process, crashes among them, remove its
/// temporary files first from now on. Signals that were ignored stay ignored.
/// The limit of a file's size (ulimit -f) is no such signal, but a failure to
/// write, as that of a full disk.
void removeTemporaryFilesOnSignals();

/// Keeps the first SIGINT, SIGTERM or SIGUSR1 from now on (which launchers pass
/// on, other than the first two) for receivedInterrupt(). It is answered with a
/// line on standard error that begins with `tool`, which must outlive the
/// process's last signal; null: with none. The second SIGINT or SIGTERM removes
/// the temporary files and ends the process at once, with 128 plus its number.
void deferInterrupts(const char *tool);

/// The signal that was deferred, 0: none. Any thread may ask at any time.
int receivedInterrupt();

} // namespace plait

#endif // PLAIT_PLAN_SIGNALS_H
