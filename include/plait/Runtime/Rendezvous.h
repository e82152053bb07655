//===- Rendezvous.h - The processes of a run --------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How the processes that a launcher has started to run one plan find each other
// and agree: over MPI where mpirun or srun has started them, over TCP with
// torchrun's variables. What ranks tell each other during a step goes elsewhere
// (Communicator.h).
//
// Calls of all processes wait for those that are late for the time limit of the
// run, then fail with their names, as far as they are known: what may take
// longer is done beside them (doTogether() of Processes.h). They come from one
// thread; those of sendToFirst() and receiveFrom() from another one.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_RENDEZVOUS_H
#define PLAIT_RUNTIME_RENDEZVOUS_H

#include "plait/Support/Reporter.h"
#include "plait/Support/Status.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace plait::runtime {

class MpiEngine;

/// The place of this process among all of the run.
struct ProcessPlace {
  std::string launcher; // for messages
  uint32_t index = 0;   // below `count`; process 0 speaks for all
  uint32_t count = 1;
  uint32_t localIndex = 0; // among the processes of this host
  std::string host;
  /// The number of each process's host. Empty where it is not known.
  std::vector<uint32_t> hosts;
  /// Processors that the processes of this host may use together; 0: unknown.
  uint32_t processors = 0;
};

/// Which process has which ranks: each a run of them, of equal length but for
/// one, the runs in the order of the processes.
struct RankSpread {
  uint32_t ranks, processes;

  /// The first rank of `process`; its last one is before that of the next.
  uint32_t firstOf(uint32_t process) const {
    return uint32_t(uint64_t(process) * ranks / processes);
  }
  uint32_t processOf(uint32_t rank) const {
    return uint32_t(((uint64_t(rank) + 1) * processes - 1) / ranks);
  }
  /// The most ranks that a process has.
  uint32_t largest() const { return (ranks + processes - 1) / processes; }
};

/// A value that all processes of a run have to have alike.
struct SharedValue {
  std::string value;
  std::string text; // that messages show: "lr 0.001"
};

/// The processes of a run, seen from one of them.
class Rendezvous {
public:
  /// Joins the processes that the environment speaks of; null: this one is
  /// alone. Returns when all have called it, or fails after `timeLimit`.
  /// `reporter`, unless it is null, hears of those that are late, until then.
  static Result<std::unique_ptr<Rendezvous>>
  join(std::chrono::milliseconds timeLimit, Reporter *reporter = nullptr);
  virtual ~Rendezvous() = default;
  /// Returns what the environment says of this process's index, before it has
  /// joined. 0 where it says nothing.
  static uint32_t launchIndex();
  /// Whether the environment speaks of several processes.
  static bool isLaunched();

  const ProcessPlace &place() const { return here; }

  /// Sets how ranks are spread. Has to be called before ranks are spoken of.
  void spread(uint32_t ranks) { spreadRanks = {ranks, here.count}; }
  const RankSpread &spread() const { return spreadRanks; }

  /// All processes call this; each gets what all have given, by process. Where
  /// all have much to say, and are many, gather() costs less.
  virtual Result<std::vector<std::string>> exchange(const std::string &mine);

  /// All processes call this; process 0 gets what all have given, by process,
  /// the others nothing.
  virtual Result<std::vector<std::string>> gather(const std::string &mine) = 0;
  /// All processes call this; each gets what process 0 has given.
  virtual Result<std::string> broadcast(const std::string &ofFirst) = 0;

  /// All processes call this with how it went for them; each gets the failure
  /// of the lowest one that has one.
  Status agree(const Status &mine);
  /// All processes call this with `mine`; process 0 passes a verdict on what
  /// all have given, which each gets.
  Status
  judge(const std::string &mine,
        const std::function<Status(std::span<const std::string>)> &verdict);
  /// Fails where one of `mine` does not have the same value everywhere. All
  /// processes give as many.
  Status agreeOn(std::span<const SharedValue> mine);
  /// The same of one, which is shown as "WHAT VALUE".
  Status agreeOn(const std::string &what, const std::string &value) {
    return agreeOn(std::vector<SharedValue>{{value, what + " " + value}});
  }

  /// Gives process 0 `bytes` of `rank`, which calls receiveFrom() with as many,
  /// in the same order: a process gives those of one rank after the other.
  /// Waits for as long as process 0 takes.
  virtual Status sendToFirst(uint32_t rank,
                             std::span<const std::byte> bytes) = 0;
  /// Receives, on process 0, what `rank`, of another process, gives.
  virtual Status receiveFrom(uint32_t rank, std::span<std::byte> bytes) = 0;

  /// This process gives up: lets the others fail where they wait for it.
  virtual void disconnect() = 0;

  /// Asked once by a process that has failed: whether it is the one to say so.
  /// The others have failed for the same reason, or because of this one. Tells
  /// them, as disconnect() does.
  virtual bool speaksOfFailure();
  /// Tells the process for which that is true who has not reacted to it, as
  /// "process 2 on b with ranks 4 to 5 does not answer"; empty where all have.
  std::string describeSilent();
  /// Tells what this process knows of why it fails, where a rank was merely
  /// released; else empty.
  std::string reasonOfRelease();
  /// Whether another process says why this one fails.
  bool isSpokenOf() const {
    return isTold || (isAgreedFailure && here.index != 0);
  }

  /// The engine that ranks of different processes talk through where that is
  /// memory of processors; null: nothing so far.
  virtual MpiEngine *engine() { return nullptr; }
  /// All processes call this where engine() is null and they need it. `peers`
  /// are the processes that this one will talk to, as it will to them; others
  /// may be added later.
  virtual Status openEngine(std::span<const uint32_t> peers) = 0;

protected:
  explicit Rendezvous(ProcessPlace place) : here(std::move(place)) {}

  ProcessPlace here;
  /// All processes know of the failure.
  bool isAgreedFailure = false;
  /// Another process has told of the failure.
  bool isTold = false;

private:
  std::string nameProcess(uint32_t process);

  RankSpread spreadRanks = {1, 1};
};

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_RENDEZVOUS_H
