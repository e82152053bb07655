//===- ActionKinds.h - What a rank does in a step ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The one table of the kinds of actions. Schedules, the pipe dialect and the
// plan file each have an enumeration of them, with these numbers, and ask the
// facts of a row by the number of their own. Whoever asks for "what happens
// once a step" or "what is exchanged between replicas" asks the facts, and a
// new row is among the answers.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_ACTIONKINDS_H
#define PLAIT_SUPPORT_ACTIONKINDS_H

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

/// All kinds. BackwardInput makes the gradient that the previous stage waits
/// for, BackwardWeight the rest, for which nobody waits before Reduce; Backward
/// makes both. Send posts a message and goes on, Recv blocks until the peer has
/// posted it, and WaitSend until the peer has received it. Reduce sums
/// gradients over replicas, and Gather collects parameters, of which replicas
/// have updated a part each. Columns are name, number, when a rank does it, the
/// part of the step that its exchanges belong to, and whether every complete
/// step has it. Numbers are never used again, and kinds of the end of a step
/// run in their order. ONLY_FILE has those that are in plan files alone.
#define PLAIT_FOR_EACH_ACTION_KIND(X, ONLY_FILE)                               \
  X(Forward, 0, Pass, Forward, true)                                           \
  X(Backward, 1, Pass, Backward, false)                                        \
  X(BackwardInput, 2, Pass, Backward, false)                                   \
  X(BackwardWeight, 3, Pass, Backward, false)                                  \
  X(Send, 4, Message, Pipeline, false)                                         \
  X(Recv, 5, Message, Pipeline, false)                                         \
  X(WaitSend, 6, Message, Pipeline, false)                                     \
  X(Reduce, 7, End, Reduce, true)                                              \
  X(Optimizer, 8, End, Optimizer, true)                                        \
  X(Gather, 9, Begin, Gather, false)                                           \
  ONLY_FILE(Outer, 10, List, Agreement, false)

namespace plait {

/// The moments at which a rank does an action.
enum class ActionTime : uint8_t {
  Pass,    // for each microbatch and virtual stage
  Message, // likewise, between two ranks of the pipeline
  Begin,   // once a step, before all else
  End,     // once a step, after all else
  List     // when a list of actions of its own is due
};

/// The parts of a step to which exchanges belong.
enum class StepPart : uint8_t {
  Gather,
  Forward,
  Backward,
  Reduce,
  Optimizer,
  Agreement,
  Pipeline // the part of the direction of a message
};

/// Facts of a kind of action.
struct ActionFacts {
  std::string_view name;
  ActionTime time;
  StepPart part;
  /// Whether every complete step has it.
  bool isAlways;

  /// Whether a rank does it once a step, for all of its virtual stages.
  constexpr bool isOnceAStep() const {
    return time == ActionTime::Begin || time == ActionTime::End;
  }
  /// Whether it moves what replicas divide or sum: gradients and parameters.
  constexpr bool isOfReplicas() const {
    return part == StepPart::Reduce || part == StepPart::Gather;
  }
};

/// All kinds, by their numbers.
inline constexpr ActionFacts actionKinds[] = {
#define PLAIT_ACTION_ROW(NAME, NUMBER, TIME, PART, ALWAYS)                     \
  {#NAME, ActionTime::TIME, StepPart::PART, ALWAYS},
    PLAIT_FOR_EACH_ACTION_KIND(PLAIT_ACTION_ROW, PLAIT_ACTION_ROW)
#undef PLAIT_ACTION_ROW
};

#define PLAIT_ACTION_NUMBER(NAME, NUMBER, TIME, PART, ALWAYS)                  \
  static_assert(actionKinds[NUMBER].name == #NAME);
PLAIT_FOR_EACH_ACTION_KIND(PLAIT_ACTION_NUMBER, PLAIT_ACTION_NUMBER)
#undef PLAIT_ACTION_NUMBER

/// The facts of a kind of any of the three enumerations. It is one of theirs:
/// numbers from files are checked first. A joint function of the pipe dialect
/// is no action, and has no row.
template <typename Kind>
constexpr const ActionFacts &getActionFacts(Kind kind) {
  return actionKinds[size_t(kind)];
}

} // namespace plait

#endif // PLAIT_SUPPORT_ACTIONKINDS_H
