//===- MpiRendezvous.h - Processes that meet over MPI -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_MPI_MPIRENDEZVOUS_H
#define PLAIT_LIB_RUNTIME_MPI_MPIRENDEZVOUS_H

#include "Launch.h"
#include "MPI/Engine.h"
#include "plait/Runtime/Rendezvous.h"

namespace plait::runtime {

/// The processes that mpirun or srun has started. Their order is MPI's but for
/// hosts: all of a host follow each other.
class MpiRendezvous : public Rendezvous {
public:
  static Result<std::unique_ptr<MpiRendezvous>>
  join(const Launch &launch, std::chrono::milliseconds timeLimit);
  ~MpiRendezvous() override;

  Result<std::vector<std::string>> exchange(const std::string &mine) override;
  Result<std::vector<std::string>> gather(const std::string &mine) override;
  Result<std::string> broadcast(const std::string &ofFirst) override;
  Status sendToFirst(uint32_t rank, std::span<const std::byte> bytes) override;
  Status receiveFrom(uint32_t rank, std::span<std::byte> bytes) override;
  void disconnect() override;
  bool speaksOfFailure() override;
  MpiEngine *engine() override { return mpi.get(); }
  Status openEngine(std::span<const uint32_t>) override {
    return Status::success();
  }

private:
  MpiRendezvous(ProcessPlace place, std::unique_ptr<MpiEngine> engine,
                std::chrono::milliseconds timeLimit)
      : Rendezvous(std::move(place)), mpi(std::move(engine)),
        timeLimit(timeLimit) {}

  /// How much each process has to say.
  Result<std::vector<uint64_t>> exchangeSizes(const std::string &mine);
  Status run(std::vector<MpiTransfer> transfers);

  std::unique_ptr<MpiEngine> mpi;
  std::chrono::milliseconds timeLimit;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_MPI_MPIRENDEZVOUS_H
