//===- Trace.h - Trace files of steps ---------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAITRUN_TRACE_H
#define PLAIT_TOOLS_PLAITRUN_TRACE_H

#include "plait/Planner/StepTrace.h"
#include "plait/Runtime/StepNotes.h"

#include <optional>
#include <set>

namespace plait {

/// The steps of a list such as "3,10-12". Fails where one is no step.
Result<std::set<uint64_t>> parseSteps(const std::string &text);

/// Steps of a run as a trace for Perfetto: a process for each rank, a thread
/// for each of its streams, and in it actions and their operations; next to it
/// a process with what the rank was predicted to do. The steps are one behind
/// the other, and each begins when its prediction does.
class Trace : public runtime::StepReader {
public:
  /// `notes` outlive the trace. Without `steps` it is the last one. `overlaps`:
  /// ranks communicate beside computing.
  Trace(const runtime::StepNotes &notes, std::set<uint64_t> steps,
        bool overlaps)
      : notes(notes), plan(notes.plan()), steps(std::move(steps)),
        overlaps(overlaps) {}

  /// Fails where one of the steps is not among those of the run.
  Status beginRun(uint64_t first, uint64_t last) override;
  bool wants(uint64_t step) const override;
  void add(uint64_t step, double seconds,
           const runtime::StepNotes &notes) override;

  /// After the run; of one that was interrupted, with the steps that it had.
  /// What the trace lacks is told on standard error.
  Status write(const std::string &path);

private:
  using Time = runtime::StepClock::Time;

  void predict();
  std::vector<std::string> nameStreams(uint32_t rank) const;
  void addNames();
  void addStep();
  void addMeasured(uint32_t rank);
  double secondsOf(Time time) const;

  const runtime::StepNotes &notes;
  const plan::fb::Plan &plan;
  std::set<uint64_t> steps;
  bool overlaps;
  std::optional<plan::Replayed> predicted; // nothing: it cannot be
  std::string costs;                       // of what, or why not
  std::string warning;                     // of what is predicted; empty: none
  uint64_t step = 0;                       // the last one that was noted
  size_t traced = 0;                       // steps
  double at = 0;                           // where the next step begins
  planner::TraceEvents events = planner::TraceEvents::array();
};

} // namespace plait

#endif // PLAIT_TOOLS_PLAITRUN_TRACE_H
