//===- CudaDevice.h - Executes steps on a GPU -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_CUDADEVICE_H
#define PLAIT_LIB_RUNTIME_CUDA_CUDADEVICE_H

#include "CublasGemms.h"
#include "CudaAttention.h"
#include "CudaGroupedGemms.h"
#include "CudaKernels.h"
#include "CudaStream.h"
#include "DeviceMemory.h"
#include "LibraryChoices.h"
#include "plait/Runtime/Device.h"
#include "plait/Runtime/Executor.h"

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace plait::runtime {

/// Whether somebody has asked for the same bits in every run. Plans of levels
/// below 6 say so at steps of fused attention alone.
bool isDeterministic(const fb::Plan &plan);

/// One rank's part of a GPU: an arena and its streams, and of the host's memory
/// what the plan keeps there. What ranks tell each other happens in streams of
/// its own, so do copies to the host and from there, everything else in stream
/// 0.
class CudaDevice : public Device {
public:
  struct Options {
    std::shared_ptr<CudaContext> context;
    std::shared_ptr<const CudaKernels> kernels;
    std::shared_ptr<std::mutex> recording; // see CudaStream
    bool tf32 = false;
    GemmTiming timing = {};
    const Nccl *nccl = nullptr;    // what will use the arena, if it does
    uint32_t collectiveBlocks = 0; // of NCCL's; 0: it chooses
  };

  /// Allocates the arena of `program`, which belongs to `plan`.
  static Result<std::unique_ptr<CudaDevice>> create(const fb::Plan &plan,
                                                    const fb::Program &program,
                                                    const Options &options);
  ~CudaDevice() override;

  const fb::Plan &source() const { return plan; }
  const fb::Program &ownProgram() const { return program; }

  uint32_t blocksOfCollectives() const { return collectiveBlocks; }

  /// Stream 0.
  CudaStream &stream() { return *queue; }
  /// Adds a stream, at load time, and returns its number.
  Result<uint32_t> addStream();
  CudaStream &stream(uint32_t number) {
    return number ? *others[number - 1].stream : *queue;
  }

  /// While a step is recorded, work of stream `number` that waits for other
  /// ranks calls this first: it waits for what stream 0 was given some steps
  /// ago. A GPU may run branches of a graph in any order; where such work came
  /// far before the steps that another rank needs, both would wait for ever.
  Status holdBack(uint32_t number);
  /// Begins and ends that.
  Status boundRecording(bool begins);

  /// Begins what comes behind all that was enqueued: events of before are not
  /// waited for, as those of another recording cannot be.
  void beginPart() { ++part; }

  /// The parts of warmUpLibraries() for `rank`, whose device this is.
  /// Prepares every library step.
  Status prepareLibraries(uint32_t rank);
  /// Measures what `choices` do not have, and adds what it takes.
  Status timeLibraries(LibraryChoices &choices);
  /// Calls every library step, with what `choices` have for it; else as the
  /// library has it first.
  Status callLibraries(const LibraryChoices *choices);
  /// Names what choices depend on: versions of libraries, and the GPU.
  Result<std::string> describeLibrary();
  /// How it was timed, in lines; empty: it was not.
  const std::string &timingReport() const { return timedText; }

  Status attachThread() override { return queue->context->use(); }
  std::byte *memory(MemoryPlace place) override { return places[place]; }
  const std::shared_ptr<DeviceMemory> &arenaMemory() const { return owned; }
  Status write(uint64_t offset, std::span<const std::byte> bytes) override;
  Status read(uint64_t offset, std::span<std::byte> bytes) override;
  Result<uint32_t> prepareGemm(const fb::GemmStep &step) override;
  Result<uint32_t> prepareAttention(const fb::AttentionStep &step,
                                    AttentionBegin begin) override;
  Result<uint32_t> prepareGroupedGemm(const fb::GroupedGemmStep &step,
                                      int64_t first) override;
  Status kernel(const fb::KernelStep &step, std::byte *const *args,
                const int64_t *scalars, uint32_t number) override;
  Status gemm(uint32_t prepared, const GemmOperands &operands,
              bool add) override;
  Status attention(uint32_t prepared,
                   const AttentionOperands &operands) override;
  Status groupedGemm(uint32_t prepared, const GroupedGemmOperands &operands,
                     bool add) override;
  Status copy(std::byte *target, const std::byte *source, uint64_t bytes,
              fb::CopyKind kind) override;
  Status fillZero(std::byte *target, uint64_t bytes) override;
  uint32_t streamOf(fb::CopyKind kind) const override {
    return copyStreams[size_t(kind)];
  }
  Status makeEvents(uint32_t count) override;
  Status record(uint32_t event, uint32_t stream) override;
  Status wait(uint32_t event, uint32_t stream) override;
  Status fork() override;
  Status join() override;
  Status endStep(uint64_t offset, uint64_t bytes) override;
  Status collect(uint64_t offset, std::span<std::byte> bytes) override;
  uint64_t roomAhead() const override;
  /// Whether the oldest step that was ended and not collected is done; where
  /// there is none, all of stream 0.
  Result<bool> isStepDone() const;
  bool runsLater() const override { return true; }
  Status makeStamps(uint32_t count) override;
  Status stamp(uint32_t index, uint32_t stream) override;
  Result<std::chrono::steady_clock::time_point>
  readStamp(uint32_t index) override;

private:
  Status findBlocksBeside();
  Status allocateStaging(const Driver &driver);
  Status allocate(const Driver &driver, MemoryPlace place);
  Status markStep();

  struct Stream {
    std::unique_ptr<CudaStream> stream;
    CudaEvent joined; // all that it was given
  };

  std::vector<GemmUse> partsOfGemms() const;
  Status take(const LibraryChoices &choices);
  /// Opens attention's library, if it is not.
  Status openAttention();
  std::span<std::byte> libraryWorkspace() const {
    return {places[MemoryPlace::Arena] + program.library_workspace(),
            program.library_workspace_bytes()};
  }
  CudaDevice(const fb::Plan &plan, const fb::Program &program,
             const Options &options)
      : plan(plan), program(program), kernels(options.kernels),
        tf32(options.tf32), timing(options.timing),
        collectiveBlocks(options.collectiveBlocks) {}

  const fb::Plan &plan;
  const fb::Program &program;
  std::shared_ptr<const CudaKernels> kernels;
  bool tf32;
  GemmTiming timing;
  uint32_t collectiveBlocks;
  /// Blocks that are taken of the GPU beside each; none: nothing.
  std::map<const fb::GemmStep *, uint32_t> blocksBeside;
  std::string timedText;
  std::vector<GemmUse> gemmUses; // of the plan's steps
  std::vector<AttentionUse> attentionUses;
  bool hasWarmedUp = false; // and has written into the arena
  std::unique_ptr<CudaStream> queue;
  std::vector<Stream> others; // from stream 1 on
  CudaEvent forked;           // what stream 0 did before the others begin
  std::vector<CudaEvent> events, stamps;
  uint64_t part = 0;             // see beginPart()
  std::vector<uint64_t> partsOf; // of each event, in which it was recorded
  // What stream 0 was given up to the last two multiples of boundSteps.
  std::array<CudaEvent, 2> bounds;
  bool isBounded = false;
  uint32_t boundedSteps = 0; // since the recording began
  // Of a step that is measured: its beginning, on the GPU and on the host.
  CudaEvent began;
  std::chrono::steady_clock::time_point beganAt;
  // Made by the first step that needs them.
  std::unique_ptr<CublasGemms> gemms;
  std::unique_ptr<CudaAttention> attentions;
  std::unique_ptr<CudaGroupedGemms> groupedGemms;
  std::shared_ptr<DeviceMemory> owned;
  // The arena is of `owned`. Others are page-locked memory of the host, so that
  // copies go on beside it, or null.
  PerPlace<std::byte *> places;
  // By kind.
  std::array<uint32_t, 2 * memoryPlaceCount - 1> copyStreams = {};
  // Page-locked host memory, which the GPU reads and writes by itself: a half
  // for each of two steps, and what these leave. What is written lies in the
  // first `staged` bytes of its half until the stream has caught up.
  std::byte *staging = nullptr;
  uint64_t staged = 0;
  std::array<CudaEvent, 2> stepEnds;
  uint64_t endedSteps = 0, collectedSteps = 0;
  std::vector<void *> params; // of a launch
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_CUDADEVICE_H
