//===- Schedule.h - A pipeline schedule as data -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A pipeline cuts a model into stages and a batch into microbatches; a schedule
// says in which order each rank works on them. Here a schedule is nothing but
// one ordered list of actions per rank. What may be done with it is split as in
// a scheduling library:
//
//   Problem    what is to be scheduled                 (this file)
//   generator  Problem -> Schedule                     (Generators.h)
//   verify     Schedule -> sound, or why it is not     (Verify.h)
//   simulate   Schedule x Costs -> Timeline            (Simulate.h)
//   bound      Problem x Costs -> no schedule is faster  (Bound.h)
//   chart      Schedule x Timeline -> a drawing        (Chart.h)
//
// so that a new schedule is one more generator and everything else serves it.
//
// Two forms share the data type. A *compute-only* schedule holds the work
// (F, B or I and W) and leaves communication implied; a *complete* one also
// holds the transfers, the gradient reduction and the optimizer, and where
// there is one the gather of parameters, and is what a plan's actions are made
// of. insertTransfers turns the first into the second.
//
// Everything here is a plain value: no function keeps a reference to its
// arguments, none has state, all may be called from several threads at once.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SCHEDULE_SCHEDULE_H
#define PLAIT_SCHEDULE_SCHEDULE_H

#include "plait/Support/ActionKinds.h"
#include "plait/Support/Status.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait::schedule {

/// Names and numbers are those of the table (plait/Support/ActionKinds.h), as
/// of fb::ActionKind in lib/Plan/Plan.fbs.
enum class ActionKind : uint8_t {
#define PLAIT_ENUMERATE(NAME, NUMBER, ...) NAME = NUMBER,
#define PLAIT_NOT_HERE(...)
  PLAIT_FOR_EACH_ACTION_KIND(PLAIT_ENUMERATE, PLAIT_NOT_HERE)
#undef PLAIT_ENUMERATE
#undef PLAIT_NOT_HERE
};

/// The content of a message: activations to the next stage or gradients to the
/// previous one. Same values as fb::Direction.
enum class Direction : uint8_t { Forward = 0, Backward = 1 };

/// One entry of a rank's list. Fields that a kind does not use are zero.
struct Action {
  ActionKind kind = ActionKind::Forward;
  uint32_t chunk = 0;      // which of the rank's chunks; of work and messages
  uint32_t microbatch = 0; // likewise
  Direction direction = Direction::Forward; // Send, Recv, WaitSend
  uint32_t peer = 0;                        // the other rank of the message

  bool isCompute() const { return kind <= ActionKind::BackwardWeight; }
  bool isTransfer() const {
    return kind >= ActionKind::Send && kind <= ActionKind::WaitSend;
  }
  bool operator==(const Action &) const = default;
};

/// Which rank holds which virtual stage, shown for 3 ranks with 2 chunks each.
enum class Placement : uint8_t {
  RoundRobin, // 0 1 2 | 0 1 2: every message goes to the next rank, in a ring
  VShape      // 0 1 2 | 2 1 0: at the turns, neighbours share a rank
};

/// A problem of scheduling. The model is cut into `stages * chunks` pieces,
/// called virtual stages and executed in increasing order by the forward pass.
struct Problem {
  uint32_t stages = 1;       // ranks of the pipeline
  uint32_t chunks = 1;       // virtual stages on each rank
  uint32_t microbatches = 1; // of one step
  Placement placement = Placement::RoundRobin;

  /// Fails unless every count is at least 1 and the schedule would stay below
  /// 2^22 pairs of virtual stage and microbatch. Everything else in this
  /// library expects (generators, verify and simulate: checks) that it holds.
  Status check() const;

  uint32_t virtualStages() const { return stages * chunks; }

  // Where virtual stages live. These functions are the only place that knows.
  uint32_t stageOf(uint32_t rank, uint32_t chunk) const {
    return chunk * stages + mirror(rank, chunk);
  }
  uint32_t rankOf(uint32_t stage) const {
    return mirror(stage % stages, chunkOf(stage));
  }
  uint32_t chunkOf(uint32_t stage) const { return stage / stages; }

  bool operator==(const Problem &) const = default;

private:
  /// Every second chunk of a V runs from the last rank to the first.
  uint32_t mirror(uint32_t position, uint32_t chunk) const {
    bool turned = placement == Placement::VShape && chunk % 2 == 1;
    return turned ? stages - 1 - position : position;
  }
};

/// Memory is counted in activations of one microbatch on one rank; a chunk
/// holds 1 / chunks of that from the start of its F to the end of its B. After
/// an I only the share that the weight gradient reads is left, until the W.
struct MemoryModel {
  double weightShare = 0.5; // left after an I; 0 to 1
  double limit = 0;         // on every rank; 0: none
  /// Uneven stages: what each virtual stage holds of a microbatch, in any unit,
  /// which is then that of the limit. Empty: 1 / chunks.
  std::vector<double> sizes = {};

  /// Fails unless all are in range.
  Status check() const;
  double sizeOf(const Problem &problem, uint32_t stage) const {
    return sizes.empty() ? 1.0 / problem.chunks : sizes[stage];
  }
  /// Whether a rank may hold so much; lets sums of shares be rounded.
  bool allows(double activations) const {
    return limit == 0 || activations <= limit + 1e-9 * std::max(1.0, limit);
  }
  bool operator==(const MemoryModel &) const = default;
};

struct Schedule {
  Problem problem;
  /// The generator's name, which fixes the memory bound that verify checks.
  /// Empty for a schedule written by hand: then there is no such bound.
  std::string kind;
  std::vector<std::vector<Action>> ranks = {}; // ranks[r]: the list of rank r
  /// The model of memory that the schedule was made for. verify checks the
  /// limit as well.
  MemoryModel memory = {};

  /// True when no rank has anything but work.
  bool isComputeOnly() const;
  bool operator==(const Schedule &) const = default;
};

/// Whether some backward is split.
bool splitsBackward(const Schedule &schedule);

/// Splits all backwards where some are split: each B becomes its I and W, one
/// right after the other. As sound as `schedule`.
Schedule splitBackwards(Schedule schedule);

/// The most (chunk, microbatch) pairs of `rank` whose forward has run and whose
/// backward (for a split one: BackwardWeight, the last user) has not: how many
/// sets of activations the rank must be able to hold. Linear in the list.
/// Returns 0 when `rank` is not one of the schedule's.
uint32_t peakInFlight(const Schedule &schedule, uint32_t rank);

/// The most memory that `rank` holds at once, in the units and with the
/// weight share of schedule.memory. Linear in the list; 0 when `rank` is not
/// one of the schedule's.
double peakActivations(const Schedule &schedule, uint32_t rank);

/// The same of the rank that holds the most.
double peakActivations(const Schedule &schedule);

//===----------------------------------------------------------------------===//
// Text form
//===----------------------------------------------------------------------===//
//
//   F0 B0 I0 W0            compute on microbatch 0; `1F0` on chunk 1
//   SEND_F0 RECV_B0        messages; the letter is the direction
//   WAIT_F0                the end of SEND_F0
//   GATHER                 the beginning of a step
//   REDUCE OPTIMIZER       its end
//
// A rank is its actions separated by blanks, a schedule one rank a line. The
// names are those of torch.distributed.pipelining, except that the number in
// front is the chunk (left out when 0): the rank is known from the line. The
// peer of a message is not written; it follows from chunk and direction.

std::string print(const Action &action);
std::string print(std::span<const Action> actions);
/// Every line ends with a newline.
std::string print(const Schedule &schedule);

/// Actions without a problem: neither chunk nor microbatch is known to exist,
/// and messages have peer 0. Fails, naming the word, when it is no action or a
/// number exceeds 32 bits.
Result<Action> parseAction(std::string_view word);
Result<std::vector<Action>> parseActions(std::string_view line);

/// The schedule of such actions, with the peers of messages. Fails, naming rank
/// and action, when chunk or microbatch are outside `problem`, or when the
/// message would leave the pipeline; also when there is not one list for each
/// rank. It is not verified.
Result<Schedule> placeActions(const Problem &problem, std::string kind,
                              std::vector<std::vector<Action>> ranks);

/// Both of exactly `problem.stages` lines.
Result<Schedule> parseSchedule(const Problem &problem, std::string kind,
                               std::string_view text);

} // namespace plait::schedule

#endif // PLAIT_SCHEDULE_SCHEDULE_H
