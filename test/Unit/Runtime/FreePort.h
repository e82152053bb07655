//===- FreePort.h - A port for a test ---------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_RUNTIME_FREEPORT_H
#define PLAIT_TEST_UNIT_RUNTIME_FREEPORT_H

#include <arpa/inet.h>
#include <atomic>
#include <cstdint>
#include <sys/socket.h>
#include <unistd.h>

namespace plait::runtime {

/// A TCP port that nobody listens on, another one with each call. Below 32768:
/// the system takes the ports of outgoing connections from there on, also
/// between this check and the use.
inline uint16_t freePort() {
  static std::atomic<uint32_t> calls = 0;
  constexpr uint32_t first = 10000, count = 22000;
  for (uint32_t tries = 0; tries < count; ++tries) {
    // Far apart for processes that run side by side.
    uint32_t offset = static_cast<uint32_t>(getpid()) * 997 + calls++;
    sockaddr_in place = {};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<uint16_t>(first + offset % count));
    int probe = socket(AF_INET, SOCK_STREAM, 0);
    bool free =
        bind(probe, reinterpret_cast<sockaddr *>(&place), sizeof(place)) == 0;
    close(probe);
    if (free)
      return ntohs(place.sin_port);
  }
  return 0;
}

} // namespace plait::runtime

#endif // PLAIT_TEST_UNIT_RUNTIME_FREEPORT_H
