//===- Sockets.cpp - TCP connections between processes --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The few calls of BSD sockets that the runtime needs, with failures as Status.
// All descriptors are closed on exec, so that no child of a training run keeps
// a port. Who may connect is not asked here: the network is trusted.
//
//===----------------------------------------------------------------------===//

#include "Sockets.h"

#include <cerrno>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

/// Keeps no error: callers that report errno save it before.
void Socket::reset() {
  if (descriptor >= 0)
    close(release());
}

/// Has to be called before anything else may set errno.
Status runtime::systemFailure(const std::string &what) {
  return fail(what, ": ", std::strerror(errno));
}

/// Only the soft limit is raised, which needs no privileges, and never lowered.
Status runtime::allowDescriptors(uint64_t count, const std::string &who) {
  constexpr uint64_t others = 64; // files, libraries
  uint64_t needed = count + others;
  rlimit limit = {};
  // Many systems allow 1024 at first, and more to who asks.
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= needed)
    return Status::success();
  // Only a privileged process may raise the hard limit.
  if (limit.rlim_max < needed)
    return fail(who, " needs ", needed,
                " descriptors, one for each process that it talks to, allowed "
                "are ",
                limit.rlim_max, " (ulimit -Hn)");
  limit.rlim_cur = needed;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0
             ? Status::success()
             : systemFailure("cannot raise the limit of descriptors");
}

// One IPv6 socket that also takes IPv4; where the kernel has no IPv6
// (containers), an IPv4 socket. Listens on all interfaces.
Result<Socket> runtime::listenOn(uint16_t port, int backlog) {
  std::string where = "cannot listen on port " + std::to_string(port);
  Socket listener(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  bool ipv6 = listener.get() >= 0;
  if (!ipv6)
    listener = Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.get() < 0)
    return systemFailure(where);
  // A restarted process takes its port again, though connections of the ended
  // one are still in TIME_WAIT.
  int on = 1, off = 0;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in6 any6 = {};
  sockaddr_in any4 = {};
  any6.sin6_family = AF_INET6;
  any4.sin_family = AF_INET;
  any6.sin6_port = any4.sin_port = htons(port);
  if (ipv6) // IPv4 as well
    setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  auto *any = ipv6 ? reinterpret_cast<sockaddr *>(&any6)
                   : reinterpret_cast<sockaddr *>(&any4);
  if (bind(listener.get(), any, ipv6 ? sizeof(any6) : sizeof(any4)) != 0 ||
      listen(listener.get(), backlog) != 0)
    return systemFailure(where);
  return listener;
}

// Tries only the first address that the host name stands for.
/// Listens at one interface, as the metrics server has it; see listenOn() for
/// all.
Result<Socket> runtime::listenAt(const std::string &host, uint16_t port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo *places = nullptr;
  int error =
      getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &places);
  if (error != 0)
    return fail("cannot find '", host, "': ", gai_strerror(error));
  Socket listener(
      socket(places->ai_family, places->ai_socktype | SOCK_CLOEXEC, 0));
  int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  bool listens =
      listener.get() >= 0 &&
      bind(listener.get(), places->ai_addr, places->ai_addrlen) == 0 &&
      listen(listener.get(), 8) == 0;
  // systemFailure() reads errno, which freeaddrinfo() may change.
  int reason = errno;
  freeaddrinfo(places);
  errno = reason;
  if (!listens)
    return systemFailure("cannot listen at " + host + ":" +
                         std::to_string(port));
  return listener;
}

/// Asked after bind(): port 0 lets the system choose one.
Result<uint16_t> runtime::portOf(const Socket &listener) {
  sockaddr_storage place = {};
  socklen_t size = sizeof(place);
  if (getsockname(listener.get(), reinterpret_cast<sockaddr *>(&place),
                  &size) != 0)
    return systemFailure("cannot find the port that is listened on");
  return ntohs(place.ss_family == AF_INET6
                   ? reinterpret_cast<sockaddr_in6 &>(place).sin6_port
                   : reinterpret_cast<sockaddr_in &>(place).sin_port);
}

/// A connection, or -1 with errno set.
static int tryConnect(const addrinfo &place) {
  Socket connection(
      socket(place.ai_family, place.ai_socktype | SOCK_CLOEXEC, 0));
  if (connection.get() < 0)
    return -1;
  if (connect(connection.get(), place.ai_addr, place.ai_addrlen) == 0)
    return connection.release();
  int error = errno;
  connection.reset();
  errno = error;
  return -1;
}

Status runtime::checkHost(const std::string &address) {
  addrinfo *places = nullptr;
  int error = getaddrinfo(address.c_str(), nullptr, nullptr, &places);
  if (error != 0)
    return fail("cannot find '", address, "': ", gai_strerror(error));
  freeaddrinfo(places);
  return Status::success();
}

// Tries all addresses of the host, again and again: the listener may start
// later than this process. The limit is tested after a round, so that there is
// at least one. A name that is not found fails at once.
Result<Socket> runtime::connectTo(
    const std::string &address, uint16_t port,
    std::chrono::milliseconds timeLimit,
    const std::function<void(std::chrono::milliseconds)> &isRefused) {
  using Clock = std::chrono::steady_clock;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo *places = nullptr;
  int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints,
                          &places);
  if (error != 0)
    return fail("cannot find '", address, "': ", gai_strerror(error));
  Clock::time_point start = Clock::now();
  Socket connection;
  // A refused connection may be accepted a moment later: try all addresses
  // again.
  while (connection.get() < 0) {
    for (addrinfo *place = places; place && connection.get() < 0;
         place = place->ai_next)
      connection = Socket(tryConnect(*place));
    auto taken = std::chrono::duration_cast<std::chrono::milliseconds>(
        Clock::now() - start);
    if (connection.get() >= 0 || taken > timeLimit)
      break;
    int reason = errno;
    // The caller may say that it waits.
    if (isRefused)
      isRefused(taken);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    errno = reason;
  }
  int reason = errno;
  freeaddrinfo(places);
  errno = reason;
  if (connection.get() < 0)
    return systemFailure(address + ":" + std::to_string(port));
  return connection;
}

/// Numeric, as other hosts may not know this one's name; empty on failure.
std::string runtime::localAddressOf(int connection) {
  sockaddr_storage place = {};
  socklen_t size = sizeof(place);
  char name[NI_MAXHOST] = "";
  auto *address = reinterpret_cast<sockaddr *>(&place);
  if (getsockname(connection, address, &size) == 0)
    getnameinfo(address, size, name, sizeof(name), nullptr, 0, NI_NUMERICHOST);
  // A socket for both families has IPv4 in the form of IPv6.
  std::string_view mapped = "::ffff:", text = name;
  return std::string(text.starts_with(mapped) ? text.substr(mapped.size())
                                              : text);
}

/// Returns when the system has taken all bytes, not when they have arrived.
bool runtime::sendAll(int connection, const void *data, size_t bytes) {
  const char *next = static_cast<const char *>(data);
  while (bytes > 0) {
    // The end of the peer is a result here, not SIGPIPE for this process.
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
