//===- Backend.h - Backend of an executor -----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_BACKEND_H
#define PLAIT_LIB_RUNTIME_CORE_BACKEND_H

#include "plait/Runtime/Communicator.h"
#include "plait/Runtime/Device.h"
#include "plait/Runtime/Executor.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace plait::runtime {

/// Records what the ranks enqueue during one step and does it again. All ranks
/// of the process make the same calls, each on its own thread.
class StepGraph {
public:
  virtual ~StepGraph() = default;

  /// Record, instead of doing it, what is enqueued from begin() to end().
  virtual Status begin() = 0;
  virtual Status end() = 0;
  /// Enqueues what was recorded.
  virtual Status replay() = 0;

  /// Whether a recording may have several parts: then cut() ends one, with all
  /// streams of the device joined, and begins the next.
  virtual bool hasParts() const { return false; }
  virtual Status cut() { return Status::success(); }
};

/// The parts that one rank has for itself. The device outlives the others.
struct RankBackend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<StepGraph> graph; // null: every step is walked
};

/// The ranks of this process, increasing, and what they run on.
struct Backend {
  std::vector<uint32_t> ranks;
  std::vector<RankBackend> parts; // one for each of `ranks`
  std::string placement;          // see Executor::placement
  std::string libraries;          // see Executor::libraries
  std::string libraryChoices;     // see Executor::libraryChoices
  // See Executor::describeMemory; null: there is nothing to say.
  std::function<Result<std::string>()> describeMemory;
};

/// The libraries that compute, with their versions: ", oneDNN 2.7.4".
std::string describeCpuLibraries();
/// Those that a CUDA plan needs; opens them.
std::string describeCudaLibraries();

Result<Backend> createCpuBackend(const fb::Plan &plan, const Topology &topology,
                                 const ExecutorOptions &options);
Result<Backend> createCudaBackend(const fb::Plan &plan,
                                  const Topology &topology,
                                  const ExecutorOptions &options);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_BACKEND_H
