//===- PlanSummary.cpp - Statistics of a plan -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Counts what programs do in a training step: a function's steps times the
// number of its calls. Nothing is simulated; times are Simulation's.
//
//===----------------------------------------------------------------------===//

#include "PlanSummary.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Messages.h"
#include "plait/Plan/Ranks.h"
#include "plait/Plan/Sites.h"
#include "plait/Plan/Uses.h"
#include "plait/Planner/PlanCost.h"

#include "plait/Support/MemoryPlaces.h"

#include <algorithm>
#include <cmath>

using namespace plait;
using namespace plait::tool;
using plan::length;
namespace fb = plait::plan::fb;

/// 1. Changes, at the first action of each region and behind its last.
/// 2. What is behind the last action of all is left out: nothing happens there.
/// 3. Sums of the changes, in place.
std::map<uint32_t, LiveBytes> tool::getMemory(const fb::Program &program) {
  // 1. Changes.
  std::map<uint32_t, LiveBytes> memory;
  uint32_t end = std::max(1u, length(program.actions()));
  for (uint32_t i = 0; i < length(program.regions()); ++i) {
    const fb::Region &region = *program.regions()->Get(i);
    if (!isInArena(region.offset()))
      continue;
    memory[region.first_action()][region.category()] += region.bytes();
    memory[region.last_action() + 1][region.category()] -= region.bytes();
  }
  // 2. The end.
  memory.erase(memory.lower_bound(end), memory.end());
  // 3. Sums.
  LiveBytes live;
  for (auto &[action, bytes] : memory) {
    for (auto [category, change] : bytes)
      live[category] += change;
    bytes = live;
  }
  return memory;
}

/// The share of the whole tensor that each member of a ring sends.
static uint64_t getSentBytes(const plan::RankGrid &mesh,
                             const fb::CollectiveStep &step) {
  CollectiveKind kind = plan::kindOf(step);
  int64_t members =
      length(step.members()) ? length(step.members()) : mesh.size(step.axis());
  uint64_t whole = countBlocks(kind, members) * step.outer() * step.middle() *
                   step.chunk() * plan::elementBytes(step.dtype());
  return uint64_t(std::llround(double(whole) * getSentShare(kind, members)));
}

/// Counts one step that is executed `calls` times. Sums for the text and for
/// comparisons; alignment tells how fast GPUs multiply.
static void addStep(ProgramSummary &summary, const plan::RankGrid &mesh,
                    const fb::Step &step, uint64_t calls) {
  summary.steps[step.step_type()] += calls;
  if (const fb::KernelStep *kernel = step.step_as_KernelStep())
    summary.kernelBytes += calls * kernel->traffic();
  if (const fb::CollectiveStep *collective = step.step_as_CollectiveStep())
    summary.sentBytes[collective->axis()] +=
        calls * getSentBytes(mesh, *collective);
  const fb::GemmStep *gemm = step.step_as_GemmStep();
  if (!gemm)
    return;
  if (gemm->epilogue() != fb::Epilogue::None)
    summary.epilogues[gemm->epilogue()] += calls;
  // In bytes, the widest alignment that is told apart.
  constexpr uint64_t most = 16;
  uint64_t aligned =
      planner::getRowAlignment(*gemm) * plan::elementBytes(gemm->dtype());
  double flops = 2.0 * double(calls) * double(gemm->m()) * double(gemm->n()) *
                 double(gemm->k());
  for (uint32_t i = 0; i < length(gemm->batch()); ++i)
    flops *= double(gemm->batch()->Get(i));
  summary.gemmFlops[std::min(aligned, most)] += flops;
}

/// Adds what sites send in an action of the scheme's lists, by list. A site
/// that sends to none in some exchange counts as if it did.
static void addAgreement(ProgramSummary &summary, const fb::Plan &plan,
                         const fb::Program &program, const fb::Action &action) {
  summary.agreedBytes.resize(length(plan.lists()));
  uint64_t &bytes = summary.agreedBytes[action.list()];
  if (action.kind() == fb::ActionKind::Send)
    bytes += action.bytes();
  if (plan::isTransfer(action))
    return;
  const fb::Function &function = *program.functions()->Get(action.function());
  plan::RankGrid mesh(plan);
  for (uint32_t i = 0; i < length(function.steps()); ++i)
    if (const auto *sum = function.steps()->Get(i)->step_as_CollectiveStep();
        sum && sum->axis() == mesh.sitesAxis())
      bytes += getSentBytes(mesh, *sum);
}

/// Counts the microbatches in flight of the program's part of the schedule, in
/// which transfers do not count.
static uint32_t countInFlight(const fb::Program &program) {
  schedule::Schedule own;
  std::vector<schedule::Action> &actions = own.ranks.emplace_back();
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    const fb::Action &source = *program.actions()->Get(i);
    if (!source.list())
      actions.push_back({schedule::ActionKind(source.kind()), /*chunk=*/0,
                         source.microbatch()});
  }
  return schedule::peakInFlight(own, 0);
}

/// 1. Peaks of each category by itself.
/// 2. Weights: elements of the shards, and how often activations are held.
/// 3. Calls of each function, and what is sent to other stages.
/// 4. Steps, times the calls of their function.
ProgramSummary tool::summarise(const fb::Plan &plan,
                               const fb::Program &program) {
  ProgramSummary summary;
  plan::RankGrid mesh(plan);
  summary.sentBytes.resize(mesh.axes());
  // 1. Peaks.
  for (const auto &[action, live] : getMemory(program))
    for (auto [category, bytes] : live)
      if (bytes > 0)
        summary.peakBytes[category] =
            std::max<uint64_t>(summary.peakBytes[category], bytes);
  // 2. Weights.
  for (uint32_t i = 0; i < length(program.shards()); ++i) {
    uint64_t elements = 1;
    for (int64_t size : *program.shards()->Get(i)->local_shape())
      elements *= size;
    summary.weights += elements;
  }
  summary.inFlight = countInFlight(program);

  // 3. Calls.
  std::vector<uint64_t> calls(length(program.functions()), 0);
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    if (plan::isScheme(action))
      addAgreement(summary, plan, program, action);
    else if (!plan::isTransfer(action))
      ++calls[action.function()];
    // Receives are the same bytes, seen from the other side.
    else if (action.kind() == fb::ActionKind::Send)
      summary.sentBytes[0] += action.bytes(); // mesh[0] is "pp"
  }
  // 4. Steps.
  for (uint32_t i = 0; i < calls.size(); ++i) {
    const fb::Function &function = *program.functions()->Get(i);
    for (uint32_t j = 0; j < length(function.steps()); ++j)
      addStep(summary, mesh, *function.steps()->Get(j), calls[i]);
  }
  return summary;
}

/// A plan has virtual stages by number; chunk and placement follow from where
/// they are: stage s is in chunk s / ranks, and where it is on another rank
/// than s mod ranks, the placement is V-shaped.
schedule::Schedule tool::getSchedule(const fb::Plan &plan, bool withAll) {
  schedule::Schedule schedule;
  schedule.problem.stages = length(plan.programs());
  schedule.problem.microbatches = plan.microbatches();
  for (const fb::Program *program : *plan.programs()) {
    std::vector<schedule::Action> &actions = schedule.ranks.emplace_back();
    for (uint32_t i = 0; i < length(program->actions()); ++i) {
      const fb::Action &source = *program->actions()->Get(i);
      if (source.list())
        continue; // of sites, behind the step
      // Both enumerations have the same values.
      schedule::Action action{schedule::ActionKind(source.kind()),
                              source.stage() / schedule.problem.stages,
                              source.microbatch()};
      // The chart of `show` has passes only; times of transfers would be
      // guesses.
      if (!action.isCompute() && !withAll)
        continue;
      schedule.problem.chunks =
          std::max(schedule.problem.chunks, action.chunk + 1);
      if (action.isCompute() &&
          source.stage() % schedule.problem.stages + 1 != schedule.ranks.size())
        schedule.problem.placement = schedule::Placement::VShape;
      actions.push_back(action);
    }
  }
  return schedule;
}
