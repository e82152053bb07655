//===- TcpTree.h - The tree in which processes are connected ----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Process r has the processes fanOut·r + 1 to fanOut·r + fanOut below it. What
// all have to say goes up, what all have to know goes down, so that a process
// has a few descriptors and messages whatever the number of processes.
//
// At first only process 0 can be found (Meeting.h). Each other one opens a
// port, connects to process 0, says where it is reached, and gets the places of
// its neighbours in the tree that have come before it: to these it connects.
// Those that come later connect to it. Then it tells process 0 that it is done,
// and hangs up, so that process 0 has few of them at once. Whoever ends on the
// way is missed: by process 0 before it is done; from then on by its
// neighbours, or by the one that comes later and cannot connect to it.
//
// A failure goes to all neighbours and is passed on: all fail with its text.
// A process that is not yet connected upwards asks now and then whether process
// 0 is still there.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_TCPTREE_H
#define PLAIT_LIB_RUNTIME_CORE_TCPTREE_H

#include "Launch.h"
#include "Reception.h"
#include "plait/Support/Reporter.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

namespace plait::runtime {

/// Who is above and below whom.
struct TreeShape {
  static constexpr uint32_t fanOut = 8;
  uint32_t count;

  static uint32_t parentOf(uint32_t rank) { return (rank - 1) / fanOut; }
  uint32_t firstChildOf(uint32_t rank) const {
    return std::min<uint64_t>(count, uint64_t(rank) * fanOut + 1);
  }
  uint32_t childrenOf(uint32_t rank) const {
    return std::min(fanOut, count - firstChildOf(rank));
  }
  /// How many levels are below `rank`, and above it.
  uint32_t levelsBelow(uint32_t rank) const {
    uint32_t child = firstChildOf(rank);
    return child < count ? 1 + levelsBelow(child) : 0;
  }
  static uint32_t levelsAbove(uint32_t rank) {
    return rank ? 1 + levelsAbove(parentOf(rank)) : 0;
  }
};

/// The connections of one process. All calls but giveUp() and hasFailed() come
/// from one thread. After a failure all fail, with its text.
class TcpTree {
public:
  /// The place where a process is reached.
  struct Place {
    uint16_t port = 0; // 0: it has not come
    std::string host, address;
  };

  /// Returns when all processes have called this. `reporter`, unless it is
  /// null, hears of those that are late, until then.
  static Result<std::unique_ptr<TcpTree>>
  join(const Launch &launch, const std::string &host,
       std::chrono::milliseconds timeLimit, Reporter *reporter = nullptr);

  /// One text of each process below, in their order. Waits for the time limit,
  /// and longer the more levels are below: who is deeper speaks first.
  Result<std::vector<std::string>> fromChildren();
  /// Not on process 0, as the next.
  Status toParent(const std::string &text);
  Result<std::string> fromParent();
  Status toChildren(const std::string &text);

  /// This process fails for `reason`; tells the others and returns it. Nothing
  /// happens where that is known already. From any thread.
  Status giveUp(const Status &reason) {
    return endWith(reason, /*byItself=*/true);
  }
  bool hasFailed();
  /// Whether another process has told of the failure, or one will.
  bool hasHeardOfFailure();

  /// Returns the place of process `rank`, in process 0.
  const Place &placeOf(uint32_t rank) const { return places[rank]; }
  /// The address of this machine towards process 0. Empty on its host, but in
  /// process 0, which has its address towards other hosts, if there are any.
  const std::string &address() const { return here.address; }
  /// Returns where this process is reached; after join() of process 0 it is
  /// not.
  Reception &door() { return reception; }

  /// Sockets that a process has at most, also while all connect.
  static constexpr uint32_t mostDescriptors = Reception::mostDescriptors +
                                              2 * Reception::mostGuests +
                                              TreeShape::fanOut + 2;

private:
  using Clock = std::chrono::steady_clock;

  struct Link {
    Socket connection;
    uint32_t rank = 0;
    std::string host;
    std::string begun = {};             // the Parts of a text that is coming
    std::deque<std::string> inbox = {}; // what has come and is not yet taken
    bool ended = false;
  };

  TcpTree(const Launch &launch, const std::string &host,
          std::chrono::milliseconds timeLimit);

  Status meet(Reporter *reporter);
  Status checkIn(Reporter *reporter);
  Status connectToEarlier(const std::string &list);
  Status awaitAll(Reporter *reporter);
  Status awaitWord();
  bool isComplete() const;
  Status askForFirst();

  Status serve(Clock::time_point until, bool isOpen);
  Status hear(Link &link);
  Status hearComer(Link &comer);
  Status admit(Reception::Arrival arrival);
  Status admitComer(Reception::Arrival arrival);
  std::string neighboursOf(uint32_t rank) const;

  Status send(Link &link, const std::string &text);
  Status lose(const Link &link);
  Status timeOut(const std::string &who, bool speaks);
  bool speaksOf(const Link &link) const;
  Status endWith(const Status &reason, bool byItself);
  Status getFailure();
  std::vector<Link *> links();
  Link *linkTo(uint32_t rank);
  std::string nameMissing() const;
  std::chrono::milliseconds patience(uint32_t levels) const;

  Launch launch;
  std::chrono::milliseconds timeLimit;
  TreeShape shape;
  Place here;
  Reception reception;
  Link up;
  std::vector<Link> down;

  // In process 0:
  std::vector<Place> places;
  std::vector<bool> arrived;
  uint32_t arrivals = 1;
  std::vector<Link> comers; // that have not yet done all they were told

  std::mutex mutex; // of what follows
  Status failure = Status::success();
  bool isByItself = false;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_TCPTREE_H
