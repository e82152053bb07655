//===- Coordinator.h - Where sites meet -------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_SITES_COORDINATOR_H
#define PLAIT_LIB_RUNTIME_SITES_COORDINATOR_H

#include "Peer.h"
#include "plait/Runtime/Sites.h"

#include <chrono>
#include <deque>
#include <list>
#include <optional>

namespace plait::runtime {

/// The rounds of a training with sites: who is there, who has delivered, and
/// what they come to. One thread; sockets are never waited for one by one.
class Coordinator {
public:
  /// `hash` is that of the plan of `sites` sites, of which each says so much.
  Coordinator(uint64_t hash, uint32_t sites, SiteBytes bytes,
              const CoordinatorOptions &options)
      : hash(hash), bytes(bytes), options(options), offers(sites),
        lastCounted(sites, never), waiting(sites, 1) {}

  /// Returns when those who are there have done all of their steps.
  Status run(Socket listening);

private:
  using Clock = std::chrono::steady_clock;
  static constexpr uint64_t never = UINT64_MAX;

  struct PastRound {
    uint64_t round;
    uint16_t count; // of the sites that it is of
    std::shared_ptr<const std::vector<std::byte>> sums;
  };

  // Connections.
  Status waitForEvents();
  void accept();
  void serve(Peer &peer);
  void take(Peer &peer, Frame frame);
  void drop(Peer &peer, const std::string &why);
  void removeLost();
  void refuse(Peer &peer, const std::string &why);
  void ping();

  // Frames.
  void takeHello(Peer &peer, const Frame &frame);
  Status checkHello(const Hello &hello);
  void takeOffer(Peer &peer, Frame frame);
  void takeState(const Peer &peer, Frame frame);
  bool catchesUp(const Peer &peer) const;
  void sendMissed(Peer &peer);
  void sendMissedSoon(Peer &peer);
  void goesOn(Peer &peer, const std::string &with);

  // Rounds.
  void begin();
  void gatherAgain();
  void dismissWaiting();
  void closeRound();
  std::vector<std::byte> sumOffers(const std::vector<uint32_t> &counted) const;
  void tellRound(const std::vector<uint32_t> &counted);
  std::optional<Clock::time_point> nextDeadline() const;
  void noteOffers();
  void advance();
  bool isOver() const;

  Peer *find(uint32_t site);
  size_t count(Peer::State state) const;
  void say(const std::string &text) const;
  uint32_t sites() const { return uint32_t(offers.size()); }

  uint64_t hash;
  SiteBytes bytes;
  CoordinatorOptions options;
  Socket listener;
  std::list<Peer> peers;
  bool hasBegun = false, hasMet = false;
  uint64_t round = 0;                           // done
  uint64_t firstRound = 0;                      // that was begun here
  std::deque<PastRound> past;                   // the last ones, in their order
  std::vector<std::vector<std::byte>> offers;   // by site; empty: none
  std::vector<uint64_t> lastCounted;            // round, by site
  std::vector<uint64_t> waiting;                // rounds of work, by site
  std::optional<Clock::time_point> firstOffer;  // of the round
  std::optional<Clock::time_point> halfOffered; // half of those waited for
  std::optional<Clock::time_point> firstHello;  // since sites are gathered
  Clock::time_point closed = Clock::now();      // the round before this one
  Clock::duration catchUp = {}; // that sites which gave or got a state need
  Clock::time_point lastPing = Clock::now(), lastSite = Clock::now();
  uint64_t finished = 0, counted = 0, rounds = 0;
  std::string absent; // of the last round that was told of
  std::map<std::string, std::string> settings; // of who came first
  uint32_t firstSite = 0;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_SITES_COORDINATOR_H
