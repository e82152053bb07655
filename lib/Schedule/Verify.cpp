//===- Verify.cpp - Proof that a pipeline schedule is sound ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The checks of Verify.h by their numbers. V1 to V3 look at one rank's list at
// a time and need no execution: one walk enters each action into a table by
// slot, chunk and microbatch, a second one over the table finds what is missing
// or out of order. V4 is an execution (Execute.cpp) with any costs, since
// whether the lists end does not depend on costs. V5 counts activations in the
// order of the lists. The order matters: a later check indexes by what an
// earlier one has bounded.
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Verify.h"
#include "Execute.h"
#include "Messages.h"
#include "plait/Schedule/Generators.h"
#include "plait/Support/ActionKinds.h"

using namespace plait;
using namespace plait::schedule;

namespace {

/// The actions that a (chunk, microbatch) may have, each at most once.
enum Slot : uint32_t {
  F,
  B,
  I,
  W,
  SendF,
  SendB,
  RecvF,
  RecvB,
  WaitF,
  WaitB,
  numSlots
};

/// Relies on the order of ActionKind and of Direction: work first and in the
/// order F, B, I, W; then a pair of slots, forward and backward, for each kind
/// of message. Not for what happens once a step, which has no microbatch.
Slot slotOf(const Action &action) {
  if (action.isCompute())
    return Slot(action.kind);
  uint32_t kind = uint32_t(action.kind) - uint32_t(ActionKind::Send);
  return Slot(SendF + 2 * kind + uint32_t(action.direction));
}

/// V3: `earlier` runs before `later` on a rank, wherever both exist.
struct Order {
  Slot earlier, later;
};
// A B and an I both stand for the moment at which the gradient of the input is
// there. W only has to follow its I, because no message carries what it
// computes.
constexpr Order orders[] = {
    {F, B},     {F, I},         {I, W},         {RecvF, F},
    {F, SendF}, {RecvB, B},     {RecvB, I},     {B, SendB},
    {I, SendB}, {SendF, WaitF}, {SendB, WaitB},
};

/// V1 to V3 for the list of one rank.
class ListVerifier {
public:
  ListVerifier(const Schedule &schedule, uint32_t rank, bool complete)
      : problem(schedule.problem), actions(schedule.ranks[rank]), rank(rank),
        complete(complete) {}

  Status run();

private:
  Status checkTarget(size_t index) const;
  Status enter(size_t index);
  Status checkBackward(uint32_t chunk, uint32_t microbatch) const;
  Status checkPresent(uint32_t chunk, uint32_t microbatch) const;
  Status checkOrder(uint32_t chunk, uint32_t microbatch) const;
  Status checkBegin() const;
  Status checkEnd() const;

  /// The index of an action in the list, or `none`.
  int64_t find(Slot slot, uint32_t chunk, uint32_t microbatch) const {
    return positions[(size_t(slot) * problem.chunks + chunk) *
                         problem.microbatches +
                     microbatch];
  }
  /// How all messages name an action: by its index in the list, and as printed,
  /// since the same action may be meant to be elsewhere.
  std::string describe(size_t index) const {
    return "rank " + std::to_string(rank) + ", action " +
           std::to_string(index) + " (" + print(actions[index]) + ")";
  }
  Status missing(const Action &action) const {
    return fail("rank ", rank, ": ", print(action), " is missing");
  }

  static constexpr int32_t none = -1;
  const Problem &problem;
  const std::vector<Action> &actions;
  uint32_t rank;
  bool complete;
  std::vector<int32_t> positions; // by slot, chunk, microbatch
  std::vector<int64_t> onces;     // by kind, of what happens once a step
};

} // namespace

/// V1 for one action.
Status ListVerifier::checkTarget(size_t index) const {
  const Action &action = actions[index];
  if (size_t(action.kind) >= std::size(actionKinds) ||
      getActionFacts(action.kind).time == ActionTime::List)
    return fail("rank ", rank, ", action ", index, ": unknown kind ",
                unsigned(action.kind));
  // Everything that indexes a table comes first. Kinds and directions are read
  // from plans and IR as numbers, and may be any.
  if (action.chunk >= problem.chunks)
    return fail(describe(index), ": chunk ", action.chunk,
                " is out of range, the schedule has ", problem.chunks);
  if (action.microbatch >= problem.microbatches)
    return fail(describe(index), ": microbatch ", action.microbatch,
                " is out of range, the schedule has ", problem.microbatches);
  if (!action.isTransfer())
    return Status::success();
  if (action.direction > Direction::Backward)
    return fail("rank ", rank, ", action ", index, ": unknown direction ",
                unsigned(action.direction));
  // The peer is redundant, and so can be wrong: an execution would send to one
  // rank while another waits.
  auto peer = peerOf(problem, rank, action.chunk, action.direction,
                     action.kind == ActionKind::Recv);
  if (!peer)
    return fail(describe(index),
                ": no other rank holds the neighbouring stage");
  if (action.peer != *peer)
    return fail(describe(index), ": peer is rank ", action.peer,
                ", the neighbouring stage is on rank ", *peer);
  return Status::success();
}

/// V2, at most once: records where the action is.
Status ListVerifier::enter(size_t index) {
  const Action &action = actions[index];
  // Entered in the order of the list, so that of two the second is at fault.
  auto record = [&](auto &position) {
    if (position != none)
      return fail(describe(index), ": appears twice, first as action ",
                  position);
    position = index;
    return Status::success();
  };
  if (getActionFacts(action.kind).isOnceAStep())
    return record(onces[size_t(action.kind)]);
  return record(
      positions[(size_t(slotOf(action)) * problem.chunks + action.chunk) *
                    problem.microbatches +
                action.microbatch]);
}

/// V2: one whole backward, or both halves of a split one.
Status ListVerifier::checkBackward(uint32_t chunk, uint32_t microbatch) const {
  int64_t whole = find(B, chunk, microbatch);
  int64_t input = find(I, chunk, microbatch);
  int64_t weight = find(W, chunk, microbatch);
  // Either half serves to report a backward that is both whole and split.
  int64_t half = input != none ? input : weight;
  if (whole != none && half != none)
    return fail(describe(whole),
                ": the same backward is also split, see action ", half, " (",
                print(actions[half]), ")");
  if (whole == none && half == none)
    return missing({ActionKind::Backward, chunk, microbatch});
  if (whole == none && input == none)
    return missing({ActionKind::BackwardInput, chunk, microbatch});
  if (whole == none && weight == none)
    return missing({ActionKind::BackwardWeight, chunk, microbatch});
  return Status::success();
}

/// V2, at least once.
Status ListVerifier::checkPresent(uint32_t chunk, uint32_t microbatch) const {
  if (find(F, chunk, microbatch) == none)
    return missing({ActionKind::Forward, chunk, microbatch});
  PLAIT_RETURN_IF_ERROR(checkBackward(chunk, microbatch));
  if (!complete)
    return Status::success();
  // A message is due exactly where peerOf names a rank: not at the ends of the
  // pipeline, and not between virtual stages that share a rank.
  for (ActionKind kind :
       {ActionKind::Recv, ActionKind::Send, ActionKind::WaitSend})
    for (Direction direction : {Direction::Forward, Direction::Backward}) {
      Action action{kind, chunk, microbatch, direction};
      if (peerOf(problem, rank, chunk, direction, kind == ActionKind::Recv) &&
          find(slotOf(action), chunk, microbatch) == none)
        return missing(action);
    }
  return Status::success();
}

/// V3 for one (chunk, microbatch).
Status ListVerifier::checkOrder(uint32_t chunk, uint32_t microbatch) const {
  for (auto [earlier, later] : orders) {
    int64_t first = find(earlier, chunk, microbatch);
    int64_t second = find(later, chunk, microbatch);
    if (first != none && second != none && first > second)
      return fail(describe(second), ": comes before action ", first, " (",
                  print(actions[first]), "), which it depends on");
  }
  return Status::success();
}

/// V3 for the beginning of the step.
Status ListVerifier::checkBegin() const {
  int64_t first = 0;
  for (size_t kind = 0; kind < onces.size(); ++kind) {
    int64_t index = onces[kind];
    if (actionKinds[kind].time != ActionTime::Begin || index == none)
      continue;
    if (index != first)
      return fail(describe(index), ": comes after action ", first, " (",
                  print(actions[first]), ")");
    ++first;
  }
  return Status::success();
}

/// V2 and V3 for the end of the step, from the last action on.
Status ListVerifier::checkEnd() const {
  for (size_t kind = 0; kind < onces.size(); ++kind)
    if (const ActionFacts &facts = actionKinds[kind];
        facts.isOnceAStep() && facts.isAlways && onces[kind] == none)
      return missing({ActionKind(kind)});
  size_t end = actions.size();
  for (size_t kind = onces.size(); kind-- > 0;) {
    int64_t index = onces[kind];
    if (actionKinds[kind].time != ActionTime::End || index == none)
      continue;
    if (size_t(index) + 1 != end)
      return end == actions.size()
                 ? fail(describe(index), ": is not the last of ", end,
                        " actions")
                 : fail(describe(index), ": comes before action ", index + 1,
                        " (", print(actions[index + 1]), ")");
    end = index;
  }
  return Status::success();
}

/// Linear: each action is entered once, and each slot of the table read a fixed
/// number of times. Presence comes before order, so that a missing action is
/// called that and not misplaced.
Status ListVerifier::run() {
  positions.assign(size_t(numSlots) * problem.chunks * problem.microbatches,
                   none);
  onces.assign(std::size(actionKinds), none);
  for (size_t index = 0; index < actions.size(); ++index) {
    PLAIT_RETURN_IF_ERROR(checkTarget(index));
    PLAIT_RETURN_IF_ERROR(enter(index));
  }
  for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk)
    for (uint32_t m = 0; m < problem.microbatches; ++m) {
      PLAIT_RETURN_IF_ERROR(checkPresent(chunk, m));
      PLAIT_RETURN_IF_ERROR(checkOrder(chunk, m));
    }
  if (!complete)
    return Status::success();
  PLAIT_RETURN_IF_ERROR(checkBegin());
  return checkEnd();
}

/// One action that is no work makes a schedule complete: then all the others
/// that a complete one has must be there on every rank.
Status schedule::verifyLists(const Schedule &schedule) {
  PLAIT_RETURN_IF_ERROR(schedule.problem.check());
  if (schedule.ranks.size() != schedule.problem.stages)
    return fail("schedule has lists for ", schedule.ranks.size(),
                " ranks, expected ", schedule.problem.stages);
  bool complete = !schedule.isComputeOnly();
  for (uint32_t rank = 0; rank < schedule.ranks.size(); ++rank)
    PLAIT_RETURN_IF_ERROR(ListVerifier(schedule, rank, complete).run());
  return Status::success();
}

/// V5.
static Status checkMemory(const Schedule &schedule) {
  PLAIT_RETURN_IF_ERROR(schedule.memory.check());
  for (uint32_t rank = 0; rank < schedule.ranks.size(); ++rank)
    if (double peak = peakActivations(schedule, rank);
        !schedule.memory.allows(peak))
      return fail("rank ", rank, ": ", peak,
                  " microbatches are in flight, the memory limit is ",
                  schedule.memory.limit);
  return Status::success();
}

/// Asked apart from verify because a name is only a claim: a schedule from a
/// file may be called anything and still be sound. The generator's bound is put
/// in place of the limit, so that both are compared with the same tolerance.
Status schedule::checkNamedBound(const Schedule &schedule) {
  Result<const Generator *> found = findGenerator(schedule.kind);
  if (!found.ok())
    return Status::success();
  MemoryModel named = schedule.memory;
  for (uint32_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    double peak = peakActivations(schedule, rank);
    named.limit =
        (*found)->memoryBound(schedule.problem, rank, named.weightShare);
    if (!named.allows(peak))
      return fail("rank ", rank, ": ", peak,
                  " microbatches are in flight, schedule ", schedule.kind,
                  " holds ", named.limit);
  }
  return Status::success();
}

/// Even costs will do for V4: which actions run is the same for all costs, only
/// when they run differs.
Status schedule::verify(const Schedule &schedule) {
  PLAIT_RETURN_IF_ERROR(verifyLists(schedule));
  Result<Timeline> run = execute(schedule, Costs{}); // V4
  if (!run.ok())
    return run.status();
  return checkMemory(schedule);
}
