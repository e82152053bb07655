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
#include "plait/Plan/Messages.h"
#include "plait/Plan/Ranks.h"
#include "plait/Plan/Streams.h"
#include "plait/Runtime/Executor.h"
#include "plait/Runtime/Profiler.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace plait::runtime {

/// One rank: its device, its end point, and what was looked up at load time.
/// Used by the rank's thread, except for the constructor and assignMessages().
class Rank {
public:
  Rank(const fb::Plan &plan, const plan::Mesh &mesh, uint32_t rank,
       RankBackend &backend)
      : plan(plan), mesh(mesh), rank(rank),
        program(*plan.programs()->Get(mesh.index(rank, 0))),
        device(*backend.device), communicator(*backend.communicator),
        graph(backend.graph.get()) {}

  /// Notes in `value` when every step ends; null: nowhere.
  void setClock(StepClock *value) { clock = value; }
  /// Numbers the messages of this rank's actions.
  void assignMessages(const std::vector<plan::Message> &messages);
  /// Every so many steps each operation is looked at; 0: never.
  void setGuard(uint64_t every) { guardEvery = every; }
  Status prepare();
  /// Returns when the device has done all of the step.
  Status runStep(uint64_t number, const Batches &batches,
                 const StepScalars &scalars, StepScope scope);
  Result<StepMetrics> readMetrics();

  /// Of any thread: whether it waits for another rank.
  bool isWaiting() const { return at.waits; }
  /// Of any thread: where it is in its step, and whether it waits there; empty
  /// outside of steps.
  std::string describePosition() const;

private:
  /// Written by the rank's thread.
  struct Position {
    std::atomic<uint64_t> number = 0; // of the step; 0: in none
    std::atomic<uint32_t> action = 0;
    std::atomic<uint32_t> functionStep = 0;
    std::atomic<bool> waits = false;
  };

  Status prepareFunction(const fb::Function &function);
  Status prepareStreams();
  Result<uint32_t> joinGroup(const fb::CollectiveStep &step);
  Status feed(const fb::Input &input, uint64_t number, const Batches &batches);
  Status walk(uint64_t number);
  template <typename Work> Status operate(Work work);
  Status readStamps();
  Status runAction(uint32_t index);
  Status callFunction(const fb::Action &action);
  Status decideUpdate();
  Status runStepOf(const fb::Action &action, const fb::Step &step,
                   uint32_t prepared);
  Status runGuarded(const fb::Action &action, const fb::Step &step,
                    uint32_t prepared);
  Status runKernel(const fb::Action &action, const fb::KernelStep &step);
  Status runGemm(const fb::Action &action, const fb::GemmStep &step,
                 uint32_t prepared);
  Status runAttention(const fb::Action &action, const fb::AttentionStep &step,
                      uint32_t prepared);
  Status runCollective(const fb::Action &action, const fb::CollectiveStep &step,
                       Group &group);
  std::byte *resolve(const fb::Action &action, const fb::Ref &ref) const;
  std::string locationOf(const fb::Action &action) const;
  template <typename Work> Status await(Work work);

  const fb::Plan &plan;
  const plan::Mesh &mesh;
  uint32_t rank;
  const fb::Program &program;
  Device &device;
  Communicator &communicator;
  StepGraph *graph; // or null
  StepClock *clock = nullptr;
  std::byte *base = nullptr; // of the arena

  std::vector<uint32_t> messageOf; // of each action that transfers
  // Of each function and step: the number of the prepared GEMM or attention
  // or the index of the group; unused for other steps.
  std::vector<std::vector<uint32_t>> prepared;
  std::vector<std::pair<std::vector<uint32_t>, std::unique_ptr<Group>>> groups;
  plan::StreamSchedule streams; // no operations: there is one stream
  // Room for the operands of the kernel with the most.
  std::vector<std::byte *> args;
  std::vector<int64_t> scalars;
  std::vector<int32_t> rows;  // of the largest input
  uint32_t nextOperation = 0; // of the step
  Position at;
  StepGuard guard{mesh, program, device};
  uint64_t guardEvery = 0;
  bool isGuarded = false; // the step that runs
  uint64_t stepsRun = 0;
  StepScope scope = StepScope::Train; // of the step
  // Operations keep their places among the others, but do nothing.
  bool passes = false;
  Result<uint32_t> metricSteps = 0u; // see plan::countMetricSteps
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_RANK_H
