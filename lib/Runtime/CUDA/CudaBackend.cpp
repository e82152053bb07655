//===- CudaBackend.cpp - Backends of executors on GPUs --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Puts ranks on GPUs and chooses how they talk: through GPU memory where
// several share a GPU, by NCCL where each has its own, and by NCCL between
// processes. The table is in docs/GPU.md. Whatever makes a plan impossible on
// this machine is found here, before an arena is allocated: no driver or no
// NCCL, too few GPUs, code for another architecture, too little memory, and an
// order of launches in which the plan would wait for ever (Capabilities).
//
//===----------------------------------------------------------------------===//

#include "CudaBackend.h"

#include "Capabilities.h"
#include "Core/HostMemory.h"
#include "CudaDevice.h"
#include "CudaThreadCommunicator.h"
#include "HostNode.h"
#include "NcclCommunicator.h"
#include "NcclSplits.h"
#include "WarmUp.h"
#include "plait/Plan/Communicators.h"
#include "plait/Plan/Ranks.h"
#include "plait/Runtime/Rendezvous.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <sstream>

using namespace plait;
using namespace plait::runtime;

namespace {

/// The driver, and how many of its GPUs this process may use.
struct Machine {
  const Driver &driver;
  uint32_t devices;
};

/// --devices takes the first ones that the driver shows, which
/// CUDA_VISIBLE_DEVICES may have chosen.
Result<Machine> findMachine(const ExecutorOptions &options) {
  Result<const Driver *> loaded = Driver::load();
  if (!loaded.ok())
    return loaded.status();
  const Driver &driver = **loaded;
  int visible = 0;
  PLAIT_RETURN_IF_ERROR(
      driver.check(driver.cuDeviceGetCount(&visible), "cuDeviceGetCount"));
  if (options.devices > unsigned(visible))
    return fail("`devices` is ", options.devices, ", but only ", visible,
                visible == 1 ? " GPU is visible" : " GPUs are visible");
  return Machine{driver, options.devices ? options.devices : uint32_t(visible)};
}

/// The bytes of device memory that the rank's program addresses.
uint64_t arenaBytes(const fb::Plan &plan, uint32_t rank) {
  return plan.programs()
      ->Get(plan::RankGrid(plan).index(rank, 0))
      ->arena_bytes();
}

/// Prints in units of 10^9 bytes, as all of the tools print them.
std::string inGigabytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f GB", double(bytes) * 1e-9);
  return text;
}

/// The ranks that share a GPU, and what they share of it.
/// What this process knows of one GPU. Kept by Backend::describeMemory for as
/// long as the run lasts.
struct Gpu {
  std::shared_ptr<CudaContext> context;
  std::shared_ptr<const CudaKernels> kernels;
  std::vector<uint32_t> ranks;
  uint64_t arenas = 0;     // bytes of all ranks
  uint64_t usedBefore = 0; // by the context, and by other processes
  CommunicatorMemory nccl; // of all ranks; zeros without NCCL

  /// Asks how much is in use right after the context has been made, since the
  /// driver does not tell processes apart: what is there before plait has
  /// allocated anything is the context's or another process's.
  Status load(const fb::Plan &plan, const Driver &driver, int ordinal) {
    auto made = CudaContext::create(driver, ordinal);
    if (!made.ok())
      return made.status();
    context = *made;
    auto memory = context->memory();
    if (!memory.ok())
      return memory.status();
    usedBefore = memory->used();
    for (uint32_t rank : ranks)
      arenas += arenaBytes(plan, rank);
    // Once a GPU, however many ranks run there.
    auto loaded = CudaKernels::load(plan, context);
    if (!loaded.ok())
      return loaded.status();
    kernels = *loaded;
    return Status::success();
  }

  /// Whether the arenas of all ranks of this GPU and what the plan reserves for
  /// libraries fit, before the first arena is allocated.
  Status checkMemory(const fb::Plan &plan) const {
    auto memory = context->memory();
    if (!memory.ok())
      return memory.status();
    // A part of the reserve is in use by now. How much cannot be told from what
    // other processes use, so that beside them less is asked for.
    uint64_t reserve =
        plan.device_reserve() - std::min(plan.device_reserve(), memory->used());
    // What is known to the byte is asked for in any case.
    reserve = std::max(reserve, nccl.scratch);
    // By differences: the sum could overflow for a plan with absurd numbers.
    if (arenas > memory->available || reserve > memory->available - arenas)
      return fail(context->describe(), ": ", describeRanks(ranks),
                  ranks.size() == 1 ? " needs " : " need ", arenas, " bytes",
                  reserve ? " and the libraries " + std::to_string(reserve)
                          : "",
                  ", ", memory->available, " are free");
    return Status::success();
  }

  /// Describes what everything takes by now. Memory that is neither an arena
  /// nor was there before is the libraries': NCCL's buffers, cuDNN's engines,
  /// loaded code and recorded steps.
  Result<std::string> describeMemory(const fb::Plan &plan) const {
    auto memory = context->memory();
    if (!memory.ok())
      return memory.status();
    uint64_t used = memory->used(), known = arenas + usedBefore;
    std::ostringstream out;
    out << context->describe() << ": arenas " << inGigabytes(arenas)
        << ", libraries " << inGigabytes(used - std::min(used, known));
    if (plan.device_reserve())
      out << " of " << inGigabytes(plan.device_reserve()) << " reserved";
    if (plan.device_reserve() && used > known + plan.device_reserve())
      out << ": raise reservedBytes of the hardware file, or other plans may "
             "not fit";
    out << ", context and other processes " << inGigabytes(usedBefore)
        << ", free " << inGigabytes(memory->available);
    return out.str();
  }
};

/// Says where communicators may take more than `plan` reserves; empty: nowhere.
std::string describeNccl(const fb::Plan &plan, const Gpu &gpu) {
  uint64_t bytes = gpu.nccl.estimate();
  if (!plan.device_reserve() || bytes <= plan.device_reserve())
    return "";
  return "\n" + gpu.context->describe() + ": NCCL may take about " +
         inGigabytes(bytes) + " for " + std::to_string(gpu.nccl.groups) +
         " groups and " + std::to_string(gpu.nccl.routes) + " routes, " +
         inGigabytes(plan.device_reserve()) + " are reserved";
}

/// Whether what all ranks of this host offload fits its memory, before the
/// first of it is page-locked. All processes ask, or none.
Status checkOffloaded(const fb::Plan &plan, std::span<const uint32_t> ranks,
                      const ExecutorOptions &options) {
  plan::RankGrid mesh(plan);
  auto count = [](const fb::Program *program) {
    uint64_t bytes = 0;
    for (const MemoryPlaceFacts &facts : otherPlaces)
      bytes += getPlaceBytes(*program, facts.place);
    return bytes;
  };
  uint64_t bytes = 0;
  for (uint32_t rank : ranks)
    bytes += count(plan.programs()->Get(mesh.index(rank, 0)));
  bool offloads =
      std::any_of(plan.programs()->begin(), plan.programs()->end(), count);
  return offloads ? checkHostMemory(bytes, ranks.size(), options.processes)
                  : Status::success();
}

/// Returns the GPUs with the ranks of each, rank i on GPU ordinals[i], and with
/// what NCCL is to make of `topology`, if it is.
std::map<int, Gpu> shareGpus(const std::vector<uint32_t> &ranks,
                             const std::vector<int> &ordinals,
                             const Topology *topology) {
  std::map<int, Gpu> gpus;
  for (size_t i = 0; i < ranks.size(); ++i) {
    Gpu &gpu = gpus[ordinals[i]];
    gpu.ranks.push_back(ranks[i]);
    if (topology)
      addMemory(gpu.nccl, *topology, ranks[i]);
  }
  return gpus;
}

/// Devices for `ranks`, rank i on GPU ordinals[i]. Without `nccl` they share
/// memory, and are recorded together.
/// All GPUs are loaded and checked before the first arena is allocated: a
/// failure then leaves nothing behind, and names the GPU.
Result<Backend> createDevices(const fb::Plan &plan, const Driver &driver,
                              std::vector<uint32_t> ranks,
                              const std::vector<int> &ordinals,
                              const Nccl *nccl, const Topology &topology,
                              const Capabilities &capabilities,
                              const ExecutorOptions &options) {
  std::map<int, Gpu> gpus =
      shareGpus(ranks, ordinals, nccl ? &topology : nullptr);
  PLAIT_RETURN_IF_ERROR(checkOffloaded(plan, ranks, options));
  Backend backend;
  for (auto &[ordinal, gpu] : gpus) {
    PLAIT_RETURN_IF_ERROR(gpu.load(plan, driver, ordinal));
    PLAIT_RETURN_IF_ERROR(gpu.checkMemory(plan));
    backend.placement += (backend.placement.empty() ? "" : "; ") +
                         describeRanks(gpu.ranks) + " of " +
                         std::to_string(plan::RankGrid(plan).ranks()) + " on " +
                         gpu.context->describe();
  }
  if (ranks.front() == 0)
    backend.libraries =
        capabilities.describe() + describeNccl(plan, gpus.at(ordinals.front()));
  auto recording = std::make_shared<std::mutex>();
  plan::RankGrid mesh(plan);
  for (size_t i = 0; i < ranks.size(); ++i) {
    const Gpu &gpu = gpus[ordinals[i]];
    // Ranks that are recorded apart need not wait for each other's lock.
    if (nccl)
      recording = std::make_shared<std::mutex>();
    GemmTiming timing = options.gemmTiming;
    // Those of a GPU that measure take turns.
    timing.limit /= std::max<ptrdiff_t>(
        1, std::ranges::count_if(gpu.ranks, [&](uint32_t rank) {
          return measuresForOthers(mesh, rank);
        }));
    auto device =
        CudaDevice::create(plan, *plan.programs()->Get(mesh.index(ranks[i], 0)),
                           {gpu.context, gpu.kernels, recording, options.tf32,
                            timing, nccl, nccl ? options.collectiveBlocks : 0});
    if (!device.ok())
      return fail("rank ", ranks[i], ": ", device.status().message());
    backend.parts.push_back({std::move(*device), nullptr, nullptr});
  }
  backend.ranks = std::move(ranks);
  // The plan outlives the backend.
  backend.describeMemory = [gpus = std::move(gpus),
                            &plan]() -> Result<std::string> {
    std::string lines;
    for (const auto &[ordinal, gpu] : gpus) {
      auto line = gpu.describeMemory(plan);
      if (!line.ok())
        return line;
      lines += (lines.empty() ? "" : "\n") + *line;
    }
    return lines;
  };
  return backend;
}

/// Whether steps are recorded between ranks that talk by NCCL: not where the
/// host reads in their middle how many rows experts take.
bool recordsSteps(const fb::Plan &plan, const ExecutorOptions &options) {
  return options.cudaGraph && !plan::exchangesRows(plan);
}

/// Adds to what is said of libraries, once, how NCCL moves memory, if there is
/// something to say, and why steps are not recorded although they were to be.
Result<Backend> withNotes(Backend backend, const std::string &memory,
                          const fb::Plan &plan,
                          const ExecutorOptions &options) {
  if (backend.ranks.front() != 0)
    return backend;
  if (!memory.empty())
    backend.libraries += "\n" + memory;
  if (options.cudaGraph && !recordsSteps(plan, options))
    backend.libraries += "\nsteps are not recorded: in their middle the host "
                         "reads how many rows experts take (`expert-exchange` "
                         "rows)";
  return backend;
}

/// Loads NCCL as the plan wants it.
Result<const Nccl *> loadNccl(const fb::Plan &plan) {
  if (isDeterministic(plan))
    PLAIT_RETURN_IF_ERROR(keepSumsOutOfSwitches());
  return Nccl::load();
}

std::vector<uint32_t> firstRanks(uint32_t count) {
  std::vector<uint32_t> ranks(count);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

} // namespace

std::string runtime::describeRanks(std::span<const uint32_t> ranks) {
  std::string result = ranks.size() == 1 ? "rank " : "ranks ";
  bool run =
      ranks.size() > 2 && ranks.back() - ranks.front() + 1 == ranks.size();
  if (run)
    return result + std::to_string(ranks.front()) + " to " +
           std::to_string(ranks.back());
  for (size_t i = 0; i < ranks.size(); ++i)
    result += (i ? ", " : "") + std::to_string(ranks[i]);
  return result;
}

/// NCCL refuses two ranks on one GPU; events and copies do not mind.
Result<Backend>
runtime::createCudaThreadBackend(const fb::Plan &plan, const Topology &topology,
                                 const ExecutorOptions &options) {
  Result<Machine> machine = findMachine(options);
  if (!machine.ok())
    return machine.status();
  std::vector<int> ordinals;
  // Round robin: without NCCL any number of ranks may share a GPU.
  for (uint32_t rank = 0; rank < topology.ranks; ++rank)
    ordinals.push_back(static_cast<int>(rank % machine->devices));
  auto backend =
      createDevices(plan, machine->driver, firstRanks(topology.ranks), ordinals,
                    /*nccl=*/nullptr, topology, Capabilities::find(), options);
  if (!backend.ok())
    return backend.status();
  // What ranks of one GPU do at once takes longer.
  PLAIT_RETURN_IF_ERROR(
      warmUpLibraries(plan, options, /*atOnce=*/false, *backend));
  PLAIT_RETURN_IF_ERROR(connectCudaThreads(topology, options.timeLimit,
                                           backend->parts, options.cudaGraph));
  return backend;
}

/// Rank r on GPU r.
Result<Backend>
runtime::createNcclThreadBackend(const fb::Plan &plan, const Topology &topology,
                                 const ExecutorOptions &options) {
  Result<Machine> machine = findMachine(options);
  if (!machine.ok())
    return machine.status();
  if (machine->devices < topology.ranks)
    return fail("NCCL needs a GPU for each of ", topology.ranks, " ranks, ",
                machine->devices, " are there");
  Result<const Nccl *> nccl = loadNccl(plan);
  if (!nccl.ok())
    return nccl.status();
  Capabilities capabilities = Capabilities::find();
  PLAIT_RETURN_IF_ERROR(
      capabilities.checkLaunchOrder(plan, recordsSteps(plan, options)));
  std::vector<uint32_t> ranks = firstRanks(topology.ranks);
  auto backend =
      createDevices(plan, machine->driver, ranks, {ranks.begin(), ranks.end()},
                    *nccl, topology, capabilities, options);
  if (!backend.ok())
    return backend.status();
  PLAIT_RETURN_IF_ERROR(
      warmUpLibraries(plan, options, /*atOnce=*/true, *backend));
  auto note = connectNcclThreads(topology, options.timeLimit, backend->parts,
                                 recordsSteps(plan, options));
  return note.ok() ? withNotes(std::move(*backend), *note, plan, options)
                   : note.status();
}

/// The GPU is chosen by the number of the process on its host, as every
/// launcher tells it; where the launcher shows each process one GPU only, that
/// is GPU 0.
Result<Backend>
runtime::createNcclProcessBackend(const fb::Plan &plan,
                                  const Topology &topology,
                                  const ExecutorOptions &options) {
  const ProcessPlace &place = options.processes->place();
  if (place.count != topology.ranks)
    return fail("the plan has ", topology.ranks, " ranks, ", place.launcher,
                " started ", place.count, " processes");
  Result<Machine> machine = findMachine(options);
  if (!machine.ok())
    return machine.status();
  Result<const Nccl *> nccl = loadNccl(plan);
  if (!nccl.ok())
    return nccl.status();
  Capabilities capabilities = Capabilities::find();
  PLAIT_RETURN_IF_ERROR(
      capabilities.checkLaunchOrder(plan, recordsSteps(plan, options)));
  if (machine->devices > 1 && place.localIndex >= machine->devices)
    return fail("process ", place.localIndex,
                " of this host has no GPU: ", machine->devices, " are there");
  auto ordinal = static_cast<int>(place.localIndex % machine->devices);
  // Launchers leave processes where the system puts them.
  OnHostNode(machine->driver, ordinal).keep();
  auto backend = createDevices(plan, machine->driver, {place.index}, {ordinal},
                               *nccl, topology, capabilities, options);
  if (!backend.ok())
    return backend.status();
  PLAIT_RETURN_IF_ERROR(
      warmUpLibraries(plan, options, /*atOnce=*/false, *backend));
  auto note =
      connectNcclProcess(topology, options.timeLimit, *options.processes,
                         backend->parts.front(), recordsSteps(plan, options));
  return note.ok() ? withNotes(std::move(*backend), *note, plan, options)
                   : note.status();
}

Result<Backend> runtime::createCudaBackend(const fb::Plan &plan,
                                           const Topology &topology,
                                           const ExecutorOptions &options) {
  if (options.processes)
    return createNcclProcessBackend(plan, topology, options);
  Result<Machine> machine = findMachine(options);
  if (!machine.ok())
    return machine.status();
  // NCCL wants a GPU for each rank.
  bool nccl = topology.ranks > 1 && machine->devices >= topology.ranks;
  return nccl ? createNcclThreadBackend(plan, topology, options)
              : createCudaThreadBackend(plan, topology, options);
}
