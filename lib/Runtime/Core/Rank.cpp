//===- Rank.cpp - One rank walks its action list --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// prepare() (RankPreparation.cpp) looks up everything that a step needs, so
// that a step only walks the action list: actions call functions, functions are
// steps, and transfers and steps together are the operations, numbered as
// plan::forEachOperation does. Both ways to walk, operate() for devices with
// streams of their own and operateInStream() for threads, rely on each walk
// counting all operations, also those that it leaves to others. What a step
// computes is the backend's.
//
//===----------------------------------------------------------------------===//

#include "Rank.h"

#include "Futex.h"
#include "NamedRange.h"
#include "RankThreads.h"
#include "StepNames.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/FloatInputs.h"
#include "plait/Plan/InputWords.h"
#include "plait/Plan/Metrics.h"
#include "plait/Plan/Sites.h"
#include "plait/Plan/Uses.h"

#include <algorithm>

using namespace plait;
using namespace plait::runtime;
using plan::length;

/// The patience of a thread for the other one of its rank.
static constexpr std::chrono::milliseconds forEver = std::chrono::years(1);

/// Returns the failure of a thread that the other one of its rank has released.
static Status failWithOther() {
  return failReleased(", or another thread of it");
}

/// Which rows: see Data.h. Of each, the ranks along "cp" have equal parts of
/// the positions, or all of them, and the same key and context. Tokens are
/// sorted by microbatch, as the rank has them.
Status Rank::feed(const fb::Input &input, uint64_t number,
                  const Batches &batches) {
  int64_t replica = mesh.partOf(plan, rank, Splits::Batch);
  int64_t columns = input.columns();
  bool isWhole = columns == int64_t(plan::countColumns(plan, input));
  int64_t first =
      isWhole ? 0 : mesh.partOf(plan, rank, Splits::Sequence) * columns;
  int64_t count = int64_t(input.microbatches()) * input.rows();
  uint64_t words = plan::countWords(input);
  bool isFloat = input.kind() >= fb::InputKind::Features;
  for (int64_t i = 0; i < count; ++i) {
    int64_t row = replica * count + i;
    std::span<int32_t> target = std::span(rows).subspan(
        i / input.rows() * words + i % input.rows() * columns, columns);
    PLAIT_RETURN_IF_ERROR(
        isFloat ? batches.readFloats(number, row, input.float_input(), first,
                                     target)
                : batches.readRow(number, row, input.kind(), first, target));
    // Beside this step.
    batches.prefetchRow(number + 1, row, input.kind(), first, columns);
  }
  std::span<int32_t> all = std::span(rows).first(input.microbatches() * words);
  if (input.sorted())
    for (uint32_t i = 0; i < input.microbatches(); ++i)
      plan::getSortedTokens(input).sort(all.subspan(i * words, words));
  return device.write(input.offset(), std::as_bytes(all));
}

Status Rank::feedStep(uint64_t number, const Batches &batches,
                      const StepScalars &stepScalars) {
  learningRate = stepScalars[size_t(fb::Scalar::LearningRate)];
  for (uint32_t i = 0; i < length(program.inputs()); ++i)
    if (Status status = feed(*program.inputs()->Get(i), number, batches);
        !status.ok())
      return fail(status.code(), "step ", number, ": ", status.message());
  return device.write(
      program.scalars(),
      std::as_bytes(std::span(stepScalars).first(plan::countScalars(plan))));
}

/// Step 1 is walked, step 2 recorded and replayed, all others replayed; what is
/// not trained is walked. Inputs and scalars are written outside of the record.
Status Rank::enqueueStep(uint64_t number, StepScope stepScope) {
  scope = stepScope;
  bool trains = scope == StepScope::Train;
  if (!trains && !metricSteps.ok())
    return metricSteps.status();
  // The first step is walked: libraries connect and load code in their first
  // call, which cannot be recorded.
  bool walks = !graph || !trains || stepsRun == 0;
  bool records = graph && trains && stepsRun == 1;
  stepsRun += trains;
  isRecording = records;
  NamedRange range([&] { return nameStep(number); });
  if (records)
    PLAIT_RETURN_IF_ERROR(graph->begin());
  if (walks || records)
    PLAIT_RETURN_IF_ERROR(walk(number));
  if (records)
    PLAIT_RETURN_IF_ERROR(graph->end());
  isRecording = false;
  if (!walks)
    PLAIT_RETURN_IF_ERROR(graph->replay());
  return device.endStep(program.metrics(),
                        plan::countMetrics(plan) * sizeof(float));
}

Status Rank::finishStep(uint64_t number) {
  if (Status status = communicator.finish(); !status.ok())
    return fail(status.code(), "step ", number, ": ", status.message());
  PLAIT_RETURN_IF_ERROR(device.collect(
      program.metrics(), std::as_writable_bytes(std::span(finished).first(
                             plan::countMetrics(plan)))));
  return clock && device.runsLater() ? readStamps() : Status::success();
}

/// Only what is replayed: walking is the host's work, and what is recorded or
/// measured is tied to its step. Inputs must not wait for room, which they get
/// when the step before is done.
bool Rank::canGoAhead() const {
  uint64_t bytes = plan::countScalars(plan) * sizeof(float);
  for (uint32_t i = 0; i < length(program.inputs()); ++i) {
    const fb::Input &input = *program.inputs()->Get(i);
    bytes += input.microbatches() * plan::countWords(input) * sizeof(int32_t);
  }
  return graph && !clock && stepsRun > 1 && bytes <= device.roomAhead();
}

/// The guard reads what a step has written right after it, for which nothing
/// else of the rank may run.
Status Rank::walk(uint64_t number) {
  isGuarded = guardEvery && number % guardEvery == 0 && !device.runsLater();
  // What is watched goes on one after the other.
  inStreams = thread && !isGuarded;
  if (inStreams)
    return walkInStreams(number);
  if (clock)
    clock->start();
  PLAIT_RETURN_IF_ERROR(device.fork());
  PLAIT_RETURN_IF_ERROR(walkActions(main, number));
  return device.join();
}

/// After a failure of this thread the other one goes on until what it waits for
/// is aborted. It is already where this one was released: the other one may
/// know why.
Status Rank::walkInStreams(uint64_t number) {
  main.done = beside.done = 0;
  decision = Open;
  stepNumber = number;
  thread->start();
  if (walkActions(main, number).ok()) {
    main.at.waitsForStream = true;
    thread->finish();
    main.at.waitsForStream = false;
  } else if (followsAnother(getFailure())) {
    thread->finish();
  }
  return getFailure();
}

Status Rank::walkActions(Walk &walk, uint64_t number) {
  walk.nextOperation = 0;
  walk.at.number = number;
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    walk.at.action = i;
    if (isRecording && std::binary_search(cuts.begin(), cuts.end(), i))
      PLAIT_RETURN_IF_ERROR(cutRecording());
    // With a second thread an earlier action may still use that memory.
    if (!inStreams)
      PLAIT_RETURN_IF_ERROR(stress.spoilMemory(i));
    if (Status status = runAction(walk, i); !status.ok()) {
      status = fail(status.code(), "step ", number, ", ",
                    plan::describeAction(plan, mesh.index(rank, 0), i),
                    locationOf(walk.at, *program.actions()->Get(i)), ": ",
                    status.message());
      noteFailure(walk, status);
      return status;
    }
  }
  walk.at.number = 0;
  return Status::success();
}

/// All that was recorded is in stream 0's past, and what follows in no other's.
Status Rank::cutRecording() {
  PLAIT_RETURN_IF_ERROR(device.join());
  PLAIT_RETURN_IF_ERROR(graph->cut());
  return device.fork();
}

Status Rank::getFailure() {
  std::lock_guard lock(failing);
  return failure;
}

/// The first failure stays, unless the second alone follows no other one.
void Rank::noteFailure(const Walk &walk, const Status &status) {
  std::lock_guard lock(failing);
  if (hasFailed && (!followsAnother(failure) || followsAnother(status)))
    return;
  failure = status;
  failed = &walk;
  hasFailed = true;
}

/// Does what waits for other ranks. After a failure `waits` stays set:
/// release() asks whether the rank that has failed did so while it waited.
template <typename Work> Status Rank::await(Walk &walk, Work work) {
  stress.holdMessage(walk.at.number, walk.nextOperation);
  walk.at.waits = true;
  PLAIT_RETURN_IF_ERROR(work());
  walk.at.waits = false;
  return Status::success();
}

/// Returns, of a rank with two threads, the one that keeps it from going on.
const Rank::Walk &Rank::current() const {
  if (const Walk *walk = failed)
    return *walk;
  return main.at.waitsForStream ? beside : main;
}

/// Waits until the other stream has done `operation`.
Status Rank::awaitOperation(Walk &walk, uint32_t operation) {
  Walk &other = &walk == &main ? beside : main;
  uint32_t done = other.done;
  if (done > operation)
    return Status::success();
  walk.at.waitsForStream = true;
  // The other one has time limits where it waits itself.
  for (; done <= operation; done = other.done)
    if (waitWhileEqual(other.done, done, hasFailed, forEver) ==
        WaitResult::Aborted)
      return failWithOther();
  walk.at.waitsForStream = false;
  return Status::success();
}

/// Operations before `end` that are of the walk's stream are done.
void Rank::finishOperations(Walk &walk, uint32_t end) {
  walk.done = end;
  wakeAll(walk.done);
}

/// Does the next operation of the step if it is of the walk's stream.
template <typename Work> Status Rank::operateInStream(Walk &walk, Work work) {
  // Counted before anything else: numbers must agree on both threads.
  uint32_t index = walk.nextOperation++;
  if (streams.operations[index].stream != walk.stream)
    return Status::success();
  if (hasFailed)
    return failWithOther();
  if (waitsFor[index] != none)
    PLAIT_RETURN_IF_ERROR(awaitOperation(walk, waitsFor[index]));
  StepClock::Reading begin;
  if (clock)
    begin = StepClock::read();
  if (!walk.passes)
    PLAIT_RETURN_IF_ERROR(work());
  if (clock)
    clock->set(index, begin, StepClock::read());
  if (isAwaited[index])
    finishOperations(walk, index + 1);
  return Status::success();
}

/// Does the next operation of the step, in its stream.
template <typename Work> Status Rank::operate(Walk &walk, Work work) {
  if (inStreams)
    return operateInStream(walk, work);
  uint32_t index = walk.nextOperation++, stream = 0;
  bool stamps = clock && device.runsLater();
  if (!streams.operations.empty()) {
    stream = streams.operations[index].stream;
    for (uint32_t event : streams.waitsOf(index))
      PLAIT_RETURN_IF_ERROR(device.wait(event, stream));
  }
  if (stamps)
    PLAIT_RETURN_IF_ERROR(device.stamp(2 * index, stream));
  if (!walk.passes)
    PLAIT_RETURN_IF_ERROR(work());
  if (stamps)
    PLAIT_RETURN_IF_ERROR(device.stamp(2 * index + 1, stream));
  else if (clock)
    clock->lap();
  if (streams.operations.empty() ||
      streams.operations[index].event == plan::StreamSchedule::none)
    return Status::success();
  uint32_t event = streams.operations[index].event;
  if (!held)
    return device.record(event, stream);
  heldEvents.push_back({event, stream});
  return Status::success();
}

/// Notes when the device has done what.
Status Rank::readStamps() {
  for (uint32_t i = 0; i < main.nextOperation; ++i) {
    auto begin = device.readStamp(2 * i), end = device.readStamp(2 * i + 1);
    if (!begin.ok() || !end.ok())
      return begin.ok() ? end.status() : begin.status();
    clock->set(i, *begin, *end);
  }
  return Status::success();
}

Result<StepMetrics> Rank::readMetrics() {
  StepMetrics metrics = {};
  auto told = std::span(metrics).first(plan::countMetrics(plan));
  PLAIT_RETURN_IF_ERROR(
      device.read(program.metrics(), std::as_writable_bytes(told)));
  return metrics;
}

/// Evaluations do of the end of a step what comes before the update; of lists
/// that are run in each step, all. Other lists are run in steps of their own.
bool Rank::isDue(const Walk &walk, const fb::Action &action) const {
  if (plan::isScheme(action))
    return scope == StepScope::Train && !meetsApart &&
           plan::isDue(plan, action, walk.at.number);
  return scope != StepScope::Evaluate || plan::isForward(action) ||
         action.kind() == fb::ActionKind::Optimizer ||
         action.kind() == fb::ActionKind::Outer;
}

Status Rank::runAction(Walk &walk, uint32_t index) {
  const fb::Action &action = *program.actions()->Get(index);
  walk.passes = !isDue(walk, action);
  uint32_t peer = 0;
  if (plan::isTransfer(action)) {
    std::optional<uint32_t> partner = plan::partnerOf(plan, mesh, rank, action);
    walk.passes |= !partner;
    peer = partner.value_or(rank);
  }
  std::span<std::byte> buffer(memory->at(action.buffer()), action.bytes());
  NamedRange range([&] { return plan::nameOf(action); }, walk.passes);
  switch (action.kind()) {
  case fb::ActionKind::Send:
    return operate(walk, [&] {
      stress.holdMessage(walk.at.number, walk.nextOperation);
      return communicator.post(messageOf[index], peer, buffer);
    });
  case fb::ActionKind::Recv:
    return operate(walk, [&] {
      return await(walk, [&] {
        return communicator.receive(messageOf[index], peer, buffer);
      });
    });
  case fb::ActionKind::WaitSend:
    return operate(walk, [&] {
      return await(walk, [&] {
        return communicator.awaitReceipt(messageOf[index], peer);
      });
    });
  default:
    return callFunction(walk, action);
  }
}

/// The optimizer function stops before its update for beginUpdate().
Status Rank::callFunction(Walk &walk, const fb::Action &action) {
  const fb::Function &function = *program.functions()->Get(action.function());
  const std::vector<uint32_t> &numbers = prepared[action.function()];
  bool endsStep = action.kind() == fb::ActionKind::Optimizer;
  uint32_t update = metricSteps.ok() ? *metricSteps : 0;
  // What lists change may still be read for a checkpoint.
  if (plan::isScheme(action) && !walk.passes)
    for (const std::function<void()> &hold : holds)
      hold();
  for (uint32_t i = 0; i < numbers.size(); ++i) {
    walk.at.functionStep = i;
    if (endsStep && i == update)
      PLAIT_RETURN_IF_ERROR(beginUpdate(walk));
    // Not across beginUpdate(), which waits for all that was launched.
    if (!held && !walk.passes && (!endsStep || i >= update))
      beginBatch(action.function(), i);
    const fb::Step &step = *function.steps()->Get(i);
    NamedRange range([&] { return describeStep(plan, step); }, walk.passes);
    PLAIT_RETURN_IF_ERROR(operate(walk, [&] {
      return isGuarded ? runGuarded(action, step, numbers[i])
                       : runStepOf(walk, action, step, numbers[i]);
    }));
    if (held && i == batchEnd)
      PLAIT_RETURN_IF_ERROR(endBatch());
  }
  return Status::success();
}

/// Nothing has changed yet that outlives the step.
Status Rank::beginUpdate(Walk &walk) {
  // Other scopes look at the metrics before anything is updated.
  if (scope != StepScope::Train)
    PLAIT_RETURN_IF_ERROR(decideUpdate(walk));
  if (!walk.passes)
    for (const std::function<void()> &hold : holds)
      hold();
  return Status::success();
}

/// The metrics are known. They are the same on all ranks, so that all decide
/// the same.
Status Rank::decideUpdate(Walk &walk) {
  walk.passes = scope == StepScope::Evaluate;
  if (walk.passes)
    return Status::success();
  if (inStreams)
    return decideInStreams(walk);
  PLAIT_RETURN_IF_ERROR(device.join());
  PLAIT_RETURN_IF_ERROR(communicator.finish());
  PLAIT_RETURN_IF_ERROR(findWhetherToPass(walk));
  return device.fork();
}

Status Rank::findWhetherToPass(Walk &walk) {
  Result<StepMetrics> metrics = readMetrics();
  if (!metrics.ok())
    return metrics.status();
  walk.passes = !isFinite(*metrics);
  return Status::success();
}

/// The threads meet, and the rank's own one decides.
Status Rank::decideInStreams(Walk &walk) {
  uint32_t next = walk.nextOperation;
  if (&walk == &beside) {
    finishOperations(beside, next);
    walk.at.waitsForStream = true;
    if (waitWhileEqual(decision, Open, hasFailed, forEver) ==
        WaitResult::Aborted)
      return failWithOther();
    walk.at.waitsForStream = false;
    walk.passes = decision == Passes;
    return Status::success();
  }
  if (next > 0)
    PLAIT_RETURN_IF_ERROR(awaitOperation(main, next - 1));
  PLAIT_RETURN_IF_ERROR(findWhetherToPass(main));
  decision = main.passes ? Passes : Updates;
  wakeAll(decision);
  return Status::success();
}

Status Rank::runGuarded(const fb::Action &action, const fb::Step &step,
                        uint32_t number) {
  Result<bool> isFinite = guard.isInputFinite(action, step);
  if (!isFinite.ok())
    return isFinite.status();
  PLAIT_RETURN_IF_ERROR(runStepOf(main, action, step, number));
  return *isFinite ? guard.checkOutput(action, step) : Status::success();
}

Status Rank::runStepOf(Walk &walk, const fb::Action &action,
                       const fb::Step &step, uint32_t number) {
  switch (step.step_type()) {
  case fb::StepKind::KernelStep:
    return runKernel(action, *step.step_as_KernelStep(), number);
  case fb::StepKind::GemmStep:
    return runGemm(action, *step.step_as_GemmStep(), number);
  case fb::StepKind::GroupedGemmStep:
    return runGroupedGemm(action, *step.step_as_GroupedGemmStep(), number);
  case fb::StepKind::AttentionStep:
    return runAttention(action, *step.step_as_AttentionStep(), number);
  case fb::StepKind::CollectiveStep:
    return await(walk, [&] {
      return runCollective(action, *step.step_as_CollectiveStep(),
                           *groups[number].second);
    });
  case fb::StepKind::CopyStep: {
    const fb::CopyStep &copy = *step.step_as_CopyStep();
    return device.copy(resolve(action, *copy.target()),
                       resolve(action, *copy.source()), copy.bytes(),
                       copy.kind());
  }
  case fb::StepKind::FillStep: {
    const fb::FillStep &fill = *step.step_as_FillStep();
    if (!action.first() && fill.first_microbatch_only())
      return Status::success();
    return device.fillZero(resolve(action, *fill.target()), fill.bytes());
  }
  case fb::StepKind::OuterStep:
    return runOuter(action, *step.step_as_OuterStep());
  case fb::StepKind::NONE: // no plan that is read has one
    break;
  }
  __builtin_unreachable();
}

Status Rank::runKernel(const fb::Action &action, const fb::KernelStep &step,
                       uint32_t stream) {
  for (uint32_t i = 0; i < length(step.args()); ++i)
    args[i] = resolve(action, *step.args()->Get(i));
  for (uint32_t i = 0; i < length(step.scalars()); ++i) {
    const fb::RankScalar &scalar = *step.scalars()->Get(i);
    if (scalar.first_microbatch())
      scalars[i] = action.first();
    else
      scalars[i] = plan::valueOf(mesh, rank, scalar);
  }
  return device.kernel(step, args.data(), scalars.data(), stream);
}

/// Whether the step adds to what is in C.
static bool addsTo(fb::Accumulate mode, const fb::Action &action) {
  return mode == fb::Accumulate::Add ||
         (mode == fb::Accumulate::AddUnlessFirst && !action.first());
}

Status Rank::runGemm(const fb::Action &action, const fb::GemmStep &step,
                     uint32_t number) {
  auto place = [&](const fb::Ref &ref) { return resolve(action, ref); };
  return device.gemm(number, operandsOf(step, place),
                     addsTo(step.accumulate(), action));
}

Status Rank::runGroupedGemm(const fb::Action &action,
                            const fb::GroupedGemmStep &step, uint32_t number) {
  auto place = [&](const fb::Ref &ref) { return resolve(action, ref); };
  return device.groupedGemm(number, operandsOf(step, place),
                            addsTo(step.accumulate(), action));
}

Status Rank::runAttention(const fb::Action &action,
                          const fb::AttentionStep &step, uint32_t number) {
  auto place = [&](const fb::Ref &ref) { return resolve(action, ref); };
  return device.attention(number, operandsOf(step, place));
}

Status Rank::runCollective(const fb::Action &action,
                           const fb::CollectiveStep &step, Group &group) {
  const std::byte *input = resolve(action, *step.input());
  std::byte *output = resolve(action, *step.output());
  CollectiveShape shape = {step.dtype(), step.outer(), step.chunk(),
                           step.middle(), step.splits_inner()};
  if (const fb::RowSelection *rows = step.rows()) {
    RowChoice choice = {
        reinterpret_cast<const int32_t *>(resolve(action, *rows->ids())),
        rows->width(), rows->choices(), rows->experts(),
        getFacts(plan::kindOf(step)).reduces};
    return group.moveRows(input, output, shape, choice);
  }
  return group.run(plan::kindOf(step), input, output, shape, step.reduction());
}

Status Rank::runOuter(const fb::Action &action, const fb::OuterStep &step) {
  auto place = [&](const fb::Ref *ref) {
    return ref ? resolve(action, *ref) : nullptr;
  };
  const fb::OuterRule &rule = *plan.outer();
  OuterOperands operands = {
      place(step.value()),   place(step.anchor()),     place(step.momentum()),
      place(step.copy()),    place(step.others()),     place(step.mixed()),
      float(sitesThatAgree), float(rule.rate()),       float(rule.momentum()),
      /*weight=*/0,          step.exchange() == 1,     rule.drop(),
      float(rule.mix()),     place(step.correction()), learningRate,
      float(rule.every()),   place(step.error()),      &compression};
  operands.radius = rule.radius();
  operands.copies = step.copies();
  if (step.exchange())
    operands.weight =
        float(plan::exchangeOf(plan, action.list(), step.exchange())
                  .weights()
                  ->Get(mesh.index(rank, mesh.sitesAxis())));
  return device.outer(step, operands);
}
