//===- CudaBackend.cpp - Which rank runs on which GPU ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaBackend.h"

#include "CudaDevice.h"
#include "CudaThreadCommunicator.h"
#include "NcclCommunicator.h"
#include "plait/Plan/Ranks.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>

using namespace plait;
using namespace plait::runtime;

namespace {

/// The driver, and how many of its GPUs this process may use.
struct Machine {
  const Driver &driver;
  uint32_t devices;
};

Result<Machine> findMachine(const ExecutorOptions &options) {
  Result<const Driver *> loaded = Driver::load();
  if (!loaded.ok())
    return loaded.status();
  const Driver &driver = **loaded;
  int visible = 0;
  PLAIT_RETURN_IF_ERROR(
      driver.check(driver.cuDeviceGetCount(&visible), "cuDeviceGetCount"));
  if (options.devices > unsigned(visible))
    return fail("--devices is ", options.devices, ", but only ", visible,
                visible == 1 ? " GPU is visible" : " GPUs are visible");
  return Machine{driver, options.devices ? options.devices : uint32_t(visible)};
}

uint64_t arenaBytes(const fb::Plan &plan, uint32_t rank) {
  return plan.programs()->Get(plan::Mesh(plan).index(rank, 0))->arena_bytes();
}

/// The ranks that share a GPU, and what they share of it.
struct Gpu {
  std::shared_ptr<CudaContext> context;
  std::shared_ptr<const CudaKernels> kernels;
  std::vector<uint32_t> ranks;

  Status load(const fb::Plan &plan, const Driver &driver, int ordinal) {
    auto made = CudaContext::create(driver, ordinal);
    if (!made.ok())
      return made.status();
    context = *made;
    auto loaded = CudaKernels::load(plan, context);
    if (!loaded.ok())
      return loaded.status();
    kernels = *loaded;
    return Status::success();
  }

  Status checkMemory(const fb::Plan &plan) const {
    auto available = context->freeBytes();
    if (!available.ok())
      return available.status();
    uint64_t needed = 0;
    for (uint32_t rank : ranks)
      needed += arenaBytes(plan, rank);
    if (needed > *available)
      return fail(context->describe(), ": ", describeRanks(ranks),
                  ranks.size() == 1 ? " needs " : " need ", needed, " bytes, ",
                  *available, " are free");
    return Status::success();
  }
};

/// Devices for `ranks`, rank i on GPU ordinals[i].
Result<Backend> createDevices(const fb::Plan &plan, const Driver &driver,
                              std::vector<uint32_t> ranks,
                              const std::vector<int> &ordinals,
                              bool shareRecording,
                              const ExecutorOptions &options) {
  std::map<int, Gpu> gpus;
  for (size_t i = 0; i < ranks.size(); ++i)
    gpus[ordinals[i]].ranks.push_back(ranks[i]);
  Backend backend;
  for (auto &[ordinal, gpu] : gpus) {
    PLAIT_RETURN_IF_ERROR(gpu.load(plan, driver, ordinal));
    PLAIT_RETURN_IF_ERROR(gpu.checkMemory(plan));
    backend.placement += (backend.placement.empty() ? "" : "; ") +
                         describeRanks(gpu.ranks) + " of " +
                         std::to_string(plan::Mesh(plan).ranks()) + " on " +
                         gpu.context->describe();
  }
  auto recording = std::make_shared<std::mutex>();
  plan::Mesh mesh(plan);
  for (size_t i = 0; i < ranks.size(); ++i) {
    const Gpu &gpu = gpus[ordinals[i]];
    if (!shareRecording)
      recording = std::make_shared<std::mutex>();
    auto device =
        CudaDevice::create(plan, *plan.programs()->Get(mesh.index(ranks[i], 0)),
                           {gpu.context, gpu.kernels, recording, options.tf32});
    if (!device.ok())
      return fail("rank ", ranks[i], ": ", device.status().message());
    backend.parts.push_back({std::move(*device), nullptr, nullptr});
  }
  backend.ranks = std::move(ranks);
  return backend;
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

Result<Backend>
runtime::createCudaThreadBackend(const fb::Plan &plan, const Topology &topology,
                                 const ExecutorOptions &options) {
  Result<Machine> machine = findMachine(options);
  if (!machine.ok())
    return machine.status();
  std::vector<int> ordinals;
  for (uint32_t rank = 0; rank < topology.ranks; ++rank)
    ordinals.push_back(static_cast<int>(rank % machine->devices));
  auto backend =
      createDevices(plan, machine->driver, firstRanks(topology.ranks), ordinals,
                    /*shareRecording=*/true, options);
  if (!backend.ok())
    return backend.status();
  PLAIT_RETURN_IF_ERROR(connectCudaThreads(topology, options.timeLimit,
                                           backend->parts, options.cudaGraph));
  return backend;
}

Result<Backend>
runtime::createNcclThreadBackend(const fb::Plan &plan, const Topology &topology,
                                 const ExecutorOptions &options) {
  Result<Machine> machine = findMachine(options);
  if (!machine.ok())
    return machine.status();
  if (machine->devices < topology.ranks)
    return fail("NCCL needs a GPU for each of ", topology.ranks, " ranks, ",
                machine->devices, " are there");
  std::vector<uint32_t> ranks = firstRanks(topology.ranks);
  auto backend =
      createDevices(plan, machine->driver, ranks, {ranks.begin(), ranks.end()},
                    /*shareRecording=*/false, options);
  if (!backend.ok())
    return backend.status();
  PLAIT_RETURN_IF_ERROR(connectNcclThreads(topology, options.timeLimit,
                                           backend->parts, options.cudaGraph));
  return backend;
}

Result<Backend> runtime::createNcclProcessBackend(
    const fb::Plan &plan, const Topology &topology,
    const ExecutorOptions &options, const Launch &launch) {
  if (launch.ranks != topology.ranks)
    return fail("the plan has ", topology.ranks, " ranks, ", launch.launcher,
                " started ", launch.ranks, " processes");
  Result<Machine> machine = findMachine(options);
  if (!machine.ok())
    return machine.status();
  auto backend =
      createDevices(plan, machine->driver, {launch.rank},
                    {static_cast<int>(launch.localRank % machine->devices)},
                    /*shareRecording=*/false, options);
  if (!backend.ok())
    return backend.status();
  PLAIT_RETURN_IF_ERROR(connectNcclProcess(topology, options.timeLimit, launch,
                                           backend->parts.front(),
                                           options.cudaGraph));
  return backend;
}

Result<Backend> runtime::createCudaBackend(const fb::Plan &plan,
                                           const Topology &topology,
                                           const ExecutorOptions &options) {
  auto launch = readLaunch(
      [](const char *name) -> const char * { return std::getenv(name); });
  if (!launch.ok())
    return launch.status();
  if (*launch)
    return createNcclProcessBackend(plan, topology, options, **launch);
  Result<Machine> machine = findMachine(options);
  if (!machine.ok())
    return machine.status();
  // NCCL wants a GPU for each rank.
  bool nccl = topology.ranks > 1 && machine->devices >= topology.ranks;
  return nccl ? createNcclThreadBackend(plan, topology, options)
              : createCudaThreadBackend(plan, topology, options);
}
