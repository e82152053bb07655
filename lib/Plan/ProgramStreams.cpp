//===- ProgramStreams.cpp - The streams of a program's operations ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which operations a program has, which stream each happens in, and what they
// touch: the part of Streams.h that knows plans. StreamPlanner (Streams.cpp)
// knows bytes and streams alone. Runtime, checker and simulator all call this,
// so that there is one answer.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Streams.h"

#include "plait/Plan/Defaults.h"
#include "plait/Plan/Messages.h"
#include "plait/Support/ActionKinds.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace plait;
using namespace plait::plan;

namespace {

/// Adds a program's operations, with slots resolved.
class Scheduler {
public:
  /// Uses of a step are the same in each call but for the slots' addresses.
  Scheduler(const fb::Program &program, const RankGrid &mesh,
            const StreamChoice &choice)
      : program(program), choice(choice), planner(choice.streams()) {
    for (uint32_t i = 0; i < length(program.functions()); ++i) {
      auto &uses = usesOfFunctions.emplace_back();
      const auto *steps = program.functions()->Get(i)->steps();
      for (uint32_t j = 0; j < length(steps); ++j)
        uses.push_back(usesOf(mesh, *steps->Get(j)));
    }
  }

  /// Operations in the plan's order, as forEachOperation() counts them.
  StreamSchedule run() {
    for (uint32_t i = 0; i < length(program.actions()); ++i)
      add(i, *program.actions()->Get(i));
    return planner.finish();
  }

private:
  /// A Send reads its buffer and a Recv writes it. Where a send lasts in its
  /// stream, its WaitSend uses nothing.
  void add(uint32_t index, const fb::Action &action) {
    if (!isTransfer(action))
      return addCall(action);
    ByteRange buffer = {action.buffer(), action.buffer() + action.bytes(),
                        action.kind() == fb::ActionKind::Recv};
    // Until a WaitSend another rank may read the buffer.
    bool isOver =
        action.kind() == fb::ActionKind::WaitSend && choice.sendsInStream;
    planner.add(choice.transfers[index], std::span(&buffer, isOver ? 0 : 1));
  }

  /// Uses are found once for each function; here they get the addresses of this
  /// call.
  void addCall(const fb::Action &action) {
    const fb::Function &function = *program.functions()->Get(action.function());
    for (uint32_t i = 0; i < length(function.steps()); ++i) {
      // Kept from step to step, so that it is allocated once.
      ranges.clear();
      const auto *fill = function.steps()->Get(i)->step_as_FillStep();
      // It stays an operation, without bytes: operations are counted the same
      // in every action that calls the function.
      bool skipped = fill && fill->first_microbatch_only() && !action.first();
      for (const Use &use : usesOfFunctions[action.function()][i])
        if (!skipped)
          ranges.push_back(rangeOf(program, action, use));
      planner.add(choice.steps[action.function()][i], ranges);
    }
  }

  const fb::Program &program;
  const StreamChoice &choice;
  StreamPlanner planner;
  std::vector<std::vector<std::vector<Use>>> usesOfFunctions;
  std::vector<ByteRange> ranges; // of one operation
};

} // namespace

/// The axis of a collective and the indices along it that take part; none: all.
static std::vector<uint32_t> groupOf(const fb::CollectiveStep &step) {
  std::vector<uint32_t> group = {step.axis()};
  if (step.members())
    group.insert(group.end(), step.members()->begin(), step.members()->end());
  return group;
}

/// Returns at least 1: stream 0 computes.
uint32_t StreamChoice::streams() const {
  uint32_t last = 0;
  for (uint32_t stream : transfers)
    last = std::max(last, stream);
  for (const std::vector<uint32_t> &function : steps)
    for (uint32_t stream : function)
      last = std::max(last, stream);
  return last + 1;
}

/// Looked up through the plan, of which an Operation has indices only.
const fb::Step *Operation::get(const fb::Program &program) const {
  const fb::Action &of = *program.actions()->Get(action);
  return isTransfer(of)
             ? nullptr
             : program.functions()->Get(of.function())->steps()->Get(step);
}

/// Choices are by action for transfers, and by function and step for steps.
uint32_t Operation::streamIn(const fb::Program &program,
                             const StreamChoice &choice) const {
  const fb::Action &of = *program.actions()->Get(action);
  return isTransfer(of) ? choice.transfers[action]
                        : choice.steps[of.function()][step];
}

std::string plan::nameOf(const fb::Action &action) {
  return std::string(fb::EnumNameActionKind(action.kind())) + " " +
         std::to_string(action.microbatch());
}

/// A kind of collective says more than that it is one.
std::string plan::nameOf(const fb::Step &step) {
  if (const auto *collective = step.step_as_CollectiveStep())
    return std::string(getFacts(kindOf(*collective)).name);
  return fb::EnumNameStepKind(step.step_type());
}

/// The one place that defines how operations are numbered: clocks, stamps,
/// schedules and reports count by it.
void plan::forEachOperation(
    const fb::Program &program,
    const std::function<void(const Operation &)> &visit) {
  uint32_t index = 0;
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    uint32_t steps =
        isTransfer(action)
            ? 1
            : length(program.functions()->Get(action.function())->steps());
    for (uint32_t j = 0; j < steps; ++j)
      visit({index++, i, j});
  }
}

uint32_t plan::countOperations(const fb::Program &program) {
  uint32_t count = 0;
  forEachOperation(program, [&](const Operation &) { ++count; });
  return count;
}

/// Computed when a plan is loaded; about n log n in its operations.
StreamSchedule plan::scheduleStreams(const fb::Program &program,
                                     const RankGrid &mesh,
                                     const StreamChoice &choice) {
  return Scheduler(program, mesh, choice).run();
}

/// Whether sites take what they have sent steps later.
static bool takesLater(const fb::Plan &plan) {
  return plan.outer() && plan.outer()->delay() > 0;
}

/// Tells by the axis alone, which says what is exchanged (see Streams.h).
bool plan::isBeside(const fb::Plan &plan, const fb::CollectiveStep &step) {
  if (step.axis() >= plan.mesh()->size())
    return false;
  const fb::MeshAxis &axis = *plan.mesh()->Get(step.axis());
  if (axis.name()->string_view() == kSitesAxis)
    return takesLater(plan) && axis.size() > 1;
  const AxisFacts *facts = findAxis(axis.name()->string_view());
  return facts && facts->splitsBatch() && axis.size() > 1;
}

/// Processors without replicas have nothing to do beside computing.
bool plan::hasStreams(const fb::Plan &plan) {
  uint32_t sites = RankGrid(plan).sites();
  return isCuda(plan) || (takesLater(plan) && sites > 1) ||
         RankGrid::partsOf(plan, Splits::Batch) > sites;
}

bool plan::overlaps(const fb::Plan &plan, bool wanted) {
  return hasStreams(plan) && (wanted || isCuda(plan));
}

/// Calls `choose` for each step of the functions of `program` that is no work
/// of stream 0 on every device: collectives, and copies to and from other
/// places.
template <typename Choose>
static void addSteps(StreamChoice &choice, const fb::Program &program,
                     Choose choose) {
  for (uint32_t i = 0; i < length(program.functions()); ++i) {
    auto &function = choice.steps.emplace_back();
    const auto *steps = program.functions()->Get(i)->steps();
    for (uint32_t j = 0; j < length(steps); ++j) {
      const fb::Step &step = *steps->Get(j);
      bool isOther = step.step_as_CollectiveStep() || asPlaceCopy(step);
      function.push_back(isOther ? choose(step) : 0);
    }
  }
}

/// They are the actions before those of list 0.
void plan::placeSums(StreamChoice &choice, const fb::Program &program) {
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    if (!action.list())
      return;
    if (isTransfer(action))
      continue;
    std::vector<uint32_t> &streams = choice.steps[action.function()];
    if (!streams.empty())
      std::ranges::fill(streams, std::ranges::max(streams));
  }
}

/// Stream 0 computes and sends, stream 1 is the thread for the sums of
/// replicas.
static StreamChoice chooseOnProcessor(const fb::Plan &plan,
                                      const fb::Program &program) {
  StreamChoice choice;
  choice.transfers.resize(length(program.actions()), 0);
  addSteps(choice, program, [&](const fb::Step &step) {
    const auto *collective = step.step_as_CollectiveStep();
    return uint32_t(collective && isBeside(plan, *collective));
  });
  placeSums(choice, program);
  return choice;
}

/// Goes from the last step to the first, so that the next collective is known.
static void placeBetweenCollectives(std::vector<uint32_t> &streams,
                                    const fb::Function &function) {
  uint32_t next = 0; // the stream of the collective behind
  for (uint32_t i = length(function.steps()); i-- > 0;) {
    auto isCollective = [&](uint32_t step) {
      return function.steps()->Get(step)->step_as_CollectiveStep() != nullptr;
    };
    if (isCollective(i))
      next = streams[i];
    else if (function.steps()->Get(i)->step_as_KernelStep())
      streams[i] = i > 0 && isCollective(i - 1) ? streams[i - 1] : next;
  }
}

void plan::placeKernels(StreamChoice &choice, const fb::Program &program) {
  for (uint32_t i = 0; i < length(program.actions()); ++i)
    if (const fb::Action &action = *program.actions()->Get(i);
        getActionFacts(action.kind()).isOfReplicas())
      placeBetweenCollectives(choice.steps[action.function()],
                              *program.functions()->Get(action.function()));
}

/// NCCL runs what it is given on one communicator in order, so each group of
/// ranks and each route has a stream to itself, after stream 0, which
/// computes: a message waits for those before it on its route, but for no
/// other. Copies to another place have one, and those from there. Numbers
/// follow the order in which a program first uses them.
static StreamChoice chooseOnGpu(const fb::Program &program) {
  StreamChoice choice;
  choice.sendsInStream = true;
  // Axis and members of a group; peer and directions of a route.
  std::map<std::vector<uint32_t>, uint32_t> groups;
  std::map<std::tuple<uint32_t, fb::Direction, bool>, uint32_t> routes;
  uint32_t streams = 1;
  // One count for groups and routes.
  auto streamOf = [&streams](auto &known, auto key) {
    auto [entry, isNew] = known.try_emplace(std::move(key), streams);
    streams += isNew;
    return entry->second;
  };
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    // Both directions of a neighbour are routes of their own.
    bool receives = action.kind() == fb::ActionKind::Recv;
    choice.transfers.push_back(
        isTransfer(action)
            ? streamOf(routes,
                       std::tuple(action.peer(), action.direction(), receives))
            : 0);
  }
  std::map<fb::CopyKind, uint32_t> copies;
  addSteps(choice, program, [&](const fb::Step &step) {
    const auto *collective = step.step_as_CollectiveStep();
    return collective ? streamOf(groups, groupOf(*collective))
                      : streamOf(copies, step.step_as_CopyStep()->kind());
  });
  placeKernels(choice, program);
  return choice;
}

StreamChoice plan::chooseStreams(const fb::Plan &plan,
                                 const fb::Program &program) {
  return isCuda(plan) ? chooseOnGpu(program) : chooseOnProcessor(plan, program);
}
