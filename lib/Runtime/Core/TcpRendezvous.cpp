//===- TcpRendezvous.cpp - Processes that meet over TCP -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TcpRendezvous.h"

#include "MPI/TcpLibrary.h"
#include "Sockets.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

using namespace plait;
using namespace plait::runtime;

namespace {

using Clock = std::chrono::steady_clock;

/// How every connection begins.
struct Greeting {
  uint32_t magic = 0x506c6169; // "Plai"
  uint32_t rank = 0;
  uint32_t ranks = 0;
};

/// More is never exchanged.
constexpr uint32_t maxText = 1 << 26;

/// With Wait::ForEver, beyond the time limit of the connection.
bool receiveAll(int connection, void *data, size_t bytes,
                Rendezvous::Wait wait) {
  bool patient = wait == Rendezvous::Wait::ForEver;
  char *next = static_cast<char *>(data);
  while (bytes > 0) {
    ssize_t count = ::recv(connection, next, bytes, 0);
    if (count < 0 && (errno == EINTR || (patient && errno == EAGAIN)))
      continue;
    if (count == 0)
      errno = ECONNRESET;
    if (count <= 0)
      return false;
    next += count;
    bytes -= size_t(count);
  }
  return true;
}

/// When those who wait say so: after a few seconds, then ever less often.
class Notices {
public:
  /// Whether it is time, `taken` after the beginning.
  bool isDue(std::chrono::milliseconds taken) {
    if (taken < next)
      return false;
    while (taken >= next)
      next *= 2;
    return true;
  }
  std::chrono::milliseconds untilNext(std::chrono::milliseconds taken) const {
    return next - taken;
  }

private:
  std::chrono::milliseconds next = std::chrono::seconds(3);
};

void tellOfWaiting(const std::string &what, std::chrono::milliseconds taken) {
  std::fprintf(stderr, "plait-run: %s, for %lld s now\n", what.c_str(),
               static_cast<long long>(taken.count() / 1000));
}

} // namespace

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

Result<std::unique_ptr<TcpRendezvous>>
TcpRendezvous::join(const Launch &launch, std::chrono::milliseconds timeLimit) {
  std::unique_ptr<TcpRendezvous> result(new TcpRendezvous(launch, timeLimit));
  PLAIT_RETURN_IF_ERROR(launch.rank == 0 ? result->listenForAll()
                                         : result->connectToFirst());
  // Nobody goes on before everybody is there.
  auto word = result->broadcast("", Wait::Limited);
  if (!word.ok())
    return word.status();
  return result;
}

TcpRendezvous::~TcpRendezvous() {
  if (transfers && !transfers->leave())
    (void)transfers.release();
  close();
}

void TcpRendezvous::disconnect() {
  if (transfers)
    transfers->abort();
  close();
}

void TcpRendezvous::close() {
  for (int &connection : connections)
    if (connection >= 0)
      ::close(std::exchange(connection, -1));
}

uint32_t TcpRendezvous::missingRank() {
  // Nobody leaves: what was there is not looked at again.
  while (firstMissing < launch.ranks && connections[firstMissing] >= 0)
    ++firstMissing;
  return firstMissing;
}

Status TcpRendezvous::listenForAll() {
  connections.assign(launch.ranks, -1);
  if (launch.ranks == 1)
    return Status::success();
  PLAIT_RETURN_IF_ERROR(allowDescriptors(launch.ranks, "rank 0"));
  auto listener = listenOn(launch.port, static_cast<int>(launch.ranks));
  return listener.ok() ? acceptAll(listener->get()) : listener.status();
}

/// "the processes of rank 2, 5 and 3 more, of 8".
std::string TcpRendezvous::nameMissing() {
  constexpr uint32_t most = 8;
  std::string names;
  uint32_t count = 0;
  for (uint32_t rank = missingRank(); rank < launch.ranks; ++rank)
    if (connections[rank] < 0 && ++count <= most)
      names += (count > 1 ? ", " : "") + std::to_string(rank);
  if (count > most)
    names += " and " + std::to_string(count - most) + " more";
  return (count > 1 ? "the processes of ranks " : "the process of rank ") +
         names + ", of " + std::to_string(launch.ranks);
}

/// Connections become processes when they have said who they are; that a
/// stranger says nothing holds nobody up.
Status TcpRendezvous::acceptAll(int listener) {
  using std::chrono::milliseconds;
  Clock::time_point start = Clock::now();
  Notices notices;
  std::vector<pollfd> events = {{listener, POLLIN, 0}};
  Status status = Status::success();
  while (status.ok() && missingRank() < launch.ranks) {
    auto taken = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
    if (taken >= timeLimit) {
      status = fail("waited longer than ", timeLimit.count() / 1000.0,
                    " seconds for the process of rank ", missingRank());
      break;
    }
    if (notices.isDue(taken))
      tellOfWaiting("rank 0 waits for " + nameMissing(), taken);
    auto pause = std::min(timeLimit - taken, notices.untilNext(taken));
    for (pollfd &event : events)
      event.revents = 0;
    poll(events.data(), events.size(),
         int(std::clamp<int64_t>(pause.count(), 1, INT32_MAX)));
    for (size_t i = events.size(); status.ok() && --i > 0;)
      if (events[i].revents) {
        status = admit(events[i].fd);
        events.erase(events.begin() + i);
      }
    if (!status.ok() || !events[0].revents)
      continue;
    int made = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (made >= 0)
      events.push_back({made, POLLIN, 0});
    else if (errno != EINTR && errno != ECONNABORTED)
      status = systemFailure("cannot accept a connection");
  }
  for (size_t i = 1; i < events.size(); ++i)
    ::close(events[i].fd);
  return status;
}

Status TcpRendezvous::admit(int connection) {
  Greeting greeting; // fits the first packet
  Status status = Status::success();
  bool isKnown = ::recv(connection, &greeting, sizeof(greeting),
                        MSG_DONTWAIT) == sizeof(greeting) &&
                 greeting.magic == Greeting().magic;
  if (isKnown && greeting.ranks != launch.ranks)
    status = fail("rank ", greeting.rank, " is one of ", greeting.ranks,
                  " ranks, this process of ", launch.ranks);
  else if (isKnown && (greeting.rank == 0 || greeting.rank >= launch.ranks ||
                       connections[greeting.rank] >= 0))
    status = fail("a second process says that it is rank ", greeting.rank);
  else if (isKnown)
    status = setTimeLimit(connection);
  if (isKnown && status.ok())
    connections[greeting.rank] = connection;
  else // a stranger is turned away
    ::close(connection);
  return status;
}

Status TcpRendezvous::connectToFirst() {
  std::string where = launch.address + ":" + std::to_string(launch.port);
  Notices notices;
  // One of a host says it for all; rank 1 where rank 0 would.
  bool speaks = launch.localRank == 0 || launch.rank == 1;
  auto connected =
      connectTo(launch.address, launch.port, timeLimit,
                [&](std::chrono::milliseconds taken) {
                  if (speaks && notices.isDue(taken))
                    tellOfWaiting("rank " + std::to_string(launch.rank) +
                                      " waits for rank 0 to listen at " + where,
                                  taken);
                });
  if (!connected.ok())
    return fail("cannot reach rank 0 at ", connected.status().message());
  int connection = connected->release();
  connections = {connection};
  PLAIT_RETURN_IF_ERROR(setTimeLimit(connection));
  Greeting greeting;
  greeting.rank = launch.rank;
  greeting.ranks = launch.ranks;
  return sendAll(connection, &greeting, sizeof(greeting))
             ? Status::success()
             : systemFailure("cannot reach rank 0 at " + where);
}

Status TcpRendezvous::setTimeLimit(int connection) {
  timeval limit = {timeLimit.count() / 1000, timeLimit.count() % 1000 * 1000};
  int on = 1;
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // Nothing is said during training, which may take days: the system asks once
  // a minute, so that nobody forgets the connection and a dead host is noticed.
  int seconds = 60;
  setsockopt(connection, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(connection, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
  setsockopt(connection, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
  if (setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)))
    return systemFailure("cannot set a time limit");
  return Status::success();
}

Status TcpRendezvous::send(int connection, const std::string &text) {
  uint32_t length = static_cast<uint32_t>(text.size());
  if (sendAll(connection, &length, sizeof(length)) &&
      sendAll(connection, text.data(), text.size()))
    return Status::success();
  return systemFailure("the connection between the processes has failed");
}

Result<std::string> TcpRendezvous::receive(int connection, Wait wait) {
  uint32_t length = 0;
  std::string text;
  bool good = receiveAll(connection, &length, sizeof(length), wait);
  if (good && length > maxText)
    return fail("another process sends ", length, " bytes, allowed are ",
                maxText);
  text.resize(length);
  if (good && receiveAll(connection, text.data(), length, Wait::Limited))
    return text;
  return systemFailure("the connection between the processes has failed");
}

Result<std::vector<std::string>> TcpRendezvous::gather(const std::string &mine,
                                                       Wait wait) {
  if (launch.rank != 0) {
    PLAIT_RETURN_IF_ERROR(send(connections[0], mine));
    return std::vector<std::string>();
  }
  std::vector<std::string> all = {mine};
  for (uint32_t rank = 1; rank < launch.ranks; ++rank) {
    auto text = receive(connections[rank], wait);
    if (!text.ok())
      return text.status();
    all.push_back(std::move(*text));
  }
  return all;
}

Result<std::string> TcpRendezvous::broadcast(const std::string &ofFirst,
                                             Wait wait) {
  if (launch.rank != 0)
    return receive(connections[0], wait);
  for (uint32_t rank = 1; rank < launch.ranks; ++rank)
    PLAIT_RETURN_IF_ERROR(send(connections[rank], ofFirst));
  return ofFirst;
}

Status TcpRendezvous::transfer(MpiTransfer::Kind kind, uint32_t peer,
                               uint32_t rank, std::byte *data, size_t bytes) {
  return transfers->run({{kind, MpiChannel::Control, peer, rank,
                          Region{data, int64_t(bytes)}, nullptr}},
                        MpiEngine::forEver);
}

/// A process that may have several ranks has an engine.
Status TcpRendezvous::sendToFirst(uint32_t rank,
                                  std::span<const std::byte> bytes) {
  if (transfers)
    return transfer(MpiTransfer::Kind::Send, 0, rank,
                    const_cast<std::byte *>(bytes.data()), bytes.size());
  return sendAll(connections[0], bytes.data(), bytes.size())
             ? Status::success()
             : systemFailure("rank 0 has ended the connection");
}

Status TcpRendezvous::receiveFrom(uint32_t rank, std::span<std::byte> bytes) {
  if (transfers)
    return transfer(MpiTransfer::Kind::Receive, spread().processOf(rank), rank,
                    bytes.data(), bytes.size());
  return receiveAll(connections[rank], bytes.data(), bytes.size(),
                    Wait::Limited)
             ? Status::success()
             : systemFailure("rank " + std::to_string(rank) +
                             " has ended the connection");
}

/// One address of this machine for others; empty on that of rank 0.
std::string TcpRendezvous::ownAddress() const {
  if (launch.rank == 0)
    return "";
  std::string address = localAddressOf(connections[0]);
  bool isLoopback = address.starts_with("127.") || address == "::1";
  return isLoopback ? "" : address;
}

Status TcpRendezvous::openEngine() {
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
  auto library = connectOverTcp(*this, ownAddress(), launch.address, timeLimit);
  PLAIT_RETURN_IF_ERROR(agree(library.status()));
  auto engine = MpiEngine::start(std::move(*library), timeLimit);
  if (!engine.ok())
    return engine.status();
  transfers = std::move(*engine);
  return Status::success();
}

bool TcpRendezvous::speaksOfFailure() {
  if (isAgreedFailure || !transfers)
    return Rendezvous::speaksOfFailure();
  transfers->abort();
  transfers->awaitHalt();
  close();
  return transfers->isFirstToFail();
}
