//===- TestedBackends.cpp - The backends that conform ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestedBackends.h"

#include "FreePort.h"
#include "Rendezvous/TcpRendezvous.h"
#include "plait/Runtime/Communicator.h"
#include "plait/Runtime/Rendezvous.h"
#if PLAIT_HAS_CUDA
#include "CUDA/CudaBackend.h"
#endif

#include <cstdlib>
#include <thread>

using namespace plait;
using namespace plait::runtime;

namespace {

/// Keeps the process of a rank until the rank ends.
class ProcessCommunicator : public Communicator {
public:
  ProcessCommunicator(std::unique_ptr<Rendezvous> process,
                      std::unique_ptr<Communicator> inner)
      : process(std::move(process)), inner(std::move(inner)) {}

  Result<std::unique_ptr<Group>>
  join(std::span<const uint32_t> ranks) override {
    return inner->join(ranks);
  }
  uint32_t streamOf(uint32_t id) const override { return inner->streamOf(id); }
  bool sendsInStream() const override { return inner->sendsInStream(); }
  Status post(uint32_t id, uint32_t target,
              std::span<const std::byte> bytes) override {
    return inner->post(id, target, bytes);
  }
  Status receive(uint32_t id, uint32_t source,
                 std::span<std::byte> bytes) override {
    return inner->receive(id, source, bytes);
  }
  Status awaitReceipt(uint32_t id, uint32_t target) override {
    return inner->awaitReceipt(id, target);
  }
  Status finish() override { return inner->finish(); }
  void abort() override { inner->abort(); }

private:
  std::unique_ptr<Rendezvous> process;
  std::unique_ptr<Communicator> inner;
};

/// What a launcher's processes do, each of which is a thread here.
Result<Backend> createProcesses(Factory create, const fb::Plan &plan,
                                const Topology &topology,
                                const ExecutorOptions &options) {
  uint16_t port = freePort();
  std::vector<Backend> made(topology.ranks);
  std::vector<Status> ended(topology.ranks, Status::success());
  std::vector<std::thread> processes;
  for (uint32_t rank = 0; rank < topology.ranks; ++rank)
    processes.emplace_back([&, rank] {
      Launch launch = {"test", rank, topology.ranks, rank, "127.0.0.1", port};
      auto joined = TcpRendezvous::join(launch, options.timeLimit);
      ended[rank] = joined.status();
      if (!joined.ok())
        return;
      (*joined)->spread(topology.ranks);
      ExecutorOptions mine = options;
      mine.processes = joined->get();
      auto backend = create(plan, topology, mine);
      ended[rank] = backend.status();
      if (!backend.ok())
        return;
      made[rank] = std::move(*backend);
      auto &inner = made[rank].parts.front().communicator;
      inner = std::make_unique<ProcessCommunicator>(std::move(*joined),
                                                    std::move(inner));
    });
  for (std::thread &process : processes)
    process.join();
  Backend all;
  for (uint32_t rank = 0; rank < topology.ranks; ++rank) {
    PLAIT_RETURN_IF_ERROR(ended[rank]);
    all.ranks.push_back(rank);
    all.parts.push_back(std::move(made[rank].parts.front()));
  }
  return all;
}

#if PLAIT_HAS_CUDA
Result<Backend> createNcclProcesses(const fb::Plan &plan,
                                    const Topology &topology,
                                    const ExecutorOptions &options) {
  // The same conditions, and the same reason to skip.
  auto threads = createNcclThreadBackend(plan, topology, options);
  if (!threads.ok())
    return threads.status();
  return createProcesses(&createNcclProcessBackend, plan, topology, options);
}
#endif

#if PLAIT_HAS_CPU
Result<Backend> createTcpProcesses(const fb::Plan &plan,
                                   const Topology &topology,
                                   const ExecutorOptions &options) {
  return createProcesses(&createCpuBackend, plan, topology, options);
}
#endif

#if PLAIT_HAS_CPU && PLAIT_HAS_MPI
/// The ranks of this process of several that mpirun has started.
Result<Backend> createMpiProcesses(const fb::Plan &plan,
                                   const Topology &topology,
                                   const ExecutorOptions &options) {
  static auto processes = Rendezvous::join(patience);
  if (!processes.ok())
    return processes.status();
  (*processes)->spread(topology.ranks);
  ExecutorOptions mine = options;
  mine.processes = processes->get();
  return createCpuBackend(plan, topology, mine);
}
#endif

} // namespace

std::vector<TestedBackend> runtime::testedBackends() {
  std::vector<TestedBackend> result;
#if PLAIT_HAS_CPU && PLAIT_HAS_MPI
  if (std::getenv("OMPI_COMM_WORLD_SIZE"))
    return {{"MpiProcesses", &createMpiProcesses, true}};
#endif
#if PLAIT_HAS_CPU
  result.push_back({"Threads", &createCpuBackend, true});
  result.push_back({"TcpProcesses", &createTcpProcesses, true, 0, 3});
#endif
#if PLAIT_HAS_CUDA
  result.push_back({"CudaThreads", &createCudaThreadBackend, true, 1});
  result.push_back({"Nccl", &createNcclThreadBackend, false});
  result.push_back({"NcclProcesses", &createNcclProcesses, false, 0, 3});
#endif
  return result;
}
