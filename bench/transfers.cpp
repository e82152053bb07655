//===- transfers.cpp - Messages between processes -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the engine of a CPU plan takes for messages, over whatever its processes
// have met by. They stand in a ring: each sends to the next while it receives
// from the one before. transfers.py starts it.
//
//===----------------------------------------------------------------------===//

#include "MPI/Engine.h"
#include "plait/Runtime/Rendezvous.h"

#include <algorithm>
#include <cstdio>

using namespace plait;
using namespace plait::runtime;

/// The median of `rounds` rounds, in seconds.
static Result<double> measure(MpiEngine &engine, int64_t bytes, int rounds) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds patience(60);
  uint32_t index = engine.world().index, count = engine.world().count;
  std::vector<std::byte> out(bytes), in(bytes);
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) {
    Clock::time_point start = Clock::now();
    PLAIT_RETURN_IF_ERROR(engine.run(
        {{MpiTransfer::Kind::Receive, MpiChannel::Messages,
          (index + count - 1) % count, 0, Region{in.data(), bytes}, nullptr},
         {MpiTransfer::Kind::Send, MpiChannel::Messages, (index + 1) % count, 0,
          Region{out.data(), bytes}, nullptr}},
        patience));
    seconds.push_back(
        std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

static Status run() {
  auto joined = Rendezvous::join(std::chrono::seconds(60));
  if (!joined.ok())
    return joined.status();
  if (!*joined)
    return Status::failure("start this with mpirun or torchrun, -n 2 or more");
  Rendezvous &processes = **joined;
  uint32_t index = processes.place().index, count = processes.place().count;
  std::vector<uint32_t> peers = {(index + 1) % count};
  if (count > 2)
    peers.push_back((index + count - 1) % count);
  if (!processes.engine())
    PLAIT_RETURN_IF_ERROR(processes.openEngine(peers));
  for (auto [bytes, rounds] :
       {std::pair(8, 2000), std::pair(1 << 16, 500), std::pair(1 << 24, 30)}) {
    auto seconds = measure(*processes.engine(), bytes, rounds);
    if (!seconds.ok())
      return seconds.status();
    if (index == 0)
      std::printf("%d %.9f\n", bytes, *seconds);
  }
  return Status::success();
}

int main() {
  Status status = run();
  if (!status.ok())
    std::fprintf(stderr, "error: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
