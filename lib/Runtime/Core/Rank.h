//===- Rank.h - One rank walks its action list ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_RANK_H
#define PLAIT_LIB_RUNTIME_CORE_RANK_H

#include "Backend.h"
#include "Guard.h"
#include "Operands.h"
#include "StreamThread.h"
#include "Stress.h"
#include "plait/Plan/Messages.h"
#include "plait/Plan/Ranks.h"
#include "plait/Plan/Sites.h"
#include "plait/Plan/Streams.h"
#include "plait/Runtime/Executor.h"
#include "plait/Runtime/StepNotes.h"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace plait::runtime {

/// One rank: its device, its end point, and what was looked up at load time.
/// Used by the rank's thread, except for the constructor and assignMessages().
///
/// On a GPU the thread walks the whole step, and the device deals it to
/// streams. On a processor streams are threads: each walks the step, does what
/// is its own, and waits where that uses bytes of the other's (Streams.h). One
/// order of all ranks' operations in which each has what it needs is the
/// plan's, so that the first one in it that has not ended can always go on.
class Rank {
public:
  Rank(const fb::Plan &plan, const plan::RankGrid &mesh, uint32_t rank,
       RankBackend &backend)
      : plan(plan), mesh(mesh), rank(rank),
        program(*plan.programs()->Get(mesh.index(rank, 0))),
        device(*backend.device), communicator(*backend.communicator),
        graph(backend.graph.get()),
        compression(plan.outer() ? plan::outerOf(plan).getCompression()
                                 : SiteCompression()),
        sitesThatAgree(mesh.sites()) {}

  /// Sets where is noted when operations begin and end; null: nowhere. On a GPU
  /// it has to be there in prepare().
  void setClock(StepClock *value) { clock = value; }
  /// Numbers the messages of this rank's actions.
  void assignMessages(const std::vector<plan::Message> &messages);
  /// Cuts the recorded step before these actions, ascending, if its graph can
  /// have parts.
  void setCuts(std::vector<uint32_t> actions) {
    if (graph && graph->hasParts())
      cuts = std::move(actions);
  }
  /// Every so many steps each operation is looked at; 0: never.
  void setGuard(uint64_t every) { guardEvery = every; }
  void setStress(Stress value) { stress.set(value); }
  /// See Executor.
  void holdUpdates(std::function<void()> wait) {
    holds.push_back(std::move(wait));
  }
  Status prepare();
  /// A step is given its inputs, then enqueued; it is done when finishStep()
  /// returns. The next one may be given and enqueued before that where it
  /// canGoAhead().
  Status feedStep(uint64_t number, const Batches &batches,
                  const StepScalars &scalars);
  Status enqueueStep(uint64_t number, StepScope scope);
  Status finishStep(uint64_t number);
  bool canGoAhead() const;
  /// Returns those of the last step that was finished.
  const StepMetrics &metrics() const { return finished; }

  // Of a site that is a run of its own, see Sites/Member.h. Its ranks leave the
  // lists of the scheme out of their steps, and do them around a meeting.

  void meetApart() { meetsApart = true; }
  /// Writes what this rank offers in the meeting after step `number`.
  Status offer(uint64_t number, std::vector<std::byte> &moved);
  /// Ends that meeting with the sums of what `count` sites have offered.
  Status agree(uint64_t number, std::span<const std::byte> sums,
               uint32_t count);
  /// The bytes of what outlives a step.
  uint64_t countKept() const;
  Status readKept(std::span<std::byte> kept);
  /// Takes what another site keeps, of the optimizer's state only `withOwn`.
  /// With `keepsDifference` what was offered last is not lost: the site has
  /// moved by it from what it takes.
  Status takeKept(uint64_t number, std::span<const std::byte> kept,
                  bool withOwn, bool keepsDifference);
  /// Has moved by what was offered last, from the anchor as it is now.
  Status resumeFrom(uint64_t number, std::span<const std::byte> moved);

  /// Whether it waits for another rank. May be asked by any thread.
  bool isWaiting() const { return current().at.waits; }
  /// Tells any thread where it is in its step, and whether it waits there;
  /// empty outside of steps.
  std::string describePosition() const;

private:
  /// Written by the thread that is there.
  struct Position {
    std::atomic<uint64_t> number = 0; // of the step; 0: in none
    std::atomic<uint32_t> action = 0;
    std::atomic<uint32_t> functionStep = 0;
    std::atomic<bool> waits = false;          // for another rank
    std::atomic<bool> waitsForStream = false; // of this one
  };

  /// A thread's way through a step.
  struct Walk {
    uint32_t stream = 0; // whose operations are done; that of a GPU: all
    uint32_t nextOperation = 0;
    // Operations keep their places among the others, but do nothing.
    bool passes = false;
    /// The operations before this one are done, as far as they are the stream's
    /// own. The other stream may wait for it.
    std::atomic<uint32_t> done = 0;
    Position at;
  };

  Status prepareFunction(const fb::Function &function);
  Status prepareStreams();
  Result<uint32_t> joinGroup(const fb::CollectiveStep &step);
  Status feed(const fb::Input &input, uint64_t number, const Batches &batches);
  void prepareThreads(uint32_t streamCount);
  Status walk(uint64_t number);
  Status walkInStreams(uint64_t number);
  Status walkActions(Walk &walk, uint64_t number);
  const Walk &current() const;
  template <typename Work> Status operate(Walk &walk, Work work);
  template <typename Work> Status operateInStream(Walk &walk, Work work);
  Status readStamps();
  Result<StepMetrics> readMetrics();
  Status awaitOperation(Walk &walk, uint32_t operation);
  void finishOperations(Walk &walk, uint32_t end);
  Status getFailure();
  Status cutRecording();
  void beginBatch(uint32_t function, uint32_t step);
  Status endBatch();
  void noteFailure(const Walk &walk, const Status &status);
  bool isDue(const Walk &walk, const fb::Action &action) const;
  Status runAction(Walk &walk, uint32_t index);
  Status callFunction(Walk &walk, const fb::Action &action);
  Status beginUpdate(Walk &walk);
  Status decideUpdate(Walk &walk);
  Status decideInStreams(Walk &walk);
  Status findWhetherToPass(Walk &walk);
  Status runStepOf(Walk &walk, const fb::Action &action, const fb::Step &step,
                   uint32_t prepared);
  Status runGuarded(const fb::Action &action, const fb::Step &step,
                    uint32_t prepared);
  Status runKernel(const fb::Action &action, const fb::KernelStep &step,
                   uint32_t stream);
  Status runGemm(const fb::Action &action, const fb::GemmStep &step,
                 uint32_t prepared);
  Status runGroupedGemm(const fb::Action &action,
                        const fb::GroupedGemmStep &step, uint32_t prepared);
  Status runAttention(const fb::Action &action, const fb::AttentionStep &step,
                      uint32_t prepared);
  Status runCollective(const fb::Action &action, const fb::CollectiveStep &step,
                       Group &group);
  Status runOuter(const fb::Action &action, const fb::OuterStep &step);
  template <typename Do> Status forEachOfScheme(uint64_t number, Do work);
  Status findDifferences(uint64_t number);
  Status renewCopies(uint64_t number);
  bool isSumOfSites(const fb::Step &step) const;
  std::byte *resolve(const fb::Action &action, const fb::Ref &ref) const {
    return memory->at(action, ref);
  }
  std::string locationOf(const Position &at, const fb::Action &action) const;
  std::string nameStep(uint64_t number) const;
  template <typename Work> Status await(Walk &walk, Work work);

  const fb::Plan &plan;
  const plan::RankGrid &mesh;
  uint32_t rank;
  const fb::Program &program;
  Device &device;
  Communicator &communicator;
  StepGraph *graph;                  // or null
  const SiteCompression compression; // of what sites send
  StepClock *clock = nullptr;
  std::optional<RankMemory> memory; // from prepare() on

  std::vector<uint32_t> messageOf; // of each action that transfers
  std::vector<uint32_t> cuts;      // of the recorded step, actions
  bool isRecording = false;
  // Of each function and step: the number of the prepared GEMM or attention,
  // the index of the group, or the kernel's stream; unused for other steps.
  std::vector<std::vector<uint32_t>> prepared;
  std::vector<std::pair<std::vector<uint32_t>, std::unique_ptr<Group>>> groups;
  // Of each function, where gathers are launched together: batchGathers().
  std::vector<std::vector<uint32_t>> batches;
  Group *held = nullptr; // whose gathers are held; null: none's
  uint32_t batchEnd = 0; // the last step of these
  std::vector<std::pair<uint32_t, uint32_t>> heldEvents; // and their streams
  plan::StreamSchedule streams; // no operations: there is one stream
  // Room for the operands of the kernel with the most.
  std::vector<std::byte *> args;
  std::vector<int64_t> scalars;
  float learningRate = 0;    // of the step that runs
  std::vector<int32_t> rows; // of the largest input
  Walk main;
  StepGuard guard{mesh, program, device};
  uint64_t guardEvery = 0;
  StepStress stress{program, device, rank};
  bool isGuarded = false; // the step that runs
  uint64_t stepsRun = 0;
  StepMetrics finished = {};
  StepScope scope = StepScope::Train;       // of the step
  Result<uint32_t> metricSteps = 0u;        // see plan::countMetricSteps
  std::vector<std::function<void()>> holds; // before the update
  bool meetsApart = false;
  uint32_t sitesThatAgree; // of the mesh, or those that were there

  // Of a processor with a second stream.
  Walk beside;
  static constexpr uint32_t none = UINT32_MAX;
  std::vector<uint32_t> waitsFor; // of each operation, one of the other stream
  std::vector<bool> isAwaited;    // of each operation
  bool inStreams = false;         // the step that runs
  uint64_t stepNumber = 0;        // the same
  enum Decision : uint32_t { Open, Updates, Passes };
  std::atomic<uint32_t> decision = Open; // of the step
  std::mutex failing;                    // of `failure`
  Status failure = Status::success();    // the first one of the step
  std::atomic<const Walk *> failed = nullptr;
  std::atomic<bool> hasFailed = false;
  std::unique_ptr<StreamThread> thread; // last: uses all of it
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_RANK_H
