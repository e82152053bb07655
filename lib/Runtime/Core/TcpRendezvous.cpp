//===- TcpRendezvous.cpp - Processes that meet over TCP -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TcpRendezvous.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
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

Status systemFailure(const std::string &what) {
  return fail(what, ": ", std::strerror(errno));
}

bool sendAll(int connection, const void *data, size_t bytes) {
  const char *next = static_cast<const char *>(data);
  while (bytes > 0) {
    ssize_t count = ::send(connection, next, bytes, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return false;
    next += count;
    bytes -= size_t(count);
  }
  return true;
}

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

/// Raises the limit so that `count` more descriptors can be open.
Status allowDescriptors(uint64_t count) {
  constexpr uint64_t others = 64; // files, libraries
  uint64_t needed = count + others;
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= needed)
    return Status::success();
  if (limit.rlim_max < needed)
    return fail("rank 0 needs ", needed,
                " descriptors, one for each process, "
                "allowed are ",
                limit.rlim_max, " (ulimit -Hn)");
  limit.rlim_cur = needed;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0
             ? Status::success()
             : systemFailure("cannot raise the limit of descriptors");
}

/// A connection to address:port, or -1 with errno set.
int tryConnect(const addrinfo &place) {
  int connection = socket(place.ai_family, place.ai_socktype | SOCK_CLOEXEC, 0);
  if (connection < 0)
    return -1;
  if (connect(connection, place.ai_addr, place.ai_addrlen) == 0)
    return connection;
  int error = errno;
  close(connection);
  errno = error;
  return -1;
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

TcpRendezvous::~TcpRendezvous() { disconnect(); }

void TcpRendezvous::disconnect() {
  for (int &connection : connections)
    if (connection >= 0)
      close(std::exchange(connection, -1));
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
  PLAIT_RETURN_IF_ERROR(allowDescriptors(launch.ranks));
  std::string where = "cannot listen on port " + std::to_string(launch.port);
  int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool ipv6 = listener >= 0;
  if (!ipv6)
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0)
    return systemFailure(where);
  int on = 1, off = 0;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in6 any6 = {};
  sockaddr_in any4 = {};
  any6.sin6_family = AF_INET6;
  any4.sin_family = AF_INET;
  any6.sin6_port = any4.sin_port = htons(launch.port);
  if (ipv6) // IPv4 as well
    setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  auto *any = ipv6 ? reinterpret_cast<sockaddr *>(&any6)
                   : reinterpret_cast<sockaddr *>(&any4);
  Status status = Status::success();
  if (bind(listener, any, ipv6 ? sizeof(any6) : sizeof(any4)) != 0 ||
      listen(listener, static_cast<int>(launch.ranks)) != 0)
    status = systemFailure(where);
  if (status.ok())
    status = acceptAll(listener);
  close(listener);
  return status;
}

/// Connections become processes when they have said who they are; that a
/// stranger says nothing holds nobody up.
Status TcpRendezvous::acceptAll(int listener) {
  Clock::time_point end = Clock::now() + timeLimit;
  std::vector<pollfd> events = {{listener, POLLIN, 0}};
  Status status = Status::success();
  while (status.ok() && missingRank() < launch.ranks) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - Clock::now());
    if (left.count() <= 0 ||
        poll(events.data(), events.size(),
             int(std::min<int64_t>(left.count(), INT32_MAX))) == 0)
      status = fail("waited longer than ", timeLimit.count() / 1000.0,
                    " seconds for the process of rank ", missingRank());
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
    close(events[i].fd);
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
    close(connection);
  return status;
}

Status TcpRendezvous::connectToFirst() {
  std::string where = launch.address + ":" + std::to_string(launch.port);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo *places = nullptr;
  int error = getaddrinfo(launch.address.c_str(),
                          std::to_string(launch.port).c_str(), &hints, &places);
  if (error != 0)
    return fail("cannot find '", launch.address, "': ", gai_strerror(error));
  Clock::time_point start = Clock::now();
  int connection = -1;
  while (connection < 0) {
    for (addrinfo *place = places; place && connection < 0;
         place = place->ai_next)
      connection = tryConnect(*place);
    if (connection >= 0 || Clock::now() - start > timeLimit)
      break;
    // Rank 0 may not be listening yet.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  freeaddrinfo(places);
  if (connection < 0)
    return systemFailure("cannot reach rank 0 at " + where);
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

Status TcpRendezvous::sendToFirst(uint32_t, std::span<const std::byte> bytes) {
  return sendAll(connections[0], bytes.data(), bytes.size())
             ? Status::success()
             : systemFailure("rank 0 has ended the connection");
}

Status TcpRendezvous::receiveFrom(uint32_t rank, std::span<std::byte> bytes) {
  return receiveAll(connections[rank], bytes.data(), bytes.size(),
                    Wait::Limited)
             ? Status::success()
             : systemFailure("rank " + std::to_string(rank) +
                             " has ended the connection");
}
