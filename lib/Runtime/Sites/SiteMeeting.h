//===- SiteMeeting.h - The processes of a site meet others ------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_SITES_SITEMEETING_H
#define PLAIT_LIB_RUNTIME_SITES_SITEMEETING_H

#include "Member.h"
#include "plait/Runtime/Executor.h"

#include <functional>

namespace plait::runtime {

/// A site of one process or of several, of which the first one speaks for all.
/// What ranks offer, keep and get lies one behind the other, by rank. All
/// processes make the same calls.
class SiteMeeting {
public:
  /// `executor` and `member` outlive it.
  SiteMeeting(Executor &executor, SiteMember &member);

  /// These are SiteMember's. `bytes` are of this process's ranks; what is
  /// returned is of all.
  Result<RoundEnd> begin(uint64_t step, bool hasState);
  Result<RoundEnd> agree(uint64_t step, std::span<const std::byte> bytes);
  Result<RoundEnd> next();
  Status give(std::span<const std::byte> bytes, uint64_t updates);

  /// Returns the part of `rank` of the sums that were agreed on.
  std::span<const std::byte> sumsOf(uint32_t rank, const RoundEnd &end) const;
  /// Returns the part of `rank` of what a site keeps.
  std::span<const std::byte> keptOf(uint32_t rank, const RoundEnd &end) const;

private:
  Result<std::vector<std::byte>> gather(std::span<const std::byte> bytes);
  Result<RoundEnd> meet(const std::function<Result<RoundEnd>()> &job);

  Executor &executor;
  SiteMember &member;
  std::vector<SiteBytes> begins; // of the parts by rank, and the ends of all
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_SITES_SITEMEETING_H
