//===- Trace.cpp - A step as a trace --------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The format is Chrome's "Trace Event Format": complete events (X) with start
// and duration in microseconds, counters (C), names (M).
//
//===----------------------------------------------------------------------===//

#include "Report/Drawn.h"
#include "Search/Parts.h"
#include "plait/Plan/Files.h"
#include "plait/Planner/StepTrace.h"

#include <nlohmann/json.hpp>

using namespace plait;
using namespace plait::planner;

/// A JSON string with its quotes.
static std::string quote(const std::string &text) {
  return nlohmann::json(text).dump();
}

/// Prints the format's microseconds.
static std::string printNanoseconds(double nanoseconds) {
  return printNumber(nanoseconds / 1e3, 3);
}

/// Actions that happen once a step have no microbatch in their name.
static std::string getLabel(const TimelineAction &action) {
  std::string name = getActivityName(action.activity);
  bool isPerMicrobatch = action.activity <= Activity::BackwardWeight;
  return isPerMicrobatch ? name + " " + std::to_string(action.microbatch)
                         : name;
}

/// A row for the rank's actions, and a counter with a value for each part of
/// its memory, which Perfetto stacks. Written as text, an event a line, since a
/// trace has some 100,000 of them.
static void addRank(std::vector<std::string> &events, size_t rank,
                    const RankTimeline &timeline) {
  std::string place = "\"pid\":0,\"tid\":" + std::to_string(rank);
  events.push_back("{\"ph\":\"M\",\"name\":\"thread_name\"," + place +
                   ",\"args\":{\"name\":\"rank " + std::to_string(rank) +
                   "\"}}");
  for (const TimelineAction &action : timeline.actions) {
    double begin = toNanoseconds(action.start);
    double length = toNanoseconds(action.end) - begin;
    std::string event = "{\"ph\":\"X\",\"name\":" + quote(getLabel(action)) +
                        ",\"cat\":" + quote(getActivityName(action.activity)) +
                        "," + place + ",\"ts\":" + printNanoseconds(begin) +
                        ",\"dur\":" + printNanoseconds(length) + ",\"args\":{";
    if (action.activity <= Activity::BackwardWeight)
      event += "\"microbatch\":" + std::to_string(action.microbatch) +
               ",\"chunk\":" + std::to_string(action.chunk) + ",";
    event += std::string("\"critical\":") +
             (action.isCritical ? "true" : "false") + "}}";
    events.push_back(std::move(event));
  }
  // A sample holds until the next: the format's counters mean the same.
  for (const MemorySample &sample : timeline.memory) {
    std::string event = "{\"ph\":\"C\",\"name\":\"memory of rank " +
                        std::to_string(rank) + "\",\"pid\":0,\"ts\":" +
                        printNanoseconds(toNanoseconds(sample.seconds)) +
                        ",\"args\":{";
    const char *separator = "";
    for (const Part &part : getMemoryParts(sample.bytes)) {
      event += separator + quote(part.name) + ":" + printNumber(part.value, 0);
      separator = ",";
    }
    events.push_back(event + "}}");
  }
}

/// One process, with a thread for each rank of the pipeline. The configuration
/// and how much of the step was simulated are in the file's own data.
Status planner::writeTrace(const ReportInput &input, const std::string &path) {
  constexpr int64_t mostActions = 100000; // some 20 MB
  Result<Drawn> drawn = simulateDrawn(input, mostActions);
  if (!drawn.ok())
    return drawn.status();
  std::vector<std::string> events;
  std::string name =
      input.model.empty() ? std::string("predicted step") : input.model;
  events.push_back("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,"
                   "\"args\":{\"name\":" +
                   quote(name) + "}}");
  for (size_t rank = 0; rank < drawn->timeline.ranks.size(); ++rank)
    addRank(events, rank, drawn->timeline.ranks[rank]);
  std::string text = "{\"displayTimeUnit\":\"ms\",\"otherData\":{"
                     "\"configuration\":" +
                     quote(print(input.result.configuration)) +
                     ",\"simulated\":" + quote(drawn->note()) +
                     "},\"traceEvents\":[\n";
  for (size_t i = 0; i < events.size(); ++i)
    text += events[i] + (i + 1 < events.size() ? ",\n" : "\n");
  return writeTextFile(path, text + "]}\n");
}
