//===- Launch.h - Launcher environment of a process -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_LAUNCH_H
#define PLAIT_LIB_RUNTIME_CORE_LAUNCH_H

#include "plait/Support/Status.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace plait::runtime {

/// Two numbers that follow from a secret. Whoever asks for process 0 shows the
/// first, and process 0 answers with the second; then only the other shows both
/// (Meeting.h). So who merely takes a port learns too little to join.
using Secret = std::array<uint64_t, 2>;

/// One of several processes that run a plan together.
struct Launch {
  std::string launcher; // for messages
  uint32_t rank = 0;    // of this process, below `ranks`
  uint32_t ranks = 1;
  uint32_t localRank = 0; // among the processes of this machine
  std::string address;    // of the machine of rank 0
  uint16_t port = 0;      // where rank 0 listens
  bool hasMpi = false;    // MPI can find the others
  /// Tells the run from others where the launcher itself listens at `port`;
  /// then rank 0 listens elsewhere (Meeting.h). 0: the port is free.
  uint64_t run = 0;
  /// Known to the processes of the run and not to strangers; zeros: there is
  /// none.
  Secret secret = {};
  /// Why the processes cannot meet. Empty: they can.
  std::string refusal = "";
};

/// Reads an environment variable; null when it is not set.
using GetEnvironment = const char *(*)(const char *name);

/// Reads what the environment says, in this order:
///  - RANK, WORLD_SIZE, LOCAL_RANK (torchrun and its like);
///  - OMPI_COMM_WORLD_RANK, …_SIZE, …_LOCAL_RANK (mpirun of Open MPI);
///  - SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID (srun; not the shell of
///    a batch job, which has no SLURM_STEP_NUM_TASKS above 1). With --mpi=pmix
///    there is a PMIX_RANK as well, and MPI.
/// MASTER_ADDR and MASTER_PORT (default 29500) say where rank 0 is. Without an
/// address it is the first host of SLURM_STEP_NODELIST, whoever the launcher
/// is, or 127.0.0.1 where all processes are on one host; else that is a
/// failure, as is a variable out of range. With TORCHELASTIC_USE_AGENT_STORE
/// the port is torchrun's own. Other launchers' variables, and half of those
/// above, give a launch with a `refusal`. Nothing when none of them is set.
/// PLAIT_SECRET, or the file that PLAIT_SECRET_FILE names, has the secret.
Result<std::optional<Launch>> readLaunch(GetEnvironment get);

/// The first host of a list as SLURM writes it: "rack[03-07,9],login" is
/// "rack03". Empty where there is none.
std::string firstHostOf(const std::string &list);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_LAUNCH_H
