//===- Launch.cpp - Launcher environment of a process ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Launchers tell a process its rank in environment variables. The first family
// of which rank and number of processes are set wins, so that torchrun's
// variables, which users also set by hand, go before those that mpirun or srun
// always set. Variables of launchers whose processes cannot be joined are known
// too: each process would otherwise be a run of its own, and all would write
// the same files. Environments come in as a function, for tests.
//
//===----------------------------------------------------------------------===//

#include "Launch.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <xxhash.h>

using namespace plait;
using namespace plait::runtime;

namespace {

/// Names of the variables of one launcher.
struct Variables {
  const char *launcher, *rank, *ranks, *localRank;
  const char *hostRanks; // processes of this host, or null
};
/// The families in the order in which they are asked; `mpirun` and `srun` below
/// name entries.
constexpr Variables known[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr}};
constexpr const Variables &torchrun = known[0], &mpirun = known[1],
                          &srun = known[2];

/// Names of the variables of a launcher that cannot be joined.
struct OtherVariables {
  const char *launcher, *rank;
  const char *ranks; // or null
  /// A process that was not started by the launcher may have rank 0, too.
  bool zeroIsAlone = false;
  /// Its processes could be joined if both were set.
  bool isHalf = false;
};
/// Half of a known family is one of them. Of two that are set, the first tells
/// how many processes there are.
constexpr OtherVariables others[] = {
    {"torchrun", torchrun.rank, torchrun.ranks, true, true},
    {"mpirun", mpirun.rank, mpirun.ranks, true, true},
    {"mpiexec of MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE"},
    {"mpiexec of MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
    {"mpiexec of MVAPICH", "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE"},
    {"mpirun_rsh", "MPIRUN_RANK", "MPIRUN_NPROCS"},
    {"flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
    {"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
    {"horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE"},
    {"mpiexec of PALS", "PALS_RANKID", nullptr},
    {"aprun", "ALPS_APP_PE", nullptr},
    {"blaunch", "LSF_PM_TASKID", nullptr},
    {"prterun", "PMIX_RANK", nullptr},
    {"pbsdsh", "PBS_VNODENUM", nullptr, true},
    {"srun", srun.rank, srun.ranks, true, true}};

/// The value of variable `name`, at most `limit`. The whole text must be the
/// number: "8 " or "4(x2)", as SLURM writes some of its counts, are failures
/// and not 8 and 4.
Result<uint32_t> number(GetEnvironment get, const char *name, uint32_t limit,
                        std::optional<uint32_t> otherwise = std::nullopt) {
  const char *text = get(name);
  if (!text && otherwise)
    return *otherwise;
  if (!text)
    return fail("environment variable ", name, " is not set");
  uint32_t value = 0;
  const char *end = text + std::strlen(text);
  auto [rest, error] = std::from_chars(text, end, value);
  if (error != std::errc() || rest != end || value > limit)
    return fail("environment variable ", name, " is '", text,
                "', allowed are 0 to ", limit);
  return value;
}

/// The value of variable `name` where it is set to a number.
std::optional<uint32_t> findNumber(GetEnvironment get, const char *name) {
  if (!name || !get(name))
    return std::nullopt;
  auto value = number(get, name, UINT32_MAX);
  return value.ok() ? std::optional(*value) : std::nullopt;
}

/// Says why processes that `names` speak of cannot meet, as `cause`, one of
/// them, shows, and what there is to do.
std::string describeRefusal(const OtherVariables &names, const char *cause,
                            GetEnvironment get) {
  std::string text = std::string("environment variable ") + cause + " is " +
                     get(cause) + ", so this is one of several processes";
  if (names.isHalf) {
    const char *other = cause == names.ranks ? names.rank : names.ranks;
    const char *value = get(other);
    text += std::string(", but ") + other +
            (value ? std::string(" is '") + value + "', which is no number"
                   : " is not set");
  } else {
    text += std::string(" that ") + names.launcher +
            " has started, which cannot be joined";
  }
  return text +
         ": start them with mpirun of Open MPI, srun or torchrun, or set RANK, "
         "WORLD_SIZE, LOCAL_RANK and MASTER_ADDR for each; for a run of this "
         "process alone unset " +
         cause;
}

/// The launch that `names` speak of where this process is one of several. A
/// count says so; without one, the rank does. A count of srun's own, `known`,
/// is also told by the process managers that srun starts (PMI-2, PMIx).
std::optional<Launch> readOther(const OtherVariables &names, GetEnvironment get,
                                std::optional<uint32_t> known) {
  auto rank = findNumber(get, names.rank), ranks = findNumber(get, names.ranks);
  const char *cause = nullptr;
  if (ranks && *ranks > 1 && ranks != known)
    cause = names.ranks;
  else if (!ranks && rank && !known && (*rank > 0 || !names.zeroIsAlone))
    cause = names.rank;
  if (!cause)
    return std::nullopt;
  Launch launch;
  launch.launcher = names.launcher;
  launch.ranks = ranks.value_or(2);
  // The others are silent only where it is certain that there is a first one.
  if (rank && ranks && *rank < *ranks)
    launch.rank = *rank;
  launch.refusal = describeRefusal(names, cause, get);
  return launch;
}

/// Other launchers' processes, and half of a known family.
std::optional<Launch> findOther(GetEnvironment get) {
  std::optional<uint32_t> known;
  if (get(srun.rank))
    known = findNumber(get, srun.ranks);
  for (const OtherVariables &names : others)
    if (auto found = readOther(names, get, known))
      return found;
  return std::nullopt;
}

/// Returns a number that tells a run from others of its launcher, made of its
/// name and the port where torchrun's agent listens. That lets its processes
/// have the store behind it (since PyTorch 2.4), which they do not need. How
/// often it has restarted them is no part of it: each agent counts for itself.
uint64_t readRun(const Launch &launch, GetEnvironment get) {
  const char *isHeld = get("TORCHELASTIC_USE_AGENT_STORE");
  if (!isHeld || std::string_view(isHeld) != "True")
    return 0;
  const char *name = get("TORCHELASTIC_RUN_ID");
  std::string text = std::to_string(launch.port) + " " + (name ? name : "");
  return std::max<uint64_t>(1, XXH3_64bits(text.data(), text.size()));
}

/// Finds where rank 0 is; `launch` has all but this.
/// 1. What the user says.
/// 2. The first host of a SLURM step, which has its rank 0.
/// 3. This host, where all processes are on it: the launcher says how many are
///    here, or rank and local rank agree, which on several hosts they do on the
///    first one only. srun gives no such count, so that it is not guessed.
Result<std::string> readAddress(const Launch &launch, const Variables &names,
                                GetEnvironment get) {
  // 1. Said.
  if (const char *address = get("MASTER_ADDR"))
    return std::string(address);
  // 2. Of a SLURM step.
  if (const char *hosts = get("SLURM_STEP_NODELIST"))
    if (std::string first = firstHostOf(hosts); !first.empty())
      return first;
  // 3. Guessed, where that is safe.
  bool isAlone = launch.rank == launch.localRank;
  if (names.hostRanks && get(names.hostRanks)) {
    auto local = number(get, names.hostRanks, launch.ranks);
    if (!local.ok())
      return local.status();
    isAlone = *local == launch.ranks;
  }
  if (isAlone && &names != &srun)
    return std::string("127.0.0.1");
  return fail("environment variable MASTER_ADDR is not set, and ",
              names.launcher, " has started processes on several hosts");
}

/// The secret of the run, from a variable or, where all who see a process's
/// environment should not see it, a file.
Result<Secret> readSecret(GetEnvironment get) {
  constexpr size_t least = 16, most = 4096; // bytes
  constexpr char variable[] = "PLAIT_SECRET", file[] = "PLAIT_SECRET_FILE";
  const char *said = get(variable), *path = get(file);
  if (said && path)
    return fail("environment variables ", variable, " and ", file,
                " are both set, one is enough");
  if (!said && !path)
    return Secret{};
  std::string text = said ? said : "";
  if (path) {
    std::ifstream in(path, std::ios::binary);
    text.resize(most + 1);
    in.read(text.data(), std::streamsize(text.size()));
    if (!in.is_open() || in.bad() || (in.gcount() == 0 && !in.eof()))
      return fail("cannot read '", path, "', which ", file, " names");
    text.resize(size_t(in.gcount()));
    text.erase(text.find_last_not_of("\r\n") + 1); // the end of its line
  }
  if (text.size() < least || text.size() > most)
    return fail("the secret of ", path ? file : variable, " has ",
                path && text.size() > most ? "more than 4096"
                                           : std::to_string(text.size()),
                " bytes, allowed are ", least, " to ", most);
  XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return Secret{hash.low64, hash.high64};
}

/// Every variable is checked against its range before anything is computed from
/// it. A local rank that is not set is the rank: one host.
Result<std::optional<Launch>> read(const Variables &names, GetEnvironment get) {
  constexpr uint32_t maxRanks = 1 << 24, maxPort = UINT16_MAX;
  constexpr uint32_t defaultPort = 29500; // torchrun's
  auto ranks = number(get, names.ranks, maxRanks);
  if (!ranks.ok())
    return ranks.status();
  if (*ranks == 0)
    return fail("environment variable ", names.ranks, " is 0");
  auto rank = number(get, names.rank, *ranks - 1);
  if (!rank.ok())
    return rank.status();
  // Optional: without it all are taken to be on one host.
  auto localRank = number(get, names.localRank, *ranks - 1, *rank);
  if (!localRank.ok())
    return localRank.status();
  auto port = number(get, "MASTER_PORT", maxPort, defaultPort);
  if (!port.ok())
    return port.status();
  Launch launch = {names.launcher, *rank, *ranks,
                   *localRank,     "",    static_cast<uint16_t>(*port)};
  // mpirun is Open MPI's; srun has MPI where it was told to start it (PMIx).
  launch.hasMpi = &names == &mpirun || (&names == &srun && get("PMIX_RANK"));
  if (&names == &torchrun)
    launch.run = readRun(launch, get);
  auto secret = readSecret(get);
  if (!secret.ok())
    return secret.status();
  launch.secret = *secret;
  auto address = readAddress(launch, names, get);
  // MPI connects its processes itself and needs no address.
  if (address.ok())
    launch.address = std::move(*address);
  else if (!launch.hasMpi)
    return address.status();
  return std::optional(std::move(launch));
}

} // namespace

/// Nothing is returned where this process runs alone.
/// 1. What users set, and what is set for each process that runs.
/// 2. Other launchers. Within a job of SLURM they may have started more
///    processes than srun has, whose variables these inherit.
/// 3. srun. The shell of a job looks like a step of one task.
Result<std::optional<Launch>> runtime::readLaunch(GetEnvironment get) {
  auto isSet = [&](const Variables &names) {
    return get(names.rank) && get(names.ranks);
  };
  // 1.
  for (const Variables *names : {&torchrun, &mpirun})
    if (isSet(*names))
      return read(*names, get);
  // 2.
  if (auto other = findOther(get))
    return other;
  // 3.
  if (!isSet(srun) || std::string_view(get(srun.ranks)) == "1")
    return std::optional<Launch>();
  return read(srun, get);
}

// "node[03-07,9]-a,other" gives "node03-a"; an open bracket gives "".
std::string runtime::firstHostOf(const std::string &list) {
  std::string host;
  for (size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    size_t end = list.find(']', at);
    size_t first = list.find_first_of(",-]", at);
    if (end == std::string::npos)
      return "";
    host += list.substr(at + 1, first - at - 1);
    at = end;
  }
  return host;
}
