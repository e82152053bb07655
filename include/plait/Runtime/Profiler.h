//===- Profiler.h - Measures the steps of a run -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every rank notes when each of its steps begins and ends; between two training
// steps the notes of all ranks are put together. Since the ranks of a process
// share one clock, it is known when the last member of a collective arrived and
// when a message was posted: what lies before that is waiting, not work. GPUs
// have clocks of their own, which are set by the host's at the beginning of
// each step; they differ by as long as that takes, some microseconds.
//
// All memory is taken in the constructor.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_PROFILER_H
#define PLAIT_RUNTIME_PROFILER_H

#include "plait/Plan/Profile.h"
#include "plait/Plan/Ranks.h"

#include <chrono>
#include <ctime>
#include <utility>
#include <vector>

namespace plait::runtime {

class Rendezvous;

/// The notes of one rank, for one training step. Written by its threads, each
/// lap by one of them.
class StepClock {
public:
  using Time = std::chrono::steady_clock::time_point;

  /// Now, and how long the calling thread has been given a processor.
  struct Reading {
    Time time;
    double processor = 0; // seconds
  };
  static Reading read() {
    return {std::chrono::steady_clock::now(), getThreadSeconds()};
  }

  explicit StepClock(size_t laps) : laps(laps) {}

  void start() {
    next = 0;
    last = std::chrono::steady_clock::now();
    lastProcessor = getThreadSeconds();
  }
  /// At the end of every transfer and of every step of a function.
  void lap() {
    Time now = std::chrono::steady_clock::now();
    double processor = getThreadSeconds();
    laps[next++] = {std::exchange(last, now), now,
                    processor - std::exchange(lastProcessor, processor)};
  }
  /// Where another clock knows better: laps of a GPU overlap.
  void set(size_t lap, Time begin, Time end, double processor = 0) {
    laps[lap] = {begin, end, processor};
  }
  /// Where threads do laps side by side.
  void set(size_t lap, const Reading &begin, const Reading &end) {
    set(lap, begin.time, end.time, end.processor - begin.processor);
  }

  Time getStart(size_t lap) const { return laps[lap].begin; }
  Time getEnd(size_t lap) const { return laps[lap].end; }
  double getProcessorSeconds(size_t lap) const { return laps[lap].processor; }

private:
  struct Lap {
    Time begin, end;
    double processor; // seconds of the thread
  };
  static double getThreadSeconds() {
    timespec given;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &given);
    return double(given.tv_sec) + 1e-9 * double(given.tv_nsec);
  }

  std::vector<Lap> laps;
  Time last;
  double lastProcessor = 0;
  size_t next = 0;
};

/// Of a plan all ranks of which are in this process.
class Profiler {
public:
  /// `plan` has passed checkPlan and outlives the profiler; `hash` and
  /// `threads` are for the file, `steps` is how many will be added.
  Profiler(const plan::fb::Plan &plan, uint64_t hash, unsigned threads,
           uint64_t steps);

  StepClock &clock(uint32_t rank) { return clocks[rank]; }

  /// Of several processes, all call this before the first step: how far the
  /// clocks of their hosts are apart, to about the time of a message.
  Status compareClocks(Rendezvous &processes);
  /// And this before addStep(): process 0 gets the notes of all ranks.
  Status collect(Rendezvous &processes);

  /// Puts the notes of all ranks together, whose threads rest. The first call
  /// only notes that there was a step: libraries and caches warm up in it.
  void addStep(double seconds);

  /// Of all steps added but the first. Fails when there are none.
  Result<plan::Profile> finish() const;

private:
  /// One note of a rank: where its time is added up, and what ends its waiting.
  struct Lap {
    uint32_t total;
    enum class Waits : uint8_t { No, ForMembers, ForStart, ForEnd };
    Waits waits = Waits::No;
    uint32_t meeting = 0;           // ForMembers: index into `arrivals`
    uint32_t peer = 0, peerLap = 0; // ForStart, ForEnd: of this lap
  };
  struct Total {
    double seconds = 0, waiting = 0, processor = 0;
    uint64_t calls = 0;
  };
  class Layout;

  StepClock::Time getArrival(const Lap &lap, StepClock::Time start) const;
  plan::Profile skeleton;                 // all but the times
  std::vector<StepClock> clocks;          // by rank
  std::vector<std::vector<Lap>> laps;     // by rank
  std::vector<uint32_t> programOf;        // by rank
  std::vector<std::vector<Total>> totals; // by program
  std::vector<StepClock::Time> arrivals;  // of the last member, by collective
  std::vector<double> stepSeconds;
  std::vector<int64_t> clockOffsets; // by process, ns; in process 0 only
  double overhead = 0;
  bool isWarm = false;
};

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_PROFILER_H
