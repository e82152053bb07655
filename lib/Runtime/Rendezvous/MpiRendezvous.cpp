//===- MpiRendezvous.cpp - Processes that meet over MPI -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Processes that a launcher of MPI has started: texts and bytes go as transfers
// of the engine (Engine.h).
//
//===----------------------------------------------------------------------===//

#include "MpiRendezvous.h"

#include "MPI/Modules.h"

#include <algorithm>

using namespace plait;
using namespace plait::runtime;

namespace {

/// Texts of gather() have a tag of their own; bytes of rank r have the tag 1 +
/// r, so that ranks of one process do not take each other's.
constexpr uint32_t textTag = 0, firstRankTag = 1; // on MpiChannel::Control

/// MPI takes what it only reads without const. One row; `count` elements that
/// follow each other.
template <typename T> Region regionOf(T *data, size_t count) {
  return {
      reinterpret_cast<std::byte *>(const_cast<std::remove_const_t<T> *>(data)),
      int64_t(count * sizeof(T))};
}

} // namespace

/// The engine starts MPI on its own thread, which is the only one that calls
/// it. Launcher and MPI have to agree on the number of processes: an MPI that
/// does not know the launcher takes each process for the only one.
Result<std::unique_ptr<MpiRendezvous>>
MpiRendezvous::join(const Launch &launch, std::chrono::milliseconds timeLimit) {
  auto opened = openModule("mpi", openMpiLibraryName);
  if (!opened.ok())
    return opened.status();
  auto *library = reinterpret_cast<OpenMpiLibrary *>(*opened)();
  auto engine =
      MpiEngine::start(std::unique_ptr<MpiLibrary>(library), timeLimit);
  if (!engine.ok())
    return engine.status();
  const MpiLibrary::World &world = (*engine)->world();
  ProcessPlace place = {launch.launcher,  world.index, world.count,
                        world.localIndex, world.host,  world.hosts,
                        world.processors};
  std::unique_ptr<MpiRendezvous> result(
      new MpiRendezvous(std::move(place), std::move(*engine), timeLimit));
  if (result->place().count != launch.ranks)
    return fail(launch.launcher, " started ", launch.ranks,
                " processes, MPI knows of ", result->place().count,
                ": is it another MPI's launcher?");
  return result;
}

/// The engine's thread hangs in MPI where leave() fails: it is given up to the
/// end of the process.
MpiRendezvous::~MpiRendezvous() {
  if (!mpi->leave())
    (void)mpi.release();
}

/// Calls of all processes, which the time limit is for; see also sendToFirst().
Status MpiRendezvous::run(std::vector<MpiTransfer> transfers) {
  return mpi->run(std::move(transfers), timeLimit);
}

/// Eight bytes of each process: receivers have to know how much to make room
/// for.
Result<std::vector<uint64_t>>
MpiRendezvous::exchangeSizes(const std::string &mine) {
  uint64_t size = mine.size();
  std::vector<uint64_t> sizes(here.count);
  MpiTransfer transfer;
  transfer.kind = MpiTransfer::Kind::AllGather;
  transfer.region = regionOf(&size, 1);
  transfer.all = reinterpret_cast<std::byte *>(sizes.data());
  PLAIT_RETURN_IF_ERROR(run({transfer}));
  return sizes;
}

/// Asked between steps by processes that rarely have anything to say: one
/// collective then.
Result<std::vector<std::string>>
MpiRendezvous::exchange(const std::string &mine) {
  auto sizes = exchangeSizes(mine);
  if (!sizes.ok())
    return sizes.status();
  // Most of the time nobody has anything to say.
  if (std::all_of(sizes->begin(), sizes->end(),
                  [](uint64_t size) { return size == 0; }))
    return std::vector<std::string>(here.count);
  return Rendezvous::exchange(mine);
}

/// 1. Sizes.
/// 2. A message of each process that has something to say, to process 0. All of
///    them are one job, so that they arrive in any order.
Result<std::vector<std::string>>
MpiRendezvous::gather(const std::string &mine) {
  auto sizes = exchangeSizes(mine);
  if (!sizes.ok())
    return sizes.status();
  // 2. Elsewhere than in process 0 it stays empty.
  std::vector<std::string> texts;
  std::vector<MpiTransfer> transfers;
  auto add = [&](MpiTransfer::Kind kind, uint32_t peer, Region region) {
    if (region.bytes)
      transfers.push_back(
          {kind, MpiChannel::Control, peer, textTag, region, nullptr});
  };
  if (here.index != 0) {
    add(MpiTransfer::Kind::Send, 0, regionOf(mine.data(), mine.size()));
  } else {
    for (uint64_t size : *sizes)
      texts.emplace_back(size, '\0');
    texts[0] = mine;
    for (uint32_t peer = 1; peer < here.count; ++peer)
      add(MpiTransfer::Kind::Receive, peer,
          regionOf(texts[peer].data(), texts[peer].size()));
  }
  PLAIT_RETURN_IF_ERROR(run(std::move(transfers)));
  return texts;
}

/// First the size, then the text: receivers have to make room.
Result<std::string> MpiRendezvous::broadcast(const std::string &ofFirst) {
  uint64_t size = ofFirst.size();
  MpiTransfer transfer;
  transfer.kind = MpiTransfer::Kind::Broadcast;
  transfer.region = regionOf(&size, 1);
  PLAIT_RETURN_IF_ERROR(run({transfer}));
  std::string text = here.index == 0 ? ofFirst : std::string(size, '\0');
  if (size == 0)
    return text;
  transfer.region = regionOf(text.data(), text.size());
  PLAIT_RETURN_IF_ERROR(run({transfer}));
  return text;
}

/// Without a time limit, for process 0 may be writing to a slow disk; a failure
/// of it aborts the engine and ends this wait.
Status MpiRendezvous::sendToFirst(uint32_t rank,
                                  std::span<const std::byte> bytes) {
  return mpi->run(
      {{MpiTransfer::Kind::Send, MpiChannel::Control, 0, firstRankTag + rank,
        regionOf(bytes.data(), bytes.size()), nullptr}},
      MpiEngine::forEver);
}

Status MpiRendezvous::receiveFrom(uint32_t rank, std::span<std::byte> bytes) {
  return mpi->run({{MpiTransfer::Kind::Receive, MpiChannel::Control,
                    spread().processOf(rank), firstRankTag + rank,
                    regionOf(bytes.data(), bytes.size()), nullptr}},
                  MpiEngine::forEver);
}

void MpiRendezvous::disconnect() { mpi->abort(); }

/// A failure that all have agreed on is told by process 0. Else this process
/// warns the others, waits until the engine has halted and has heard their
/// warnings, and speaks if it is the first of those that failed by themselves.
bool MpiRendezvous::speaksOfFailure() {
  if (isAgreedFailure)
    return here.index == 0;
  mpi->abort();
  mpi->awaitHalt();
  return mpi->isFirstToFail();
}
