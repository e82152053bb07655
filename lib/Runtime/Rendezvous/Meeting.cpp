//===- Meeting.cpp - Where process 0 is found -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The store behind torchrun's port could tell where process 0 is, in a protocol
// that is PyTorch's own and has changed. Asking at a few ports needs none.
//
//===----------------------------------------------------------------------===//

#include "Meeting.h"

#include <thread>
#include <xxhash.h>

using namespace plait;
using namespace plait::runtime;
using std::chrono::milliseconds;

void WaitingNotices::tell(const std::string &what, milliseconds taken) {
  if (taken < next)
    return;
  while (taken >= next)
    next *= 2;
  plait::tell(reporter, Severity::Note,
              what + ", for " + std::to_string(taken.count() / 1000) +
                  " s now");
}

// Below the ports that systems give to connections (32768 on), of which one may
// be taken at any time. Spread over them by the run, so that runs of one
// machine rarely want the same.
std::vector<uint16_t> runtime::meetingPorts(const Launch &launch) {
  constexpr uint64_t first = 16384, count = 12288, candidates = 8;
  if (!launch.run)
    return {launch.port};
  std::vector<uint16_t> ports;
  for (uint64_t i = 0; i < candidates; ++i) {
    uint64_t words[] = {launch.run, i};
    ports.push_back(first + XXH3_64bits(words, sizeof(words)) % count);
  }
  return ports;
}

/// Whether who listens at `port` is of this run, and knows its secret. A
/// stranger has a second to answer, and some only echo.
static bool isOfRun(const Launch &launch, uint16_t port) {
  auto connected = connectTo(launch.address, port, milliseconds(0));
  if (!connected.ok() ||
      !setTimeLimit(connected->get(), std::chrono::seconds(1)).ok())
    return false;
  Greeting question = {.purpose = Greeting::Purpose::Question,
                       .run = launch.run,
                       .secret = {launch.secret[0], 0}};
  Greeting answer;
  return sendAll(connected->get(), &question, sizeof(question)) &&
         receiveAll(connected->get(), &answer, sizeof(answer)) &&
         answer.magic == question.magic && answer.run == launch.run &&
         answer.purpose != question.purpose &&
         answer.secret[1] == launch.secret[1];
}

/// The others would find the one that was left in this one's place.
Result<Reception> runtime::openAsFirst(const Launch &launch) {
  Result<Reception> opened = Status::failure("");
  for (uint16_t port : meetingPorts(launch)) {
    opened = Reception::open(port, launch.run, launch.secret);
    if (opened.ok())
      break;
    if (launch.run && isOfRun(launch, port))
      return fail("a process of an earlier start of this run waits as rank 0 "
                  "at port ",
                  port, ": end it");
  }
  return opened;
}

/// "node7:17000,23011".
static std::string describePorts(const Launch &launch) {
  std::string text = launch.address, separator = ":";
  for (uint16_t port : meetingPorts(launch)) {
    text += separator + std::to_string(port);
    separator = ",";
  }
  return text;
}

/// 1. One of a host says that it waits; rank 1 where rank 0 would.
/// 2. Without a secret, nobody else is thought to be at the one port.
/// 3. Else each round asks at all ports.
Result<Socket> runtime::reachFirst(Launch &launch, milliseconds timeLimit,
                                   Reporter *reporter) {
  // 1.
  WaitingNotices notices(reporter);
  std::string where = describePorts(launch);
  auto tell = [&](milliseconds taken) {
    if (launch.localRank == 0 || launch.rank == 1)
      notices.tell("rank " + std::to_string(launch.rank) +
                       " waits for rank 0 to listen at " + where,
                   taken);
  };
  // 2.
  if (!launch.run && launch.secret == Secret{})
    return connectTo(launch.address, launch.port, timeLimit, tell);
  // 3.
  PLAIT_RETURN_IF_ERROR(checkHost(launch.address));
  auto start = std::chrono::steady_clock::now();
  for (milliseconds taken(0); taken <= timeLimit;) {
    for (uint16_t port : meetingPorts(launch))
      if (isOfRun(launch, port)) {
        launch.port = port;
        return connectTo(launch.address, port, milliseconds(0));
      }
    std::this_thread::sleep_for(milliseconds(50));
    taken = std::chrono::duration_cast<milliseconds>(
        std::chrono::steady_clock::now() - start);
    tell(taken);
  }
  return fail(where, ": no process of this run listens there",
              launch.secret == Secret{} ? "" : ", with this one's secret");
}
