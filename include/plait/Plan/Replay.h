//===- Replay.h - The action lists of a plan, executed together -*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Walks the lists of all programs as their ranks would, without computing
// anything: the checker asks whether they come to an end, a simulation when.
// A program runs until it must wait; what it waits for wakes it. Since Send
// never blocks and everything else waits for one definite event, neither the
// outcome nor any time depends on the order in which programs are run.
//
// One rank stands for all of its program: they do the same at the same time,
// and collectives over other axes than the pipeline's join only them.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_REPLAY_H
#define PLAIT_PLAN_REPLAY_H

#include "plait/Plan/Messages.h"

#include <vector>

namespace plait::plan {

/// The durations of what takes time, in seconds or any other unit. Where a
/// vector is empty, nothing of its kind does.
struct ReplayCosts {
  /// steps[program][function][step]; of a collective, from when all members
  /// are there.
  std::vector<std::vector<std::vector<double>>> steps;
  /// The time of each entry of matchMessages(), from when both ends are there;
  /// the receiver is held, the sender is not.
  std::vector<double> messages;
};

/// How a rank spends one action. It reaches an action when the one before ends.
struct ActionTime {
  double start = 0, end = 0;
  double computing = 0;     // kernels, GEMMs, copies
  double communicating = 0; // collectives and receiving
  /// Returns the time spent waiting for another rank.
  double waiting() const { return end - start - computing - communicating; }
};

/// How a rank of a program spends the step.
struct RankTime {
  double computing = 0;
  double communicating = 0; // while nothing is computed
  double hidden = 0;        // behind computing
};

/// How long an operation goes on (Streams.h), and beside how much computing of
/// its rank. A message is its sender's.
struct OperationTime {
  double seconds = 0, hidden = 0;
};

struct Replayed {
  std::vector<std::vector<ActionTime>> programs; // by program and action
  /// Times by program and operation; empty without streams.
  std::vector<std::vector<OperationTime>> operations;
  std::vector<RankTime> ranks; // by program
  /// When all is over.
  double seconds = 0;
};

/// Fails when the lists deadlock, or meet in collectives that differ. `plan`
/// must have a sound structure, `messages` be its own, and costs be at least 0.
/// Linear in actions and steps.
Result<Replayed> replay(const fb::Plan &plan,
                        const std::vector<Message> &messages,
                        const ReplayCosts &costs);

/// The same where work goes on in several streams at once (Streams.h):
/// computing beside collectives and, on GPUs, messages, as far as the bytes
/// that they use allow. What is slower for having something beside it is not
/// modelled, nor the host, which is ahead.
///
/// Of an action that computes, times are those of what it computes; it
/// communicates while its computing waits and a collective or a message goes
/// on. An action that does not compute communicates from its first operation to
/// its last. `plan` is what the checker accepts.
Result<Replayed> replayStreams(const fb::Plan &plan,
                               const std::vector<Message> &messages,
                               const ReplayCosts &costs);

} // namespace plait::plan

#endif // PLAIT_PLAN_REPLAY_H
