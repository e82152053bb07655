//===- Rendezvous.cpp - The processes of a run ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What does not depend on the transport: everything that processes agree on is
// a gather to process 0, a decision there, and a broadcast of it. Transports
// (MPI, TCP) give gather() and broadcast(). Which one is used follows from the
// environment (Launch.h) and from how this program was built.
//
// Every call is collective: all processes make the same calls in the same
// order.
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Rendezvous.h"

#include "Core/StatusText.h"
#include "Launch.h"
#include "MPI/Engine.h"
#include "PackedTexts.h"
#include "TcpRendezvous.h"
#include "plait/Runtime/Communicator.h"
#if PLAIT_HAS_MPI
#include "MpiRendezvous.h"
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace plait;
using namespace plait::runtime;

/// Before each text.
/// In the byte order of the host.
struct TextHeader {
  uint64_t process, bytes;
};

// An empty text takes no bytes: unpackTexts() starts from empty texts.
std::string runtime::packText(uint32_t process, const std::string &text) {
  TextHeader header = {process, text.size()};
  return text.empty() ? ""
                      : std::string(reinterpret_cast<const char *>(&header),
                                    sizeof(header)) +
                            text;
}

/// Texts that are missing stay empty.
Result<std::vector<std::string>> runtime::unpackTexts(const std::string &packed,
                                                      uint32_t count) {
  std::vector<std::string> texts(count);
  TextHeader header = {};
  // The bytes come from another process: no index or size is used untested.
  for (size_t at = 0; at < packed.size(); at += header.bytes) {
    bool isWhole = packed.size() - at >= sizeof(header);
    if (isWhole)
      std::memcpy(&header, packed.data() + at, sizeof(header));
    at += sizeof(header);
    if (!isWhole || header.process >= count ||
        header.bytes > packed.size() - at)
      return fail("another process sends ", packed.size(),
                  " bytes that are no texts of ", count, " processes");
    texts[header.process] = packed.substr(at, header.bytes);
  }
  return texts;
}

/// The environment does not change: asked as often as needed.
static Result<std::optional<Launch>> readLaunchHere() {
  return readLaunch(
      [](const char *name) -> const char * { return std::getenv(name); });
}

/// Serves what is written before the processes have met, such as who prints.
uint32_t Rendezvous::launchIndex() {
  auto launch = readLaunchHere();
  return launch.ok() && *launch ? (*launch)->rank : 0;
}

bool Rendezvous::isLaunched() {
  auto launch = readLaunchHere();
  return launch.ok() && *launch && (*launch)->ranks > 1;
}

/// MPI is preferred where its launcher started this; TCP needs an address. That
/// processes cannot meet is told by the first.
Result<std::unique_ptr<Rendezvous>>
Rendezvous::join(std::chrono::milliseconds timeLimit, Reporter *reporter) {
  auto launch = readLaunchHere();
  if (!launch.ok())
    return launch.status();
  // A launcher that starts one process starts a run of one.
  if (!*launch || (*launch)->ranks == 1)
    return std::unique_ptr<Rendezvous>();
  if (const std::string &refusal = (*launch)->refusal; !refusal.empty())
    return (*launch)->rank == 0 ? Status::failure(refusal)
                                : failReleased(": " + refusal);
  // A Result of the derived class becomes one of the base.
  auto convert = [](auto joined) -> Result<std::unique_ptr<Rendezvous>> {
    if (!joined.ok())
      return joined.status();
    return std::unique_ptr<Rendezvous>(std::move(*joined));
  };
#if PLAIT_HAS_MPI
  if ((*launch)->hasMpi)
    return convert(MpiRendezvous::join(**launch, timeLimit));
#endif
  if ((*launch)->address.empty())
    return fail((*launch)->launcher,
                " has started processes on several hosts; "
                "this plait-run was built without MPI (PLAIT_ENABLE_MPI), and "
                "environment variable MASTER_ADDR is not set");
  return convert(TcpRendezvous::join(**launch, timeLimit, reporter));
}

// Process 0 gathers all texts and broadcasts them in one message, so that a
// transport needs only gather() and broadcast().
Result<std::vector<std::string>> Rendezvous::exchange(const std::string &mine) {
  auto all = gather(mine);
  if (!all.ok())
    return all.status();
  // Packed, for a broadcast is one text.
  std::string texts;
  for (uint32_t i = 0; i < all->size(); ++i)
    texts += packText(i, (*all)[i]);
  auto packed = broadcast(texts);
  if (!packed.ok())
    return packed.status();
  return unpackTexts(*packed, here.count);
}

// Process 0 alone decides and all get its verdict: no two processes can differ
// on whether to go on. An empty text stands for success.
Status Rendezvous::judge(
    const std::string &mine,
    const std::function<Status(std::span<const std::string>)> &verdict) {
  auto all = gather(mine);
  if (!all.ok())
    return all.status();
  Status passed = here.index == 0 ? verdict(*all) : Status::success();
  auto text = broadcast(packStatus(passed));
  if (!text.ok())
    return text.status();
  if (text->empty())
    return Status::success();
  isAgreedFailure = true;
  return unpackStatus(*text);
}

/// Texts stand for failures here, and an empty one for success; so process 0,
/// which judges, names the lowest that has failed.
Status Rendezvous::agree(const Status &mine) {
  Status all = judge(packStatus(mine), [](std::span<const std::string> texts) {
    for (size_t i = 0; i < texts.size(); ++i)
      if (Status one = unpackStatus(texts[i]); !one.ok())
        return i == 0 ? one
                      : fail(one.code(), "process ", i, ": ", one.message());
    return Status::success();
  });
  // What it is to this process says more than that others are gone.
  return all.ok() || mine.ok() || isAgreedFailure ? all : mine;
}

/// The host of a process, then value and text of each: what packText() packs.
static std::string packShared(const std::string &host,
                              std::span<const SharedValue> mine) {
  std::string packed = packText(0, host);
  for (uint32_t i = 0; i < mine.size(); ++i)
    packed +=
        packText(2 * i + 1, mine[i].value) + packText(2 * i + 2, mine[i].text);
  return packed;
}

/// Compares with process 0, so that the message names two and not all, and the
/// first that differs alone.
Status Rendezvous::agreeOn(std::span<const SharedValue> mine) {
  uint32_t count = 2 * uint32_t(mine.size()) + 1;
  return judge(packShared(here.host, mine),
               [&](std::span<const std::string> packed) {
                 auto first = unpackTexts(packed[0], count);
                 for (size_t process = 1; process < packed.size(); ++process) {
                   auto other = unpackTexts(packed[process], count);
                   if (!first.ok() || !other.ok())
                     return first.ok() ? other.status() : first.status();
                   for (uint32_t i = 1; i < count; i += 2)
                     if ((*other)[i] != (*first)[i])
                       return fail("process ", process, " on ", (*other)[0],
                                   " has ", (*other)[i + 1], ", process 0 on ",
                                   (*first)[0], " has ", (*first)[i + 1]);
                 }
                 return Status::success();
               });
}

/// "process 2 on b with ranks 4 to 5"; before ranks are spread without them.
std::string Rendezvous::nameProcess(uint32_t process) {
  const MpiLibrary::World &world = engine()->world();
  std::string name = "process " + std::to_string(process) + " on " +
                     world.hostNames[world.hosts[process]];
  uint32_t first = spreadRanks.firstOf(process);
  uint32_t end = spreadRanks.firstOf(process + 1);
  if (spreadRanks.processes != here.count || end == first)
    return name;
  name += (end - first > 1 ? " with ranks " : " with rank ") +
          std::to_string(first);
  return end - first > 1 ? name + " to " + std::to_string(end - 1) : name;
}

/// The first few.
std::string Rendezvous::describeSilent() {
  constexpr size_t most = 8;
  if (!engine())
    return "";
  const std::vector<uint32_t> &silent = engine()->silentOthers();
  std::string list;
  for (size_t i = 0; i < std::min(most, silent.size()); ++i)
    list += (i ? ", " : "") + nameProcess(silent[i]);
  if (silent.size() > most)
    list += " and " + std::to_string(silent.size() - most) + " more";
  return list.empty() ? ""
                      : list + (silent.size() > 1 ? " do not answer"
                                                  : " does not answer");
}

/// Engines know why connections have ended.
std::string Rendezvous::reasonOfRelease() {
  return engine() ? engine()->reason() : "";
}

bool Rendezvous::speaksOfFailure() {
  disconnect();
  return !isSpokenOf();
}
