//===- StepNotes.h - Recorded times of a step's operations ------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every rank notes when each of its operations (plan::countOperations) begins
// and ends; between two training steps the notes of all ranks are put together.
// Since the ranks of a process share one clock, it is known when the last
// member of a collective arrived and when a message was posted: what lies
// before that is waiting, not work. GPUs have clocks of their own, which are
// set by the host's at the beginning of each step; they differ by as long as
// that takes, some microseconds.
//
// All memory is taken in the constructor, but for what several processes send.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_STEPNOTES_H
#define PLAIT_RUNTIME_STEPNOTES_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Plan/Ranks.h"

#include <chrono>
#include <ctime>
#include <utility>
#include <vector>

namespace plait::runtime {

class Rendezvous;

/// The notes of one rank, for one training step. Written by its threads, each
/// lap, which is an operation, by one of them.
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
  /// Ends a lap: has to be called at the end of every transfer and of every
  /// step of a function.
  void lap() {
    Time now = std::chrono::steady_clock::now();
    double processor = getThreadSeconds();
    laps[next++] = {std::exchange(last, now), now,
                    processor - std::exchange(lastProcessor, processor)};
  }
  /// Sets a lap where another clock knows better: laps of a GPU overlap.
  void set(size_t lap, Time begin, Time end, double processor = 0) {
    laps[lap] = {begin, end, processor};
  }
  /// Sets a lap where threads do laps side by side.
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

/// The notes of all ranks of a plan.
class StepNotes {
public:
  using Time = StepClock::Time;

  /// `plan` has passed checkPlan and outlives the notes. `overlaps`: ranks have
  /// their streams (plan::chooseStreams), else one each. `processes` are those
  /// of the run; null: there is one.
  StepNotes(const plan::fb::Plan &plan, bool overlaps,
            const Rendezvous *processes = nullptr);

  /// Returns the clock of a rank of this process; of any in process 0.
  StepClock &clock(uint32_t rank) { return clocks[rank]; }
  const StepClock &clock(uint32_t rank) const { return clocks[rank]; }

  /// Whether steps are noted, from the next one on.
  void enable(bool value) { enabled = value; }
  bool isEnabled() const { return enabled; }

  /// All processes call this before the first step: how far the clocks of their
  /// hosts are apart, to about the time of a message.
  Status compareClocks(Rendezvous &processes);
  /// After a step that was noted, whose threads rest: process 0 gets the notes
  /// of all ranks, and what follows. Null: there is one process.
  Status collect(Rendezvous *processes);

  /// The first operation's begin, and the last one's end.
  Time begin() const { return first; }
  Time end() const { return last; }
  /// When what the operation `lap` of `rank` waited for was there, within the
  /// operation: it began then if it waited for nothing. And which rank it
  /// waited for; `rank` itself where it did not.
  struct Ready {
    Time time;
    uint32_t rank;
  };
  Ready getReady(uint32_t rank, size_t lap) const;

  size_t countLaps(uint32_t rank) const { return links[rank].size(); }
  /// Whether it neither communicates nor waits for other ranks.
  bool computes(uint32_t rank, size_t lap) const {
    return links[rank][lap].computes;
  }
  /// Returns the stream where it happens; 0: where `rank` computes.
  uint32_t streamOf(uint32_t rank, size_t lap) const {
    return links[rank][lap].stream;
  }
  const plan::fb::Plan &plan() const { return source; }
  const plan::RankGrid &mesh() const { return meshOf; }

private:
  /// The event that ends the waiting of an operation.
  struct Link {
    enum class Waits : uint8_t { No, ForMembers, ForStart, ForEnd };
    Waits waits = Waits::No;
    bool computes = true;
    uint16_t stream = 0;
    uint32_t meeting = 0;           // ForMembers: index into `arrivals`
    uint32_t peer = 0, peerLap = 0; // ForStart, ForEnd: of this operation
  };
  class Layout;

  Status gather(Rendezvous &processes);
  void meet();

  const plan::fb::Plan &source;
  plan::RankGrid meshOf;
  bool enabled = true;
  std::vector<StepClock> clocks;        // by rank
  std::vector<std::vector<Link>> links; // by rank and operation
  std::vector<Ready> arrivals;          // of the last member, by collective
  std::vector<int64_t> clockOffsets;    // by process, ns; in process 0 only
  Time first, last;
};

/// Looks at the notes of steps.
class StepReader {
public:
  virtual ~StepReader() = default;
  /// Before the first step, when it is known which are the first and the last
  /// one, and in all processes.
  virtual Status beginRun(uint64_t first, uint64_t last) {
    return Status::success();
  }
  /// Whether `step` is to be noted; in all processes alike.
  virtual bool wants(uint64_t step) const = 0;
  /// Takes, in process 0, the notes of such a step, which took `seconds`.
  virtual void add(uint64_t step, double seconds, const StepNotes &notes) = 0;
};

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_STEPNOTES_H
