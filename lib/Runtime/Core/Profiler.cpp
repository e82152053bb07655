//===- Profiler.cpp - Measures the steps of a run -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Adds up the notes of steps into one total for each step of a function and
// each kind of transfer of a program: over calls, ranks of the program and
// training steps. Everything that add() needs is looked up in the constructor,
// so that a step costs one addition an operation. Means are taken in finish().
// What lies before Ready is waiting, what follows is the operation itself.
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Profiler.h"

#include "plait/Plan/Defaults.h"
#include "plait/Plan/Messages.h"
#include "plait/Plan/Streams.h"

#include <algorithm>

using namespace plait;
using namespace plait::runtime;
namespace fb = plait::plan::fb;
using plan::FunctionProfile;
using plan::isTransfer;
using plan::length;
using plan::ProgramProfile;
using plan::StepProfile;
using plan::TransferProfile;

static double toSeconds(StepClock::Time::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// The steps of `function` with kind and source, in the plan's order; no times
/// yet.
static FunctionProfile describe(const fb::Plan &plan,
                                const fb::Function &function) {
  FunctionProfile profile;
  profile.name = function.name()->str();
  for (uint32_t i = 0; i < length(function.steps()); ++i) {
    const fb::Step &step = *function.steps()->Get(i);
    StepProfile &entry = profile.steps.emplace_back();
    entry.kind = fb::EnumNameStepKind(step.step_type());
    if (step.location() < length(plan.locations()))
      entry.location = plan.locations()->Get(step.location())->str();
  }
  return profile;
}

/// Adds the action to the calls of the program; returns the index of its
/// transfer where it is one. Messages of one direction, peer and tensor are one
/// entry, whatever their microbatch: their sizes are equal, and calls tell how
/// many there are.
static uint32_t count(ProgramProfile &program, const fb::Action &action) {
  if (!isTransfer(action)) {
    FunctionProfile &function = program.functions[action.function()];
    function.action = action.kind();
    ++function.calls;
    return 0;
  }
  auto found = std::find_if(program.transfers.begin(), program.transfers.end(),
                            [&](const TransferProfile &transfer) {
                              return plan::isTransfer(transfer, action);
                            });
  if (found == program.transfers.end()) {
    program.transfers.push_back({action.kind(), action.direction(),
                                 action.peer(), action.tensor(),
                                 action.bytes()});
    found = program.transfers.end() - 1;
  }
  ++found->calls;
  return found - program.transfers.begin();
}

/// Totals of a program are its functions' steps one after another, then its
/// transfers.
/// 1. Functions: where the totals of each one's steps begin.
/// 2. Actions: counts calls, and finds the entry of each transfer.
/// 3. Operations: the total of each, by its number in the program.
void Profiler::addProgram(const fb::Program &program) {
  ProgramProfile &profile = skeleton.programs.emplace_back();
  profile.arenaBytes = program.arena_bytes();
  // 1. Functions.
  std::vector<uint32_t> firstTotal; // by function
  uint32_t total = 0;
  for (uint32_t i = 0; i < length(program.functions()); ++i) {
    profile.functions.push_back(describe(plan, *program.functions()->Get(i)));
    firstTotal.push_back(total);
    total += profile.functions.back().steps.size();
  }
  // 2. Actions; `total` is where the functions' totals end.
  std::vector<uint32_t> transferOf; // by action
  for (uint32_t i = 0; i < length(program.actions()); ++i)
    transferOf.push_back(total + count(profile, *program.actions()->Get(i)));
  // 3. Operations.
  std::vector<uint32_t> &of = totalOf.emplace_back();
  plan::forEachOperation(program, [&](const plan::Operation &operation) {
    const fb::Action &action = *program.actions()->Get(operation.action);
    of.push_back(isTransfer(action)
                     ? transferOf[operation.action]
                     : firstTotal[action.function()] + operation.step);
  });
  totals.emplace_back(total + profile.transfers.size());
}

/// The skeleton is the profile without times. Medians need all seconds; a bound
/// on what is reserved keeps a run without end from reserving memory for it.
Profiler::Profiler(const fb::Plan &plan, uint64_t hash, unsigned threads,
                   uint64_t steps)
    : plan(plan) {
  skeleton.plan = plan::identify(hash);
  skeleton.threads = threads;
  for (const fb::MeshAxis *axis : *plan.mesh())
    skeleton.mesh.emplace_back(axis->name()->str(), axis->size());
  for (const fb::Program *program : *plan.programs())
    addProgram(*program);
  stepSeconds.reserve(std::min<uint64_t>(steps, 1 << 20));
}

/// Before anything is trained. What a resumed run has left may be less than
/// `--steps` says.
Status Profiler::beginRun(uint64_t first, uint64_t last) {
  uint64_t steps = last < first ? 0 : last - first + 1;
  if (steps < 2)
    return fail("`profile` needs at least 2 steps, the first one is left out; "
                "the run has ",
                steps);
  return Status::success();
}

/// The first step is left out: libraries connect and load code in it. Overhead
/// is what the step took beyond the time from the first operation's begin to
/// the last one's end on any rank.
void Profiler::add(uint64_t, double seconds, const StepNotes &notes) {
  if (!std::exchange(isWarm, true))
    return;
  for (uint32_t rank = 0; rank < notes.mesh().ranks(); ++rank) {
    uint32_t program = notes.mesh().index(rank, 0);
    const StepClock &clock = notes.clock(rank);
    for (size_t i = 0; i < notes.countLaps(rank); ++i) {
      StepClock::Time ready = notes.getReady(rank, i).time;
      Total &total = totals[program][totalOf[program][i]];
      total.waiting += toSeconds(ready - clock.getStart(i));
      total.seconds += toSeconds(clock.getEnd(i) - ready);
      total.processor += clock.getProcessorSeconds(i);
      ++total.calls;
    }
  }
  stepSeconds.push_back(seconds);
  overhead += seconds - toSeconds(notes.end() - notes.begin());
}

/// Returns the median: of an even number the mean of the two in the middle;
/// `values` is not empty.
static double getMedian(std::vector<double> values) {
  size_t middle = values.size() / 2;
  std::sort(values.begin(), values.end());
  return values.size() % 2 ? values[middle]
                           : (values[middle - 1] + values[middle]) / 2;
}

/// Visits the entries in the order of addProgram(), which is that of the
/// totals. A function that no action calls has no calls, and times of 0.
Result<plan::Profile> Profiler::finish() const {
  if (stepSeconds.empty())
    return Status::failure("a profile needs at least 2 steps: the first one is "
                           "left out");
  plan::Profile profile = skeleton;
  profile.steps = stepSeconds.size();
  profile.stepSeconds = getMedian(stepSeconds);
  // Clocks of several hosts may disagree by more than there is.
  profile.overheadSeconds =
      std::max(0.0, overhead / double(stepSeconds.size()));
  for (size_t i = 0; i < profile.programs.size(); ++i) {
    auto next = totals[i].begin();
    // Steps and transfers have the same three times.
    auto assign = [&](auto &entry) {
      double calls = double(std::max<uint64_t>(next->calls, 1));
      entry.seconds = next->seconds / calls;
      entry.waiting = next->waiting / calls;
      entry.processor = next->processor / calls;
      ++next;
    };
    for (FunctionProfile &function : profile.programs[i].functions)
      for (StepProfile &step : function.steps)
        assign(step);
    for (TransferProfile &transfer : profile.programs[i].transfers)
      assign(transfer);
  }
  return profile;
}
