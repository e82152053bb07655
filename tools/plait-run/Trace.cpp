//===- Trace.cpp - Trace files of steps -----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Steps as Chrome's trace events, which Perfetto reads: processes for ranks,
// threads for streams, spans for actions and operations. The prediction is made
// once, by the planner's simulator, and drawn beside each measured step. Steps
// are put one behind the other with a gap; pauses between them are not shown.
//
//===----------------------------------------------------------------------===//

#include "Trace.h"

#include "plait/Plan/Files.h"
#include "plait/Plan/Messages.h"
#include "plait/Plan/Streams.h"
#include "plait/Planner/PlanCost.h"
#include "plait/Support/Fields.h"
#include "plait/Support/MemoryPlaces.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <tuple>

using namespace plait;
using runtime::StepClock;
using Json = nlohmann::ordered_json;
namespace fb = plan::fb;

//===----------------------------------------------------------------------===//
// Which steps
//===----------------------------------------------------------------------===//

/// Nothing where `text` is no number from 1 on.
static std::optional<uint64_t> parseStep(std::string_view text) {
  uint64_t step = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), step);
  bool isStep = error == std::errc() && end == text.data() + text.size();
  return isStep && step > 0 ? std::optional(step) : std::nullopt;
}

/// Ranges are bounded while they are enumerated: "1-1000000000" ends after 101.
Result<std::set<uint64_t>> plait::parseSteps(const std::string &text) {
  // Each is some megabytes of a file that a browser opens as a whole.
  constexpr size_t most = 100;
  std::set<uint64_t> steps;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    // One step is a range of itself.
    size_t dash = part.find('-');
    auto first = parseStep(part.substr(0, dash));
    auto last = dash == part.npos ? first : parseStep(part.substr(dash + 1));
    if (!first || !last || *last < *first)
      return fail("--trace-steps: '", part,
                  "' is neither a step, 1 or more, nor a range, as 10-12");
    for (uint64_t step = *first; step <= *last; ++step) {
      steps.insert(step);
      if (steps.size() > most)
        return fail("--trace-steps: '", text, "' is more than ", most,
                    " steps");
    }
  }
  return steps;
}

/// Before anything is trained: the step would never come. A resumed run does
/// not begin with step 1.
Status Trace::beginRun(uint64_t first, uint64_t last) {
  if (last < first)
    return fail("--trace: the run has no step left after step ", last);
  if (!steps.empty() && *steps.begin() < first)
    return fail("--trace-steps: step ", *steps.begin(),
                " is before the first one of the run, ", first);
  if (!steps.empty() && *steps.rbegin() > last)
    return fail("--trace-steps: step ", *steps.rbegin(),
                " is after the last one of the run, ", last);
  return Status::success();
}

/// Which one is the last is not known of a run that may be interrupted.
bool Trace::wants(uint64_t number) const {
  return steps.empty() || steps.count(number);
}

/// Without a list only the number is kept; the notes of the last step are still
/// there after the run.
void Trace::add(uint64_t number, double, const runtime::StepNotes &) {
  step = number;
  if (!steps.empty())
    addStep();
}

//===----------------------------------------------------------------------===//
// Events
//===----------------------------------------------------------------------===//

/// Two processes a rank, and one that says where steps are. Numbers order the
/// processes in Perfetto: measured above predicted, rank by rank.
static uint32_t measuredProcess(uint32_t rank) { return 1 + 2 * rank; }
static uint32_t predictedProcess(uint32_t rank) { return 2 + 2 * rank; }
static constexpr uint32_t stepsProcess = 0;

/// Converts a duration of steady_clock, whose unit is not fixed.
static double toSeconds(StepClock::Time::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// A plan without a cluster, or with one that is not known here, has no
/// prediction: the trace is drawn without.
void Trace::predict() {
  auto predictWith = [&]() -> Result<plan::Replayed> {
    Result<planner::PlanCluster> target = planner::clusterOf(plan);
    if (!target.ok())
      return Status::failure("the plan does not say for which cluster it is");
    // Printed into the trace, so that it says what the prediction is for.
    costs = target->cluster.name;
    warning = target->warning;
    auto messages = plan::matchMessages(plan);
    if (!messages.ok())
      return messages.status();
    auto prices = planner::predictCosts(plan, *messages, target->cluster);
    if (!prices.ok())
      return prices.status();
    return planner::predictStep(plan, *messages, *prices, target->cluster,
                                overlaps);
  };
  Result<plan::Replayed> replayed = predictWith();
  if (replayed.ok())
    predicted = std::move(*replayed);
  else
    costs = "none: " + (warning = spellFields(replayed.status().message()));
}

/// Names streams by what their operations are: copies to another place and
/// from there have streams of their own on GPUs. Only streams that exist have a
/// name, which a rank's notes tell: plans use as many as they have groups and
/// routes.
std::vector<std::string> Trace::nameStreams(uint32_t rank) const {
  std::vector<std::string> names;
  const fb::Program &program =
      *plan.programs()->Get(notes.mesh().index(rank, 0));
  plan::forEachOperation(program, [&](const plan::Operation &operation) {
    uint32_t stream = notes.streamOf(rank, operation.index);
    for (size_t next = names.size(); next <= stream; ++next)
      names.push_back(next ? "communication " + std::to_string(next)
                           : "computing");
    const fb::Step *step = operation.get(program);
    const auto *copy = step ? step->step_as_CopyStep() : nullptr;
    if (stream && copy)
      names[stream] =
          (leavesArena(copy->kind()) ? "copies to the " : "copies from the ") +
          std::string(getFacts(getOtherPlace(copy->kind())).name);
  });
  return names;
}

void Trace::addNames() {
  auto addProcess = [&](uint32_t process, const std::string &name) {
    planner::addName(events, "process_name", process, 0, name);
    // Without an index Perfetto sorts processes by name.
    events.push_back({{"ph", "M"},
                      {"name", "process_sort_index"},
                      {"pid", process},
                      {"args", {{"sort_index", process}}}});
  };
  addProcess(stepsProcess, "steps");
  planner::addName(events, "thread_name", stepsProcess, 0, "measured");
  if (predicted)
    planner::addName(events, "thread_name", stepsProcess, 1, "predicted");
  for (uint32_t rank = 0; rank < notes.mesh().ranks(); ++rank) {
    std::string name = "rank " + std::to_string(rank);
    addProcess(measuredProcess(rank), "measured " + name);
    std::vector<std::string> streams = nameStreams(rank);
    for (uint32_t stream = 0; stream < streams.size(); ++stream)
      planner::addName(events, "thread_name", measuredProcess(rank), stream,
                       streams[stream]);
    if (!predicted)
      continue;
    addProcess(predictedProcess(rank), "predicted " + name);
    planner::addName(events, "thread_name", predictedProcess(rank), 0,
                     "computing");
    // A prediction has one stream for all that communicates.
    if (overlaps)
      planner::addName(events, "thread_name", predictedProcess(rank), 1,
                       "communication");
  }
}

/// The step's own time, moved to where the step is drawn.
double Trace::secondsOf(Time time) const {
  return at + toSeconds(time - notes.begin());
}

/// 1. Actions, in each stream where they have operations.
/// 2. Operations that are steps, inside of them: spans of one thread nest by
///    time.
void Trace::addMeasured(uint32_t rank) {
  const fb::Program &program =
      *plan.programs()->Get(notes.mesh().index(rank, 0));
  const StepClock &clock = notes.clock(rank);
  uint32_t process = measuredProcess(rank);
  auto add = [&](uint32_t stream, const std::string &name,
                 const fb::Action &action, Time begin, Time end, Json args) {
    planner::addSpan(events, process, stream, name,
                     fb::EnumNameActionKind(action.kind()), secondsOf(begin),
                     toSeconds(end - begin), std::move(args));
  };
  // An action lasts, in each stream, from its first operation to its last one.
  // 1. Actions.
  std::map<std::pair<uint32_t, uint32_t>, std::pair<Time, Time>> actions;
  plan::forEachOperation(program, [&](const plan::Operation &operation) {
    // In the order of the rank's notes.
    Time begin = clock.getStart(operation.index);
    Time end = clock.getEnd(operation.index);
    auto [whole, isNew] = actions.try_emplace(
        {operation.action, notes.streamOf(rank, operation.index)}, begin, end);
    whole->second.first = std::min(whole->second.first, begin);
    whole->second.second = std::max(whole->second.second, end);
  });
  // `place` is action and stream.
  for (const auto &[place, whole] : actions) {
    const fb::Action &action = *program.actions()->Get(place.first);
    // Messages have bytes; passes have a stage.
    Json args = {{"stage", action.stage()}};
    if (plan::isTransfer(action))
      args = {{"bytes", action.bytes()}};
    add(place.second, plan::nameOf(action), action, whole.first, whole.second,
        std::move(args));
  }
  // 2. Operations.
  plan::forEachOperation(program, [&](const plan::Operation &operation) {
    if (const fb::Step *step = operation.get(program))
      add(notes.streamOf(rank, operation.index), plan::nameOf(*step),
          *program.actions()->Get(operation.action),
          clock.getStart(operation.index), clock.getEnd(operation.index),
          Json::object());
  });
}

/// The step that the notes are of. Names and prediction come with the first
/// step, when all notes exist.
void Trace::addStep() {
  if (events.empty()) {
    predict();
    addNames();
  }
  // From the first operation of any rank to the last one.
  double length = toSeconds(notes.end() - notes.begin());
  std::string name = "step " + std::to_string(step);
  planner::addSpan(events, stepsProcess, 0, name, "step", at, length,
                   {{"step", step}});
  // Both begin at the same time, to be compared by eye.
  if (predicted)
    planner::addSpan(events, stepsProcess, 1, name, "step", at,
                     predicted->seconds, {{"step", step}});
  for (uint32_t rank = 0; rank < notes.mesh().ranks(); ++rank) {
    addMeasured(rank);
    if (predicted)
      planner::addActions(events, plan, *predicted, notes.mesh().index(rank, 0),
                          predictedProcess(rank), 0, overlaps, at);
  }
  ++traced;
  // A gap shows where the next one begins. In whole nanoseconds, as clocks are:
  // half of one would have the same time rounded up in one span and down in the
  // one around it.
  constexpr double gap = 1.1;
  at += gap * std::max(length, predicted ? predicted->seconds : 0);
  at = planner::toNanoseconds(at) / 1e9;
}

/// Steps that never came are a warning, for an interrupted run has a trace as
/// well.
Status Trace::write(const std::string &path) {
  if (steps.empty())
    addStep();
  if (!warning.empty())
    std::fprintf(stderr, "plait-run: warning: the trace has %s: %s\n",
                 predicted ? "a prediction" : "no prediction", warning.c_str());
  // Each was among the steps of the run (beginRun), so that the run has ended
  // early.
  if (traced < steps.size())
    std::fprintf(stderr,
                 "plait-run: warning: the trace has %zu of %zu steps: the run "
                 "ended before the others\n",
                 traced, steps.size());
  Json trace = {
      {"displayTimeUnit", "ms"},
      {"otherData",
       {{"mesh", planner::printMesh(plan)}, {"predicted for", costs}}},
      {"traceEvents", std::move(events)}};
  return writeTextFile(path, trace.dump() + "\n");
}
