//===- TcpRendezvous.cpp - Processes that meet over TCP -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Texts go through the tree (TcpTree.h). Bytes of ranks for process 0 go
// directly, over one connection that process 0 makes to the process whose bytes
// it wants, so that it never has thousands. The engine, which keeps what it
// connects, is for what is said in every step.
//
//===----------------------------------------------------------------------===//

#include "TcpRendezvous.h"

#include "MPI/TcpLibrary.h"
#include "PackedTexts.h"
#include "plait/Runtime/Communicator.h"

#include <algorithm>
#include <cstring>
#include <sys/socket.h>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

/// Hosts are not known yet: openEngine() asks for them where they matter.
TcpRendezvous::TcpRendezvous(const Launch &launch,
                             std::chrono::milliseconds timeLimit)
    : Rendezvous({launch.launcher,
                  launch.rank,
                  launch.ranks,
                  launch.localRank,
                  "",
                  {},
                  0}),
      launch(launch), timeLimit(timeLimit) {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  here.host = name;
}

/// Members are made first: the tree's failures name the host.
Result<std::unique_ptr<TcpRendezvous>>
TcpRendezvous::join(const Launch &launch, std::chrono::milliseconds timeLimit) {
  std::unique_ptr<TcpRendezvous> result(new TcpRendezvous(launch, timeLimit));
  auto tree = TcpTree::join(launch, result->here.host, timeLimit);
  if (!tree.ok())
    return tree.status();
  result->tree = std::move(*tree);
  return result;
}

/// An engine that cannot leave has a thread that still uses it: it is leaked,
/// at the end of the process, and not destroyed under that thread.
TcpRendezvous::~TcpRendezvous() {
  if (transfers && !transfers->leave())
    (void)transfers.release();
}

//===----------------------------------------------------------------------===//
// All together
//===----------------------------------------------------------------------===//

/// So isSpokenOf() knows that another process says why.
template <typename T> Result<T> TcpRendezvous::noteFailure(Result<T> result) {
  isTold |= !result.ok() && tree->hasHeardOfFailure();
  return result;
}

/// Gathers what this process and those below it say. Each process sends one
/// message up whatever is below it. Texts carry their process, so that their
/// order does not matter.
Result<std::string> TcpRendezvous::gatherPacked(const std::string &mine) {
  auto below = tree->fromChildren();
  if (!below.ok())
    return below.status();
  std::string packed = packText(launch.rank, mine);
  for (const std::string &texts : *below)
    packed += texts;
  if (launch.rank != 0)
    PLAIT_RETURN_IF_ERROR(tree->toParent(packed));
  return packed;
}

/// The root unpacks; elsewhere the result is empty.
Result<std::vector<std::string>>
TcpRendezvous::gather(const std::string &mine) {
  auto packed = noteFailure(gatherPacked(mine));
  if (!packed.ok())
    return packed.status();
  if (launch.rank != 0)
    return std::vector<std::string>();
  return unpackTexts(*packed, launch.ranks);
}

/// Passed on before it is used: the depth of the tree is all that it costs.
Result<std::string> TcpRendezvous::passDown(const std::string &ofFirst) {
  auto text = launch.rank == 0 ? ofFirst : tree->fromParent();
  if (text.ok())
    PLAIT_RETURN_IF_ERROR(tree->toChildren(*text));
  return text;
}

Result<std::string> TcpRendezvous::broadcast(const std::string &ofFirst) {
  return noteFailure(passDown(ofFirst));
}

//===----------------------------------------------------------------------===//
// Bytes for process 0
//===----------------------------------------------------------------------===//

/// Until process 0 wants the next bytes: it has one connection for those of all
/// processes, to one of them at a time. Process 0 asks with an empty frame;
/// where it has hung up, it takes those of other ranks first and connects
/// again. Woken every second to see failures of the tree.
Status TcpRendezvous::awaitRequest() {
  while (!tree->hasFailed()) {
    std::vector<pollfd> events;
    if (stream.get() >= 0)
      events.push_back({stream.get(), POLLIN, 0});
    // Process 0 may connect at any time.
    tree->door().addTo(events);
    poll(events.data(), events.size(), 1000);
    if (stream.get() >= 0 && events[0].revents) {
      Frame request;
      // Any frame is a request.
      if (receiveFrame(stream.get(), request))
        return Status::success();
      std::lock_guard lock(streaming);
      stream.reset(); // it takes those of others first
    }
    auto arrivals = tree->door().serve(timeLimit);
    if (!arrivals.ok())
      return arrivals.status();
    for (Reception::Arrival &arrival : *arrivals)
      if (arrival.greeting.purpose == Greeting::Purpose::Data) {
        std::lock_guard lock(streaming);
        stream = std::move(arrival.connection);
      }
  }
  return failReleased();
}

/// Bytes follow a request, so that they never wait in sockets of process 0
/// while it is busy with other ranks. No time limit: it may write to a slow
/// disk, for as long as that takes. Which rank it wants is known from the
/// order.
Status TcpRendezvous::sendToFirst(uint32_t /*rank*/,
                                  std::span<const std::byte> bytes) {
  PLAIT_RETURN_IF_ERROR(awaitRequest());
  return sendAll(stream.get(), bytes.data(), bytes.size())
             ? Status::success()
             : systemFailure("rank 0 has ended the connection");
}

/// Assigning the new connection hangs up on the source before.
Status TcpRendezvous::connectToSource(uint32_t process) {
  // Bytes of one process follow each other on one connection.
  if (stream.get() >= 0 && source == process)
    return Status::success();
  const TcpTree::Place &place = tree->placeOf(process);
  auto connected =
      connectTo(place.address.empty() ? launch.address : place.address,
                place.port, std::chrono::milliseconds(0));
  if (!connected.ok())
    return fail("cannot reach process ", process, " on ", place.host, " at ",
                connected.status().message());
  PLAIT_RETURN_IF_ERROR(setTimeLimit(connected->get(), timeLimit));
  Greeting greeting = {.purpose = Greeting::Purpose::Data,
                       .ranks = launch.ranks,
                       .run = launch.run};
  if (!sendAll(connected->get(), &greeting, sizeof(greeting)))
    return systemFailure("cannot reach process " + std::to_string(process));
  std::lock_guard lock(streaming);
  // disconnect() found no stream to shut down.
  if (isDisconnected)
    return failReleased();
  stream = std::move(*connected);
  source = process;
  return Status::success();
}

Status TcpRendezvous::receiveFrom(uint32_t rank, std::span<std::byte> bytes) {
  uint32_t process = spread().processOf(rank);
  PLAIT_RETURN_IF_ERROR(connectToSource(process));
  return sendFrame(stream.get(), {}) &&
                 receiveAll(stream.get(), bytes.data(), bytes.size())
             ? Status::success()
             : systemFailure("rank " + std::to_string(rank) + " on " +
                             tree->placeOf(process).host +
                             " has ended the connection");
}

//===----------------------------------------------------------------------===//
// Engine and end
//===----------------------------------------------------------------------===//

/// 1. All learn all hosts, by name, and number them in order of appearance. The
///    ranks of a host have to be consecutive: axes that talk most are last.
/// 2. Those that talk to each other connect; a failure of one fails all.
/// 3. The engine takes the connections over.
Status TcpRendezvous::openEngine(std::span<const uint32_t> peers) {
  // 1. Hosts.
  auto hosts = exchange(here.host);
  if (!hosts.ok())
    return hosts.status();
  here.hosts.assign(1, 0);
  for (uint32_t rank = 1; rank < launch.ranks; ++rank) {
    auto before = hosts->begin() + rank;
    bool isNew = *before != before[-1];
    if (isNew && std::find(hosts->begin(), before, *before) != before)
      return fail("rank ", rank, " is on host ", *before, ", rank ", rank - 1,
                  " on ", before[-1],
                  ": the ranks of a host have to follow each other");
    here.hosts.push_back(here.hosts.back() + isNew);
  }
  // 2. Connections; it takes as long as the slowest.
  auto library =
      connectOverTcp(*this, peers, tree->address(), launch.address, timeLimit);
  PLAIT_RETURN_IF_ERROR(agree(library.status()));
  // 3. The thread that serves them.
  auto engine = MpiEngine::start(std::move(*library), timeLimit);
  if (!engine.ok())
    return engine.status();
  transfers = std::move(*engine);
  return Status::success();
}

/// May be called while another thread waits in sendToFirst() or receiveFrom():
/// shutdown() ends that wait, while closing the descriptor could hand its
/// number to somebody else.
void TcpRendezvous::disconnect() {
  if (transfers)
    transfers->abort();
  (void)tree->giveUp(
      fail("rank ", launch.rank, " on ", here.host, " has failed"));
  std::lock_guard lock(streaming);
  isDisconnected = true;
  if (stream.get() >= 0)
    shutdown(stream.get(), SHUT_RDWR);
}

/// The first process that has halted the engine, where there is one, speaks:
/// awaitHalt() lets all of them know who that was.
bool TcpRendezvous::speaksOfFailure() {
  if (isAgreedFailure || !transfers)
    return Rendezvous::speaksOfFailure();
  disconnect();
  transfers->awaitHalt();
  return transfers->isFirstToFail();
}
