//===- Sockets.h - TCP connections between processes ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_SOCKETS_H
#define PLAIT_LIB_RUNTIME_CORE_SOCKETS_H

#include "plait/Support/Status.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace plait::runtime {

/// A descriptor that is closed at the end of its scope.
class Socket {
public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor(descriptor) {}
  Socket(Socket &&other) noexcept : descriptor(other.release()) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(descriptor, other.descriptor);
    return *this;
  }
  ~Socket() { reset(); }

  int get() const { return descriptor; }
  int release() { return std::exchange(descriptor, -1); }
  void reset();

private:
  int descriptor = -1;
};

/// "WHAT: what errno says".
Status systemFailure(const std::string &what);

/// Raises the limit so that `count` more descriptors can be open; `who` needs
/// one for each process.
Status allowDescriptors(uint64_t count, const std::string &who);

/// Listens on all addresses, IPv4 and, where there is it, IPv6. Port 0 is one
/// that is free.
Result<Socket> listenOn(uint16_t port, int backlog);
/// Listens on one address of this machine.
Result<Socket> listenAt(const std::string &host, uint16_t port);
Result<uint16_t> portOf(const Socket &listener);

/// Fails where no host is called `address`.
Status checkHost(const std::string &address);

/// Connects, and tries again until `timeLimit` has passed: nobody may be
/// listening yet. `isRefused` is told after each attempt how long it has taken.
Result<Socket>
connectTo(const std::string &address, uint16_t port,
          std::chrono::milliseconds timeLimit,
          const std::function<void(std::chrono::milliseconds)> &isRefused = {});

/// The address of this machine that the other end of `connection` sees.
std::string localAddressOf(int connection);

bool sendAll(int connection, const void *data, size_t bytes);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_SOCKETS_H
