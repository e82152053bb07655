//===- Reception.cpp - Addresses of processes -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Frames are a kind and a length before each text, in the byte order of the
// machine, as all processes of a run have one. Guests are those who have
// connected and not yet sent their greeting: they are never read from while
// blocking, so that a stranger who connects to the port and says nothing holds
// nobody up.
//
//===----------------------------------------------------------------------===//

#include "Reception.h"

#include <cerrno>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

using namespace plait;
using namespace plait::runtime;

namespace {

/// The header as it goes over the wire: 8 bytes, no padding.
struct Header {
  Frame::Kind kind;
  uint32_t bytes;
};

} // namespace

/// recv() returns what has come; a time limit of the connection shows as
/// EAGAIN.
bool runtime::receiveAll(int connection, void *data, size_t bytes) {
  char *next = static_cast<char *>(data);
  while (bytes > 0) {
    ssize_t count = ::recv(connection, next, bytes, 0);
    if (count < 0 && errno == EINTR)
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

/// Together: in one packet where it is short, which most are.
static std::string print(const Frame &frame) {
  Header header = {frame.kind, uint32_t(frame.text.size())};
  return std::string(reinterpret_cast<const char *>(&header), sizeof(header)) +
         frame.text;
}

bool runtime::sendFrame(int connection, const Frame &frame) {
  std::string bytes = print(frame);
  return sendAll(connection, bytes.data(), bytes.size());
}

/// Must not block, for the peer may be what hangs; a frame that does not fit
/// the socket's buffer is lost, and the peer sees the end of the connection
/// instead.
void runtime::sendLastFrame(int connection, const Frame &frame) {
  std::string bytes = print(frame);
  (void)::send(connection, bytes.data(), bytes.size(),
               MSG_NOSIGNAL | MSG_DONTWAIT);
  shutdown(connection, SHUT_RDWR);
}

/// After a frame has begun its rest is waited for, up to the time limit.
bool runtime::receiveFrame(int connection, Frame &frame) {
  Header header = {};
  if (!receiveAll(connection, &header, sizeof(header)))
    return false;
  // That of a stranger, whose claim must not be allocated.
  if (header.bytes > Frame::mostBytes) {
    errno = EMSGSIZE;
    return false;
  }
  frame.kind = header.kind;
  frame.text.resize(header.bytes);
  return receiveAll(connection, frame.text.data(), header.bytes);
}

/// Sets limits for texts that are short and rare: sent at once (TCP_NODELAY),
/// waited for up to the limit in each call.
Status runtime::setTimeLimit(int connection,
                             std::chrono::milliseconds timeLimit) {
  timeval limit = {timeLimit.count() / 1000, timeLimit.count() % 1000 * 1000};
  int on = 1;
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // Nothing is said during a step, which may take hours: the system asks once
  // a minute, so that nobody forgets the connection and a dead host is noticed.
  int seconds = 60;
  setsockopt(connection, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(connection, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
  setsockopt(connection, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
  for (int option : {SO_RCVTIMEO, SO_SNDTIMEO})
    if (setsockopt(connection, SOL_SOCKET, option, &limit, sizeof(limit)))
      return systemFailure("cannot set a time limit");
  return Status::success();
}

/// Not blocking: between poll() and accept4() a comer may leave, and accept4()
/// would wait for the next one.
Result<Reception> Reception::open(uint16_t port, uint64_t run,
                                  const Secret &secret) {
  auto listener = listenOn(port, SOMAXCONN);
  if (!listener.ok())
    return listener.status();
  auto number = portOf(*listener);
  if (!number.ok())
    return number.status();
  // Who has come may have left again.
  fcntl(listener->get(), F_SETFL, fcntl(listener->get(), F_GETFL) | O_NONBLOCK);
  // Who says nothing takes none of the seats: the system keeps him outside.
  int silence = 60; // seconds
  setsockopt(listener->get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &silence,
             sizeof(silence));
  Reception reception;
  reception.listener = std::move(*listener);
  reception.number = *number;
  reception.run = run;
  reception.secret = secret;
  return reception;
}

/// Guests in the queue of the system are reset with it.
void Reception::close() {
  listener.reset();
  guests.clear();
}

/// Without room the door is not watched: poll() would return at once, again and
/// again, for comers that cannot be let in.
void Reception::addTo(std::vector<pollfd> &events) const {
  if (listener.get() >= 0 && !isFull())
    events.push_back({listener.get(), POLLIN, 0});
  for (const Guest &guest : guests)
    events.push_back({guest.connection.get(), POLLIN, 0});
}

/// Who asks does not know yet whom he asks, and shows half of the secret.
bool Reception::isOfRun(const Greeting &greeting) const {
  bool asks = greeting.purpose == Greeting::Purpose::Question;
  return greeting.magic == Greeting().magic && greeting.run == run &&
         greeting.secret[0] == secret[0] &&
         greeting.secret[1] == (asks ? 0 : secret[1]);
}

/// Moves those who have said who they are to `arrivals`. Texts of a greeting
/// are terminated here, for they come from outside.
Status Reception::hear(std::vector<Arrival> &arrivals,
                       std::chrono::milliseconds timeLimit) {
  std::vector<Guest> silent;
  for (Guest &guest : guests) {
    Greeting greeting; // fits the first packet
    int connection = guest.connection.get();
    ssize_t count =
        ::recv(connection, &greeting, sizeof(greeting), MSG_DONTWAIT);
    // Has not spoken yet: keeps its seat, and its place in the order.
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      silent.push_back(std::move(guest));
      continue;
    }
    if (count != sizeof(greeting) || !isOfRun(greeting))
      continue; // a stranger
    if (greeting.purpose == Greeting::Purpose::Question) {
      Greeting answer = {.run = run, .secret = {0, secret[1]}};
      (void)sendAll(connection, &answer, sizeof(answer)); // fits
      continue;
    }
    PLAIT_RETURN_IF_ERROR(setTimeLimit(connection, timeLimit));
    greeting.address[sizeof(greeting.address) - 1] = '\0';
    greeting.host[sizeof(greeting.host) - 1] = '\0';
    arrivals.push_back({greeting, std::move(guest.connection)});
  }
  guests = std::move(silent);
  return Status::success();
}

/// 1. Those who have spoken leave their seats.
/// 2. Where all seats are taken, the guest that has been silent longest loses
///    his, one at a time and after 5 seconds.
/// 3. Comers are let in while there is room; the rest waits in the system's
///    queue.
Result<std::vector<Reception::Arrival>>
Reception::serve(std::chrono::milliseconds timeLimit) {
  // Who means to say something has done so by then, on a busy machine too.
  constexpr std::chrono::seconds patience(5);
  std::vector<Arrival> arrivals;
  // 1. Who has spoken.
  PLAIT_RETURN_IF_ERROR(hear(arrivals, timeLimit));
  // 2. Who is too slow.
  Clock::time_point now = Clock::now();
  if (isFull() && now - guests.front().since > patience)
    guests.erase(guests.begin());
  // 3. Somebody who has left again (ECONNABORTED) is passed over.
  while (!isFull()) {
    int made = accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (made >= 0)
      guests.push_back({Socket(made), now});
    else if (errno == EAGAIN || errno == EINTR)
      break;
    else if (errno != ECONNABORTED)
      return systemFailure("cannot accept a connection");
  }
  return arrivals;
}
