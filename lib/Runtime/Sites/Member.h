//===- Member.h - A site's side of the meeting of sites ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_SITES_MEMBER_H
#define PLAIT_LIB_RUNTIME_SITES_MEMBER_H

#include "Frames.h"
#include "plait/Runtime/Sites.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>

namespace plait::runtime {

/// The outcome of a round, without what is sent along.
struct RoundVerdict {
  enum Outcome {
    GoOn,     // nothing has changed
    Agreed,   // the bytes are the sums of what `count` sites have offered
    Missed,   // the same, of a round without this site; `more` follow
    LeftOut,  // the bytes are all that a site keeps, of one that has agreed
    Discarded // the same, and what this site has offered is lost
  };
  Outcome outcome = GoOn;
  uint32_t count = 1;
  bool gives = false;   // others need what this site keeps now
  bool isNew = false;   // the optimizer's state is the other site's, too
  bool keeps = false;   // what this site has offered still counts, if it missed
  uint64_t more = 0;    // rounds that it has missed besides
  uint64_t updates = 0; // of that one
  uint64_t step = 0;    // the last one of the rounds that are done
};

/// The end of a round, as a site has it from the others.
struct RoundEnd : RoundVerdict {
  std::vector<std::byte> bytes;
};

/// The connection of a site to the coordinator, which is renewed where it is
/// lost. Used by one thread, but for abort().
class SiteMember {
public:
  /// Does not connect yet. `plan` is that of all sites, `own` that of this one;
  /// both outlive the member.
  static Result<std::unique_ptr<SiteMember>>
  create(const SiteOptions &options, const fb::Plan &plan, const fb::Plan &own,
         Hello hello, std::chrono::milliseconds timeLimit, Reporter *reporter);

  /// Connects; the site has done `step` steps, with a state of its own if it
  /// has resumed. Waits until there are all sites, or until the end of a round
  /// where others are further.
  Result<RoundEnd> begin(uint64_t step, bool hasState);
  /// Offers what the site has after step `step`, and waits for the others.
  Result<RoundEnd> agree(uint64_t step, std::span<const std::byte> moved);
  /// Waits for the next round of those that the site has missed. Where the
  /// connection is lost, what begin() would return.
  Result<RoundEnd> next() { return meet({}, /*offers=*/false); }
  /// Gives what the site keeps, where agree() asks for it, and how often its
  /// optimizer has updated. Where that fails, another one gives it later.
  void give(std::span<const std::byte> state, uint64_t updates);
  /// The site has done all of its steps.
  void leave();
  /// Lets calls fail that wait for the coordinator, now and from now on: this
  /// site is about to end.
  void abort() { isAborted = true; }

  /// Whether the sites agree after step `step`.
  bool isDue(uint64_t step) const { return step % every == 0; }

private:
  SiteMember(HostPort place, const fb::Plan &plan, const fb::Plan &own,
             Hello hello, std::chrono::milliseconds timeLimit,
             Reporter *reporter);

  Status connect();
  Result<RoundEnd> meet(std::span<const std::byte> moved, bool offers);
  Result<std::optional<Frame>> await();
  Result<std::optional<Frame>> readFrame();
  Result<bool> readAll(std::byte *target, size_t bytes);
  Result<std::optional<RoundEnd>> answer(Frame frame);
  Status checkBytes(const FrameHeader &header) const;
  std::string nameCoordinator() const;
  void tellContinues() const;

  HostPort place;
  Hello hello;
  std::chrono::milliseconds timeLimit;
  Reporter *reporter;
  uint64_t every;
  bool keepsDifference; // of a scheme that has one
  SiteBytes bytes;
  Socket connection;
  uint64_t round = 0; // done
  bool isNew = false; // has no state of its own yet
  std::chrono::steady_clock::time_point heard;
  std::atomic<bool> isAborted = false;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_SITES_MEMBER_H
