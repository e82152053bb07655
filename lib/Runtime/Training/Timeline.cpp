//===- Timeline.cpp - A step as bars --------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The last watched step as data for the dashboard's page: a row for each stream
// of a rank, with bars for what it computed, sent and waited. A step has
// thousands of operations and a screen a thousand columns, so bars that could
// not be told apart are joined here rather than in the browser, and names are
// sent once and referred to by number.
//
//===----------------------------------------------------------------------===//

#include "Timeline.h"

#include "Core/StepNames.h"
#include "plait/Plan/Messages.h"
#include "plait/Plan/Streams.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace plait;
using namespace plait::runtime;
using Json = nlohmann::ordered_json;
using Time = StepClock::Time;

namespace {

/// The kinds by their place in the page's list of colours.
enum class Kind {
  Forward,
  Backward,
  Weight,
  Optimizer,
  Communication,
  Waiting
};

/// Bars that one cannot tell apart, on a screen of so many columns, are one.
constexpr int columns = 1500;

/// Collects rows of several ranks; names are common to all.
class Bars {
public:
  Bars(const StepNotes &notes)
      : notes(notes), plan(notes.plan()),
        least((notes.end() - notes.begin()) / columns) {}

  void addRank(uint32_t rank);

  Json rows = Json::array(), names = Json::array();

private:
  // `operations` are those that were joined; the first one's name is shown.
  struct Bar {
    Time begin, end;
    Kind kind;
    std::string name;
    size_t operations = 1;
  };

  void add(std::vector<Bar> &bars, Bar bar) const;
  Json print(const std::vector<Bar> &bars);
  std::string describe(const fb::Program &program,
                       const plan::Operation &operation) const;

  const StepNotes &notes;
  const fb::Plan &plan;
  Time::duration least; // of a bar
  std::map<std::string, size_t> known;
};

Kind kindOf(const fb::Action &action) {
  switch (action.kind()) {
  case fb::ActionKind::Forward:
    return Kind::Forward;
  case fb::ActionKind::Backward:
  case fb::ActionKind::BackwardInput:
    return Kind::Backward;
  case fb::ActionKind::BackwardWeight:
    return Kind::Weight;
  default:
    return Kind::Optimizer;
  }
}

} // namespace

/// Describes what the operation is, where of the model it is from, and for
/// which microbatch.
std::string Bars::describe(const fb::Program &program,
                           const plan::Operation &operation) const {
  const fb::Action &action = *program.actions()->Get(operation.action);
  std::string name = plan::nameOf(action);
  const fb::Step *step = operation.get(program);
  return step ? name + ": " + describeStep(plan, *step) : name;
}

/// Bars come in the order of time. Joining only looks at the last one, which is
/// enough for that.
void Bars::add(std::vector<Bar> &bars, Bar bar) const {
  if (bar.end <= bar.begin)
    return;
  bool isBrief = bar.end - bar.begin < least;
  if (!bars.empty() && bar.begin - bars.back().end < least) {
    Bar &before = bars.back();
    bool wasBrief = before.end - before.begin < least;
    // What is too brief to be seen is counted with what is beside it.
    if ((before.kind == bar.kind && (isBrief || wasBrief)) ||
        (isBrief && wasBrief)) {
      before.end = bar.end;
      before.operations += bar.operations;
      return;
    }
  }
  bars.push_back(std::move(bar));
}

/// Communication is two bars: waiting until the last of the others was there,
/// and what came after.
void Bars::addRank(uint32_t rank) {
  const fb::Program &program =
      *plan.programs()->Get(notes.mesh().index(rank, 0));
  const StepClock &clock = notes.clock(rank);
  std::map<uint32_t, std::vector<Bar>> streams;
  plan::forEachOperation(program, [&](const plan::Operation &operation) {
    size_t lap = operation.index;
    std::vector<Bar> &bars = streams[notes.streamOf(rank, lap)];
    std::string name = describe(program, operation);
    Time begin = clock.getStart(lap), end = clock.getEnd(lap);
    if (notes.computes(rank, lap))
      return add(bars,
                 {begin, end, kindOf(*program.actions()->Get(operation.action)),
                  std::move(name)});
    StepNotes::Ready ready = notes.getReady(rank, lap);
    add(bars, {begin, ready.time, Kind::Waiting,
               "for rank " + std::to_string(ready.rank) + ", " + name});
    add(bars, {ready.time, end, Kind::Communication, std::move(name)});
  });
  for (const auto &[stream, bars] : streams)
    rows.push_back({rank, stream, print(bars)});
}

/// Whole microseconds from the beginning of the step.
Json Bars::print(const std::vector<Bar> &bars) {
  auto toMicroseconds = [](Time::duration duration) {
    return std::chrono::duration_cast<std::chrono::microseconds>(duration)
        .count();
  };
  Json result = Json::array();
  for (const Bar &bar : bars) {
    std::string name = bar.name;
    if (bar.operations > 1)
      name += " and " + std::to_string(bar.operations - 1) + " more";
    auto [entry, isNew] = known.try_emplace(name, names.size());
    if (isNew)
      names.push_back(name);
    result.push_back({toMicroseconds(bar.begin - notes.begin()),
                      toMicroseconds(bar.end - bar.begin), int(bar.kind),
                      entry->second});
  }
  return result;
}

/// Chooses at most so many ranks, those first that the others waited for most;
/// by number. Slow ones first, as those are what the page is opened for.
static std::vector<uint32_t> chooseRanks(const Stragglers &watched,
                                         size_t most) {
  const std::vector<Stragglers::Rank> &ranks = watched.ranks();
  std::vector<uint32_t> chosen(ranks.size());
  std::iota(chosen.begin(), chosen.end(), 0);
  std::stable_sort(chosen.begin(), chosen.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(ranks[a].isSlow, ranks[a].waitedFor) >
           std::pair(ranks[b].isSlow, ranks[b].waitedFor);
  });
  chosen.resize(std::min(chosen.size(), most));
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

/// Enough ranks to see a pattern, and few enough to fit a page.
Json runtime::describeTimeline(const Stragglers &watched) {
  constexpr size_t mostRanks = 16;
  const StepNotes &notes = *watched.notes();
  Bars bars(notes);
  for (uint32_t rank : chooseRanks(watched, mostRanks))
    bars.addRank(rank);
  return {{"step", watched.lastStep()},
          {"seconds",
           std::chrono::duration<double>(notes.end() - notes.begin()).count()},
          {"names", std::move(bars.names)},
          {"rows", std::move(bars.rows)}};
}

/// Raw numbers; the page formats them.
Json runtime::describeRanks(const Stragglers &watched) {
  constexpr size_t mostRanks = 64;
  Json slow = Json::array(), rows = Json::array();
  for (uint32_t rank : chooseRanks(watched, mostRanks)) {
    const Stragglers::Rank &one = watched.ranks()[rank];
    if (one.isSlow)
      slow.push_back(watched.describe(rank));
    rows.push_back({rank, one.host, one.position, one.computing, one.times,
                    one.waiting, one.waitedFor, one.isSlow});
  }
  return {{"steps", watched.steps()},
          {"ranks_of_run", watched.ranks().size()},
          {"slow", std::move(slow)},
          {"ranks", std::move(rows)}};
}
