//===- StepTrace.h - A predicted step as events -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Events of Chrome's "Trace Event Format", which Perfetto reads. Times are in
// microseconds.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_STEPTRACE_H
#define PLAIT_PLANNER_STEPTRACE_H

#include "plait/Plan/Replay.h"

#include <nlohmann/json.hpp>

#include <string>

namespace plait::planner {

using TraceEvents = nlohmann::ordered_json; // an array

/// Calls a process ("process_name") or a thread of it ("thread_name").
void addName(TraceEvents &events, const char *what, uint32_t process,
             uint32_t thread, const std::string &name);

/// Whole ones, to which Perfetto would round the begin of an event and its
/// length apart. What begins where another event ends must not overlap it: a
/// length is the difference of two of these.
double toNanoseconds(double seconds);

/// An event from `seconds` on, which lasts for `length` seconds.
void addSpan(TraceEvents &events, uint32_t process, uint32_t thread,
             const std::string &name, const std::string &category,
             double seconds, double length, nlohmann::ordered_json args);

/// Adds what the ranks of program `index` do, from `at` seconds on: what
/// computes to thread `row` of `process`, what only communicates to
/// `rowBeside`.
void addActions(TraceEvents &events, const plan::fb::Plan &plan,
                const plan::Replayed &replayed, uint32_t index,
                uint32_t process, uint32_t row, uint32_t rowBeside,
                double at = 0);

} // namespace plait::planner

#endif // PLAIT_PLANNER_STEPTRACE_H
