//===- Reception.h - Addresses of processes ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a connection between two processes of a run begins with, and what it
// carries. Without a secret the network is trusted: who can reach a port and
// knows the format can join in. Both ends are processes of one build for one
// kind of machine, so that numbers go as they are in memory.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_RECEPTION_H
#define PLAIT_LIB_RUNTIME_CORE_RECEPTION_H

#include "Core/Sockets.h"
#include "Launch.h"

#include <poll.h>
#include <vector>

namespace plait::runtime {

/// How every connection begins.
struct Greeting {
  enum class Purpose : uint32_t { CheckIn, Tree, Data, Question };

  uint32_t magic = 0x506c6172; // "Plar"
  Purpose purpose = Purpose::CheckIn;
  uint32_t rank = 0;
  uint32_t ranks = 0;
  uint64_t run = 0;       // Launch::run
  Secret secret = {};     // of a question the first, of its answer the second
  uint32_t port = 0;      // where this process is reached
  char address[64] = "";  // likewise; empty on the host of rank 0
  char host[64 + 1] = ""; // its name, for messages
};

/// The unit that a connection carries after its greeting: a kind, and a text of
/// at most `mostBytes`. A longer text is Parts, the rest of it a Text.
struct Frame {
  enum class Kind : uint32_t { Text, Failure, Part };
  static constexpr uint32_t mostBytes = 1 << 24;

  Kind kind = Kind::Text;
  std::string text;
};

/// Both fail with errno set, after the time limit of the connection too.
bool sendFrame(int connection, const Frame &frame);
bool receiveFrame(int connection, Frame &frame);
/// Sends as much as goes out at once, then nothing any more in either
/// direction.
void sendLastFrame(int connection, const Frame &frame);
/// All of `bytes`; false with errno set, ECONNRESET where the other has ended.
bool receiveAll(int connection, void *data, size_t bytes);

/// Every wait for the other end of `connection` ends after `timeLimit`.
Status setTimeLimit(int connection, std::chrono::milliseconds timeLimit);

/// A port with those who have come and not yet said who they are. Those of
/// other runs, or without the secret, are strangers; a Question is answered
/// here.
class Reception {
public:
  struct Arrival {
    Greeting greeting;
    Socket connection;
  };

  /// Port 0 is one that is free.
  static Result<Reception> open(uint16_t port, uint64_t run = 0,
                                const Secret &secret = {});
  uint16_t port() const { return number; }
  /// Nobody is let in any more.
  void close();

  /// The descriptors that poll() has to watch.
  void addTo(std::vector<pollfd> &events) const;
  /// After poll(): lets in who has come, and returns those who have said who
  /// they are. Strangers are turned away; that one says nothing holds nobody
  /// up for long. To be called every second, also where nothing has happened.
  Result<std::vector<Arrival>> serve(std::chrono::milliseconds timeLimit);

  /// Descriptors that a reception has at most.
  static constexpr uint32_t mostGuests = 16;
  static constexpr uint32_t mostDescriptors = mostGuests + 1;

private:
  using Clock = std::chrono::steady_clock;
  struct Guest {
    Socket connection;
    Clock::time_point since;
  };

  bool isFull() const { return guests.size() >= mostGuests; }
  bool isOfRun(const Greeting &greeting) const;
  Status hear(std::vector<Arrival> &arrivals,
              std::chrono::milliseconds timeLimit);

  Socket listener;
  std::vector<Guest> guests; // the oldest first
  uint16_t number = 0;
  uint64_t run = 0;
  Secret secret = {};
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_RECEPTION_H
