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

#include "MPI/Modules.h"
#include "PackedTexts.h"
#include "plait/Runtime/Communicator.h"

#include <algorithm>
#include <cstdlib>
#include <sys/socket.h>
#include <sys/stat.h>
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
TcpRendezvous::join(const Launch &launch, std::chrono::milliseconds timeLimit,
                    Reporter *reporter) {
  std::unique_ptr<TcpRendezvous> result(new TcpRendezvous(launch, timeLimit));
  auto tree = TcpTree::join(launch, result->here.host, timeLimit, reporter);
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
                       .run = launch.run,
                       .secret = launch.secret};
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

/// Says before UCX is loaded what it reads then, but where the user has. It
/// leaves signals and the allocation of memory alone, and the messages to this;
/// a network that is away for a minute loses no connection; and ends agree
/// beforehand on messages of MiBs only: that takes both threads of engines,
/// which may sleep, so that 64 KiB would take ten times as long.
static Result<std::unique_ptr<MetLibrary>> openUcx() {
  for (auto [name, value] : {std::pair("UCX_HANDLE_ERRORS", "none"),
                             {"UCX_MEM_EVENTS", "no"},
                             {"UCX_LOG_LEVEL", "fatal"},
                             {"UCX_WARN_UNUSED_ENV_VARS", "no"},
                             {"UCX_TCP_KEEPIDLE", "60s"},
                             {"UCX_TCP_KEEPINTVL", "60s"},
                             {"UCX_TCP_TX_SEG_SIZE", "64k"},
                             {"UCX_TCP_RX_SEG_SIZE", "128k"},
                             {"UCX_RNDV_THRESH", "1m"}})
    setenv(name, value, /*overwrite=*/0);
  auto opened = openModule("ucx", openUcxLibraryName);
  if (!opened.ok())
    return opened.status();
  return std::unique_ptr<MetLibrary>(
      reinterpret_cast<OpenUcxLibrary *>(*opened)());
}

/// Numbers the hosts in order of appearance. The ranks of a host have to be
/// consecutive: axes that talk most are last.
static Result<MpiLibrary::World>
findHosts(const ProcessPlace &here, const std::vector<std::string> &hosts) {
  MpiLibrary::World world;
  world.index = here.index;
  world.count = here.count;
  world.localIndex = here.localIndex;
  world.host = here.host;
  for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
    auto before = hosts.begin() + rank;
    if (rank == 0 || *before != before[-1]) {
      if (std::find(hosts.begin(), before, *before) != before)
        return fail("rank ", rank, " is on host ", *before, ", rank ", rank - 1,
                    " on ", before[-1],
                    ": the ranks of a host have to follow each other");
      world.hostNames.push_back(*before);
    }
    world.hosts.push_back(uint32_t(world.hostNames.size()) - 1);
  }
  return world;
}

/// Says which process of the system this is, as "4711 4026531836": numbers of
/// processes mean nothing in another namespace, as containers have, whose inode
/// tells them apart.
static std::string describeSelf() {
  struct stat space = {};
  if (stat("/proc/self/ns/pid", &space))
    return "";
  return std::to_string(getpid()) + " " + std::to_string(space.st_ino);
}

/// UCX may not notice for many seconds that a process has ended which it shares
/// memory with, and a process that fails would wait for it to answer.
static void findNeighbour(MpiLibrary::World &world,
                          std::span<const std::string> processes) {
  world.tellsOfEnds = true;
  auto hosts = std::ranges::equal_range(world.hosts, world.hosts[world.index]);
  uint32_t first = uint32_t(hosts.begin() - world.hosts.begin());
  uint32_t next = first + (world.index - first + 1) % uint32_t(hosts.size());
  auto spaceOf = [&](uint32_t process) {
    return processes[process].substr(processes[process].find(' ') + 1);
  };
  if (next == world.index || processes[next].empty() ||
      spaceOf(next) != spaceOf(world.index))
    return;
  world.neighbour = next;
  world.neighbourId = pid_t(std::atol(processes[next].c_str()));
}

/// 1. All learn all hosts, by name, and by which address process 0 is reached:
///    that of all processes of its host; and who watches whom.
/// 2. UCX opens its end of each process, and those that talk to each other
///    connect; a failure of one fails all.
/// 3. The engine's thread makes all further calls.
Status TcpRendezvous::openEngine(std::span<const uint32_t> peers) {
  // 1. Hosts.
  auto hosts = exchange(here.host);
  if (!hosts.ok())
    return hosts.status();
  auto world = findHosts(here, *hosts);
  if (!world.ok())
    return world.status();
  here.hosts = world->hosts;
  auto processes = exchange(describeSelf());
  if (!processes.ok())
    return processes.status();
  findNeighbour(*world, *processes);
  auto ofFirst = broadcast(tree->address());
  if (!ofFirst.ok())
    return ofFirst.status();
  std::string address = tree->address().empty() ? *ofFirst : tree->address();
  if (address.empty()) // all are on one host
    address = "127.0.0.1";
  // 2. As many descriptors as it has partners.
  auto library = openUcx();
  Result<std::string> mine = library.status();
  if (library.ok())
    mine = (*library)->open(address);
  Status prepared = mine.status();
  if (prepared.ok())
    prepared = allowDescriptors(peers.size(), "a process");
  PLAIT_RETURN_IF_ERROR(agree(prepared));
  auto places = exchange(*mine);
  if (!places.ok())
    return places.status();
  PLAIT_RETURN_IF_ERROR(
      agree((*library)->connect(std::move(*world), std::move(*places), peers)));
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
