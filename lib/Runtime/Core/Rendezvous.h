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
#include <memory>
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

private:
  Rendezvous(const Launch &launch, std::chrono::milliseconds timeLimit)
      : launch(launch), timeLimit(timeLimit) {}

  Status listenForAll();
  Status accept(int listener, std::chrono::steady_clock::time_point start);
  Status connectToFirst();
  Status setTimeLimit(int connection);
  Status send(int connection, const std::string &text);
  Result<std::string> receive(int connection);
  uint32_t missingRank() const;

  Launch launch;
  std::chrono::milliseconds timeLimit;
  // Rank 0: to every other rank, by rank, -1 for itself. Others: one, to it.
  std::vector<int> connections;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_RENDEZVOUS_H
