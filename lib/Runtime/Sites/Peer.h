//===- Peer.h - A site as its coordinator knows it --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_SITES_PEER_H
#define PLAIT_LIB_RUNTIME_SITES_PEER_H

#include "Frames.h"

#include <deque>
#include <memory>
#include <optional>

namespace plait::runtime {

/// A connection that is never waited for, and what its site is doing.
class Peer {
public:
  enum State {
    Unknown,   // has not said who it is
    Gathering, // waits for the first round
    Present,   // is waited for
    Late,      // was left out of a round, and has not been heard of since
    Waiting,   // waits for the state of another site
    Finished   // has done all of its steps
  };

  explicit Peer(Socket socket) : socket(std::move(socket)) {}

  int descriptor() const { return socket.get(); }
  bool isLost() const { return lost; }
  void lose() { lost = true; }
  bool hasOutput() const { return !output.empty(); }

  /// Takes what has arrived, at most one frame; nothing: there is no whole one.
  /// Fails where a payload is longer than `allowed` says for its header.
  template <typename Allowed>
  Result<std::optional<Frame>> read(Allowed allowed);
  /// Sends what fits.
  void write();
  /// Queues a frame, whose payload several peers may share.
  void send(FrameHeader header,
            std::shared_ptr<const std::vector<std::byte>> payload = {});

  State state = Unknown;
  uint32_t site = 0;
  uint64_t round = 0;       // that it had done when it was gathered
  bool offerCounts = false; // of a waiting site: it is not lost

private:
  bool fill(std::byte *target, size_t wanted, size_t &have);

  Socket socket;
  bool lost = false;
  Frame frame;
  size_t headerHave = 0, payloadHave = 0;
  struct Part {
    std::shared_ptr<const std::vector<std::byte>> bytes;
    size_t sent = 0;
  };
  std::deque<Part> output;
};

/// The payload is allocated once its length has been allowed.
template <typename Allowed>
Result<std::optional<Frame>> Peer::read(Allowed allowed) {
  auto *header = reinterpret_cast<std::byte *>(&frame.header);
  if (headerHave < sizeof frame.header) {
    if (!fill(header, sizeof frame.header, headerHave))
      return std::optional<Frame>();
    PLAIT_RETURN_IF_ERROR(allowed(frame.header));
    frame.payload.resize(frame.header.bytes);
  }
  if (!fill(frame.payload.data(), frame.payload.size(), payloadHave))
    return std::optional<Frame>();
  headerHave = payloadHave = 0;
  return std::optional(std::move(frame));
}

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_SITES_PEER_H
