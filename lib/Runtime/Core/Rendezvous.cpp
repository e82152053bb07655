//===- Rendezvous.cpp - The processes of a run ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Rendezvous.h"

#include "Launch.h"
#include "TcpRendezvous.h"
#if PLAIT_HAS_MPI
#include "MPI/MpiRendezvous.h"
#endif

#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace plait;
using namespace plait::runtime;

namespace {

/// The texts that are not empty, each behind its index and its length.
std::string pack(std::span<const std::string> texts) {
  std::string packed;
  for (uint32_t i = 0; i < texts.size(); ++i) {
    uint32_t head[] = {i, uint32_t(texts[i].size())};
    if (head[1])
      packed.append(reinterpret_cast<const char *>(head), sizeof(head))
          .append(texts[i]);
  }
  return packed;
}

Result<std::vector<std::string>> unpack(const std::string &packed,
                                        uint32_t count) {
  std::vector<std::string> texts(count);
  uint32_t head[2];
  for (size_t at = 0; at < packed.size(); at += head[1]) {
    bool isWhole = packed.size() - at >= sizeof(head);
    if (isWhole)
      std::memcpy(head, packed.data() + at, sizeof(head));
    at += sizeof(head);
    if (!isWhole || head[0] >= count || head[1] > packed.size() - at)
      return fail("process 0 sends ", packed.size(),
                  " bytes that are no texts of ", count, " processes");
    texts[head[0]] = packed.substr(at, head[1]);
  }
  return texts;
}

} // namespace

static Result<std::optional<Launch>> readLaunchHere() {
  return readLaunch(
      [](const char *name) -> const char * { return std::getenv(name); });
}

uint32_t Rendezvous::launchIndex() {
  auto launch = readLaunchHere();
  return launch.ok() && *launch ? (*launch)->rank : 0;
}

bool Rendezvous::isLaunched() {
  auto launch = readLaunchHere();
  return launch.ok() && *launch && (*launch)->ranks > 1;
}

Result<std::unique_ptr<Rendezvous>>
Rendezvous::join(std::chrono::milliseconds timeLimit) {
  auto launch = readLaunchHere();
  if (!launch.ok())
    return launch.status();
  if (!*launch || (*launch)->ranks == 1)
    return std::unique_ptr<Rendezvous>();
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
  return convert(TcpRendezvous::join(**launch, timeLimit));
}

Result<std::vector<std::string>> Rendezvous::exchange(const std::string &mine) {
  auto all = gather(mine, Wait::Limited);
  if (!all.ok())
    return all.status();
  auto packed = broadcast(pack(*all), Wait::Limited);
  if (!packed.ok())
    return packed.status();
  return unpack(*packed, here.count);
}

Status Rendezvous::judge(
    const std::string &mine,
    const std::function<Status(std::span<const std::string>)> &verdict,
    Wait wait) {
  auto all = gather(mine, wait);
  if (!all.ok())
    return all.status();
  Status passed = here.index == 0 ? verdict(*all) : Status::success();
  auto text = broadcast(passed.ok() ? "" : passed.message(), wait);
  if (!text.ok())
    return text.status();
  if (text->empty())
    return Status::success();
  isAgreedFailure = true;
  return Status::failure(*text);
}

Status Rendezvous::agree(const Status &mine) {
  Status all = judge(
      mine.ok() ? "" : mine.message(),
      [](std::span<const std::string> texts) {
        for (size_t i = 0; i < texts.size(); ++i)
          if (!texts[i].empty())
            return i == 0 ? Status::failure(texts[i])
                          : fail("process ", i, ": ", texts[i]);
        return Status::success();
      },
      Wait::ForEver);
  // What it is to this process says more than that others are gone.
  return all.ok() || mine.ok() || isAgreedFailure ? all : mine;
}

Status Rendezvous::agreeOn(const std::string &what, const std::string &mine) {
  return judge(here.host + "\n" + mine,
               [&](std::span<const std::string> texts) {
                 auto describe = [&](size_t process) {
                   size_t line = texts[process].find('\n');
                   return "process " + std::to_string(process) + " on " +
                          texts[process].substr(0, line) + " has " + what +
                          " " + texts[process].substr(line + 1);
                 };
                 for (size_t i = 1; i < texts.size(); ++i)
                   if (texts[i].substr(texts[i].find('\n')) !=
                       texts[0].substr(texts[0].find('\n')))
                     return fail(describe(i), ", ", describe(0));
                 return Status::success();
               });
}

bool Rendezvous::speaksOfFailure() {
  disconnect();
  return !isAgreedFailure || here.index == 0;
}
