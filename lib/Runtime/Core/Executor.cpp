//===- Executor.cpp - Runs the programs of a plan -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Executor.h"

#include "RankThreads.h"
#include "plait/Plan/Messages.h"
#include "plait/Runtime/Communicator.h"
#include "plait/Runtime/Device.h"

#include <algorithm>

using namespace plait;
using namespace plait::runtime;

namespace {

template <typename T> uint32_t length(const flatbuffers::Vector<T> *vector) {
  return vector ? vector->size() : 0;
}

/// One rank: its device, its end point, and what was looked up at load time.
class Rank {
public:
  Rank(const fb::Plan &plan, const plan::Mesh &mesh, uint32_t rank,
       Device &device, Communicator &communicator)
      : plan(plan), mesh(mesh), rank(rank),
        program(*plan.programs()->Get(mesh.index(rank, 0))), device(device),
        communicator(communicator) {}

  /// Numbers the messages of this rank's actions.
  void assignMessages(const std::vector<plan::Message> &messages);
  /// Called on the rank's thread.
  Status prepare();
  Status runStep(uint64_t number, const Batches &batches,
                 const StepScalars &scalars);
  StepMetrics readMetrics();

private:
  Status prepareFunction(const fb::Function &function);
  Result<uint32_t> joinGroup(const fb::CollectiveStep &step);
  void feed(const fb::Input &input, uint64_t number, const Batches &batches);
  Status runAction(uint32_t index);
  Status callFunction(const fb::Action &action);
  Status runStepOf(const fb::Action &action, const fb::Step &step,
                   uint32_t prepared);
  void runKernel(const fb::Action &action, const fb::KernelStep &step);
  Status runGemm(const fb::Action &action, const fb::GemmStep &step,
                 uint32_t prepared);
  Status runCollective(const fb::Action &action, const fb::CollectiveStep &step,
                       Group &group);
  std::byte *resolve(const fb::Action &action, const fb::Ref &ref) const;
  std::string locationOf(const fb::Action &action) const;

  const fb::Plan &plan;
  const plan::Mesh &mesh;
  uint32_t rank;
  const fb::Program &program;
  Device &device;
  Communicator &communicator;
  std::byte *base = nullptr; // of the arena

  std::vector<uint32_t> messageOf; // of each action that transfers
  // Of each function and step: the number of the prepared product or the index
  // of the group; unused for other steps.
  std::vector<std::vector<uint32_t>> prepared;
  std::vector<std::pair<std::vector<uint32_t>, std::unique_ptr<Group>>> groups;
  // Room for the operands of the kernel with the most.
  std::vector<std::byte *> args;
  std::vector<int64_t> scalars;
  std::vector<int32_t> rows; // of the largest input
  uint32_t currentStep = 0;  // of the function being called, for messages
};

void Rank::assignMessages(const std::vector<plan::Message> &messages) {
  // Each message of two programs exists once for every pair of their ranks.
  uint32_t peers = mesh.ranks() / mesh.size(0);
  messageOf.resize(length(program.actions()));
  for (uint32_t i = 0; i < messages.size(); ++i) {
    const plan::Message &message = messages[i];
    uint32_t id = i * peers + rank % peers;
    if (message.source == mesh.index(rank, 0))
      messageOf[message.send] = messageOf[message.wait] = id;
    if (message.target == mesh.index(rank, 0))
      messageOf[message.receive] = id;
  }
}

Status Rank::prepare() {
  device.attachThread();
  base = device.arena();
  for (uint32_t i = 0; i < length(program.functions()); ++i)
    PLAIT_RETURN_IF_ERROR(prepareFunction(*program.functions()->Get(i)));
  for (uint32_t i = 0; i < length(program.constants()); ++i) {
    const fb::Constant &constant = *program.constants()->Get(i);
    device.write(constant.offset(),
                 std::as_bytes(std::span(constant.data()->data(),
                                         constant.data()->size())));
  }
  for (uint32_t i = 0; i < length(program.inputs()); ++i) {
    const fb::Input &input = *program.inputs()->Get(i);
    rows.resize(std::max<size_t>(rows.size(), size_t(input.microbatches()) *
                                                  input.rows() *
                                                  input.columns()));
  }
  return Status::success();
}

Status Rank::prepareFunction(const fb::Function &function) {
  std::vector<uint32_t> &numbers = prepared.emplace_back();
  for (uint32_t i = 0; i < length(function.steps()); ++i) {
    const fb::Step &step = *function.steps()->Get(i);
    Result<uint32_t> number = 0u;
    if (const auto *gemm = step.step_as_GemmStep())
      number = device.prepareGemm(*gemm);
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
  return Status::success();
}

Result<uint32_t> Rank::joinGroup(const fb::CollectiveStep &step) {
  std::vector<uint32_t> members;
  if (length(step.members()))
    for (uint32_t index : *step.members())
      members.push_back(mesh.withIndex(rank, step.axis(), index));
  else
    for (uint32_t index = 0; index < mesh.size(step.axis()); ++index)
      members.push_back(mesh.withIndex(rank, step.axis(), index));
  for (uint32_t i = 0; i < groups.size(); ++i)
    if (groups[i].first == members)
      return i;
  Result<std::unique_ptr<Group>> group = communicator.join(members);
  if (!group.ok())
    return group.status();
  groups.emplace_back(std::move(members), std::move(*group));
  return static_cast<uint32_t>(groups.size() - 1);
}

/// Which rows: see Data.h.
void Rank::feed(const fb::Input &input, uint64_t number,
                const Batches &batches) {
  int axis = plan::Mesh::find(plan, "dp");
  int64_t replica = axis < 0 ? 0 : mesh.index(rank, axis);
  int64_t count = int64_t(input.microbatches()) * input.rows();
  for (int64_t row = 0; row < count; ++row)
    batches.readRow(number, replica * count + row, input.kind(),
                    rows.data() + row * input.columns());
  device.write(input.offset(),
               std::as_bytes(std::span(rows).first(count * input.columns())));
}

Status Rank::runStep(uint64_t number, const Batches &batches,
                     const StepScalars &stepScalars) {
  for (uint32_t i = 0; i < length(program.inputs()); ++i)
    feed(*program.inputs()->Get(i), number, batches);
  device.write(program.scalars(), std::as_bytes(std::span(stepScalars)));
  for (uint32_t i = 0; i < length(program.actions()); ++i)
    if (Status status = runAction(i); !status.ok())
      return fail("step ", number, ", ",
                  plan::describeAction(plan, mesh.index(rank, 0), i),
                  locationOf(*program.actions()->Get(i)), ": ",
                  status.message());
  return Status::success();
}

StepMetrics Rank::readMetrics() {
  StepMetrics metrics;
  device.read(program.metrics(), std::as_writable_bytes(std::span(metrics)));
  return metrics;
}

Status Rank::runAction(uint32_t index) {
  const fb::Action &action = *program.actions()->Get(index);
  uint32_t peer = mesh.withIndex(rank, 0, action.peer());
  std::span<std::byte> buffer(base + action.buffer(), action.bytes());
  switch (action.kind()) {
  case fb::ActionKind::Send:
    return communicator.post(messageOf[index], peer, buffer);
  case fb::ActionKind::Recv:
    return communicator.receive(messageOf[index], peer, buffer);
  case fb::ActionKind::WaitSend:
    return communicator.awaitReceipt(messageOf[index], peer);
  default:
    return callFunction(action);
  }
}

Status Rank::callFunction(const fb::Action &action) {
  const fb::Function &function = *program.functions()->Get(action.function());
  const std::vector<uint32_t> &numbers = prepared[action.function()];
  for (currentStep = 0; currentStep < numbers.size(); ++currentStep)
    PLAIT_RETURN_IF_ERROR(runStepOf(action, *function.steps()->Get(currentStep),
                                    numbers[currentStep]));
  return Status::success();
}

Status Rank::runStepOf(const fb::Action &action, const fb::Step &step,
                       uint32_t number) {
  switch (step.step_type()) {
  case fb::StepKind::KernelStep:
    runKernel(action, *step.step_as_KernelStep());
    return Status::success();
  case fb::StepKind::GemmStep:
    return runGemm(action, *step.step_as_GemmStep(), number);
  case fb::StepKind::CollectiveStep:
    return runCollective(action, *step.step_as_CollectiveStep(),
                         *groups[number].second);
  case fb::StepKind::CopyStep: {
    const fb::CopyStep &copy = *step.step_as_CopyStep();
    device.copy(resolve(action, *copy.target()),
                resolve(action, *copy.source()), copy.bytes());
    return Status::success();
  }
  default: {
    const fb::FillStep &fill = *step.step_as_FillStep();
    if (action.first() || !fill.first_microbatch_only())
      device.fillZero(resolve(action, *fill.target()), fill.bytes());
    return Status::success();
  }
  }
}

void Rank::runKernel(const fb::Action &action, const fb::KernelStep &step) {
  for (uint32_t i = 0; i < length(step.args()); ++i)
    args[i] = resolve(action, *step.args()->Get(i));
  for (uint32_t i = 0; i < length(step.scalars()); ++i) {
    const fb::RankScalar &scalar = *step.scalars()->Get(i);
    if (scalar.first_microbatch())
      scalars[i] = action.first();
    else
      scalars[i] = scalar.bias() +
                   (scalar.axis() < 0
                        ? 0
                        : scalar.scale() * mesh.index(rank, scalar.axis()));
  }
  device.kernel(step.kernel(), args.data(), scalars.data(), step.extent(),
                step.grain());
}

Status Rank::runGemm(const fb::Action &action, const fb::GemmStep &step,
                     uint32_t number) {
  bool add =
      step.accumulate() == fb::Accumulate::Add ||
      (step.accumulate() == fb::Accumulate::AddUnlessFirst && !action.first());
  return device.gemm(number, resolve(action, *step.a()),
                     resolve(action, *step.b()), resolve(action, *step.c()),
                     add);
}

Status Rank::runCollective(const fb::Action &action,
                           const fb::CollectiveStep &step, Group &group) {
  const std::byte *input = resolve(action, *step.input());
  std::byte *output = resolve(action, *step.output());
  CollectiveShape shape = {step.dtype(), step.outer(), step.chunk()};
  switch (step.kind()) {
  case fb::CollectiveKind::AllReduce:
    return group.allReduce(input, output, shape, step.reduction());
  case fb::CollectiveKind::AllGather:
    return group.allGather(input, output, shape);
  case fb::CollectiveKind::ReduceScatter:
    return group.reduceScatter(input, output, shape, step.reduction());
  case fb::CollectiveKind::AllToAll:
    return group.allToAll(input, output, shape);
  }
  __builtin_unreachable();
}

std::byte *Rank::resolve(const fb::Action &action, const fb::Ref &ref) const {
  uint64_t start = ref.slot() < 0 ? 0 : action.bindings()->Get(ref.slot());
  return base + start + ref.offset();
}

/// Where the step that was being run comes from, as ", at …".
std::string Rank::locationOf(const fb::Action &action) const {
  if (action.kind() == fb::ActionKind::Send ||
      action.kind() == fb::ActionKind::Recv ||
      action.kind() == fb::ActionKind::WaitSend)
    return "";
  const fb::Function &function = *program.functions()->Get(action.function());
  std::string result =
      ", '" + function.name()->str() + "' step " + std::to_string(currentStep);
  uint32_t location = function.steps()->Get(currentStep)->location();
  if (location < length(plan.locations()))
    result += ", at " + plan.locations()->Get(location)->str();
  return result;
}

class ThreadExecutor : public Executor {
public:
  ThreadExecutor(const fb::Plan &source,
                 std::vector<std::unique_ptr<Device>> devices,
                 const std::vector<plan::Message> &messages,
                 std::chrono::milliseconds timeLimit)
      : source(source), ranksOf(source), devices(std::move(devices)),
        communicators(createThreadCommunicators(
            ranksOf.ranks(),
            messages.size() * (ranksOf.ranks() / ranksOf.size(0)), timeLimit)),
        threads(ranksOf.ranks(), [this] { communicators.front()->abort(); }) {
    for (uint32_t i = 0; i < ranksOf.ranks(); ++i) {
      ranks.push_back(std::make_unique<Rank>(
          source, ranksOf, i, *this->devices[i], *communicators[i]));
      ranks.back()->assignMessages(messages);
    }
  }

  Status prepare() {
    return threads.run(
        [this](uint32_t rank) { return ranks[rank]->prepare(); });
  }

  Result<StepMetrics> runStep(uint64_t number, const Batches &batches,
                              const StepScalars &scalars) override {
    StepMetrics metrics = {};
    Status status = threads.run([&](uint32_t rank) {
      PLAIT_RETURN_IF_ERROR(ranks[rank]->runStep(number, batches, scalars));
      if (rank == 0)
        metrics = ranks[rank]->readMetrics();
      return Status::success();
    });
    if (!status.ok())
      return status;
    return metrics;
  }

  Status forEachRank(const std::function<Status(uint32_t)> &job) override {
    return threads.run(job);
  }

  Device &device(uint32_t rank) override { return *devices[rank]; }
  const plan::Mesh &mesh() const override { return ranksOf; }
  const fb::Plan &plan() const override { return source; }

private:
  const fb::Plan &source;
  plan::Mesh ranksOf;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::unique_ptr<Rank>> ranks;
  RankThreads threads; // last: ends before what its jobs use
};

} // namespace

Result<std::unique_ptr<Executor>>
Executor::create(const fb::Plan &plan, const ExecutorOptions &options) {
  Result<std::vector<plan::Message>> messages = plan::matchMessages(plan);
  if (!messages.ok())
    return messages.status();
  unsigned threads = std::max(1u, options.threads / plan::Mesh(plan).ranks());
  Result<std::vector<std::unique_ptr<Device>>> devices =
      createCpuDevices(plan, threads);
  if (!devices.ok())
    return devices.status();
  auto executor = std::make_unique<ThreadExecutor>(
      plan, std::move(*devices), *messages, options.timeLimit);
  PLAIT_RETURN_IF_ERROR(executor->prepare());
  return std::unique_ptr<Executor>(std::move(executor));
}
