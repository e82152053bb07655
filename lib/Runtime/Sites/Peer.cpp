//===- Peer.cpp - A site as its coordinator knows it ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reading and writing what a socket has or takes at once: a site that is asleep
// holds up nobody.
//
//===----------------------------------------------------------------------===//

#include "Peer.h"

#include <cerrno>
#include <cstring>
#include <sys/socket.h>

using namespace plait;
using namespace plait::runtime;

static bool wouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK; }

/// Whether all that is wanted is there. A connection that has ended is lost.
bool Peer::fill(std::byte *target, size_t wanted, size_t &have) {
  while (have < wanted) {
    ssize_t got =
        recv(socket.get(), target + have, wanted - have, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0) {
      lost |= got == 0 || !wouldBlock();
      return false;
    }
    have += size_t(got);
  }
  return true;
}

void Peer::write() {
  while (!output.empty()) {
    Part &part = output.front();
    size_t left = part.bytes->size() - part.sent;
    ssize_t sent = ::send(socket.get(), part.bytes->data() + part.sent, left,
                          MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent < 0) {
      lost |= !wouldBlock();
      return;
    }
    part.sent += size_t(sent);
    if (part.sent == part.bytes->size())
      output.pop_front();
  }
}

void Peer::send(FrameHeader header,
                std::shared_ptr<const std::vector<std::byte>> payload) {
  header.bytes = payload ? payload->size() : 0;
  auto *first = reinterpret_cast<const std::byte *>(&header);
  output.push_back({std::make_shared<const std::vector<std::byte>>(
                        first, first + sizeof header),
                    0});
  if (header.bytes)
    output.push_back({std::move(payload), 0});
  write();
}
