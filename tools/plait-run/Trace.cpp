//===- Trace.cpp - What happened in a step --------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Trace.h"

#include "plait/Plan/Defaults.h"
#include "plait/Plan/Files.h"
#include "plait/Plan/Messages.h"
#include "plait/Plan/Streams.h"
#include "plait/Plan/Uses.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

using namespace plait;
using Json = nlohmann::ordered_json;
using Time = runtime::StepClock::Time;
namespace fb = plan::fb;

namespace {

struct Span {
  Time begin = Time::max(), end = Time::min();

  void add(const Span &other) {
    begin = std::min(begin, other.begin);
    end = std::max(end, other.end);
  }
};

/// The events of all ranks.
class Tracer {
public:
  Tracer(const fb::Plan &plan, runtime::Profiler &profiler, bool overlaps)
      : plan(plan), mesh(plan), profiler(profiler), overlaps(overlaps) {}

  Json run();

private:
  void addRank(uint32_t rank);
  void addName(const char *what, uint32_t rank, uint32_t stream,
               const std::string &name);
  void addSpan(uint32_t rank, uint32_t stream, const std::string &name,
               const std::string &category, const Span &span, Json args);
  Time findStart();

  const fb::Plan &plan;
  plan::Mesh mesh;
  runtime::Profiler &profiler;
  bool overlaps;
  Time start;
  Json events = Json::array();
};

std::string nameOf(const fb::Action &action) {
  return std::string(fb::EnumNameActionKind(action.kind())) + " " +
         std::to_string(action.microbatch());
}

/// What the collectives of a trace are called, and the kinds of other steps.
std::string nameOf(const fb::Step &step) {
  if (const auto *collective = step.step_as_CollectiveStep())
    return std::string(getFacts(plan::kindOf(*collective)).name);
  return fb::EnumNameStepKind(step.step_type());
}

} // namespace

Time Tracer::findStart() {
  Time first = Time::max();
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
    const fb::Program &program = *plan.programs()->Get(mesh.index(rank, 0));
    for (uint32_t i = 0; i < plan::countOperations(program); ++i)
      first = std::min(first, profiler.clock(rank).getStart(i));
  }
  return first;
}

void Tracer::addName(const char *what, uint32_t rank, uint32_t stream,
                     const std::string &name) {
  events.push_back({{"ph", "M"},
                    {"name", what},
                    {"pid", rank},
                    {"tid", stream},
                    {"args", {{"name", name}}}});
}

void Tracer::addSpan(uint32_t rank, uint32_t stream, const std::string &name,
                     const std::string &category, const Span &span, Json args) {
  auto toMicroseconds = [](Time::duration duration) {
    return std::chrono::duration<double, std::micro>(duration).count();
  };
  events.push_back({{"ph", "X"},
                    {"name", name},
                    {"cat", category},
                    {"pid", rank},
                    {"tid", stream},
                    {"ts", toMicroseconds(span.begin - start)},
                    {"dur", toMicroseconds(span.end - span.begin)},
                    {"args", std::move(args)}});
}

void Tracer::addRank(uint32_t rank) {
  const fb::Program &program = *plan.programs()->Get(mesh.index(rank, 0));
  const runtime::StepClock &clock = profiler.clock(rank);
  plan::StreamChoice choice = plan::chooseStreams(plan, program);
  uint32_t streams = overlaps ? choice.streams() : 1;
  addName("process_name", rank, 0, "rank " + std::to_string(rank));
  for (uint32_t stream = 0; stream < streams; ++stream)
    addName("thread_name", rank, stream,
            stream == 0 ? "computing"
                        : "communication " + std::to_string(stream));
  uint32_t next = 0; // operation
  for (uint32_t i = 0; i < plan::length(program.actions()); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    std::string category = fb::EnumNameActionKind(action.kind());
    auto spanOf = [&](uint32_t operation) {
      return Span{clock.getStart(operation), clock.getEnd(operation)};
    };
    if (plan::isTransfer(action)) {
      addSpan(rank, overlaps ? choice.transfers[i] : 0, nameOf(action),
              category, spanOf(next++), {{"bytes", action.bytes()}});
      continue;
    }
    std::map<uint32_t, Span> whole; // of the action, by stream
    const auto *steps = program.functions()->Get(action.function())->steps();
    auto streamOf = [&](uint32_t step) {
      return overlaps ? choice.steps[action.function()][step] : 0;
    };
    for (uint32_t j = 0; j < plan::length(steps); ++j)
      whole[streamOf(j)].add(spanOf(next + j));
    for (const auto &[stream, span] : whole)
      addSpan(rank, stream, nameOf(action), category, span,
              {{"stage", action.stage()}});
    for (uint32_t j = 0; j < plan::length(steps); ++j)
      addSpan(rank, streamOf(j), nameOf(*steps->Get(j)), category,
              spanOf(next++), Json::object());
  }
}

Json Tracer::run() {
  start = findStart();
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank)
    addRank(rank);
  return {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
}

Status plait::writeTrace(const fb::Plan &plan, runtime::Profiler &profiler,
                         const Options &options) {
  bool overlaps = options.train.executor.overlap || plan::isCuda(plan);
  return writeTextFile(options.trace,
                       Tracer(plan, profiler, overlaps).run().dump() + "\n");
}
