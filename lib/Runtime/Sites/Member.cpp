//===- Member.cpp - A site's side of the meeting of sites -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A site computes by itself for a round, and then offers what it has come to.
// The answer is a verdict, which all who were counted get alike, or the state
// of one of them, where the round was over without this site. A coordinator
// that is gone is looked for until the time limit: it keeps nothing that the
// sites do not have, so that a new one continues where they are, and an offer
// that was not answered is made again.
//
//===----------------------------------------------------------------------===//

#include "Member.h"

#include "plait/Plan/Sites.h"
#include "plait/Runtime/Communicator.h"

#include <cerrno>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <thread>

using namespace plait;
using namespace plait::runtime;
using Clock = std::chrono::steady_clock;

Result<std::unique_ptr<SiteMember>>
SiteMember::create(const SiteOptions &options, const fb::Plan &plan,
                   const fb::Plan &own, Hello hello,
                   std::chrono::milliseconds timeLimit, Reporter *reporter) {
  Result<HostPort> place = parseHostPort(options.meet, "", "meet");
  if (!place.ok())
    return place.status();
  hello.site = *options.site;
  return std::unique_ptr<SiteMember>(new SiteMember(
      std::move(*place), plan, own, std::move(hello), timeLimit, reporter));
}

SiteMember::SiteMember(HostPort place, const fb::Plan &plan,
                       const fb::Plan &own, Hello hello,
                       std::chrono::milliseconds timeLimit, Reporter *reporter)
    : place(std::move(place)), hello(std::move(hello)), timeLimit(timeLimit),
      reporter(reporter), every(plan.outer()->every()),
      keepsDifference(plan::outerOf(plan).scheme == "diloco"),
      bytes(countSiteBytes(own)) {}

std::string SiteMember::nameCoordinator() const {
  return "coordinator at " + place.host + ":" + std::to_string(place.port);
}

//===----------------------------------------------------------------------===//
// The connection
//===----------------------------------------------------------------------===//

static Status failAborted() {
  return Status::failure("the processes of the site end", Code::Released);
}

/// A coordinator that is asleep takes nothing: sending has a limit, too.
Status SiteMember::connect() {
  constexpr std::chrono::milliseconds pause(50);
  Clock::time_point start = Clock::now();
  Result<Socket> made = connectTo(place.host, place.port, pause);
  while (!made.ok() && Clock::now() - start <= timeLimit && !isAborted) {
    std::this_thread::sleep_for(pause);
    made = connectTo(place.host, place.port, pause);
  }
  if (isAborted)
    return failAborted();
  if (!made.ok())
    return fail("cannot reach the ", nameCoordinator(), ": ",
                made.status().message());
  connection = std::move(*made);
  prepareConnection(connection.get());
  timeval limit = {timeLimit.count() / 1000, (timeLimit.count() % 1000) * 1000};
  setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  heard = Clock::now();
  std::string text = hello.print();
  // Where this fails, so does what follows.
  (void)sendFrame(connection.get(), {FrameKind::Hello, 0, 0, round},
                  std::as_bytes(std::span(text)));
  return Status::success();
}

/// False: the connection is lost. While the coordinator lives, it sends pings.
Result<bool> SiteMember::readAll(std::byte *target, size_t count) {
  while (count > 0) {
    pollfd wanted = {connection.get(), POLLIN, 0};
    int ready = poll(&wanted, 1, 200);
    if (ready < 0 && errno != EINTR)
      return systemFailure("cannot wait for the " + nameCoordinator());
    if (isAborted)
      return failAborted();
    if (ready <= 0) {
      if (Clock::now() - heard > timeLimit)
        return failTimedOut(timeLimit, "the " + nameCoordinator());
      continue;
    }
    ssize_t got = recv(connection.get(), target, count, 0);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return false;
    heard = Clock::now();
    target += got;
    count -= size_t(got);
  }
  return true;
}

/// No more is allocated than what the plan says.
Status SiteMember::checkBytes(const FrameHeader &header) const {
  bool hasSums =
      header.kind == FrameKind::Verdict || header.kind == FrameKind::Missed;
  uint64_t most = hasSums                           ? bytes.offer
                  : header.kind == FrameKind::State ? bytes.state
                                                    : mostHelloBytes;
  bool isExact = hasSums || header.kind == FrameKind::State;
  if (header.bytes > most || (isExact && header.bytes != most))
    return fail("the ", nameCoordinator(), " sends ", header.bytes,
                " bytes, expected ", isExact ? "" : "at most ", most);
  return Status::success();
}

Result<std::optional<Frame>> SiteMember::readFrame() {
  Frame frame;
  auto *header = reinterpret_cast<std::byte *>(&frame.header);
  Result<bool> got = readAll(header, sizeof frame.header);
  if (!got.ok() || !*got)
    return got.ok() ? Result<std::optional<Frame>>(std::nullopt) : got.status();
  PLAIT_RETURN_IF_ERROR(checkBytes(frame.header));
  frame.payload.resize(frame.header.bytes);
  got = readAll(frame.payload.data(), frame.payload.size());
  if (!got.ok())
    return got.status();
  return *got ? std::optional(std::move(frame)) : std::nullopt;
}

/// The next frame that says something; nothing: the connection is lost.
Result<std::optional<Frame>> SiteMember::await() {
  while (true) {
    Result<std::optional<Frame>> frame = readFrame();
    if (!frame.ok() || !*frame || (*frame)->header.kind != FrameKind::Ping)
      return frame;
  }
}

//===----------------------------------------------------------------------===//
// Meetings
//===----------------------------------------------------------------------===//

void SiteMember::tellContinues() const {
  tell(reporter, Severity::Info,
       "site " + std::to_string(hello.site) + " continues from step " +
           std::to_string(round * every) +
           " with what the others have agreed on");
}

/// Nothing: it does not answer what was asked.
Result<std::optional<RoundEnd>> SiteMember::answer(Frame frame) {
  const FrameHeader &header = frame.header;
  if (header.kind == FrameKind::Refuse)
    return fail("the ", nameCoordinator(), " refuses this site: ",
                std::string(reinterpret_cast<char *>(frame.payload.data()),
                            frame.payload.size()));
  RoundEnd end;
  end.bytes = std::move(frame.payload);
  end.updates = header.updates;
  if (header.kind == FrameKind::Verdict && header.info > 0) {
    end.outcome = RoundEnd::Agreed;
    end.count = header.info;
    end.gives = header.flag;
    round = header.round;
    end.step = round * every;
    return std::optional(std::move(end));
  }
  if (header.kind == FrameKind::Missed && header.info > 0) {
    end.outcome = RoundEnd::Missed;
    end.count = header.info;
    end.keeps = header.flag && keepsDifference;
    end.more = header.updates;
    round = header.round;
    end.step = round * every;
    if (!end.more)
      tellContinues();
    return std::optional(std::move(end));
  }
  if (header.kind != FrameKind::State)
    return std::optional<RoundEnd>();
  bool keeps = header.flag && keepsDifference;
  end.outcome = keeps ? RoundEnd::LeftOut : RoundEnd::Discarded;
  round = header.round;
  tellContinues();
  end.step = round * every;
  end.isNew = isNew;
  return std::optional(std::move(end));
}

/// Says who it is, and offers what it has, as often as the connection is lost.
Result<RoundEnd> SiteMember::meet(std::span<const std::byte> moved,
                                  bool offers) {
  while (true) {
    if (connection.get() < 0)
      PLAIT_RETURN_IF_ERROR(connect());
    bool sent = !offers || sendFrame(connection.get(),
                                     {FrameKind::Offer, 0, 0, round}, moved);
    // A refusal may lie there where nothing more is taken.
    while (true) {
      Result<std::optional<Frame>> frame = await();
      if (!frame.ok())
        return frame.status();
      if (!*frame)
        break;
      if (!offers && (*frame)->header.kind == FrameKind::Start)
        return RoundEnd();
      Result<std::optional<RoundEnd>> found = answer(std::move(**frame));
      if (!found.ok())
        return found.status();
      if (*found)
        return std::move(**found);
    }
    tell(reporter, Severity::Warning,
         "the " + nameCoordinator() +
             (sent ? " has ended the connection" : " is gone") +
             ": it is looked for");
    connection.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

Result<RoundEnd> SiteMember::begin(uint64_t step, bool hasState) {
  round = step / every;
  isNew = !hasState;
  Result<RoundEnd> end = meet({}, /*offers=*/false);
  isNew = false;
  return end;
}

Result<RoundEnd> SiteMember::agree(uint64_t step,
                                   std::span<const std::byte> moved) {
  round = step / every - 1;
  return meet(moved, /*offers=*/true);
}

void SiteMember::give(std::span<const std::byte> state, uint64_t updates) {
  (void)sendFrame(connection.get(), {FrameKind::State, 0, 0, round, updates},
                  state);
}

void SiteMember::leave() {
  if (connection.get() >= 0)
    (void)sendFrame(connection.get(), {FrameKind::Bye, 0, 0, round}, {});
  connection.reset();
}
