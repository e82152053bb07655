//===- RankPreparation.cpp - Look-ups before a rank's first step ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Everything that is the same in all steps: messages, groups, libraries'
// handles for their steps, constants, and which operations of other streams
// each one waits for.
//
//===----------------------------------------------------------------------===//

#include "Rank.h"

#include "RankThreads.h"
#include "Topology.h"
#include "plait/Plan/Communicators.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/InputWords.h"
#include "plait/Plan/Metrics.h"
#include "plait/Plan/Sites.h"

#include <algorithm>

using namespace plait;
using namespace plait::runtime;
using plan::length;

/// Several actions share a message: what posts it and what awaits its receipt
/// on the sender, and what receives it.
void Rank::assignMessages(const std::vector<plan::Message> &messages) {
  messageOf.resize(length(program.actions()));
  for (uint32_t i = 0; i < messages.size(); ++i) {
    const plan::Message &message = messages[i];
    if (message.source == mesh.index(rank, 0))
      messageOf[message.send] = messageOf[message.wait] =
          messageId(mesh, rank, i);
    if (message.target != mesh.index(rank, 0))
      continue;
    // Messages are numbered by who sends them.
    const fb::Action &receive = *program.actions()->Get(message.receive);
    std::optional<uint32_t> source = plan::partnerOf(plan, mesh, rank, receive);
    messageOf[message.receive] = messageId(mesh, source.value_or(rank), i);
  }
}

/// Functions come first: they join the groups from which prepareStreams()
/// learns where collectives happen, and all ranks join them in the plan's
/// order.
Status Rank::prepare() {
  PLAIT_RETURN_IF_ERROR(device.attachThread());
  memory.emplace(device);
  for (uint32_t i = 0; i < length(program.functions()); ++i)
    PLAIT_RETURN_IF_ERROR(prepareFunction(*program.functions()->Get(i)));
  for (uint32_t i = 0; i < length(program.constants()); ++i) {
    const fb::Constant &constant = *program.constants()->Get(i);
    const auto &table = *plan.data()->Get(constant.data())->bytes();
    auto data = std::as_bytes(std::span(table.data(), table.size()));
    if (constant.bytes())
      data = data.subspan(plan::valueOf(mesh, rank, constant.begin()),
                          constant.bytes());
    PLAIT_RETURN_IF_ERROR(device.write(constant.offset(), data));
  }
  for (uint32_t i = 0; i < length(program.inputs()); ++i) {
    const fb::Input &input = *program.inputs()->Get(i);
    rows.resize(std::max<size_t>(rows.size(), input.microbatches() *
                                                  plan::countWords(input)));
  }
  metricSteps = plan::countMetricSteps(plan, mesh.index(rank, 0));
  return prepareStreams();
}

/// Asks the communicator, which knows the streams, and derives the waits. With
/// one stream `streams` stays empty, and the plan's order is all there is.
Status Rank::prepareStreams() {
  plan::StreamChoice choice;
  choice.sendsInStream = communicator.sendsInStream();
  for (uint32_t i = 0; i < length(program.actions()); ++i)
    choice.transfers.push_back(plan::isTransfer(*program.actions()->Get(i))
                                   ? communicator.streamOf(messageOf[i])
                                   : 0);
  for (uint32_t i = 0; i < prepared.size(); ++i) {
    auto &function = choice.steps.emplace_back();
    const auto *steps = program.functions()->Get(i)->steps();
    for (uint32_t j = 0; j < length(steps); ++j) {
      const auto *copy = steps->Get(j)->step_as_CopyStep();
      function.push_back(steps->Get(j)->step_as_CollectiveStep()
                             ? groups[prepared[i][j]].second->streamNumber()
                         : copy ? device.streamOf(copy->kind())
                                : 0);
    }
  }
  plan::placeSums(choice, program);
  if (device.runsLater()) {
    plan::placeKernels(choice, program);
    for (uint32_t i = 0; i < prepared.size(); ++i)
      for (uint32_t j = 0; j < prepared[i].size(); ++j)
        if (program.functions()->Get(i)->steps()->Get(j)->step_as_KernelStep())
          prepared[i][j] = choice.steps[i][j];
  }
  if (choice.streams() > 1) {
    streams = plan::scheduleStreams(program, mesh, choice);
    if (!device.runsLater())
      prepareThreads(choice.streams());
    PLAIT_RETURN_IF_ERROR(device.makeEvents(streams.events));
  }
  return clock && device.runsLater()
             ? device.makeStamps(2 * plan::countOperations(program))
             : Status::success();
}

/// Events are how far the other thread has come.
void Rank::prepareThreads(uint32_t streamCount) {
  waitsFor.assign(streams.operations.size(), none);
  isAwaited.assign(streams.operations.size(), false);
  plan::forEachWait(streams, streamCount, [&](uint32_t first, uint32_t second) {
    if (streams.operations[first].stream == streams.operations[second].stream)
      return;
    waitsFor[second] = first;
    isAwaited[first] = true;
  });
  beside.stream = 1;
  thread = std::make_unique<StreamThread>([this] {
    // What fails here is told by the other thread.
    (void)walkActions(beside, stepNumber);
  });
}

/// Also makes room for the operands of the largest kernel.
Status Rank::prepareFunction(const fb::Function &function) {
  std::vector<uint32_t> &numbers = prepared.emplace_back();
  for (uint32_t i = 0; i < length(function.steps()); ++i) {
    const fb::Step &step = *function.steps()->Get(i);
    Result<uint32_t> number = 0u;
    if (const auto *gemm = step.step_as_GemmStep())
      number = device.prepareGemm(*gemm);
    if (const auto *grouped = step.step_as_GroupedGemmStep())
      number = device.prepareGroupedGemm(
          *grouped, plan::valueOf(mesh, rank, grouped->first_expert()));
    if (const auto *attention = step.step_as_AttentionStep()) {
      AttentionBegin begin = {
          plan::valueOf(mesh, rank, attention->first_query())};
      if (const fb::AttentionDropout *dropout = attention->dropout())
        begin.group = plan::valueOf(mesh, rank, dropout->first_group());
      number = device.prepareAttention(*attention, begin);
    }
    if (const auto *collective = step.step_as_CollectiveStep())
      number = joinGroup(*collective);
    if (!number.ok())
      return number.status();
    if (const auto *kernel = step.step_as_KernelStep()) {
      args.resize(std::max<size_t>(args.size(), length(kernel->args())));
      scalars.resize(
          std::max<size_t>(scalars.size(), length(kernel->scalars())));
    }
    numbers.push_back(*number);
  }
  // Steps that are measured are walked one by one.
  if (device.runsLater() && !clock)
    batches.push_back(plan::batchGathers(mesh, rank, function));
  return Status::success();
}

/// One group for each set of members, whatever the step.
Result<uint32_t> Rank::joinGroup(const fb::CollectiveStep &step) {
  std::vector<uint32_t> members = membersOf(mesh, rank, step);
  for (uint32_t i = 0; i < groups.size(); ++i)
    if (groups[i].first == members)
      return i;
  Result<std::unique_ptr<Group>> group = communicator.join(members);
  if (!group.ok())
    return group.status();
  groups.emplace_back(std::move(members), std::move(*group));
  return static_cast<uint32_t>(groups.size() - 1);
}
