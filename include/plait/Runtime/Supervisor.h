//===- Supervisor.h - Runs that survive their processes ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What `plait-run --supervise` does. The death of a process ends an MPI job,
// and with it whoever lives in the job: the supervisor is outside of it. It
// starts the launcher, and starts it again when the job has failed, with the
// largest plan of the family that fits the hosts that are left, from the newest
// checkpoint.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_SUPERVISOR_H
#define PLAIT_RUNTIME_SUPERVISOR_H

#include "plait/Support/Reporter.h"
#include "plait/Support/Status.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace plait::runtime {

struct SupervisorOptions {
  /// model.plan; the others of its family are model-N.plan beside it, for N
  /// ranks, as plaitc --also names them.
  std::string plan;
  /// The arguments of plait-run, but for the plan and --resume.
  std::vector<std::string> arguments;
  std::string checkpoints; // the directory
  std::string resume;      // where that has none yet; empty: the first step
  /// The command that starts processes, with its options, divided at spaces.
  std::string launcher = "mpirun";
  /// A file with a host a line, as mpirun's: "node3 slots=8". Read before each
  /// start, and watched. Empty: this host, or what SLURM has given.
  std::string hosts;
  /// How often in a row a run is started again that ends without a new
  /// checkpoint.
  uint64_t maxRestarts = 3;
  /// The time that processes wait for each other.
  std::chrono::seconds timeLimit{600};
  /// Who hears what it does; null: nobody.
  Reporter *reporter = nullptr;
  /// The signal that ends it, 0: none; asked all the time.
  std::function<int()> interrupted;
};

/// Runs the plan to its end. Returns what the program ends with: 0, or 128 and
/// the signal's number. Fails where it gives up, and before anything is started
/// where plans, hosts or checkpoints do not go together or the directory has a
/// supervisor. To be called from the main thread: when it ends, so do the
/// processes.
Result<int> supervise(const SupervisorOptions &options);

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_SUPERVISOR_H
