//===- StepNotes.cpp - Recorded times of a step's operations --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two things are kept apart: the layout, what waits for what, which follows
// from the plan and is built once; and the times, which ranks write during a
// step. getReady() combines them: the time before a partner was there is
// waiting, what follows is work. A lap is an operation, with the number that
// plan::forEachOperation gives it. Notes of several processes come together in
// process 0, on the clock of its host.
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/StepNotes.h"

#include "Topology.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Streams.h"
#include "plait/Runtime/Rendezvous.h"

#include <algorithm>
#include <cstring>
#include <map>

using namespace plait;
using namespace plait::runtime;
using plan::isTransfer;
using plan::length;

//===----------------------------------------------------------------------===//
// What waits for what
//===----------------------------------------------------------------------===//

/// Builds StepNotes::links. It lives only as long as run(): what it needs
/// beside them is of no use afterwards.
class StepNotes::Layout {
public:
  Layout(StepNotes &notes, bool overlaps)
      : plan(notes.source), mesh(notes.meshOf), notes(notes),
        overlaps(overlaps) {}

  // In this order: links refer to streams of programs, messages to links of
  // ranks.
  void run();

private:
  void addProgram(const fb::Program &program);
  void addRank(uint32_t rank);
  void linkMessages();
  uint32_t getMeeting(uint32_t rank, const fb::CollectiveStep &step,
                      std::map<std::vector<uint32_t>, uint32_t> &counts);

  const fb::Plan &plan;
  const plan::RankGrid &mesh;
  StepNotes &notes;
  bool overlaps;
  std::vector<plan::StreamChoice> streams;     // by program
  std::vector<std::vector<uint32_t>> firstLap; // by program and action
  std::map<std::pair<std::vector<uint32_t>, uint32_t>, uint32_t> meetings;
};

/// All ranks of a program share its numbering; a transfer has one operation, so
/// that the lap of its action identifies it.
void StepNotes::Layout::addProgram(const fb::Program &program) {
  std::vector<uint32_t> &laps = firstLap.emplace_back();
  laps.resize(length(program.actions()));
  plan::forEachOperation(program, [&](const plan::Operation &operation) {
    if (operation.step == 0)
      laps[operation.action] = operation.index;
  });
  streams.push_back(plan::chooseStreams(plan, program));
}

/// The collectives of one group happen in one order on all of its members. So
/// the n-th collective of a rank in a group meets the n-th of every other
/// member, by counting alone; `counts` are those of `rank`.
uint32_t StepNotes::Layout::getMeeting(
    uint32_t rank, const fb::CollectiveStep &step,
    std::map<std::vector<uint32_t>, uint32_t> &counts) {
  std::vector<uint32_t> members = membersOf(mesh, rank, step);
  uint32_t ordinal = counts[members]++;
  return meetings
      .try_emplace({std::move(members), ordinal}, uint32_t(meetings.size()))
      .first->second;
}

/// Work is what neither transfers nor is a collective. Ranks share no links,
/// though those of one program differ only in whom they meet: a step must not
/// look anything up.
void StepNotes::Layout::addRank(uint32_t rank) {
  uint32_t index = mesh.index(rank, 0);
  const fb::Program &program = *plan.programs()->Get(index);
  std::vector<Link> &links = notes.links.emplace_back();
  std::map<std::vector<uint32_t>, uint32_t> counts;
  plan::forEachOperation(program, [&](const plan::Operation &operation) {
    Link &link = links.emplace_back();
    if (overlaps)
      link.stream = uint16_t(operation.streamIn(program, streams[index]));
    const fb::Step *step = operation.get(program);
    const auto *collective = step ? step->step_as_CollectiveStep() : nullptr;
    link.computes = step && !collective;
    if (collective) {
      link.waits = Link::Waits::ForMembers;
      link.meeting = getMeeting(rank, *collective, counts);
    }
  });
}

/// A receiver on a processor waits for the end of the sender's Send, WaitSend
/// for the end of the receiver's Recv. On a GPU a Send lasts until the bytes
/// have been taken: both wait for the other one to begin.
void StepNotes::Layout::linkMessages() {
  bool isOnGpu = plan::isCuda(plan);
  Result<std::vector<plan::Message>> messages = plan::matchMessages(plan);
  if (!messages.ok()) // checkPlan has found them sound
    return;
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank)
    for (const plan::Message &message : *messages) {
      // Each message once, from its senders.
      if (message.source != mesh.index(rank, 0))
        continue;
      // Sender and receiver differ in their stage alone.
      uint32_t receiver = mesh.withIndex(rank, 0, message.target);
      uint32_t send = firstLap[message.source][message.send];
      uint32_t wait = firstLap[message.source][message.wait];
      uint32_t receive = firstLap[message.target][message.receive];
      auto link = [&](uint32_t from, uint32_t lap, uint32_t to, uint32_t until,
                      Link::Waits waits) {
        Link &waiting = notes.links[from][lap];
        waiting.waits = waits;
        waiting.peer = to;
        waiting.peerLap = until;
      };
      link(rank, wait, receiver, receive, Link::Waits::ForEnd);
      link(receiver, receive, rank, send,
           isOnGpu ? Link::Waits::ForStart : Link::Waits::ForEnd);
      if (isOnGpu)
        link(rank, send, receiver, receive, Link::Waits::ForStart);
    }
}

/// Memory is linear in ranks times operations.
void StepNotes::Layout::run() {
  for (const fb::Program *program : *plan.programs())
    addProgram(*program);
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank)
    addRank(rank);
  linkMessages();
  notes.arrivals.resize(meetings.size());
}

/// Clocks of ranks elsewhere stay empty but in process 0, which gathers all.
StepNotes::StepNotes(const fb::Plan &plan, bool overlaps,
                     const Rendezvous *processes)
    : source(plan), meshOf(plan) {
  Layout(*this, overlaps).run();
  RankSpread spread = {mesh().ranks(),
                       processes ? processes->place().count : 1};
  uint32_t here = processes ? processes->place().index : 0;
  for (uint32_t rank = 0; rank < mesh().ranks(); ++rank) {
    bool isKnown = here == 0 || spread.processOf(rank) == here;
    clocks.emplace_back(isKnown ? countLaps(rank) : 0);
  }
}

//===----------------------------------------------------------------------===//
// Times
//===----------------------------------------------------------------------===//

/// When all of a collective's members were there, and the step's ends. One pass
/// over all laps: of each collective the latest start among its members, and
/// whose that was. A tie goes to the lower rank, so that notes are the same on
/// every run with the same times.
void StepNotes::meet() {
  std::fill(arrivals.begin(), arrivals.end(), Ready{Time::min(), 0});
  first = Time::max();
  last = Time::min();
  for (uint32_t rank = 0; rank < links.size(); ++rank)
    for (size_t i = 0; i < links[rank].size(); ++i) {
      Time start = clocks[rank].getStart(i);
      if (const Link &link = links[rank][i];
          link.waits == Link::Waits::ForMembers &&
          start > arrivals[link.meeting].time)
        arrivals[link.meeting] = {start, rank};
      first = std::min(first, start);
      last = std::max(last, clocks[rank].getEnd(i));
    }
}

/// Clamped to the lap: clocks of two hosts, or of GPU and host, differ by
/// microseconds, and no part of a lap may be negative.
StepNotes::Ready StepNotes::getReady(uint32_t rank, size_t lap) const {
  const Link &link = links[rank][lap];
  Time start = clocks[rank].getStart(lap), end = clocks[rank].getEnd(lap);
  auto clamp = [&](Time time, uint32_t other) {
    return time > start ? Ready{std::min(time, end), other}
                        : Ready{start, rank};
  };
  switch (link.waits) {
  case Link::Waits::No:
    return {start, rank};
  case Link::Waits::ForMembers:
    return clamp(arrivals[link.meeting].time, arrivals[link.meeting].rank);
  case Link::Waits::ForStart:
    return clamp(clocks[link.peer].getStart(link.peerLap), link.peer);
  case Link::Waits::ForEnd:
    return clamp(clocks[link.peer].getEnd(link.peerLap), link.peer);
  }
  __builtin_unreachable();
}

//===----------------------------------------------------------------------===//
// Several processes
//===----------------------------------------------------------------------===//

static int64_t toNanoseconds(StepClock::Time time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             time.time_since_epoch())
      .count();
}

/// An estimate from one direction: process 0 says a word and notes the time at
/// which it did; each process answers with its own clock when it hears it. The
/// answer is late by as long as the word took, so the smallest of 20 rounds is
/// closest. The offset of process 0 is 0.
Status StepNotes::compareClocks(Rendezvous &processes) {
  const ProcessPlace &place = processes.place();
  clockOffsets.assign(place.count, 0);
  // Processes of one host have one clock.
  if (!place.hosts.empty() && place.hosts.back() == 0)
    return Status::success();
  constexpr int rounds = 20;
  std::fill(clockOffsets.begin(), clockOffsets.end(), INT64_MAX);
  for (int i = 0; i < rounds; ++i) {
    // The word of process 0 arrives a little later than it says it.
    auto word = processes.broadcast("");
    if (!word.ok())
      return word.status();
    int64_t now = toNanoseconds(std::chrono::steady_clock::now());
    auto all = processes.gather(std::to_string(now));
    if (!all.ok())
      return all.status();
    for (size_t j = 0; j < all->size(); ++j)
      clockOffsets[j] =
          std::min<int64_t>(clockOffsets[j], std::stoll((*all)[j]) - now);
  }
  return Status::success();
}

namespace {
/// A lap as it goes through gather(): raw bytes, since the processes of a run
/// have one version and one byte order.
struct SentLap {
  int64_t begin, end; // ns of the sender's clock
  double processor;
};
} // namespace

/// Process 0 gets the notes of all ranks; it sends nothing itself. Laps have no
/// headers: receiver and sender know from the plan how many there are of which
/// rank.
Status StepNotes::gather(Rendezvous &processes) {
  const RankSpread &spread = processes.spread();
  uint32_t here = processes.place().index;
  // Ranks in ascending order, the laps of each in theirs.
  std::vector<SentLap> mine;
  for (uint32_t rank = spread.firstOf(here); rank < spread.firstOf(here + 1);
       ++rank)
    for (size_t i = 0; i < countLaps(rank); ++i)
      mine.push_back({toNanoseconds(clocks[rank].getStart(i)),
                      toNanoseconds(clocks[rank].getEnd(i)),
                      clocks[rank].getProcessorSeconds(i)});
  auto all = processes.gather(
      here == 0 ? ""
                : std::string(reinterpret_cast<const char *>(mine.data()),
                              mine.size() * sizeof(SentLap)));
  if (!all.ok())
    return all.status();
  for (uint32_t process = 1; process < all->size(); ++process) {
    const char *next = (*all)[process].data();
    auto toTime = [&](int64_t time) {
      // On the clock of the first host.
      return Time(std::chrono::nanoseconds(time - clockOffsets[process]));
    };
    for (uint32_t rank = spread.firstOf(process);
         rank < spread.firstOf(process + 1); ++rank)
      for (size_t i = 0; i < countLaps(rank); ++i, next += sizeof(SentLap)) {
        SentLap lap; // the same plan, so there are as many
        std::memcpy(&lap, next, sizeof(lap));
        clocks[rank].set(i, toTime(lap.begin), toTime(lap.end), lap.processor);
      }
  }
  return Status::success();
}

/// Outside of process 0 nobody asks for what meet() finds.
Status StepNotes::collect(Rendezvous *processes) {
  if (processes)
    PLAIT_RETURN_IF_ERROR(gather(*processes));
  if (!processes || processes->place().index == 0)
    meet();
  return Status::success();
}
