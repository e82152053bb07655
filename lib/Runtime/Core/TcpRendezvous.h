//===- TcpRendezvous.h - Processes that meet over TCP -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_TCPRENDEZVOUS_H
#define PLAIT_LIB_RUNTIME_CORE_TCPRENDEZVOUS_H

#include "Launch.h"
#include "MPI/Engine.h"
#include "plait/Runtime/Rendezvous.h"

#include <chrono>

namespace plait::runtime {

/// The processes of a run, one a rank, each connected to that of rank 0.
/// Whatever they tell each other is a message of each to rank 0 and one back.
/// Anyone who can reach the port can join in; the network is trusted.
class TcpRendezvous : public Rendezvous {
public:
  /// Returns when all processes have called this. Rank 0 listens on the port of
  /// `launch`; the others try to reach it until `timeLimit` has passed. Rank 0
  /// needs a descriptor for each process, and raises its limit as far as the
  /// system allows.
  static Result<std::unique_ptr<TcpRendezvous>>
  join(const Launch &launch, std::chrono::milliseconds timeLimit);
  ~TcpRendezvous() override;

  Result<std::vector<std::string>> gather(const std::string &mine,
                                          Wait wait) override;
  Result<std::string> broadcast(const std::string &ofFirst, Wait wait) override;
  Status sendToFirst(uint32_t rank, std::span<const std::byte> bytes) override;
  Status receiveFrom(uint32_t rank, std::span<std::byte> bytes) override;
  void disconnect() override;
  bool speaksOfFailure() override;
  /// Connects all processes with each other.
  Status openEngine() override;
  MpiEngine *engine() override { return transfers.get(); }

private:
  using Clock = std::chrono::steady_clock;

  TcpRendezvous(const Launch &launch, std::chrono::milliseconds timeLimit);

  Status listenForAll();
  Status acceptAll(int listener);
  /// Asks who is at the other end of a new connection.
  Status admit(int connection);
  Status connectToFirst();
  Status setTimeLimit(int connection);
  Status send(int connection, const std::string &text);
  Result<std::string> receive(int connection, Wait wait);
  Status transfer(MpiTransfer::Kind kind, uint32_t peer, uint32_t rank,
                  std::byte *data, size_t bytes);
  void close();
  std::string nameMissing();
  std::string ownAddress() const;
  /// The lowest rank that is not connected, `launch.ranks` when all are.
  uint32_t missingRank();

  Launch launch;
  std::chrono::milliseconds timeLimit;
  // Rank 0: to every other rank, by rank, -1 for itself. Others: one, to it.
  std::vector<int> connections;
  uint32_t firstMissing = 1;
  std::unique_ptr<MpiEngine> transfers; // null: not needed so far
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_TCPRENDEZVOUS_H
