//===- Rendezvous.cpp - Where processes find each other -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Rendezvous.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
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
constexpr uint32_t maxText = 1 << 20;

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

/// With `patient`, beyond the time limit of the connection.
bool receiveAll(int connection, void *data, size_t bytes,
                bool patient = false) {
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

Result<std::unique_ptr<Rendezvous>>
Rendezvous::join(const Launch &launch, std::chrono::milliseconds timeLimit) {
  std::unique_ptr<Rendezvous> result(new Rendezvous(launch, timeLimit));
  PLAIT_RETURN_IF_ERROR(launch.rank == 0 ? result->listenForAll()
                                         : result->connectToFirst());
  // Nobody goes on before everybody is there.
  auto all = result->exchange("");
  if (!all.ok())
    return all.status();
  return result;
}

Rendezvous::~Rendezvous() { disconnect(); }

void Rendezvous::disconnect() {
  for (int &connection : connections)
    if (connection >= 0)
      close(std::exchange(connection, -1));
}

uint32_t Rendezvous::missingRank() const {
  return static_cast<uint32_t>(
      std::find(connections.begin() + 1, connections.end(), -1) -
      connections.begin());
}

Status Rendezvous::listenForAll() {
  connections.assign(launch.ranks, -1);
  if (launch.ranks == 1)
    return Status::success();
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
  Clock::time_point start = Clock::now();
  while (status.ok() && missingRank() < launch.ranks)
    status = accept(listener, start);
  close(listener);
  return status;
}

Status Rendezvous::accept(int listener, Clock::time_point start) {
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      start + timeLimit - Clock::now());
  pollfd event = {listener, POLLIN, 0};
  if (left.count() <= 0 ||
      poll(&event, 1,
           static_cast<int>(std::min<int64_t>(left.count(), INT32_MAX))) == 0)
    return fail("waited longer than ", timeLimit.count() / 1000.0,
                " seconds for the process of rank ", missingRank());
  int connection = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (connection < 0)
    return errno == EINTR ? Status::success()
                          : systemFailure("cannot accept a connection");
  Greeting greeting;
  Status status = setTimeLimit(connection);
  bool known = status.ok() &&
               receiveAll(connection, &greeting, sizeof(greeting)) &&
               greeting.magic == Greeting().magic;
  if (known && greeting.ranks != launch.ranks)
    status = fail("rank ", greeting.rank, " is one of ", greeting.ranks,
                  " ranks, this process of ", launch.ranks);
  else if (known && (greeting.rank == 0 || greeting.rank >= launch.ranks ||
                     connections[greeting.rank] >= 0))
    status = fail("a second process says that it is rank ", greeting.rank);
  else if (known)
    connections[greeting.rank] = connection;
  if (!known || !status.ok()) // a stranger is turned away
    close(connection);
  return status;
}

Status Rendezvous::connectToFirst() {
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

Status Rendezvous::setTimeLimit(int connection) {
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

Status Rendezvous::send(int connection, const std::string &text) {
  uint32_t length = static_cast<uint32_t>(text.size());
  if (sendAll(connection, &length, sizeof(length)) &&
      sendAll(connection, text.data(), text.size()))
    return Status::success();
  return systemFailure("the connection between the processes has failed");
}

Result<std::string> Rendezvous::receive(int connection, Patient patient) {
  uint32_t length = 0;
  std::string text;
  bool good =
      receiveAll(connection, &length, sizeof(length), patient == Patient::Yes);
  if (good && length > maxText)
    return fail("another process sends ", length, " bytes, allowed are ",
                maxText);
  text.resize(length);
  if (good && receiveAll(connection, text.data(), length))
    return text;
  return systemFailure("the connection between the processes has failed");
}

Result<std::vector<std::string>> Rendezvous::exchange(const std::string &mine) {
  return exchange(mine, Patient::No);
}

Result<std::vector<std::string>> Rendezvous::exchange(const std::string &mine,
                                                      Patient patient) {
  std::vector<std::string> all(launch.ranks);
  all[launch.rank] = mine;
  if (launch.rank != 0)
    PLAIT_RETURN_IF_ERROR(send(connections[0], mine));
  for (uint32_t rank = 0; rank < launch.ranks; ++rank) {
    if (launch.rank == 0 && rank == 0)
      continue;
    auto text = receive(connections[launch.rank == 0 ? rank : 0], patient);
    if (!text.ok())
      return text.status();
    all[rank] = std::move(*text);
  }
  for (uint32_t rank = 1; launch.rank == 0 && rank < launch.ranks; ++rank)
    for (const std::string &text : all)
      PLAIT_RETURN_IF_ERROR(send(connections[rank], text));
  return all;
}

Status Rendezvous::agree(const Status &mine) {
  auto all = exchange(mine.ok() ? "" : mine.message(), Patient::Yes);
  if (!all.ok())
    return mine.ok() ? all.status() : mine;
  for (uint32_t rank = 0; rank < launch.ranks; ++rank)
    if (const std::string &text = (*all)[rank]; !text.empty())
      return rank == launch.rank ? mine : fail("rank ", rank, ": ", text);
  return Status::success();
}

Status Rendezvous::sendToFirst(std::span<const std::byte> bytes) {
  return sendAll(connections[0], bytes.data(), bytes.size())
             ? Status::success()
             : systemFailure("rank 0 has ended the connection");
}

Status Rendezvous::receiveFrom(uint32_t rank, std::span<std::byte> bytes) {
  return receiveAll(connections[rank], bytes.data(), bytes.size())
             ? Status::success()
             : systemFailure("rank " + std::to_string(rank) +
                             " has ended the connection");
}
