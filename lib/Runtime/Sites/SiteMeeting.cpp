//===- SiteMeeting.cpp - The processes of a site meet others --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Processes of a site live and end together: a site of which one process is
// gone is gone. While the first one waits for other sites, which may take
// longer than the time limit of the run, the others ask it how far it is, so
// that the end of any of them is noticed (doTogether() of Processes.h).
//
//===----------------------------------------------------------------------===//

#include "SiteMeeting.h"

#include "Core/Processes.h"

#include <cstring>
#include <type_traits>

using namespace plait;
using namespace plait::runtime;

static_assert(std::is_trivially_copyable_v<RoundVerdict>);

SiteMeeting::SiteMeeting(Executor &executor, SiteMember &member)
    : executor(executor), member(member), begins(1) {
  for (uint32_t rank = 0; rank < executor.mesh().ranks(); ++rank) {
    SiteBytes bytes = countSiteBytes(executor.plan(), rank);
    begins.push_back(
        {begins.back().offer + bytes.offer, begins.back().state + bytes.state});
  }
}

std::span<const std::byte> SiteMeeting::sumsOf(uint32_t rank,
                                               const RoundEnd &end) const {
  return std::span(end.bytes).subspan(
      begins[rank].offer, begins[rank + 1].offer - begins[rank].offer);
}

std::span<const std::byte> SiteMeeting::keptOf(uint32_t rank,
                                               const RoundEnd &end) const {
  return std::span(end.bytes).subspan(
      begins[rank].state, begins[rank + 1].state - begins[rank].state);
}

/// Processes have runs of ranks, in their order. Nothing on the others.
Result<std::vector<std::byte>>
SiteMeeting::gather(std::span<const std::byte> bytes) {
  std::vector<std::byte> all(bytes.begin(), bytes.end());
  Rendezvous *processes = executor.processes();
  if (!processes)
    return all;
  auto texts = processes->gather(
      std::string(reinterpret_cast<const char *>(bytes.data()), bytes.size()));
  if (!texts.ok())
    return texts.status();
  all.clear();
  for (const std::string &text : *texts) {
    auto part = std::as_bytes(std::span(text));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

/// The verdict and the bytes are one text between processes.
Result<RoundEnd>
SiteMeeting::meet(const std::function<Result<RoundEnd>()> &job) {
  Rendezvous *processes = executor.processes();
  if (!processes)
    return job();
  Result<RoundEnd> end = RoundEnd();
  PLAIT_RETURN_IF_ERROR(doTogether(
      executor,
      [&] {
        if (executor.leads())
          end = job();
        return end.status();
      },
      [&] { member.abort(); }));
  std::string mine(
      reinterpret_cast<const char *>(static_cast<const RoundVerdict *>(&*end)),
      sizeof(RoundVerdict));
  mine.append(reinterpret_cast<const char *>(end->bytes.data()),
              end->bytes.size());
  Result<std::string> text = processes->broadcast(mine);
  if (!text.ok())
    return text.status();
  std::memcpy(static_cast<RoundVerdict *>(&*end), text->data(),
              sizeof(RoundVerdict));
  auto all = std::as_bytes(std::span(*text)).subspan(sizeof(RoundVerdict));
  end->bytes.assign(all.begin(), all.end());
  return end;
}

Result<RoundEnd> SiteMeeting::begin(uint64_t step, bool hasState) {
  return meet([&] { return member.begin(step, hasState); });
}

Result<RoundEnd> SiteMeeting::agree(uint64_t step,
                                    std::span<const std::byte> bytes) {
  auto all = gather(bytes);
  if (!all.ok())
    return all.status();
  return meet([&] { return member.agree(step, *all); });
}

Result<RoundEnd> SiteMeeting::next() {
  return meet([&] { return member.next(); });
}

Status SiteMeeting::give(std::span<const std::byte> bytes, uint64_t updates) {
  auto all = gather(bytes);
  if (all.ok() && executor.leads())
    member.give(*all, updates);
  return all.status();
}
