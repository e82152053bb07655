//===- CpuDevice.cpp - Executes steps on the CPU --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Attention.h"
#include "Core/Backend.h"
#include "Gemm.h"
#include "KernelLibrary.h"
#include "Team.h"
#include "plait/Plan/Ranks.h"
#include "plait/Runtime/Device.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <sys/mman.h>

using namespace plait;
using namespace plait::runtime;

namespace {

class CpuDevice : public Device {
public:
  CpuDevice(std::shared_ptr<const KernelLibrary> kernels, std::byte *memory,
            size_t bytes, unsigned threads)
      : kernels(std::move(kernels)), memory(memory), bytes(bytes),
        threads(threads), gemms(threads), attentions(threads) {}
  ~CpuDevice() override { munmap(memory, bytes); }

  Status attachThread() override {
    setTeamSize(threads);
    return Status::success();
  }

  std::byte *arena() override { return memory; }

  Status write(uint64_t offset, std::span<const std::byte> data) override {
    std::memcpy(memory + offset, data.data(), data.size());
    return Status::success();
  }
  Status read(uint64_t offset, std::span<std::byte> data) override {
    std::memcpy(data.data(), memory + offset, data.size());
    return Status::success();
  }

  Result<uint32_t> prepareGemm(const fb::GemmStep &step) override {
    return gemms.prepare(step);
  }
  Result<uint32_t> prepareAttention(const fb::AttentionStep &step,
                                    AttentionBegin begin) override {
    return attentions.prepare(step, begin);
  }

  Status kernel(const fb::KernelStep &step, std::byte *const *args,
                const int64_t *scalars) override {
    KernelFunction function = (*kernels)[step.kernel()];
    parallelFor(threads, step.extent(), step.grain(),
                [=](int64_t begin, int64_t end) {
                  function(args, scalars, begin, end);
                });
    return Status::success();
  }

  Status gemm(uint32_t prepared, const GemmOperands &operands,
              bool add) override {
    return gemms.run(prepared, operands, add);
  }

  Status attention(uint32_t prepared,
                   const AttentionOperands &operands) override {
    return attentions.run(prepared, operands);
  }

  Status copy(std::byte *target, const std::byte *source,
              uint64_t size) override {
    parallelFor(threads, size, memoryGrain, [=](int64_t begin, int64_t end) {
      std::memcpy(target + begin, source + begin, end - begin);
    });
    return Status::success();
  }

  Status fillZero(std::byte *target, uint64_t size) override {
    parallelFor(threads, size, memoryGrain, [=](int64_t begin, int64_t end) {
      std::memset(target + begin, 0, end - begin);
    });
    return Status::success();
  }

private:
  /// Bytes that are worth a second thread.
  static constexpr int64_t memoryGrain = 1 << 18;

  std::shared_ptr<const KernelLibrary> kernels;
  std::byte *memory;
  size_t bytes;
  unsigned threads;
  GemmLibrary gemms;
  AttentionLibrary attentions;
};

} // namespace

Result<std::vector<std::unique_ptr<Device>>>
runtime::createCpuDevices(const fb::Plan &plan, unsigned threads) {
  Result<KernelLibrary> loaded = KernelLibrary::load(plan);
  if (!loaded.ok())
    return loaded.status();
  auto kernels = std::make_shared<const KernelLibrary>(std::move(*loaded));
  plan::Mesh mesh(plan);
  std::vector<std::unique_ptr<Device>> devices;
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
    constexpr uint64_t page = 4096;
    uint64_t size = plan.programs()->Get(mesh.index(rank, 0))->arena_bytes();
    size = std::max(size + page - 1, page) / page * page;
    void *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      return fail("rank ", rank, ": cannot allocate an arena of ", size,
                  " bytes: ", std::strerror(errno));
    // Large pages speed memory-bound kernels up by several percent; where the
    // system has none to give nothing is lost.
    madvise(memory, size, MADV_HUGEPAGE);
    devices.push_back(std::make_unique<CpuDevice>(
        kernels, static_cast<std::byte *>(memory), size, threads));
  }
  return devices;
}

Result<Backend> runtime::createCpuBackend(const fb::Plan &plan,
                                          const Topology &topology,
                                          const ExecutorOptions &options) {
  unsigned threads = std::max(1u, options.threads / topology.ranks);
  auto devices = createCpuDevices(plan, threads);
  if (!devices.ok())
    return devices.status();
  auto communicators = createThreadCommunicators(topology, options.timeLimit);
  Backend backend;
  backend.ranks.resize(topology.ranks);
  std::iota(backend.ranks.begin(), backend.ranks.end(), 0);
  for (uint32_t rank = 0; rank < topology.ranks; ++rank)
    backend.parts.push_back(
        {std::move((*devices)[rank]), std::move(communicators[rank]), nullptr});
  return backend;
}
