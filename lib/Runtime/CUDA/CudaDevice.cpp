//===- CudaDevice.cpp - Executes steps on a GPU ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the executor asks of a device, on a GPU: it enqueues kernels, GEMMs,
// attention, copies and fills in stream 0 and returns. Further streams are
// those of communicators, which enqueue there by themselves; here they get the
// kernels between collectives (placeKernels in Streams.h), and are forked from
// stream 0 at the beginning of a step and joined to it at its end, and tied to
// it in between by the events that the plan's analysis asks for (Streams.h).
//
// In a step nothing is allocated and nothing waits; what is asked for at load
// time (prepare…, addStream, makeEvents) does.
//
//===----------------------------------------------------------------------===//

#include "CudaDevice.h"

#include "Core/Operands.h"
#include "HostNode.h"
#include "NcclSplits.h"
#include "plait/Plan/Attention.h"
#include "plait/Plan/BesideMatmuls.h"
#include "plait/Plan/Defaults.h"

#include <algorithm>
#include <cstring>

using namespace plait;
using namespace plait::runtime;

/// Enough for the inputs of most steps to be written without waiting.
static constexpr uint64_t stagingBytes = 8 << 20;

/// Room for what a step leaves: see Device::endStep().
static constexpr uint64_t resultBytes = 256;

/// Far enough for what ranks tell each other to begin early, and near enough
/// for the queues of a GPU, which hold more.
static constexpr uint32_t boundSteps = 16;

/// All memory of a rank: the arena, zeroed, since a plan counts on padding to
/// be zero, and staging memory on the host.
Result<std::unique_ptr<CudaDevice>>
CudaDevice::create(const fb::Plan &plan, const fb::Program &program,
                   const Options &options) {
  std::unique_ptr<CudaDevice> result(new CudaDevice(plan, program, options));
  // One thread may make the devices of GPUs of several nodes.
  OnHostNode node(options.context->driver, options.context->ordinal);
  auto stream = CudaStream::create(options.context, options.recording);
  if (!stream.ok())
    return stream.status();
  result->queue = std::move(*stream);
  const Driver &driver = options.context->driver;
  // A rank that stores nothing still has an address.
  uint64_t bytes = std::max<uint64_t>(program.arena_bytes(), 1);
  auto memory =
      DeviceMemory::allocate(options.context, bytes, "an arena", options.nccl);
  if (!memory.ok())
    return memory.status();
  result->owned = *memory;
  result->places[MemoryPlace::Arena] = (*memory)->data();
  auto forked = CudaEvent::create(driver);
  if (!forked.ok())
    return forked.status();
  result->forked = std::move(*forked);
  PLAIT_RETURN_IF_ERROR(result->findBlocksBeside());
  PLAIT_RETURN_IF_ERROR(result->allocateStaging(driver));
  for (const MemoryPlaceFacts &facts : otherPlaces)
    PLAIT_RETURN_IF_ERROR(result->allocate(driver, facts.place));
  PLAIT_RETURN_IF_ERROR(result->queue->fillZero(result->arena(), bytes));
  PLAIT_RETURN_IF_ERROR(result->queue->synchronize());
  return result;
}

/// Page-locked: an asynchronous copy from other memory is not asynchronous.
Status CudaDevice::allocateStaging(const Driver &driver) {
  void *made = nullptr;
  PLAIT_RETURN_IF_ERROR(driver.check(
      driver.cuMemHostAlloc(&made, 2 * (stagingBytes + resultBytes), 0),
      "cuMemHostAlloc"));
  staging = static_cast<std::byte *>(made);
  for (CudaEvent &end : stepEnds) {
    auto event = CudaEvent::create(driver);
    if (!event.ok())
      return event.status();
    end = std::move(*event);
  }
  return Status::success();
}

/// A stream each for copies to the place and from there, as GPUs have an engine
/// for either.
Status CudaDevice::allocate(const Driver &driver, MemoryPlace place) {
  uint64_t bytes = getPlaceBytes(program, place);
  if (!bytes)
    return Status::success();
  void *made = nullptr;
  if (Status status = driver.check(driver.cuMemHostAlloc(&made, bytes, 0),
                                   "cuMemHostAlloc");
      !status.ok())
    return fail(queue->context->describe(), ": cannot allocate ", bytes,
                " bytes of ", getFacts(place).words,
                " for what is offloaded: ", status.message());
  places[place] = static_cast<std::byte *>(made);
  std::memset(made, 0, bytes);
  for (fb::CopyKind kind :
       {getCopyTo<fb::CopyKind>(place), getCopyFrom<fb::CopyKind>(place)}) {
    Result<uint32_t> stream = addStream();
    if (!stream.ok())
      return stream.status();
    copyStreams[size_t(kind)] = *stream;
  }
  return Status::success();
}

/// Other members free themselves, in the order that the header declares.
CudaDevice::~CudaDevice() {
  if (!queue || !queue->context->use().ok())
    return;
  if (staging) // waits for the work that uses it
    queue->driver.cuMemFreeHost(staging);
  for (const MemoryPlaceFacts &facts : otherPlaces)
    if (places[facts.place])
      queue->driver.cuMemFreeHost(places[facts.place]);
}

/// Copies through the staging memory, so that the caller's may change at once
/// and the host does not wait unless it is full. Small inputs of a step lie one
/// behind the other in it. On stream 0, so ordered with the work there.
Status CudaDevice::write(uint64_t offset, std::span<const std::byte> bytes) {
  if (!isInArena(offset)) {
    // Between steps streams have joined: what they copy is done with this one.
    PLAIT_RETURN_IF_ERROR(queue->synchronize());
    std::memcpy(RankMemory(*this).at(offset), bytes.data(), bytes.size());
    return Status::success();
  }
  std::byte *half = staging + endedSteps % 2 * stagingBytes;
  while (!bytes.empty()) {
    // What has been staged is read when the stream gets there: its room is
    // used again only after that.
    if (staged == stagingBytes) {
      PLAIT_RETURN_IF_ERROR(queue->synchronize());
      staged = 0;
    }
    uint64_t size = std::min<uint64_t>(bytes.size(), stagingBytes - staged);
    std::memcpy(half + staged, bytes.data(), size);
    PLAIT_RETURN_IF_ERROR(
        queue->driver.check(queue->driver.cuMemcpyHtoDAsync(
                                reinterpret_cast<CUdeviceptr>(arena() + offset),
                                half + staged, size, queue->handle()),
                            "cuMemcpyHtoDAsync"));
    staged += size;
    offset += size;
    bytes = bytes.subspan(size);
  }
  return Status::success();
}

/// Waits. What is read is what all work enqueued in stream 0 so far has made;
/// other streams have to be joined before.
Status CudaDevice::read(uint64_t offset, std::span<std::byte> bytes) {
  // Nothing staged is needed any more once the stream has caught up.
  PLAIT_RETURN_IF_ERROR(queue->synchronize());
  staged = 0;
  if (!isInArena(offset)) {
    std::memcpy(bytes.data(), RankMemory(*this).at(offset), bytes.size());
    return Status::success();
  }
  while (!bytes.empty()) {
    uint64_t size = std::min<uint64_t>(bytes.size(), stagingBytes);
    PLAIT_RETURN_IF_ERROR(queue->driver.check(
        queue->driver.cuMemcpyDtoHAsync(
            staging, reinterpret_cast<CUdeviceptr>(arena() + offset), size,
            queue->handle()),
        "cuMemcpyDtoHAsync"));
    PLAIT_RETURN_IF_ERROR(queue->synchronize());
    std::memcpy(bytes.data(), staging, size);
    offset += size;
    bytes = bytes.subspan(size);
  }
  return Status::success();
}

/// Gives what is staged from now on, the next step's, the half of the step
/// before this one, which is done.
Status CudaDevice::endStep(uint64_t offset, uint64_t bytes) {
  uint64_t index = endedSteps % 2;
  PLAIT_RETURN_IF_ERROR(
      queue->driver.check(queue->driver.cuMemcpyDtoHAsync(
                              staging + 2 * stagingBytes + index * resultBytes,
                              reinterpret_cast<CUdeviceptr>(arena() + offset),
                              bytes, queue->handle()),
                          "cuMemcpyDtoHAsync"));
  PLAIT_RETURN_IF_ERROR(queue->record(stepEnds[index]));
  ++endedSteps;
  staged = 0;
  return Status::success();
}

Status CudaDevice::collect(uint64_t, std::span<std::byte> bytes) {
  uint64_t index = collectedSteps++ % 2;
  std::memcpy(bytes.data(), staging + 2 * stagingBytes + index * resultBytes,
              bytes.size());
  return Status::success();
}

uint64_t CudaDevice::roomAhead() const { return stagingBytes; }

Result<bool> CudaDevice::isStepDone() const {
  return endedSteps > collectedSteps ? stepEnds[collectedSteps % 2].happened()
                                     : queue->idle();
}

/// Counts a step of stream 0 that has been recorded.
Status CudaDevice::markStep() {
  if (!isBounded || ++boundedSteps % boundSteps)
    return Status::success();
  return queue->record(bounds[boundedSteps / boundSteps % 2]);
}

/// The older of the two: boundSteps steps before the last one, or up to twice
/// as many.
Status CudaDevice::holdBack(uint32_t number) {
  uint32_t marks = boundedSteps / boundSteps;
  if (!isBounded || marks < 2 || number == 0)
    return Status::success();
  return stream(number).wait(bounds[(marks - 1) % 2].handle());
}

/// Events are made here, and not with the device: few plans are recorded with
/// other processes.
Status CudaDevice::boundRecording(bool begins) {
  boundedSteps = 0;
  isBounded = begins;
  for (CudaEvent &bound : bounds)
    if (begins && !bound.handle()) {
      auto made = CudaEvent::create(queue->driver);
      if (!made.ok())
        return made.status();
      bound = std::move(*made);
    }
  return Status::success();
}

/// The library is opened by the first GEMM: a plan without needs none. The same
/// workspace serves all GEMMs and attention steps, as they follow each other in
/// stream 0.
Result<uint32_t> CudaDevice::prepareGemm(const fb::GemmStep &step) {
  if (!gemms) {
    // Where the first one's bits need not be kept, more are worth a look.
    auto made = CublasGemms::create(*queue, libraryWorkspace(), tf32,
                                    timing.isKept ? 32 : 8);
    if (!made.ok())
      return made.status();
    gemms = std::move(*made);
  }
  auto beside = blocksBeside.find(&step);
  return gemms->prepare(step, beside == blocksBeside.end()
                                  ? 0
                                  : queue->context->multiprocessors -
                                        int32_t(beside->second));
}

/// Counts as in recorded steps (holdBack()). Half of the GPU is left to
/// matmuls, however much there is beside them.
Status CudaDevice::findBlocksBeside() {
  if (!collectiveBlocks)
    return Status::success();
  uint32_t all = queue->context->multiprocessors;
  if (collectiveBlocks > all / 2)
    return fail("`collective-blocks` is ", collectiveBlocks, ", at most ",
                all / 2, " of the ", all, " multiprocessors of ",
                queue->context->describe(), " may be taken from matmuls");
  blocksBeside =
      plan::findBlocksBeside(plan, program, plan::chooseStreams(plan, program),
                             {collectiveBlocks, kRouteBlocks}, 2 * boundSteps);
  for (auto &[step, blocks] : blocksBeside)
    blocks = std::min(blocks, all / 2);
  return Status::success();
}

/// The refused ones are compiled for CUDA plans as matmuls and kernels; a plan
/// that has such steps all the same was made for processors.
Result<uint32_t> CudaDevice::prepareAttention(const fb::AttentionStep &step,
                                              AttentionBegin begin) {
  if (const AttentionTraitFacts *facts =
          findUncomputed(plan::traitsOf(step), FusedBy::Cudnn))
    return fail("GPUs do not compute an attention step: it has ", facts->name);
  PLAIT_RETURN_IF_ERROR(openAttention());
  return attentions->prepare(step, begin.query);
}

Status CudaDevice::openAttention() {
  if (attentions)
    return Status::success();
  auto made = CudaAttention::create(*queue, libraryWorkspace());
  if (made.ok())
    attentions = std::move(*made);
  return made.status();
}

Status CudaDevice::attention(uint32_t prepared,
                             const AttentionOperands &operands) {
  PLAIT_RETURN_IF_ERROR(attentions->run(prepared, operands));
  return markStep();
}

Result<uint32_t> CudaDevice::prepareGroupedGemm(const fb::GroupedGemmStep &step,
                                                int64_t first) {
  if (!groupedGemms) {
    auto made = CudaGroupedGemms::create(*queue, libraryWorkspace());
    if (!made.ok())
      return made.status();
    groupedGemms = std::move(*made);
  }
  return groupedGemms->prepare(step, first);
}

Status CudaDevice::groupedGemm(uint32_t prepared,
                               const GroupedGemmOperands &operands, bool add) {
  PLAIT_RETURN_IF_ERROR(groupedGemms->run(prepared, operands, add));
  return markStep();
}

/// `args` and `scalars` are passed by their addresses in the order of the
/// kernel's parameters, which is all buffers, then all scalars.
Status CudaDevice::kernel(const fb::KernelStep &step, std::byte *const *args,
                          const int64_t *scalars, uint32_t number) {
  if (step.extent() == 0)
    return Status::success();
  // The largest kernel of the first step makes the room for all later ones.
  params.clear();
  for (size_t i = 0; i < plan::length(step.args()); ++i)
    params.push_back(const_cast<std::byte **>(&args[i]));
  for (size_t i = 0; i < plan::length(step.scalars()); ++i)
    params.push_back(const_cast<int64_t *>(&scalars[i]));
  const fb::Kernel &kernel = *plan.kernels()->Get(step.kernel());
  PLAIT_RETURN_IF_ERROR(stream(number).launch(
      (*kernels)[step.kernel()], blocksOf(kernel, step.extent()),
      kernel.block_threads(), params.data()));
  return number ? Status::success() : markStep();
}

Status CudaDevice::gemm(uint32_t prepared, const GemmOperands &operands,
                        bool add) {
  PLAIT_RETURN_IF_ERROR(gemms->run(prepared, operands, add));
  return markStep();
}

Status CudaDevice::copy(std::byte *target, const std::byte *source,
                        uint64_t bytes, fb::CopyKind kind) {
  return stream(streamOf(kind)).copy(target, source, bytes);
}

Status CudaDevice::fillZero(std::byte *target, uint64_t bytes) {
  PLAIT_RETURN_IF_ERROR(queue->fillZero(target, bytes));
  return markStep();
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

/// Makes as many more as are missing.
static Status makeCudaEvents(const Driver &driver, size_t count, bool timed,
                             std::vector<CudaEvent> &events) {
  while (events.size() < count) {
    auto event = CudaEvent::create(driver, timed);
    if (!event.ok())
      return event.status();
    events.push_back(std::move(*event));
  }
  return Status::success();
}

/// Urgent: what ranks tell each other keeps other GPUs waiting. The lock of
/// recordings is stream 0's, as all of them are recorded together.
Result<uint32_t> CudaDevice::addStream() {
  auto stream = CudaStream::create(queue->context, queue->recording,
                                   CudaStream::Urgent::Yes);
  if (!stream.ok())
    return stream.status();
  auto joined = CudaEvent::create(queue->driver);
  if (!joined.ok())
    return joined.status();
  others.push_back({std::move(*stream), std::move(*joined)});
  return static_cast<uint32_t>(others.size());
}

Status CudaDevice::makeEvents(uint32_t count) {
  partsOf.resize(count, part);
  return makeCudaEvents(queue->driver, count, /*timed=*/false, events);
}

Status CudaDevice::record(uint32_t event, uint32_t number) {
  partsOf[event] = part;
  return stream(number).record(events[event]);
}

Status CudaDevice::wait(uint32_t event, uint32_t number) {
  return partsOf[event] == part ? stream(number).wait(events[event].handle())
                                : Status::success();
}

/// All other streams wait for what stream 0 has done so far; in a recording
/// this is also what makes them part of it.
Status CudaDevice::fork() {
  if (!stamps.empty()) {
    PLAIT_RETURN_IF_ERROR(queue->synchronize());
    // The GPU's clock and the host's are tied together while nothing runs.
    PLAIT_RETURN_IF_ERROR(queue->record(began));
    beganAt = std::chrono::steady_clock::now();
  }
  if (others.empty())
    return Status::success();
  PLAIT_RETURN_IF_ERROR(queue->record(forked));
  for (Stream &other : others)
    PLAIT_RETURN_IF_ERROR(other.stream->wait(forked.handle()));
  return Status::success();
}

/// Afterwards stream 0 has waited for all, so that waiting for it is waiting
/// for the step. A recording needs this: a stream that is forked and not joined
/// makes its end fail.
Status CudaDevice::join() {
  for (Stream &other : others) {
    PLAIT_RETURN_IF_ERROR(other.stream->record(other.joined));
    PLAIT_RETURN_IF_ERROR(queue->wait(other.joined.handle()));
  }
  return Status::success();
}

/// Their being there is what makes fork() wait and take the time; a run without
/// --profile has none.
Status CudaDevice::makeStamps(uint32_t count) {
  auto first = CudaEvent::create(queue->driver, /*timed=*/true);
  if (!first.ok())
    return first.status();
  began = std::move(*first);
  return makeCudaEvents(queue->driver, count, /*timed=*/true, stamps);
}

Status CudaDevice::stamp(uint32_t index, uint32_t number) {
  return stream(number).record(stamps[index]);
}

/// The GPU tells time between two events only: the beginning of the step, at
/// which the host has looked at its own clock, is one of them. The two clocks
/// are off by what recording the event takes.
Result<std::chrono::steady_clock::time_point>
CudaDevice::readStamp(uint32_t index) {
  float milliseconds = 0;
  PLAIT_RETURN_IF_ERROR(queue->driver.check(
      queue->driver.cuEventElapsedTime(&milliseconds, began.handle(),
                                       stamps[index].handle()),
      "cuEventElapsedTime"));
  std::chrono::duration<double, std::milli> passed(milliseconds);
  return beganAt +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             passed);
}
