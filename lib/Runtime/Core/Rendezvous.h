//===- Rendezvous.h - Where processes find each other -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_RENDEZVOUS_H
#define PLAIT_LIB_RUNTIME_CORE_RENDEZVOUS_H

#include "Launch.h"

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace plait::runtime {

/// The processes of a run, connected to that of rank 0 by TCP: for what has to
/// be said before faster ways exist. Anyone who can reach the port can join in;
/// the network is trusted.
class Rendezvous {
public:
  /// Returns when all processes have called this. Rank 0 listens on the port of
  /// `launch`; the others try to reach it until `timeLimit` has passed.
  static Result<std::unique_ptr<Rendezvous>>
  join(const Launch &launch, std::chrono::milliseconds timeLimit);
  ~Rendezvous();

  /// All processes call this; each gets what all have given, by rank.
  Result<std::vector<std::string>> exchange(const std::string &mine);

  /// All processes call this with how it went for them; each gets the failure
  /// of the lowest rank that has one. Waits for as long as the others take: who
  /// ends closes its connections, which is noticed.
  Status agree(const Status &mine);

  /// Gives rank 0 `bytes`, which calls receiveFrom() with as many. Returns when
  /// they are on their way; waits for as long as rank 0 takes.
  Status sendToFirst(std::span<const std::byte> bytes);
  /// On rank 0: what `rank` gives.
  Status receiveFrom(uint32_t rank, std::span<std::byte> bytes);

  /// Lets the others fail where they wait for this process.
  void disconnect();

private:
  Rendezvous(const Launch &launch, std::chrono::milliseconds timeLimit)
      : launch(launch), timeLimit(timeLimit) {}

  Status listenForAll();
  Status accept(int listener, std::chrono::steady_clock::time_point start);
  Status connectToFirst();
  Status setTimeLimit(int connection);
  /// Whether a silent peer is waited for beyond the time limit.
  enum class Patient : bool { No, Yes };

  Result<std::vector<std::string>> exchange(const std::string &mine,
                                            Patient patient);
  Status send(int connection, const std::string &text);
  Result<std::string> receive(int connection, Patient patient);
  uint32_t missingRank() const;

  Launch launch;
  std::chrono::milliseconds timeLimit;
  // Rank 0: to every other rank, by rank, -1 for itself. Others: one, to it.
  std::vector<int> connections;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_RENDEZVOUS_H
