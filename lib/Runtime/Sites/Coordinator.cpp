//===- Coordinator.cpp - Where sites meet ---------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One process decides who is counted in a round, so that all who are know the
// same. A round ends when all sites that are waited for have delivered, or some
// time after half of them have: one that is faster than the others must not
// leave these behind. It keeps offers of the present round and sums of the last
// ones, by which a site that has missed these comes to what the others have.
// States of those that cannot go from site to site, and sites say how far they
// are, so that another coordinator can take its place.
//
// Sums are added up in the order of the sites, the first one first, as within a
// process: with all sites there they have the same bits.
//
//===----------------------------------------------------------------------===//

#include "Coordinator.h"

#include "plait/Plan/Ranks.h"
#include "plait/Support/Quantities.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>

using namespace plait;
using namespace plait::runtime;

/// Sites hear of a coordinator that lives so often.
static constexpr std::chrono::seconds pingInterval(2);

/// A round waits so many times as long where less than half have delivered.
static constexpr int lonePatience = 4;

/// The rounds whose sums are kept.
static constexpr size_t mostPast = 8;

/// Who gives a state is as much later as that takes, and who gets it as much
/// again.
static constexpr int catchUpParts = 2;

void Coordinator::say(const std::string &text) const {
  tell(options.reporter, Severity::Info, text);
}

static std::string nameSite(uint32_t site) {
  return "site " + std::to_string(site);
}

size_t Coordinator::count(Peer::State state) const {
  return size_t(std::count_if(peers.begin(), peers.end(), [&](auto &peer) {
    return peer.state == state && !peer.isLost();
  }));
}

Peer *Coordinator::find(uint32_t site) {
  for (Peer &peer : peers)
    if (peer.site == site && !peer.isLost() && peer.state != Peer::Unknown &&
        peer.state != Peer::Finished)
      return &peer;
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Connections
//===----------------------------------------------------------------------===//

/// Accepted sockets come one by one: poll() tells of those that are left.
void Coordinator::accept() {
  Socket socket(
      accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.get() < 0)
    return;
  prepareConnection(socket.get());
  peers.emplace_back(std::move(socket));
}

void Coordinator::drop(Peer &peer, const std::string &why) {
  peer.lose();
  if (peer.state != Peer::Unknown && peer.state != Peer::Finished)
    say(nameSite(peer.site) + " " + why);
}

/// The text is sent as far as the system takes it at once, as it takes a line.
void Coordinator::refuse(Peer &peer, const std::string &why) {
  auto *text = reinterpret_cast<const std::byte *>(why.data());
  peer.send({FrameKind::Refuse}, std::make_shared<const std::vector<std::byte>>(
                                     text, text + why.size()));
  peer.lose();
  tell(options.reporter, Severity::Warning, "refused a site: " + why);
}

/// One frame after the other, until there is no whole one.
void Coordinator::serve(Peer &peer) {
  auto allowed = [&](const FrameHeader &header) {
    uint64_t wanted = header.kind == FrameKind::Offer   ? bytes.offer
                      : header.kind == FrameKind::State ? bytes.state
                                                        : 0;
    bool isHello = header.kind == FrameKind::Hello;
    if (isHello ? header.bytes <= mostHelloBytes : header.bytes == wanted)
      return Status::success();
    return fail("says ", header.bytes, " bytes, expected ",
                isHello ? mostHelloBytes : wanted);
  };
  while (!peer.isLost()) {
    Result<std::optional<Frame>> frame = peer.read(allowed);
    if (!frame.ok())
      return drop(peer, frame.status().message());
    if (!*frame)
      break;
    take(peer, std::move(**frame));
  }
  if (peer.isLost() && peer.state != Peer::Unknown &&
      peer.state != Peer::Finished)
    say(nameSite(peer.site) + " is gone after round " + std::to_string(round));
}

void Coordinator::take(Peer &peer, Frame frame) {
  bool isKnown = peer.state != Peer::Unknown;
  if (frame.header.kind == FrameKind::Hello && !isKnown)
    return takeHello(peer, frame);
  if (isKnown && frame.header.kind == FrameKind::Offer)
    return takeOffer(peer, std::move(frame));
  if (isKnown && frame.header.kind == FrameKind::State)
    return takeState(peer, std::move(frame));
  if (!isKnown || frame.header.kind != FrameKind::Bye)
    return drop(peer, "says what it should not");
  peer.state = Peer::Finished;
  ++finished;
}

void Coordinator::removeLost() {
  peers.remove_if([](const Peer &peer) { return peer.isLost(); });
}

/// A site that takes nothing gets no more of them.
void Coordinator::ping() {
  if (Clock::now() - lastPing < pingInterval)
    return;
  lastPing = Clock::now();
  for (Peer &peer : peers)
    if (peer.state != Peer::Unknown && !peer.hasOutput())
      peer.send({FrameKind::Ping});
}

/// Until something has arrived, something can be sent, or it is time.
Status Coordinator::waitForEvents() {
  std::vector<pollfd> wanted = {{listener.get(), POLLIN, 0}};
  for (const Peer &peer : peers)
    wanted.push_back({peer.descriptor(),
                      short(peer.hasOutput() ? POLLIN | POLLOUT : POLLIN), 0});
  auto limit = std::chrono::milliseconds(200);
  if (auto deadline = nextDeadline()) {
    auto left =
        std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
    limit = std::clamp(left, std::chrono::milliseconds(0), limit);
  }
  int ready = poll(wanted.data(), wanted.size(), int(limit.count()));
  if (ready < 0)
    return errno == EINTR ? Status::success()
                          : systemFailure("cannot wait for sites");
  size_t i = 0;
  for (Peer &peer : peers) {
    short events = wanted[++i].revents;
    if (events & POLLOUT)
      peer.write();
    if (events & ~POLLOUT)
      serve(peer);
  }
  // The end of a site is seen before its return.
  removeLost();
  if (wanted[0].revents)
    accept();
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Frames
//===----------------------------------------------------------------------===//

/// The first site says what all are trained with.
Status Coordinator::checkHello(const Hello &hello) {
  if (hello.hash != hash) {
    std::ostringstream text;
    text << std::hex << "its plan is " << hello.hash << ", the coordinator has "
         << hash;
    return Status::failure(text.str());
  }
  if (hello.site >= sites())
    return fail("it is site ", hello.site, ", the plan has ", sites());
  if (const Peer *other = find(hello.site); other && other->state != Peer::Late)
    return fail(nameSite(hello.site), " takes part already");
  if (settings.empty()) {
    settings = hello.settings;
    firstSite = hello.site;
  }
  for (const auto &[name, value] : settings) {
    auto found = hello.settings.find(name);
    if (found == hello.settings.end() || found->second != value)
      return fail(nameSite(hello.site), " has ",
                  found == hello.settings.end() ? "no " + name : found->second,
                  ", ", nameSite(firstSite), " has ", value);
  }
  return Status::success();
}

/// A site that is as far as the others continues at once. One that is behind
/// gets what they have when the round ends.
void Coordinator::takeHello(Peer &peer, const Frame &frame) {
  Result<Hello> hello =
      Hello::parse({reinterpret_cast<const char *>(frame.payload.data()),
                    frame.payload.size()});
  Status status = hello.ok() ? checkHello(*hello) : hello.status();
  if (status.ok() && hasBegun && frame.header.round > round)
    status = fail(nameSite(hello->site), " has done ", frame.header.round,
                  " rounds, the others ", round);
  if (!status.ok())
    return refuse(peer, status.message());
  if (Peer *asleep = find(hello->site))
    asleep->lose();
  peer.site = hello->site;
  peer.round = frame.header.round;
  if (!hasBegun) {
    peer.state = Peer::Gathering;
    firstHello = firstHello ? firstHello : Clock::now();
    say(nameSite(peer.site) + " is there, " + std::to_string(peer.round) +
        " rounds done");
    return;
  }
  peer.state = peer.round == round ? Peer::Present : Peer::Waiting;
  say(nameSite(peer.site) + " joins after round " + std::to_string(round));
  if (peer.state == Peer::Present)
    peer.send({FrameKind::Start, 0, 0, round});
  else
    sendMissedSoon(peer);
}

/// Takes what a site has of a round. What comes too late still counts later
/// where this coordinator knows that it has not been counted.
void Coordinator::takeOffer(Peer &peer, Frame frame) {
  uint64_t of = frame.header.round;
  bool isOfRound =
      hasBegun ? of == round && peer.state == Peer::Present : of == peer.round;
  if (isOfRound) {
    offers[peer.site] = std::move(frame.payload);
    firstOffer = firstOffer ? firstOffer : Clock::now();
    return;
  }
  if (!hasBegun || of >= round)
    return drop(peer, "offers what is of no round");
  peer.state = Peer::Waiting;
  peer.round = of;
  peer.offerCounts = of >= firstRound && lastCounted[peer.site] != of;
  say(nameSite(peer.site) + " is heard of again, after round " +
      std::to_string(round));
  sendMissedSoon(peer);
}

/// Whether what is kept begins with what the site lacks. One that has done no
/// round may have no state at all.
bool Coordinator::catchesUp(const Peer &peer) const {
  return peer.state == Peer::Waiting && !peer.isLost() && peer.round > 0 &&
         !past.empty() && past.front().round <= peer.round + 1;
}

void Coordinator::goesOn(Peer &peer, const std::string &with) {
  waiting[peer.site] = peer.offerCounts ? waiting[peer.site] + 1 : 1;
  peer.offerCounts = false;
  peer.state = Peer::Present;
  say(nameSite(peer.site) + " continues after round " + std::to_string(round) +
      " with " + with);
}

void Coordinator::sendMissed(Peer &peer) {
  for (const PastRound &one : past)
    if (one.round > peer.round)
      peer.send({FrameKind::Missed, one.count, peer.offerCounts, one.round,
                 round - one.round},
                one.sums);
  goesOn(peer, "the sums of " + countOf(round - peer.round, "round"));
}

/// A site that would be later than the others wait for begins with the next
/// round, together with them.
void Coordinator::sendMissedSoon(Peer &peer) {
  if (catchesUp(peer) && Clock::now() - closed <= options.roundLimit)
    sendMissed(peer);
}

/// Passes the state of a site on to all who wait for it.
void Coordinator::takeState(const Peer &giver, Frame frame) {
  if (!hasBegun || frame.header.round != round)
    return;
  auto state =
      std::make_shared<const std::vector<std::byte>>(std::move(frame.payload));
  for (Peer &peer : peers) {
    if (peer.state != Peer::Waiting || peer.isLost())
      continue;
    peer.send(
        {FrameKind::State, 0, peer.offerCounts, round, frame.header.updates},
        state);
    goesOn(peer, "the state of " + nameSite(giver.site));
  }
  catchUp = std::min<Clock::duration>(catchUpParts * (Clock::now() - closed),
                                      lonePatience * options.roundLimit);
}

//===----------------------------------------------------------------------===//
// Rounds
//===----------------------------------------------------------------------===//

/// The sites that are furthest go on; others wait for their state. What was
/// offered to another coordinator by one that is behind may have been counted.
void Coordinator::begin() {
  round = 0;
  for (const Peer &peer : peers)
    if (peer.state == Peer::Gathering)
      round = std::max(round, peer.round);
  firstRound = round;
  past.clear(); // of rounds that may be done once more
  hasBegun = hasMet = true;
  size_t there = count(Peer::Gathering);
  for (Peer &peer : peers) {
    if (peer.state != Peer::Gathering)
      continue;
    peer.state = peer.round == round ? Peer::Present : Peer::Waiting;
    if (peer.state == Peer::Present)
      peer.send({FrameKind::Start, 0, 0, round});
    else
      offers[peer.site].clear();
  }
  firstOffer = halfOffered = std::nullopt;
  if (std::any_of(offers.begin(), offers.end(),
                  [](auto &offer) { return !offer.empty(); }))
    firstOffer = Clock::now();
  say("begins after round " + std::to_string(round) + " with " +
      std::to_string(there) + " of " + countOf(sites(), "site"));
}

/// Nobody is left who has the newest state.
void Coordinator::gatherAgain() {
  hasBegun = false;
  firstHello = firstOffer = halfOffered = std::nullopt;
  std::fill(offers.begin(), offers.end(), std::vector<std::byte>());
  std::fill(waiting.begin(), waiting.end(), 1);
  for (Peer &peer : peers)
    if (peer.state == Peer::Waiting) {
      peer.state = Peer::Gathering;
      firstHello = firstHello ? firstHello : Clock::now();
    }
  say("no site is left that has done round " + std::to_string(round) +
      ": gathers sites again");
}

/// Who comes back when the others have ended has nobody to get a state from.
void Coordinator::dismissWaiting() {
  for (Peer &peer : peers)
    if (catchesUp(peer))
      sendMissed(peer);
    else if (peer.state == Peer::Waiting && !peer.isLost())
      refuse(peer,
             nameSite(peer.site) +
                 " is behind the others, which have done all their steps");
}

std::vector<std::byte>
Coordinator::sumOffers(const std::vector<uint32_t> &from) const {
  std::vector<std::byte> result = offers[from.front()];
  auto *sum = reinterpret_cast<float *>(result.data());
  for (size_t k = 1; k < from.size(); ++k) {
    auto *next = reinterpret_cast<const float *>(offers[from[k]].data());
    for (size_t i = 0; i < result.size() / sizeof(float); ++i)
      sum[i] += next[i];
  }
  return result;
}

/// Nothing is said of a round of the same sites as the one before, or of all.
void Coordinator::tellRound(const std::vector<uint32_t> &from) {
  std::string left;
  for (uint32_t site = 0; site < sites(); ++site) {
    if (std::count(from.begin(), from.end(), site))
      continue;
    const Peer *peer = find(site);
    left += (left.empty() ? "" : ", ") + nameSite(site) +
            (!peer                          ? " is not there"
             : peer->state == Peer::Present ? " is late"
             : peer->state == Peer::Late    ? " is still late"
                                            : " waits to continue");
  }
  if (std::exchange(absent, left) == left || left.empty())
    return;
  say("round " + std::to_string(round) + " is of " +
      std::to_string(from.size()) + " of " + countOf(sites(), "site") + ": " +
      left);
}

/// 1. Whose offers are there.
/// 2. The verdict, and to one of them the wish for its state, where others
///    wait.
/// 3. Who is late is not waited for any more.
/// 4. Who has missed some rounds begins with the next one.
void Coordinator::closeRound() {
  // 1.
  std::vector<uint32_t> from;
  for (uint32_t site = 0; site < sites(); ++site)
    if (!offers[site].empty())
      from.push_back(site);
  auto sums = std::make_shared<const std::vector<std::byte>>(sumOffers(from));
  for (uint32_t site : from) {
    lastCounted[site] = round;
    counted += std::exchange(waiting[site], 1);
  }
  ++round;
  ++rounds;
  tellRound(from);
  past.push_back({round, uint16_t(from.size()), sums});
  if (past.size() > mostPast)
    past.pop_front();
  // 2.
  bool wants = std::any_of(peers.begin(), peers.end(), [&](const Peer &peer) {
    return peer.state == Peer::Waiting && !peer.isLost() && !catchesUp(peer);
  });
  for (Peer &peer : peers) {
    if (peer.state != Peer::Present || peer.isLost())
      continue;
    if (!offers[peer.site].empty())
      peer.send({FrameKind::Verdict, uint16_t(from.size()),
                 uint16_t(std::exchange(wants, false)), round},
                sums);
    else
      peer.state = Peer::Late; // 3.
  }
  // 4.
  for (Peer &peer : peers)
    if (catchesUp(peer))
      sendMissed(peer);
  std::fill(offers.begin(), offers.end(), std::vector<std::byte>());
  firstOffer = halfOffered = std::nullopt;
  closed = Clock::now();
  catchUp = {};
}

std::optional<Coordinator::Clock::time_point>
Coordinator::nextDeadline() const {
  if (!hasBegun)
    return firstHello ? std::optional(*firstHello + options.timeLimit)
                      : std::nullopt;
  if (halfOffered)
    return *halfOffered + options.roundLimit + catchUp;
  return firstOffer ? std::optional(*firstOffer +
                                    lonePatience * options.roundLimit + catchUp)
                    : std::nullopt;
}

/// Takes the time when half of those who are awaited or have delivered have.
void Coordinator::noteOffers() {
  size_t offered =
      size_t(std::count_if(offers.begin(), offers.end(),
                           [](auto &offer) { return !offer.empty(); }));
  size_t missing =
      size_t(std::count_if(peers.begin(), peers.end(), [&](const Peer &peer) {
        return peer.state == Peer::Present && offers[peer.site].empty();
      }));
  if (hasBegun && firstOffer && !halfOffered && offered >= missing)
    halfOffered = Clock::now();
}

/// Does what is due after something has happened, or some time.
void Coordinator::advance() {
  noteOffers();
  auto deadline = nextDeadline();
  bool isTime = deadline && Clock::now() >= *deadline;
  if (!hasBegun) {
    size_t there = count(Peer::Gathering);
    if (there == sites() || (there && isTime))
      begin();
    return;
  }
  bool isAwaited = std::any_of(peers.begin(), peers.end(), [&](auto &peer) {
    return peer.state == Peer::Present && offers[peer.site].empty();
  });
  if (firstOffer && (isTime || !isAwaited))
    closeRound();
  if (firstOffer || count(Peer::Present) > 0 || count(Peer::Waiting) == 0)
    return;
  if (finished > 0)
    dismissWaiting();
  else
    gatherAgain();
}

/// Those who sleep are not waited for when others have ended.
bool Coordinator::isOver() const {
  return finished > 0 &&
         count(Peer::Present) + count(Peer::Waiting) + count(Peer::Gathering) ==
             0;
}

Status Coordinator::run(Socket listening) {
  listener = std::move(listening);
  while (!isOver()) {
    PLAIT_RETURN_IF_ERROR(waitForEvents());
    advance();
    ping();
    removeLost();
    if (!peers.empty())
      lastSite = Clock::now();
    else if (Clock::now() - lastSite > options.timeLimit)
      return fail(Code::TimedOut, "waited longer than ",
                  double(options.timeLimit.count()) / 1000, " seconds for ",
                  hasMet ? "a site to come back" : "a site");
  }
  say("the sites are done: " + countOf(rounds, "round") + " with " +
      std::to_string(counted) + " of " + std::to_string(rounds * sites()) +
      " parts of sites");
  return Status::success();
}

Status runtime::coordinate(const plan::PlanFile &file,
                           const CoordinatorOptions &options) {
  PLAIT_RETURN_IF_ERROR(checkSitesApart(file.plan()));
  Result<HostPort> place = parseHostPort(options.place, "*", "coordinate");
  if (!place.ok())
    return place.status();
  Result<Socket> listener = place->host == "*"
                                ? listenOn(place->port, /*backlog=*/128)
                                : listenAt(place->host, place->port);
  if (!listener.ok())
    return fail("`coordinate`: ", listener.status().message());
  Result<uint16_t> port = portOf(*listener);
  if (!port.ok())
    return port.status();
  uint32_t sites = plan::RankGrid(file.plan()).sites();
  PLAIT_RETURN_IF_ERROR(allowDescriptors(2 * sites, "the coordinator"));
  std::vector<uint8_t> own = makeSitePlan(file.plan());
  SiteBytes bytes = countSiteBytes(*fb::GetPlan(own.data()));
  tell(options.reporter, Severity::Info,
       "coordinates " + countOf(sites, "site") + " at port " +
           std::to_string(*port));
  return Coordinator(file.hash(), sites, bytes, options)
      .run(std::move(*listener));
}
