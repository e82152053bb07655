//===- SimulateOutput.cpp - Output of plait-plan simulate -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One simulation told three ways: text for people, JSON for programs, a trace
// for Perfetto. All three draw from the same functions: when an action begins,
// what is live then, which ranks a program has. Programs stand for their ranks,
// which do the same.
//
//===----------------------------------------------------------------------===//

#include "Simulation.h"
#include "TextOutput.h"
#include "plait/Planner/PlanBand.h"
#include "plait/Planner/PlanCost.h"
#include "plait/Planner/StepTrace.h"
#include "plait/Support/MemoryPlaces.h"
#include "plait/Support/Quantities.h"

#include <nlohmann/json.hpp>

#include <algorithm>

using namespace plait;
using namespace plait::tool;
namespace fb = plait::plan::fb;
using Json = nlohmann::ordered_json;

/// Over categories.
static int64_t getSum(const LiveBytes &live) {
  int64_t sum = 0;
  for (auto [category, bytes] : live)
    sum += bytes;
  return sum;
}

/// Returns what is live when the most is. It is less than the arena by the gaps
/// between regions.
static LiveBytes getFullest(const fb::Program &program) {
  LiveBytes fullest;
  for (const auto &[action, live] : getMemory(program))
    if (getSum(live) > getSum(fullest))
      // Of equals the first: the earliest moment at which so much is live.
      fullest = live;
  return fullest;
}

/// Returns, by action, when it and all before it have begun: what goes on
/// beside computing may begin earlier than what the plan has in front of it.
static std::vector<double>
getBegins(const std::vector<plan::ActionTime> &times) {
  std::vector<double> begins;
  for (const plan::ActionTime &time : times)
    begins.push_back(std::max(time.start, begins.empty() ? 0 : begins.back()));
  return begins;
}

/// First and last, both included, of the first site: the pipeline is the
/// outermost axis of each.
static std::pair<uint32_t, uint32_t> getRanks(const fb::Plan &plan,
                                              uint32_t program) {
  plan::RankGrid mesh(plan);
  uint32_t each = mesh.programRanks() / mesh.sites();
  return {mesh.rankOf(program, 0), mesh.rankOf(program, each - 1)};
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

/// The chart of schedules, with times of the replay in place of a schedule's
/// own.
static std::string drawSchedule(const fb::Plan &plan,
                                const Simulation &simulation,
                                const schedule::ChartOptions &options) {
  schedule::Timeline timeline;
  for (uint32_t i = 0; i < plan.programs()->size(); ++i) {
    std::vector<schedule::Interval> &rank = timeline.ranks.emplace_back();
    const auto &times = simulation.replayed.programs[i];
    // What sites do behind the step is no part of its schedule.
    for (uint32_t j = 0; j < times.size(); ++j)
      if (!plan.programs()->Get(i)->actions()->Get(j)->list())
        rank.push_back({times[j].start, times[j].end});
  }
  timeline.makespan = simulation.replayed.seconds;
  // What the chart prints; it is the simulation's, not the schedule's own.
  timeline.bubbleRate = simulation.bubbleFraction;
  return schedule::drawChart(getSchedule(plan, /*withAll=*/true), timeline,
                             options);
}

/// Work behind computing is only told where there may be any. Columns are as
/// wide as their titles; percentages are of the replayed time.
static std::string writeRanks(const fb::Plan &plan,
                              const Simulation &simulation) {
  bool overlaps = simulation.overlaps;
  // An empty last title leaves blanks, which go.
  std::string text =
      format("\n%-28s%20s%20s%20s%20s%20s", "", "computing", "communicating",
             "bubble", "idle at the end", overlaps ? "behind computing" : "");
  text.resize(text.find_last_not_of(' ') + 1);
  double whole = simulation.replayed.seconds;
  for (uint32_t i = 0; i < simulation.replayed.ranks.size(); ++i) {
    auto [first, last] = getRanks(plan, i);
    text += format("\nprogram %-3u ranks %u to %u", i, first, last);
    text.resize(text.rfind('\n') + 29, ' ');
    const plan::RankTime &rank = simulation.replayed.ranks[i];
    double bubble = simulation.bubbleSeconds[i];
    // They add up to the step, but for what goes on behind computing.
    std::vector<double> parts = {rank.computing, rank.communicating, bubble,
                                 simulation.idle(i) - bubble};
    if (overlaps)
      parts.push_back(rank.hidden);
    for (double seconds : parts)
      text +=
          format("%20s", format("%s %4.0f %%", formatSeconds(seconds).c_str(),
                                whole > 0 ? 100 * seconds / whole : 0)
                             .c_str());
  }
  return text + "\n";
}

/// A digit a column: tenths of the arena that are live, the most in the column.
/// Each entry of the memory's history fills the columns from its time to that
/// of the next; a column shows the most of those that meet in it, so that no
/// peak is lost.
static std::string drawMemory(const fb::Program &program,
                              const std::vector<plan::ActionTime> &times,
                              double seconds, size_t columns) {
  std::vector<int64_t> most(columns, 0);
  // Entries are at actions; their times are those at which the actions have
  // begun.
  std::map<uint32_t, LiveBytes> memory = getMemory(program);
  std::vector<double> begins = getBegins(times);
  for (auto entry = memory.begin(); entry != memory.end(); ++entry) {
    auto next = std::next(entry);
    double begin = times.empty() ? 0 : begins[entry->first];
    double end = next == memory.end() ? seconds : begins[next->first];
    // Columns a second; a plan that takes no time has all in the first.
    double scale = seconds > 0 ? double(columns) / seconds : 0;
    for (size_t i = size_t(begin * scale);
         i < columns && double(i) <= end * scale; ++i)
      most[i] = std::max(most[i], getSum(entry->second));
  }
  std::string text;
  for (int64_t bytes : most)
    text += char('0' + std::min<int64_t>(
                           9, program.arena_bytes()
                                  ? 10 * bytes / int64_t(program.arena_bytes())
                                  : 0));
  return text;
}

/// A row for each program, then the categories of each at its fullest.
static std::string writeMemory(const fb::Plan &plan,
                               const Simulation &simulation, size_t width) {
  std::string text = "\nmemory of a rank over time, in tenths of its arena\n";
  uint32_t programs = plan.programs()->size();
  // Rows are as long as the chart's.
  size_t names = std::to_string(programs - 1).size();
  size_t columns = std::max<size_t>(width, names + 16) - names - 8;
  for (uint32_t i = 0; i < programs; ++i)
    text +=
        format("rank %*u |", int(names), i) +
        drawMemory(*plan.programs()->Get(i), simulation.replayed.programs[i],
                   simulation.replayed.seconds, columns) +
        "|\n";
  for (uint32_t i = 0; i < programs; ++i) {
    const fb::Program &program = *plan.programs()->Get(i);
    LiveBytes fullest = getFullest(program);
    text += format("\nprogram %u, at its fullest\n", i);
    // Categories without bytes would be rows of zeros.
    for (auto [category, bytes] : fullest)
      if (bytes > 0)
        text +=
            format("  %-38s", toWord(fb::EnumNameCategory(category)).c_str()) +
            formatBytes(bytes) + "\n";
    text += format("  %-38s", "live") + formatBytes(getSum(fullest)) + "\n";
    text += format("  %-38s", "arena: what the rank allocates") +
            formatBytes(program.arena_bytes()) + "\n";
    for (const MemoryPlaceFacts &facts : otherPlaces)
      if (uint64_t bytes = getPlaceBytes(program, facts.place))
        text += format("  offloaded to %-25s", facts.words.data()) +
                formatBytes(bytes) + "\n";
  }
  return text;
}

/// "+3.2 %": how much longer `seconds` is than what was measured. Nothing
/// measured, nothing to compare with: a dash.
static std::string compare(double seconds, double measured) {
  return measured > 0 ? format("%+.1f %%", 100 * (seconds / measured - 1))
                      : std::string("-");
}

/// Two comparisons: the replay of measured steps shows what the replay itself
/// gets wrong, the model's figures what the cost model does. Then by kind of
/// step.
static std::string writeMeasurement(const Simulation &simulation) {
  const Measurement &measured = *simulation.measurement;
  std::string text =
      format("measured  %s, the median of %llu steps\n"
             "replayed  %s from the measured steps, %s\n",
             formatSeconds(measured.stepSeconds).c_str(),
             static_cast<unsigned long long>(measured.steps),
             formatSeconds(simulation.seconds()).c_str(),
             compare(simulation.seconds(), measured.stepSeconds).c_str());
  text += format("model     %s from the cluster's figures, %s\n",
                 formatSeconds(measured.modelSeconds).c_str(),
                 compare(measured.modelSeconds, measured.stepSeconds).c_str());
  // By kind: where the model is wrong shows here.
  text += format("\n%-16s%14s%14s%14s%14s\n", "all programs", "model",
                 "measured", "error", "waiting");
  for (const auto &[kind, time] : measured.kinds)
    text += format("%-16s%14s%14s%14s%14s\n", toWord(kind).c_str(),
                   formatSeconds(time.model).c_str(),
                   formatSeconds(time.measured).c_str(),
                   compare(time.model, time.measured).c_str(),
                   formatSeconds(time.waiting).c_str());
  return text;
}

/// Gives factors two digits: they have no more.
static std::string writeBand(const planner::Band &band, double seconds) {
  return format("band      %.2f to %.2f times that in 8 of 10 runs, %s to %s,\n"
                "          by ",
                band.low, band.high, formatSeconds(band.low * seconds).c_str(),
                formatSeconds(band.high * seconds).c_str()) +
         planner::describeBasis(band) + "\n";
}

/// The measured step heads the text where there is a profile, else the
/// predicted one.
std::string tool::toText(const fb::Plan &plan, const Simulation &simulation,
                         const schedule::ChartOptions &options) {
  std::string text = "mesh      " + planner::printMesh(plan) + ", " +
                     plan.schedule()->str() + ", " +
                     countOf(plan.microbatches(), "microbatch", "es") +
                     "\ncosts     " + simulation.costs + "\n";
  if (simulation.measurement)
    text += writeMeasurement(simulation);
  else
    text += "step      " + formatSeconds(simulation.seconds()) +
            (plan::RankGrid::partsOf(plan, plait::Splits::Batch) > 1
                 ? ", with replicas equally fast: plaitc adds the wait for "
                   "the slowest\n"
                 : "\n");
  if (simulation.band)
    text += writeBand(*simulation.band, simulation.seconds());
  text += "\n" + drawSchedule(plan, simulation, options);
  text += writeRanks(plan, simulation);
  return text + writeMemory(plan, simulation, options.width);
}

//===----------------------------------------------------------------------===//
// For programs
//===----------------------------------------------------------------------===//

/// Only what is there; in the order of the enumeration.
static Json toJson(const LiveBytes &live) {
  Json bytes = Json::object();
  for (fb::Category category : fb::EnumValuesCategory())
    if (auto found = live.find(category);
        found != live.end() && found->second > 0)
      bytes[toWord(fb::EnumNameCategory(category))] = found->second;
  return bytes;
}

/// Memory as a list of times from which on something else is live.
static Json toJson(const fb::Plan &plan, const Simulation &simulation,
                   uint32_t index) {
  const fb::Program &program = *plan.programs()->Get(index);
  // Seconds of one rank of the program.
  const plan::RankTime &rank = simulation.replayed.ranks[index];
  auto [first, last] = getRanks(plan, index);
  // A history: each entry holds until the next.
  Json memory = Json::array();
  std::vector<double> begins = getBegins(simulation.replayed.programs[index]);
  for (const auto &[action, live] : getMemory(program))
    // A program without actions holds the same all the time.
    memory.push_back({{"seconds", begins.empty() ? 0 : begins[action]},
                      {"bytes", toJson(live)}});
  Json result = {{"first_rank", first},
                 {"last_rank", last},
                 {"computing_seconds", rank.computing},
                 {"communicating_seconds", rank.communicating},
                 {"idle_seconds", simulation.idle(index)},
                 {"bubble_seconds", simulation.bubbleSeconds[index]},
                 {"hidden_communication_seconds", rank.hidden},
                 {"peak_bytes", program.arena_bytes()},
                 {"peak_live_bytes", getSum(getFullest(program))},
                 {"memory", std::move(memory)}};
  for (const MemoryPlaceFacts &facts : otherPlaces)
    result[std::string(facts.name) + "_bytes"] =
        getPlaceBytes(program, facts.place);
  return result;
}

/// Seconds are sums over programs, as in the text.
static Json toJson(const Measurement &measured) {
  Json kinds = Json::object();
  for (const auto &[kind, time] : measured.kinds)
    kinds[toWord(kind)] = {{"model_seconds", time.model},
                           {"measured_seconds", time.measured},
                           {"waiting_seconds", time.waiting}};
  return {{"profile", measured.path},
          {"steps", measured.steps},
          {"step_seconds", measured.stepSeconds},
          {"model_step_seconds", measured.modelSeconds},
          {"kinds", std::move(kinds)}};
}

/// Measurements are there only with a profile.
std::string tool::toJson(const fb::Plan &plan, const Simulation &simulation) {
  Json mesh = Json::object(), programs = Json::array();
  for (const fb::MeshAxis *axis : *plan.mesh())
    mesh[axis->name()->str()] = axis->size();
  for (uint32_t i = 0; i < plan.programs()->size(); ++i)
    programs.push_back(::toJson(plan, simulation, i));
  Json content = {{"mesh", std::move(mesh)},
                  {"costs", simulation.costs},
                  {"step_seconds", simulation.seconds()},
                  {"overhead_seconds", simulation.overhead},
                  {"bubble_fraction", simulation.bubbleFraction},
                  {"programs", std::move(programs)}};
  if (const auto &band = simulation.band)
    content["band"] = {
        {"step_seconds",
         {band->low * simulation.seconds(), band->high * simulation.seconds()}},
        {"half_width_percent", 100 * band->getHalfWidth()},
        {"runs", band->runs},
        {"sources", band->sources},
        {"basis", band->basis},
        {"unmeasured", band->unmeasured}};
  if (simulation.measurement)
    content["measured"] = ::toJson(*simulation.measurement);
  return content.dump(2) + "\n";
}

/// A row for computing, one beside it where there are streams, and a counter of
/// memory by category.
static void addProgram(Json &events, const fb::Plan &plan,
                       const Simulation &simulation, uint32_t index) {
  const fb::Program &program = *plan.programs()->Get(index);
  const auto &times = simulation.replayed.programs[index];
  // What only communicates goes on beside the rest. Rows of the trace are
  // numbered through all programs.
  uint32_t beside = simulation.overlaps;
  uint32_t row = (1 + beside) * index, rowBeside = row + beside;
  std::string name = "program " + std::to_string(index);
  planner::addName(events, "thread_name", 0, row, name);
  // What goes on at the same time would not nest in one row.
  if (beside)
    planner::addName(events, "thread_name", 0, rowBeside,
                     name + ", communication");
  planner::addActions(events, plan, simulation.replayed, index, 0, row,
                      rowBeside);
  std::vector<double> begins = getBegins(times);
  for (const auto &[action, live] : getMemory(program))
    events.push_back({{"ph", "C"},
                      {"name", "memory of program " + std::to_string(index)},
                      {"pid", 0},
                      {"ts", begins.empty() ? 0 : 1e6 * begins[action]},
                      {"args", ::toJson(live)}});
}

/// Times of the trace are microseconds.
std::string tool::toTrace(const fb::Plan &plan, const Simulation &simulation) {
  Json events = Json::array();
  planner::addName(events, "process_name", 0, 0, "simulated step");
  for (uint32_t i = 0; i < plan.programs()->size(); ++i)
    addProgram(events, plan, simulation, i);
  Json trace = {
      {"displayTimeUnit", "ms"},
      {"otherData",
       {{"mesh", planner::printMesh(plan)}, {"costs", simulation.costs}}},
      {"traceEvents", std::move(events)}};
  return trace.dump(1) + "\n";
}
