//===- CpuDevice.cpp - Executes steps on the CPU --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The CPU backend: an arena of anonymous memory for each rank of this process,
// the plan's kernels, which all of them share, and the libraries for GEMMs and
// attention, of which each has its own since they have scratch memory. Threads
// of a host are shared out evenly among its ranks. Where there are other
// processes, everything that may fail for one of them is agreed on before the
// next step, so that nobody waits for a process that has ended.
//
//===----------------------------------------------------------------------===//

#include "Attention.h"
#include "Core/Backend.h"
#include "Core/HostMemory.h"
#include "Core/Operands.h"
#include "Core/Topology.h"
#include "Gemm.h"
#include "GroupedGemm.h"
#include "KernelLibrary.h"
#include "MPI/MpiCommunicator.h"
#include "Outer.h"
#include "SiteMessages.h"
#include "Team.h"
#include "plait/Plan/Ranks.h"
#include "plait/Runtime/Device.h"
#include "plait/Runtime/Rendezvous.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dnnl.h>
#include <numeric>
#include <sys/mman.h>
#include <utility>

using namespace plait;
using namespace plait::runtime;

namespace {

/// Memory that is mapped, and owned.
struct Unmap {
  size_t bytes = 0;
  void operator()(std::byte *begin) const { munmap(begin, bytes); }
};
using Mapping = std::unique_ptr<std::byte, Unmap>;

/// A rank's memory and libraries. All steps run synchronously on the calling
/// thread and its team, so that nothing has to be waited for.
class CpuDevice : public Device {
public:
  CpuDevice(std::shared_ptr<const KernelLibrary> kernels,
            PerPlace<Mapping> mappings, unsigned threads)
      : kernels(std::move(kernels)), mappings(std::move(mappings)),
        threads(threads), gemms(threads), groupedGemms(threads),
        attentions(threads) {}

  /// Team sizes belong to the thread that sets them (Team.h).
  Status attachThread() override {
    setTeamSize(threads);
    return Status::success();
  }

  std::byte *memory(MemoryPlace place) override {
    return mappings[place].get();
  }

  /// Reads and writes are plain copies: steps are synchronous, and so there is
  /// none that could still use the bytes.
  Status write(uint64_t offset, std::span<const std::byte> data) override {
    std::memcpy(RankMemory(*this).at(offset), data.data(), data.size());
    return Status::success();
  }
  Status read(uint64_t offset, std::span<std::byte> data) override {
    std::memcpy(data.data(), RankMemory(*this).at(offset), data.size());
    return Status::success();
  }

  Result<uint32_t> prepareGemm(const fb::GemmStep &step) override {
    return gemms.prepare(step);
  }
  Result<uint32_t> prepareAttention(const fb::AttentionStep &step,
                                    AttentionBegin begin) override {
    return attentions.prepare(step, begin);
  }
  Result<uint32_t> prepareGroupedGemm(const fb::GroupedGemmStep &step,
                                      int64_t first) override {
    return groupedGemms.prepare(step, first);
  }

  /// A kernel writes what belongs to its range only (Plan.fbs), so that ranges
  /// run side by side; args and scalars are read by all threads until this
  /// returns.
  Status kernel(const fb::KernelStep &step, std::byte *const *args,
                const int64_t *scalars, uint32_t) override {
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

  Status groupedGemm(uint32_t prepared, const GroupedGemmOperands &operands,
                     bool add) override {
    return groupedGemms.run(prepared, operands, add);
  }

  Status outer(const fb::OuterStep &step,
               const OuterOperands &operands) override {
    if (step.pieces()) {
      const SiteCompression &compression = *operands.compress;
      parallelFor(threads, countChunks(compression, step),
                  memoryGrain / (sizeof(float) * compression.chunk),
                  [&](int64_t begin, int64_t end) {
                    runMessages(step, operands, begin, end);
                  });
      return Status::success();
    }
    if (step.kind() == fb::OuterKind::Squares) {
      addSquares(operands, int64_t(step.elements()));
      return Status::success();
    }
    parallelFor(threads, int64_t(step.elements()), memoryGrain / sizeof(float),
                [&](int64_t begin, int64_t end) {
                  runOuter(step.kind(), operands, int64_t(step.elements()),
                           begin, end);
                });
    return Status::success();
  }

  /// Copies by all threads where it is long: one core does not fill the
  /// memory's bandwidth.
  Status copy(std::byte *target, const std::byte *source, uint64_t size,
              fb::CopyKind) override {
    parallelFor(threads, size, memoryGrain, [=](int64_t begin, int64_t end) {
      std::memcpy(target + begin, source + begin, end - begin);
    });
    return Status::success();
  }

  /// Works as copy() does.
  Status fillZero(std::byte *target, uint64_t size) override {
    parallelFor(threads, size, memoryGrain, [=](int64_t begin, int64_t end) {
      std::memset(target + begin, 0, end - begin);
    });
    return Status::success();
  }

private:
  /// Sums of blocks are added in their order, whoever computes them.
  void addSquares(const OuterOperands &operands, int64_t elements) const {
    std::vector<double> sums((elements + kSquaresBlock - 1) / kSquaresBlock);
    parallelFor(threads, int64_t(sums.size()),
                memoryGrain / (sizeof(float) * kSquaresBlock),
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i)
                    sums[i] =
                        sumSquares(operands, i * kSquaresBlock,
                                   std::min(elements, (i + 1) * kSquaresBlock));
                });
    double sum = std::accumulate(sums.begin(), sums.end(), 0.0);
    *reinterpret_cast<float *>(operands.mixed) += float(sum / operands.copies);
  }

  /// Bytes that are worth a second thread.
  static constexpr int64_t memoryGrain = 1 << 18;

  std::shared_ptr<const KernelLibrary> kernels;
  PerPlace<Mapping> mappings;
  unsigned threads;
  GemmLibrary gemms;
  GroupedGemmLibrary groupedGemms;
  AttentionLibrary attentions;
};

} // namespace

std::string runtime::describeCpuLibraries() {
  const dnnl_version_t &version = *dnnl_version();
  return ", oneDNN " + std::to_string(version.major) + "." +
         std::to_string(version.minor) + "." + std::to_string(version.patch);
}

namespace {
/// The bytes that a rank takes of a place: whole pages, and of the arena at
/// least one, for mmap() of nothing fails.
uint64_t countBytes(const fb::Plan &plan, uint32_t rank, MemoryPlace place) {
  uint64_t bytes = getPlaceBytes(
      *plan.programs()->Get(plan::RankGrid(plan).index(rank, 0)), place);
  if (place == MemoryPlace::Arena)
    bytes = std::max<uint64_t>(bytes, 1);
  constexpr uint64_t page = 4096;
  return (bytes + page - 1) / page * page;
}

/// Maps what a rank has of a place, if anything.
Result<Mapping> mapPlace(const fb::Plan &plan, uint32_t rank,
                         MemoryPlace place) {
  uint64_t bytes = countBytes(plan, rank, place);
  if (!bytes)
    return Mapping();
  void *begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED)
    return fail("rank ", rank, ": cannot allocate ", bytes, " bytes of ",
                getFacts(place).words, ": ", std::strerror(errno));
  // Large pages speed memory-bound kernels up by several percent; where the
  // system has none to give nothing is lost.
  madvise(begin, bytes, MADV_HUGEPAGE);
  return Mapping(static_cast<std::byte *>(begin), Unmap{bytes});
}
} // namespace

/// Code is loaded once for all ranks of the process. mmap() gives zeros, as
/// padding and moments have to begin.
Result<std::vector<std::unique_ptr<Device>>>
runtime::createCpuDevices(const fb::Plan &plan, std::span<const uint32_t> ranks,
                          unsigned threads) {
  Result<KernelLibrary> loaded = KernelLibrary::load(plan);
  if (!loaded.ok())
    return loaded.status();
  auto kernels = std::make_shared<const KernelLibrary>(std::move(*loaded));
  std::vector<std::unique_ptr<Device>> devices;
  for (uint32_t rank : ranks) {
    PerPlace<Mapping> mappings;
    for (const MemoryPlaceFacts &facts : memoryPlaces) {
      Result<Mapping> mapping = mapPlace(plan, rank, facts.place);
      if (!mapping.ok())
        return mapping.status();
      mappings[facts.place] = std::move(*mapping);
    }
    devices.push_back(
        std::make_unique<CpuDevice>(kernels, std::move(mappings), threads));
  }
  return devices;
}

/// The ranks that this process has of all, and those of its host. `here`
/// ascends and has no gaps.
struct LocalRanks {
  std::vector<uint32_t> here;
  uint32_t onHost;
};

/// All ranks without other processes, else the consecutive ones that the spread
/// gives to this process. Fails where there are more processes than ranks.
/// Hosts ascend by process, so that the processes of this host are a range, and
/// their ranks one, too.
static Result<LocalRanks> findLocalRanks(uint32_t ranks,
                                         Rendezvous *processes) {
  LocalRanks local = {std::vector<uint32_t>(ranks), ranks};
  std::iota(local.here.begin(), local.here.end(), 0);
  if (!processes)
    return local;
  const ProcessPlace &place = processes->place();
  if (place.count > ranks)
    return fail("the plan has ", ranks, ranks == 1 ? " rank, " : " ranks, ",
                place.launcher, " started ", place.count,
                " processes; each needs one or more");
  const RankSpread &spread = processes->spread();
  uint32_t first = spread.firstOf(place.index);
  uint32_t end = spread.firstOf(place.index + 1);
  local.here.assign(local.here.begin() + first, local.here.begin() + end);
  auto host = std::equal_range(place.hosts.begin(), place.hosts.end(),
                               place.hosts[place.index]);
  local.onHost = spread.firstOf(host.second - place.hosts.begin()) -
                 spread.firstOf(host.first - place.hosts.begin());
  return local;
}

/// Describes the placement for process 0 to print; needs the hosts of all
/// processes.
static std::string describePlacement(uint32_t ranks,
                                     const Rendezvous &processes) {
  const ProcessPlace &place = processes.place();
  uint32_t hosts = place.hosts.back() + 1;
  return std::to_string(ranks) + " ranks in " + std::to_string(place.count) +
         " processes on " + std::to_string(hosts) +
         (hosts == 1 ? " host" : " hosts");
}

/// 1. Connect the processes and find which ranks are here.
/// 2. Check that memory suffices for arenas and copies of checkpoints on each
///    host.
/// 3. Arenas, kernels and libraries, with the host's threads dealt to its
///    ranks.
/// 4. Communicators: threads of one process, or those that also reach others.
Result<Backend> runtime::createCpuBackend(const fb::Plan &plan,
                                          const Topology &topology,
                                          const ExecutorOptions &options) {
  // 1. Nothing is allocated so far.
  if (options.processes && !options.processes->engine())
    PLAIT_RETURN_IF_ERROR(options.processes->openEngine(
        peersOf(topology, options.processes->spread(),
                options.processes->place().index)));
  auto local = findLocalRanks(topology.ranks, options.processes);
  // What is wrong is wrong for all: one says it.
  if (options.processes)
    PLAIT_RETURN_IF_ERROR(options.processes->agree(local.status()));
  if (!local.ok())
    return local.status();
  Backend backend;
  backend.ranks = local->here;
  uint64_t bytes = 0;
  for (uint32_t rank : backend.ranks)
    for (const MemoryPlaceFacts &facts : memoryPlaces)
      if (!facts.isApart(/*isProcessor=*/true))
        bytes += countBytes(plan, rank, facts.place);
  Result<uint64_t> copies =
      options.copyBytes ? options.copyBytes() : Result<uint64_t>(0);
  if (!copies.ok())
    return copies.status();
  // 2. Fails in all processes alike.
  // Before the arenas are mapped: anonymous pages are granted lazily, so that
  // too little memory would show as a killed process in the middle of a step.
  PLAIT_RETURN_IF_ERROR(checkHostMemory(bytes + *copies, backend.ranks.size(),
                                        options.processes, *copies));
  // 3. A thread each at least, even where there are more ranks than processors.
  auto devices = createCpuDevices(
      plan, backend.ranks, std::max(1u, options.threads / local->onHost));
  if (!devices.ok())
    return devices.status();
  // 4. Whom a rank talks to.
  Result<std::vector<std::unique_ptr<Communicator>>> communicators =
      std::vector<std::unique_ptr<Communicator>>();
  if (options.processes)
    communicators =
        createMpiCommunicators(topology, *options.processes, options.timeLimit);
  if (!options.processes)
    communicators = createThreadCommunicators(topology, options.timeLimit);
  if (!communicators.ok())
    return communicators.status();
  if (options.processes && options.processes->place().index == 0)
    backend.placement = describePlacement(topology.ranks, *options.processes);
  for (size_t i = 0; i < backend.ranks.size(); ++i)
    backend.parts.push_back(
        {std::move((*devices)[i]), std::move((*communicators)[i]), nullptr});
  return backend;
}
