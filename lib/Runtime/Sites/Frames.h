//===- Frames.h - What sites and their coordinator say ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Frames over TCP: a header of 32 bytes, little-endian, and a payload. Rounds
// are counted by how many are done: the first offer is of round 0, and the
// verdict on it of round 1.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_SITES_FRAMES_H
#define PLAIT_LIB_RUNTIME_SITES_FRAMES_H

#include "Core/Sockets.h"
#include "plait/Plan/Plan_generated.h"
#include "plait/Support/Status.h"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace plait::runtime {

namespace fb = plan::fb;

enum class FrameKind : uint32_t {
  Hello = 1,   // of a site: who it is, as JSON, and the rounds that it has done
  Refuse = 2,  // why it cannot take part, a text
  Start = 3,   // it may go on from where it is
  Offer = 4,   // of a site: what it has of a round
  Verdict = 5, // the sum over `info` sites, and whether to give (`flag`)
  State = 6,   // all that a rank keeps; `flag`: what was offered still counts
  Ping = 7,    // the coordinator is there
  Bye = 8,     // of a site that has done all of its steps
  Missed = 9 // the sum over `info` sites of a round that was over without this
             // one; `flag` as of a state, and so many more of them follow
};

struct FrameHeader {
  FrameKind kind;
  uint16_t info = 0;
  uint16_t flag = 0;
  uint64_t round = 0;
  uint64_t updates = 0; // of the optimizer, with a state; what follows, missed
  uint64_t bytes = 0;   // of the payload
};
static_assert(sizeof(FrameHeader) == 32);

struct Frame {
  FrameHeader header;
  std::vector<std::byte> payload;
};

/// Who a site is.
struct Hello {
  uint32_t site = 0;
  uint64_t hash = 0;                           // of the plan
  std::map<std::string, std::string> settings; // that all sites have alike

  std::string print() const;
  /// Fails where `text` is none of this version.
  static Result<Hello> parse(std::string_view text);
};

/// No text of a site is longer.
inline constexpr uint64_t mostHelloBytes = 1 << 16;

/// Sends both parts; false: the other end is gone, or takes nothing.
bool sendFrame(int connection, FrameHeader header,
               std::span<const std::byte> payload);

/// Small frames are not held back to wait for more, and the end of the other
/// host is noticed in the end.
void prepareConnection(int connection);

struct HostPort {
  std::string host;
  uint16_t port;
};
/// Reads "HOST:PORT", or "PORT", which is one of `host`; `option` is for the
/// message.
Result<HostPort> parseHostPort(const std::string &place,
                               const std::string &host,
                               const std::string &option);

/// The bytes of what all ranks of a site offer in a round, and of what they
/// keep; see Rank.
struct SiteBytes {
  uint64_t offer = 0, state = 0;
};
/// Counts those of `rank`, and those of all ranks, of a plan of one site
/// (makeSitePlan).
SiteBytes countSiteBytes(const fb::Plan &plan, uint32_t rank);
SiteBytes countSiteBytes(const fb::Plan &plan);

/// `plan` as one of its sites is by itself: with one site. Its ranks are those
/// of site 0, which differ from those of other sites by their samples alone.
std::vector<uint8_t> makeSitePlan(const fb::Plan &plan);

/// A part of a rank's memory that outlives steps.
struct KeptRange {
  enum Kind { Weights, Outer, Own }; // Outer: what all sites have alike
  uint64_t offset, bytes;
  Kind kind;
};
/// Lists those of `rank`, in the order of the plan.
std::vector<KeptRange> getKeptRanges(const fb::Plan &plan, uint32_t rank);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_SITES_FRAMES_H
