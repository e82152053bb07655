//===- Stragglers.h - Detection of stragglers -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All ranks of a synchronous step take equally long. What tells a slow one is
// how long it computes, without what it waits, and who waits for it: who was
// the last in a collective, or sent late, and did not wait itself.
//
// Steps are watched so seldom that it costs less than a hundredth of them.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_STRAGGLERS_H
#define PLAIT_LIB_RUNTIME_TRAINING_STRAGGLERS_H

#include "plait/Runtime/Rendezvous.h"
#include "plait/Runtime/StepNotes.h"

#include <array>
#include <string>

namespace plait::runtime {

namespace fb = plan::fb;

/// How ranks share the watched steps of a run.
class Stragglers : public StepReader {
public:
  /// So many of the last watched steps are looked at together.
  static constexpr size_t window = 10;

  explicit Stragglers(const fb::Plan &plan);

  /// Whether a run of this plan has few enough operations to be watched.
  static bool canWatch(const fb::Plan &plan);

  /// The host of a process of the run, and how many processors that has; 0: it
  /// is not known, or ranks compute elsewhere.
  struct Host {
    std::string name;
    uint32_t processors = 0;
  };
  void setHosts(const std::vector<Host> &hosts, RankSpread spread);
  Status beginRun(uint64_t first, uint64_t last) override;
  bool wants(uint64_t step) const override { return step == next; }
  void add(uint64_t step, double seconds, const StepNotes &notes) override;

  /// The step that is watched next; process 0 finds it, and tells the others.
  uint64_t nextStep() const { return next; }
  void setNextStep(uint64_t step) { next = step; }

  struct Rank {
    std::string host, position; // "pp=1 dp=0 tp=1"
    /// Whether there are fewer processors on its host than ranks. Then it
    /// computes while it has one, as all wait for them now and then.
    bool sharesProcessors = false;
    /// Seconds of a step, in the mean: it computes, it waits for others, all
    /// others together wait for it.
    double computing = 0, waiting = 0, waitedFor = 0;
    /// How many times as long it computes as the others with the same program;
    /// 0 where there are none.
    double times = 0;
    bool isSlow = false;
  };
  const std::vector<Rank> &ranks() const { return all; }
  /// How many steps that is about.
  size_t steps() const { return std::min<size_t>(added, window); }
  /// Those that the last step has made slow, or as fast as the others.
  const std::vector<uint32_t> &changed() const { return changes; }
  /// "rank 5 (host a, pp=1 dp=0 tp=1)".
  std::string name(uint32_t rank) const;
  /// "… computes 1.31 times as long as …", or that it no longer does.
  std::string describe(uint32_t rank) const;
  /// The last watched step, and its notes.
  uint64_t lastStep() const { return last; }
  const StepNotes *notes() const { return lastNotes; }

private:
  struct Share {
    double computing = 0, waiting = 0, waitedFor = 0;
  };

  double getLeast(uint32_t rank) const;
  void compare();
  void schedule(uint64_t step, double seconds, const StepNotes &notes,
                double spent);

  plan::RankGrid mesh;
  std::vector<Rank> all;
  std::vector<std::array<Share, window>> shares; // by rank
  std::array<double, window> stepSeconds;
  size_t added = 0; // steps
  std::vector<uint32_t> changes;
  double noteSeconds = 0; // what it takes to note an operation
  uint64_t next = 0, last = 0;
  const StepNotes *lastNotes = nullptr;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_STRAGGLERS_H
