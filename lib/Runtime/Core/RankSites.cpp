//===- RankSites.cpp - A rank of a site that is a run of its own ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The plan's own steps, in two parts: what sites have moved by before they
// meet, and all that follows from the sums of those that were there. Nothing
// that comes before a sum depends on what comes behind another one: each is of
// weights of its own (plan::checkSites).
//
//===----------------------------------------------------------------------===//

#include "Rank.h"
#include "Sites/Frames.h"
#include "plait/Plan/Defaults.h"

#include <cstring>

using namespace plait;
using namespace plait::runtime;
using plan::length;

bool Rank::isSumOfSites(const fb::Step &step) const {
  const auto *sum = step.step_as_CollectiveStep();
  return sum && sum->axis() == mesh.sitesAxis();
}

/// Whether the step is one of `kinds`.
static bool isOneOf(const fb::Step &step,
                    std::initializer_list<fb::OuterKind> kinds) {
  const auto *outer = step.step_as_OuterStep();
  return outer && std::count(kinds.begin(), kinds.end(), outer->kind());
}

/// Calls `work` with each step of the lists that are due in step `number`, in
/// their order: the action, the step and what was prepared of it.
template <typename Do> Status Rank::forEachOfScheme(uint64_t number, Do work) {
  main.passes = false;
  main.at.number = number;
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    if (!plan::isScheme(action) || !plan::isDue(plan, action, number))
      continue;
    main.at.action = i;
    const auto &steps = *program.functions()->Get(action.function())->steps();
    for (uint32_t j = 0; j < steps.size(); ++j) {
      main.at.functionStep = j;
      Status status =
          work(action, *steps.Get(j), prepared[action.function()][j]);
      if (!status.ok())
        return fail(status.code(), "step ", number, locationOf(main.at, action),
                    ": ", status.message());
    }
  }
  main.at.number = 0;
  return Status::success();
}

Status Rank::findDifferences(uint64_t number) {
  return forEachOfScheme(number, [&](auto &action, auto &step, uint32_t more) {
    return isOneOf(step, {fb::OuterKind::Difference})
               ? runStepOf(main, action, step, more)
               : Status::success();
  });
}

/// A checkpoint may still be copied.
Status Rank::offer(uint64_t number, std::vector<std::byte> &moved) {
  for (const std::function<void()> &hold : holds)
    hold();
  PLAIT_RETURN_IF_ERROR(findDifferences(number));
  moved.clear();
  return forEachOfScheme(number, [&](auto &action, auto &step, uint32_t) {
    if (!isSumOfSites(step))
      return Status::success();
    const fb::CollectiveStep &sum = *step.step_as_CollectiveStep();
    const std::byte *values = resolve(action, *sum.input());
    moved.insert(moved.end(), values, values + sum.chunk() * sizeof(float));
    return Status::success();
  });
}

Status Rank::agree(uint64_t number, std::span<const std::byte> sums,
                   uint32_t count) {
  sitesThatAgree = count;
  return forEachOfScheme(number, [&](auto &action, auto &step, uint32_t more) {
    if (isOneOf(step, {fb::OuterKind::Difference}))
      return Status::success();
    if (!isSumOfSites(step))
      return runStepOf(main, action, step, more);
    const fb::CollectiveStep &sum = *step.step_as_CollectiveStep();
    size_t bytes = sum.chunk() * sizeof(float);
    std::memcpy(resolve(action, *sum.output()), sums.data(), bytes);
    sums = sums.subspan(bytes);
    return Status::success();
  });
}

uint64_t Rank::countKept() const {
  uint64_t bytes = 0;
  for (const KeptRange &range : getKeptRanges(plan, rank))
    bytes += range.bytes;
  return bytes;
}

Status Rank::readKept(std::span<std::byte> kept) {
  for (const KeptRange &range : getKeptRanges(plan, rank)) {
    PLAIT_RETURN_IF_ERROR(device.read(range.offset, kept.first(range.bytes)));
    kept = kept.subspan(range.bytes);
  }
  return Status::success();
}

/// 1. What all sites have alike. A difference that is kept lies where weights
///    do, so that these stay.
/// 2. The difference, taken from the new anchor, is weights again.
/// 3. Copies of weights, on all ranks.
Status Rank::takeKept(uint64_t number, std::span<const std::byte> kept,
                      bool withOwn, bool keepsDifference) {
  for (const std::function<void()> &hold : holds)
    hold();
  // 1.
  for (const KeptRange &range : getKeptRanges(plan, rank)) {
    bool takes = range.kind == KeptRange::Outer ||
                 (range.kind == KeptRange::Own && withOwn) ||
                 (range.kind == KeptRange::Weights && !keepsDifference);
    if (takes)
      PLAIT_RETURN_IF_ERROR(
          device.write(range.offset, kept.first(range.bytes)));
    kept = kept.subspan(range.bytes);
  }
  // 2.
  if (keepsDifference)
    PLAIT_RETURN_IF_ERROR(findDifferences(number));
  // 3.
  return renewCopies(number);
}

/// 1. Differences are where weights were.
/// 2. Taken from the anchor they are weights.
Status Rank::resumeFrom(uint64_t number, std::span<const std::byte> moved) {
  // 1.
  PLAIT_RETURN_IF_ERROR(
      forEachOfScheme(number, [&](auto &action, auto &step, uint32_t) {
        if (!isSumOfSites(step))
          return Status::success();
        const fb::CollectiveStep &sum = *step.step_as_CollectiveStep();
        size_t bytes = sum.chunk() * sizeof(float);
        std::memcpy(resolve(action, *sum.input()), moved.data(), bytes);
        moved = moved.subspan(bytes);
        return Status::success();
      }));
  // 2.
  PLAIT_RETURN_IF_ERROR(findDifferences(number));
  return renewCopies(number);
}

Status Rank::renewCopies(uint64_t number) {
  return forEachOfScheme(number, [&](auto &action, auto &step, uint32_t more) {
    bool isOfSites =
        isSumOfSites(step) ||
        isOneOf(step, {fb::OuterKind::Difference, fb::OuterKind::Mean,
                       fb::OuterKind::Update});
    return isOfSites ? Status::success() : runStepOf(main, action, step, more);
  });
}
