//===- SiteMixings.cpp - What a list of neighbours does -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The part of a list's reader that follows messages between neighbours, each of
// which takes several actions.
//
//===----------------------------------------------------------------------===//

#include "SiteDeedReader.h"

using namespace plait;
using namespace plait::plan;

/// Takes the action that has to be next. Ranges are numbered, so that what is
/// received is the same range of another site.
Status DeedReader::expectTransfer(fb::ActionKind kind, uint32_t exchange,
                                  uint64_t buffer, uint64_t bytes) {
  if (action == end || get(action).kind() != kind ||
      get(action).exchange() != exchange)
    return fail("action ", action, " is not the ", fb::EnumNameActionKind(kind),
                " of exchange ", exchange, " that has to follow");
  const fb::Action &own = get(action);
  if (own.buffer() != buffer || own.bytes() != bytes || own.tensor() != mixed ||
      own.stage() || own.microbatch() ||
      own.direction() != fb::Direction::Forward)
    return fail("action ", action, " is of another range than those around it");
  ++action;
  return Status::success();
}

/// The offset of what a call changes, or 0.
uint64_t DeedReader::valueOf(uint32_t call) const {
  const fb::Function &function = functionOf(get(call));
  const fb::OuterStep *step =
      length(function.steps()) ? function.steps()->Get(0)->step_as_OuterStep()
                               : nullptr;
  return step && step->value() ? step->value()->offset() : 0;
}

/// Takes a call of one step.
Status DeedReader::expectStep(fb::OuterKind kind, uint32_t exchange,
                              const ElementRange &value,
                              const fb::OuterStep *&step) {
  step = nullptr;
  if (action < end && !isTransfer(get(action)) &&
      length(functionOf(get(action)).steps()) == 1)
    step = functionOf(get(action)).steps()->Get(0)->step_as_OuterStep();
  if (!step || step->kind() != kind || step->exchange() != exchange)
    return fail("action ", action, " is not the ", fb::EnumNameOuterKind(kind),
                exchange ? " of exchange " + std::to_string(exchange) : "",
                " that has to follow");
  if (!isAt(step->value(), value.offset) || step->elements() != value.elements)
    return fail("action ", action, " is of another range than those around it");
  ++action;
  return Status::success();
}

/// 1. The range is sent to all neighbours.
/// 2. What they have sent is received and added, one by one.
/// 3. When all have received it, it may change.
Result<ElementRange> DeedReader::readExchanges(uint64_t &received,
                                               uint64_t &sum) {
  uint32_t first = action,
           mixing = plan.lists()->Get(get(first).list())->mixing();
  uint32_t exchanges =
      length(plan.outer()->mixings()->Get(mixing - 1)->exchanges());
  uint64_t begin = get(first).buffer(), bytes = get(first).bytes();
  ElementRange value = {begin, bytes / sizeof(float)};
  // 1. Sent.
  for (uint32_t i = 1; i <= exchanges; ++i)
    PLAIT_RETURN_IF_ERROR(
        expectTransfer(fb::ActionKind::Send, i, begin, bytes));
  // 2. Received.
  received = action < end ? get(action).buffer() : 0;
  const fb::OuterStep *step;
  for (uint32_t i = 1; i <= exchanges; ++i) {
    PLAIT_RETURN_IF_ERROR(
        expectTransfer(fb::ActionKind::Recv, i, received, bytes));
    PLAIT_RETURN_IF_ERROR(expectStep(fb::OuterKind::Mix, i, value, step));
    if (i == 1)
      sum = step->mixed()->offset();
    if (!isAt(step->others(), received) || !isAt(step->mixed(), sum) ||
        bytes % sizeof(float))
      return fail("action ", action - 1, " does not add what was received");
  }
  // 3. Free.
  for (uint32_t i = 1; i <= exchanges; ++i)
    PLAIT_RETURN_IF_ERROR(
        expectTransfer(fb::ActionKind::WaitSend, i, begin, bytes));
  PLAIT_RETURN_IF_ERROR(checkScratch(received, sum, bytes, first, action));
  ++mixed;
  return value;
}

bool DeedReader::isMixing() const {
  if (isTransfer(get(action)))
    return true;
  const fb::Function &function = functionOf(get(action));
  const fb::OuterStep *step =
      length(function.steps()) == 1
          ? function.steps()->Get(0)->step_as_OuterStep()
          : nullptr;
  return corrects && step && step->kind() == fb::OuterKind::Part;
}

/// 1. What is tracked, if anything is, is learned.
/// 2. The exchanges, and what becomes of the value by them.
/// 3. It is written down where the next steps begin.
Status DeedReader::readMixing() {
  // 1. Tracking.
  if (!isTransfer(get(action)))
    PLAIT_RETURN_IF_ERROR(readTracking());
  if (action == end || !isTransfer(get(action)))
    return fail("action ", action - 1, " has no exchange of it behind it");
  // 2. Mixing.
  uint64_t received = 0, sum = 0;
  Result<ElementRange> sent = readExchanges(received, sum);
  if (!sent.ok())
    return sent.status();
  ElementRange value = *sent;
  bool joins = keepsBefore && !corrects;
  const fb::OuterStep *step;
  if (joins && action < end && !isTransfer(get(action)))
    value.offset = valueOf(action);
  PLAIT_RETURN_IF_ERROR(expectStep(
      joins ? fb::OuterKind::Join : fb::OuterKind::Take, 0, value, step));
  if (!isAt(step->mixed(), sum))
    return fail("action ", action - 1, " does not take what was added up");
  Done own = {joins ? Deed::Joining : Deed::Mixing, value};
  if (joins) {
    if (!isAt(step->anchor(), sent->offset))
      return fail("action ", action - 1, " joins other weights than are sent");
    own.before = sent->offset;
  }
  PLAIT_RETURN_IF_ERROR(
      checkScratch(sum, sent->elements * sizeof(float), action - 1));
  done.push_back(own);
  // 3. What was.
  if (!keepsBefore)
    return Status::success();
  PLAIT_RETURN_IF_ERROR(expectStep(fb::OuterKind::Keep, 0, value, step));
  done.push_back({.deed = Deed::Keep, .value = value});
  done.back().before = step->anchor()->offset();
  return Status::success();
}

/// 1. What the weights have moved by is written down.
/// 2. It is mixed.
/// 3. What it differs by from the mean is learned.
Status DeedReader::readTracking() {
  // 1. Moved.
  uint32_t first = action;
  const fb::OuterStep &part =
      *functionOf(get(action)).steps()->Get(0)->step_as_OuterStep();
  ElementRange value = {part.value()->offset(), part.elements()};
  uint64_t moved = part.mixed()->offset(), bytes = value.end() - value.offset;
  ++action;
  // 2. Mixed.
  if (action == end || !isTransfer(get(action)) ||
      get(action).buffer() != moved || get(action).bytes() != bytes)
    return fail("action ", first, " has no exchange of it behind it");
  uint64_t received = 0, sum = 0;
  Result<ElementRange> sent = readExchanges(received, sum);
  if (!sent.ok())
    return sent.status();
  // 3. Learned.
  const fb::OuterStep *learn;
  PLAIT_RETURN_IF_ERROR(expectStep(fb::OuterKind::Learn, 0, *sent, learn));
  if (!isAt(learn->mixed(), sum))
    return fail("action ", action - 1, " does not take what was added up");
  for (uint64_t other : {received, sum})
    PLAIT_RETURN_IF_ERROR(checkScratch(moved, other, bytes, first, action - 1));
  Done own = {Deed::Tracking, value};
  own.before = part.anchor()->offset();
  own.correction = learn->correction()->offset();
  done.push_back(own);
  return Status::success();
}
