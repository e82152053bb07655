//===- StepTrace.cpp - A predicted step as events -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Events of a replayed step for Perfetto, for the tools that write traces of
// plans. Values of JSON, not text: callers add fields of their own and write
// all events at once.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/StepTrace.h"

#include "plait/Plan/Streams.h"

#include <algorithm>
#include <cmath>

using namespace plait;
using namespace plait::planner;
namespace fb = plait::plan::fb;

/// A metadata event: the format names rows that way.
void planner::addName(TraceEvents &events, const char *what, uint32_t process,
                      uint32_t thread, const std::string &name) {
  events.push_back({{"ph", "M"},
                    {"name", what},
                    {"pid", process},
                    {"tid", thread},
                    {"args", {{"name", name}}}});
}

double planner::toNanoseconds(double seconds) {
  return std::round(1e9 * seconds);
}

/// A complete event. Times of the format are in microseconds, and may have
/// parts.
void planner::addSpan(TraceEvents &events, uint32_t process, uint32_t thread,
                      const std::string &name, const std::string &category,
                      double seconds, double length,
                      nlohmann::ordered_json args) {
  double begin = toNanoseconds(seconds);
  double end = toNanoseconds(seconds + length);
  events.push_back({{"ph", "X"},
                    {"name", name},
                    {"cat", category},
                    {"pid", process},
                    {"tid", thread},
                    {"ts", begin / 1e3},
                    {"dur", (end - begin) / 1e3},
                    {"args", std::move(args)}});
}

/// One span an action. What computes is on one row and what only communicates
/// on another, because in streams the two run at the same time, and spans of a
/// row may not overlap. An action's waiting is what is left of its time.
void planner::addActions(TraceEvents &events, const fb::Plan &plan,
                         const plan::Replayed &replayed, uint32_t index,
                         uint32_t process, uint32_t row, uint32_t rowBeside,
                         double at) {
  const fb::Program &program = *plan.programs()->Get(index);
  const std::vector<plan::ActionTime> &times = replayed.programs[index];
  for (uint32_t i = 0; i < times.size(); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    const plan::ActionTime &time = times[i];
    // Work that has collectives in it is one span: which of the two is on at a
    // moment, the replay of an action does not tell.
    addSpan(events, process, time.computing > 0 ? row : rowBeside,
            plan::nameOf(action), fb::EnumNameActionKind(action.kind()),
            at + time.start, time.end - time.start,
            {{"microbatch", action.microbatch()},
             {"stage", action.stage()},
             {"computing_us", 1e6 * time.computing},
             {"communicating_us", 1e6 * time.communicating},
             {"waiting_us", 1e6 * std::max(0.0, time.waiting())}});
  }
}
