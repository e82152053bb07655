//===- Stragglers.cpp - Detection of stragglers ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Finds ranks that slow the others down. In a synchronous step all ranks take
// equally long, so what is compared is how long each *computes*, among those
// with the same work; who waits for whom is WaitTimes'. A rank is called slow
// when it was slower in every one of the last watched steps, by a factor and by
// a part of the step (the constants below), so that what happens now and then
// is not reported.
//
//===----------------------------------------------------------------------===//

#include "Stragglers.h"

#include "WaitTimes.h"
#include "plait/Plan/Streams.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

using namespace plait;
using namespace plait::runtime;

// A rank is slow that computes for at least so many times as long as the others
// in *each* of the window's steps: what other work on its host, or the system,
// takes from it now and then is not in all of them. Equal ranks were up to 1.08
// times apart, 8 of them on 2 processors, and 1.20 with other work there that
// wanted 17. It stays slow until it is much nearer, so that nobody is told
// again and again.
static constexpr double slow = 1.25, equal = 1.125;
// Where ranks share processors, each finds the caches as others have left them:
// of 8 equal ranks on 2 processors some were up to 1.39 times apart for a
// window, now and then in 25 minutes.
static constexpr double slowWhereShared = 1.6, equalWhereShared = 1.3;
// And by at least this part of a step: kernels of microseconds take longer
// where what communicates between them has emptied the caches, which delays
// nobody.
static constexpr double leastOfStep = 0.02;
// Steps are watched so far apart that a window is no instant: no brief work of
// others on a host lasts that long.
static constexpr double leastSeconds = 0.3;
// And so seldom that no more than this part of a run is spent on it.
static constexpr double mostOfRun = 0.005;
// Notes of a step, of all ranks: some 100 MiB in process 0.
static constexpr uint64_t mostNotes = 1 << 20;

/// Also measures what a reading of the clock takes, for schedule(): some tens
/// of readings are enough for a mean, and nobody notices them.
Stragglers::Stragglers(const fb::Plan &plan) : mesh(plan) {
  all.resize(mesh.ranks());
  shares.resize(mesh.ranks());
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank)
    for (uint32_t axis = 0; axis < mesh.axes(); ++axis)
      all[rank].position += (axis ? " " : "") +
                            plan.mesh()->Get(axis)->name()->str() + "=" +
                            std::to_string(mesh.index(rank, axis));
  constexpr int rounds = 64;
  StepClock::Reading begin = StepClock::read();
  for (int i = 0; i < rounds; ++i)
    (void)StepClock::read();
  noteSeconds =
      std::chrono::duration<double>(StepClock::read().time - begin.time)
          .count() /
      rounds;
}

/// Counts operations of all ranks by program: ranks of one program have equally
/// many.
bool Stragglers::canWatch(const fb::Plan &plan) {
  plan::RankGrid mesh(plan);
  uint64_t notes = 0;
  for (const fb::Program *program : *plan.programs())
    notes += uint64_t(mesh.programRanks()) * plan::countOperations(*program);
  return notes <= mostNotes;
}

/// The time of the processor counts where ranks share processors: how long a
/// kernel takes says nothing then, since another rank may have had the
/// processor.
void Stragglers::setHosts(const std::vector<Host> &hosts, RankSpread spread) {
  std::map<std::string, uint32_t> ranksOf; // by host
  for (uint32_t rank = 0; rank < all.size(); ++rank)
    ++ranksOf[all[rank].host = hosts[spread.processOf(rank)].name];
  for (uint32_t rank = 0; rank < all.size(); ++rank) {
    uint32_t processors = hosts[spread.processOf(rank)].processors;
    all[rank].sharesProcessors =
        processors && ranksOf[all[rank].host] > processors;
  }
}

/// Libraries and caches warm up in the first two steps.
Status Stragglers::beginRun(uint64_t first, uint64_t last) {
  next = std::min(first + 2, last);
  return Status::success();
}

/// 1. Find the waits of the step.
/// 2. Take each rank's share: computing, waiting, waited for.
/// 3. Put it in the place of the oldest in the window.
/// 4. Compare, and choose the next step to be watched, which counts the time
///    that all this has taken. `notes` is kept for readers until the next
///    watched step overwrites it.
void Stragglers::add(uint64_t step, double seconds, const StepNotes &notes) {
  auto start = StepClock::Time::clock::now();
  // 1.
  WaitTimes waits(notes);
  std::vector<double> waitedFor(all.size());
  waits.addTo(waitedFor);
  auto toSeconds = [](auto duration) {
    return std::chrono::duration<double>(duration).count();
  };
  // 2.
  for (uint32_t rank = 0; rank < all.size(); ++rank) {
    Share share = {0, 0, waitedFor[rank]};
    const StepClock &clock = notes.clock(rank);
    for (size_t i = 0; i < notes.countLaps(rank); ++i)
      if (notes.computes(rank, i))
        share.computing += all[rank].sharesProcessors
                               ? clock.getProcessorSeconds(i)
                               : toSeconds(clock.getEnd(i) - clock.getStart(i));
    for (const WaitTimes::Wait &wait : waits.of(rank))
      share.waiting += toSeconds(wait.end - wait.begin);
    shares[rank][added % window] = share;
  }
  // 3.
  stepSeconds[added % window] = seconds;
  ++added;
  last = step;
  lastNotes = &notes;
  // 4.
  compare();
  schedule(step, seconds, notes,
           toSeconds(StepClock::Time::clock::now() - start));
}

/// Returns the time in the step of the window in which the rank was fastest.
double Stragglers::getLeast(uint32_t rank) const {
  double least = INFINITY;
  for (size_t i = 0; i < steps(); ++i)
    least = std::min(least, shares[rank][i].computing);
  return least;
}

/// Returns the median of at least one value.
static double getMedian(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  size_t count = values.size();
  return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/// A rank is held against the others with the same program: those of other
/// stages have other work.
/// The least of the window on both sides: a rank's fastest step against the
/// median of the others' fastest. A median, so that another slow rank does not
/// hide this one. Takes time in the square of the ranks, once in a watched
/// step.
void Stragglers::compare() {
  changes.clear();
  double shortest =
      *std::min_element(stepSeconds.begin(), stepSeconds.begin() + steps());
  std::vector<double> least;
  for (uint32_t rank = 0; rank < all.size(); ++rank)
    least.push_back(getLeast(rank));
  for (uint32_t rank = 0; rank < all.size(); ++rank) {
    Rank &mine = all[rank];
    std::vector<double> others;
    for (uint32_t other = 0; other < all.size(); ++other)
      if (other != rank && mesh.index(other, 0) == mesh.index(rank, 0))
        others.push_back(least[other]);
    double median = others.empty() ? 0 : getMedian(std::move(others));
    mine.times = median > 0 ? least[rank] / median : 0;
    mine.computing = mine.waiting = mine.waitedFor = 0;
    for (size_t i = 0; i < steps(); ++i) {
      mine.computing += shares[rank][i].computing / double(steps());
      mine.waiting += shares[rank][i].waiting / double(steps());
      mine.waitedFor += shares[rank][i].waitedFor / double(steps());
    }
    bool matters = least[rank] - median >= leastOfStep * shortest;
    // Two thresholds, so that a rank between them stays what it was.
    double factor = mine.sharesProcessors
                        ? (mine.isSlow ? equalWhereShared : slowWhereShared)
                        : (mine.isSlow ? equal : slow);
    bool isSlow = steps() == window && matters && mine.times >= factor;
    if (isSlow != std::exchange(mine.isSlow, isSlow))
      changes.push_back(rank);
  }
}

/// Plans the next watched step as if the ranks noted one after the other, on
/// one processor: far enough off that the cost stays below `mostOfRun` of the
/// time, and that a window of steps is not an instant.
void Stragglers::schedule(uint64_t step, double seconds, const StepNotes &notes,
                          double spent) {
  size_t laps = 0;
  for (uint32_t rank = 0; rank < all.size(); ++rank)
    laps += notes.countLaps(rank);
  double cost = spent + 2 * noteSeconds * double(laps);
  double apart = std::max(cost / mostOfRun, leastSeconds);
  next = step + std::max(1.0, std::ceil(apart / seconds));
}

std::string Stragglers::name(uint32_t rank) const {
  return "rank " + std::to_string(rank) + " (host " + all[rank].host + ", " +
         all[rank].position + ")";
}

/// Describes a rank that has just changed, either way.
std::string Stragglers::describe(uint32_t rank) const {
  const Rank &one = all[rank];
  if (!one.isSlow)
    return name(rank) +
           " is no longer slower than the ranks with the same work";
  char text[160];
  std::snprintf(text, sizeof(text),
                " computes at least %.2f times as long as those with the same "
                "work; others waited %.2g s for it in %zu watched steps",
                one.times, one.waitedFor * double(steps()), steps());
  return name(rank) + text;
}
