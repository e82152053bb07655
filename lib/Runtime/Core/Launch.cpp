//===- Launch.cpp - How this process was started --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Launch.h"

#include <charconv>
#include <cstring>

using namespace plait;
using namespace plait::runtime;

namespace {

struct Variables {
  const char *launcher, *rank, *ranks, *localRank;
};
constexpr Variables known[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"}};

/// The value of variable `name`, at most `limit`.
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

Result<std::optional<Launch>> read(const Variables &names, GetEnvironment get) {
  constexpr uint32_t maxRanks = 1 << 24, maxPort = UINT16_MAX;
  constexpr uint32_t defaultPort = 29500; // torchrun's
  auto ranks = number(get, names.ranks, maxRanks);
  if (!ranks.ok())
    return ranks.status();
  auto rank = number(get, names.rank, *ranks - 1);
  if (!rank.ok())
    return rank.status();
  auto localRank = number(get, names.localRank, *ranks - 1, *rank);
  if (!localRank.ok())
    return localRank.status();
  auto port = number(get, "MASTER_PORT", maxPort, defaultPort);
  if (!port.ok())
    return port.status();
  const char *address = get("MASTER_ADDR");
  return std::optional<Launch>({names.launcher, *rank, *ranks, *localRank,
                                address ? address : "127.0.0.1",
                                static_cast<uint16_t>(*port)});
}

} // namespace

Result<std::optional<Launch>> runtime::readLaunch(GetEnvironment get) {
  for (const Variables &names : known)
    if (get(names.rank) && get(names.ranks)) {
      if (std::string_view(get(names.ranks)) == "0")
        return fail("environment variable ", names.ranks, " is 0");
      // The shell of a SLURM job looks like a step of one task.
      if (names.rank == known[2].rank &&
          std::string_view(get(names.ranks)) == "1")
        return std::optional<Launch>();
      return read(names, get);
    }
  return std::optional<Launch>();
}
