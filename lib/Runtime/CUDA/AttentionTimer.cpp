//===- AttentionTimer.cpp - The fastest engine of attention ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// cuDNN's heuristics name some engines for an attention, and guess which one is
// the fastest. Here they are compiled and measured, as GemmTimer.cpp has it for
// matmuls: by one rank for all that run its program, and once for all starts of
// a run.
//
//===----------------------------------------------------------------------===//

#include "AttentionTimer.h"

#include "plait/Plan/Check.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

using namespace plait;
using namespace plait::runtime;

/// How far results of two engines may lie apart, as a part of their root mean
/// square. Weights and their gradients are rounded to bf16, to 1/512 of
/// themselves, before they are multiplied; in sums that is as much of the root
/// mean square, and of some hundred thousand sums five times as much of one.
/// What is missing a part of the keys differs by about the root mean square.
static constexpr float sumTolerance = 0.04f;

Status AttentionTimer::run(const std::vector<AttentionUse> &uses,
                           LibraryChoices &choices) {
  if (uses.empty())
    return Status::success();
  Clock::time_point start = Clock::now();
  deadline = start + options.limit;
  for (const AttentionUse &use : uses) {
    std::string what = attentions.describe(use.number);
    const std::string *chosen = choices.find(what);
    if (chosen && attentions.take(use.number, *chosen).ok()) {
      tally.addKnown();
      note(use, "takes what was chosen before");
      continue;
    }
    if (Status status = time(use); !status.ok())
      return fail("timing attention, which `time-matmuls` off leaves out: ",
                  status.message());
    auto configuration = attentions.configurationOf(use.number);
    if (!configuration.ok())
      return configuration.status();
    choices.set(what, *configuration);
  }
  text += tally.print("attention", uses.size(), Clock::now() - start,
                      options.limit, "engine than the library names first");
  return Status::success();
}

void AttentionTimer::note(const AttentionUse &use, const std::string &outcome) {
  if (!options.verbose)
    return;
  const fb::AttentionStepT &shape = attentions.shapeOf(use.number);
  std::ostringstream line;
  line << fb::EnumNameAttentionKind(shape.kind) << " attention of "
       << shape.batch << " x " << shape.heads << " heads of size "
       << shape.head_size << ", " << shape.queries << " by " << shape.keys
       << " positions, " << use.calls << " a step, " << outcome << "\n";
  text += line.str();
}

/// 1. What there is to choose from, the library's first choice in front.
/// 2. Which of it computes the same.
/// 3. How long that takes.
/// 4. The first one, unless another gains enough; the others are dropped.
Status AttentionTimer::time(const AttentionUse &use) {
  // 1.
  if (Clock::now() >= deadline)
    return note(use, "comes after the time limit"), Status::success();
  std::vector<Candidate> candidates;
  PLAIT_RETURN_IF_ERROR(findCandidates(use, candidates));
  if (candidates.size() < 2)
    return note(use, "has one engine"), Status::success();
  // 2.
  PLAIT_RETURN_IF_ERROR(measurer.load());
  auto call = [&](size_t number) {
    return attentions.runCall(use.number, use.operands,
                              candidates[number].call.get());
  };
  auto same = findSame(use, candidates.size(), call);
  if (!same.ok())
    return same.status();
  if (same->empty())
    return note(use, "has no engine that runs"), Status::success();
  // 3.
  PLAIT_RETURN_IF_ERROR(measurer.timeAll(call, *same));
  // 4.
  const Measurer::Candidate &first = same->front();
  const Measurer::Candidate &chosen = Measurer::choose(*same);
  Candidate &taken = candidates[chosen.number];
  tally.add(use.calls, first, chosen);
  char line[200];
  std::snprintf(line, sizeof(line),
                "takes %s, %zu of %zu engines have the same results but for "
                "rounding: %.3f ms instead of %.3f",
                taken.configuration.c_str(), same->size(), candidates.size(),
                chosen.milliseconds, first.milliseconds);
  if (taken.call)
    attentions.install(use.number, std::move(taken.call));
  return note(use, line), Status::success();
}

/// Compiling one may take seconds. Those that the library does not make, or not
/// within the workspace, are none.
Status AttentionTimer::findCandidates(const AttentionUse &use,
                                      std::vector<Candidate> &candidates) {
  auto first = attentions.configurationOf(use.number);
  if (!first.ok())
    return first.status();
  auto names = attentions.configurations(use.number);
  if (!names.ok())
    return names.status();
  candidates.push_back({*first, nullptr});
  for (const std::string &name : *names) {
    if (name == *first || Clock::now() >= deadline)
      continue;
    if (auto made = attentions.make(use.number, name); made.ok())
      candidates.push_back({name, std::move(*made)});
  }
  return Status::success();
}

/// Results are zero before, so that one which writes nothing differs.
Result<std::vector<Measurer::Candidate>>
AttentionTimer::findSame(const AttentionUse &use, size_t count,
                         const Measurer::Call &call) {
  auto attempt = [&](size_t number) -> Result<std::optional<float>> {
    PLAIT_RETURN_IF_ERROR(prepareOperands(use));
    return measurer.time(call, number, 1);
  };
  return measurer.findSame(count, attempt, findResults(use),
                           {/*sampled=*/true, sumTolerance, deadline});
}

/// Spans a tensor from its first element to its last.
static Measurer::Region regionOf(const fb::AttentionStepT &shape,
                                 const std::byte *data, int64_t rows,
                                 int64_t heads,
                                 const std::vector<int64_t> &strides) {
  int64_t elements = (shape.batch - 1) * strides[0] + (rows - 1) * strides[1] +
                     (heads - 1) * strides[2] + shape.head_size;
  return {const_cast<std::byte *>(data),
          elements * plan::elementBytes(shape.dtype), shape.dtype};
}

static Measurer::Region statsOf(const fb::AttentionStepT &shape,
                                std::byte *stats) {
  return {stats, shape.batch * shape.heads * shape.queries * sizeof(float),
          fb::DType::F32};
}

std::vector<Measurer::Region>
AttentionTimer::findResults(const AttentionUse &use) const {
  const fb::AttentionStepT &shape = attentions.shapeOf(use.number);
  const AttentionOperands &at = use.operands;
  if (shape.kind == fb::AttentionKind::Forward)
    return {
        regionOf(shape, at.o, shape.queries, shape.heads, shape.out_strides),
        statsOf(shape, at.stats)};
  return {regionOf(shape, at.dq, shape.queries, shape.heads, shape.q_strides),
          regionOf(shape, at.dk, shape.keys, shape.kv_heads, shape.k_strides),
          regionOf(shape, at.dv, shape.keys, shape.kv_heads, shape.v_strides)};
}

/// Results first: between the rows of one may be those of an operand.
/// Statistics that are below 1 let weights be above 1, and change nothing else.
Status AttentionTimer::prepareOperands(const AttentionUse &use) {
  const fb::AttentionStepT &shape = attentions.shapeOf(use.number);
  const AttentionOperands &at = use.operands;
  PLAIT_RETURN_IF_ERROR(measurer.clear(findResults(use)));
  std::vector<Measurer::Region> operands = {
      regionOf(shape, at.q, shape.queries, shape.heads, shape.q_strides),
      regionOf(shape, at.k, shape.keys, shape.kv_heads, shape.k_strides),
      regionOf(shape, at.v, shape.keys, shape.kv_heads, shape.v_strides)};
  if (shape.kind == fb::AttentionKind::Backward)
    operands.insert(operands.end(), {regionOf(shape, at.o, shape.queries,
                                              shape.heads, shape.out_strides),
                                     regionOf(shape, at.gradient, shape.queries,
                                              shape.heads, shape.out_strides),
                                     statsOf(shape, at.stats)});
  for (const Measurer::Region &operand : operands)
    PLAIT_RETURN_IF_ERROR(measurer.fill(operand));
  return Status::success();
}
