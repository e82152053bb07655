//===- TcpRendezvous.h - Processes that meet over TCP -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_TCPRENDEZVOUS_H
#define PLAIT_LIB_RUNTIME_CORE_TCPRENDEZVOUS_H

#include "MPI/Engine.h"
#include "TcpTree.h"
#include "plait/Runtime/Rendezvous.h"

namespace plait::runtime {

/// The processes of a run, one a rank, connected as a tree. What all say goes
/// up in it, what all hear down. Anyone who can reach the port can join in; the
/// network is trusted.
class TcpRendezvous : public Rendezvous {
public:
  /// Returns when all processes have called this. Rank 0 listens on the port of
  /// `launch`; the others try to reach it until `timeLimit` has passed.
  /// `reporter`, unless it is null, hears of those that are late.
  static Result<std::unique_ptr<TcpRendezvous>>
  join(const Launch &launch, std::chrono::milliseconds timeLimit,
       Reporter *reporter = nullptr);
  ~TcpRendezvous() override;

  Result<std::vector<std::string>> gather(const std::string &mine) override;
  Result<std::string> broadcast(const std::string &ofFirst) override;
  Status sendToFirst(uint32_t rank, std::span<const std::byte> bytes) override;
  Status receiveFrom(uint32_t rank, std::span<std::byte> bytes) override;
  void disconnect() override;
  bool speaksOfFailure() override;
  Status openEngine(std::span<const uint32_t> peers) override;
  MpiEngine *engine() override { return transfers.get(); }

private:
  TcpRendezvous(const Launch &launch, std::chrono::milliseconds timeLimit);

  Result<std::string> gatherPacked(const std::string &mine);
  Result<std::string> passDown(const std::string &ofFirst);
  template <typename T> Result<T> noteFailure(Result<T> result);
  Status awaitRequest();
  Status connectToSource(uint32_t process);

  Launch launch;
  std::chrono::milliseconds timeLimit;
  std::unique_ptr<TcpTree> tree;
  std::unique_ptr<MpiEngine> transfers; // null: not needed so far

  // Between process 0 and the one whose bytes it takes.
  std::mutex streaming; // of the next two
  Socket stream;
  bool isDisconnected = false;
  uint32_t source = 0; // of the bytes; in process 0
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_TCPRENDEZVOUS_H
