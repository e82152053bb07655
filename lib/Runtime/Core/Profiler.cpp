//===- Profiler.cpp - Measures the steps of a run -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Profiler.h"

#include "Topology.h"
#include "plait/Plan/Defaults.h"
#include "plait/Runtime/Rendezvous.h"

#include <algorithm>
#include <cstring>
#include <map>

using namespace plait;
using namespace plait::runtime;
using plan::FunctionProfile;
using plan::isTransfer;
using plan::length;
using plan::ProgramProfile;
using plan::StepProfile;
using plan::TransferProfile;

static double toSeconds(StepClock::Time::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

static FunctionProfile describe(const fb::Plan &plan,
                                const fb::Function &function) {
  FunctionProfile profile;
  profile.name = function.name()->str();
  for (uint32_t i = 0; i < length(function.steps()); ++i) {
    const fb::Step &step = *function.steps()->Get(i);
    StepProfile &entry = profile.steps.emplace_back();
    entry.kind = fb::EnumNameStepKind(step.step_type());
    if (step.location() < length(plan.locations()))
      entry.location = plan.locations()->Get(step.location())->str();
  }
  return profile;
}

/// Adds the action to the calls of the program; returns the index of its
/// transfer where it is one.
static uint32_t count(ProgramProfile &program, const fb::Action &action) {
  if (!isTransfer(action)) {
    FunctionProfile &function = program.functions[action.function()];
    function.action = action.kind();
    ++function.calls;
    return 0;
  }
  auto found = std::find_if(program.transfers.begin(), program.transfers.end(),
                            [&](const TransferProfile &transfer) {
                              return plan::isTransfer(transfer, action);
                            });
  if (found == program.transfers.end()) {
    program.transfers.push_back({action.kind(), action.direction(),
                                 action.peer(), action.tensor(),
                                 action.bytes()});
    found = program.transfers.end() - 1;
  }
  ++found->calls;
  return found - program.transfers.begin();
}

//===----------------------------------------------------------------------===//
// Where notes belong
//===----------------------------------------------------------------------===//

/// Totals of a program are its functions' steps one after another, then its
/// transfers.
class Profiler::Layout {
public:
  Layout(const fb::Plan &plan, Profiler &profiler)
      : plan(plan), mesh(plan), profiler(profiler), onGpu(plan::isCuda(plan)) {}

  void run();

private:
  void addProgram(const fb::Program &program);
  void addRank(uint32_t rank);
  void linkMessages();
  uint32_t getMeeting(uint32_t rank, const fb::CollectiveStep &step,
                      std::map<std::vector<uint32_t>, uint32_t> &counts);

  const fb::Plan &plan;
  plan::Mesh mesh;
  Profiler &profiler;
  bool onGpu;
  std::vector<std::vector<uint32_t>> firstTotal; // by program and function
  std::vector<std::vector<uint32_t>> transferOf; // by program and action
  std::vector<std::vector<uint32_t>> firstLap;   // by program and action
  std::map<std::pair<std::vector<uint32_t>, uint32_t>, uint32_t> meetings;
};

void Profiler::Layout::addProgram(const fb::Program &program) {
  ProgramProfile &profile = profiler.skeleton.programs.emplace_back();
  profile.arenaBytes = program.arena_bytes();
  std::vector<uint32_t> &first = firstTotal.emplace_back();
  uint32_t total = 0;
  for (uint32_t i = 0; i < length(program.functions()); ++i) {
    profile.functions.push_back(describe(plan, *program.functions()->Get(i)));
    first.push_back(total);
    total += profile.functions.back().steps.size();
  }
  std::vector<uint32_t> &transfers = transferOf.emplace_back();
  std::vector<uint32_t> &laps = firstLap.emplace_back();
  uint32_t lap = 0;
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    transfers.push_back(total + count(profile, action));
    laps.push_back(lap);
    lap += isTransfer(action)
               ? 1
               : profile.functions[action.function()].steps.size();
  }
  profiler.totals.emplace_back(total + profile.transfers.size());
}

/// The collectives of one group happen in one order on all of its members.
uint32_t Profiler::Layout::getMeeting(
    uint32_t rank, const fb::CollectiveStep &step,
    std::map<std::vector<uint32_t>, uint32_t> &counts) {
  std::vector<uint32_t> members = membersOf(mesh, rank, step);
  uint32_t ordinal = counts[members]++;
  return meetings
      .try_emplace({std::move(members), ordinal}, uint32_t(meetings.size()))
      .first->second;
}

void Profiler::Layout::addRank(uint32_t rank) {
  uint32_t index = mesh.index(rank, 0);
  const fb::Program &program = *plan.programs()->Get(index);
  std::vector<Lap> &laps = profiler.laps.emplace_back();
  std::map<std::vector<uint32_t>, uint32_t> counts;
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    if (isTransfer(action)) {
      laps.push_back({transferOf[index][i]});
      continue;
    }
    const auto *steps = program.functions()->Get(action.function())->steps();
    for (uint32_t j = 0; j < length(steps); ++j) {
      Lap &lap =
          laps.emplace_back(Lap{firstTotal[index][action.function()] + j});
      if (const auto *collective = steps->Get(j)->step_as_CollectiveStep()) {
        lap.waits = Lap::Waits::ForMembers;
        lap.meeting = getMeeting(rank, *collective, counts);
      }
    }
  }
  profiler.programOf.push_back(index);
  profiler.clocks.emplace_back(laps.size());
}

/// On a processor a receiver waits for the end of the sender's Send, WaitSend
/// for the end of the receiver's Recv. On a GPU a Send lasts until the bytes
/// have been taken: both wait for the other one to begin.
void Profiler::Layout::linkMessages() {
  Result<std::vector<plan::Message>> messages = plan::matchMessages(plan);
  if (!messages.ok()) // checkPlan has found them sound
    return;
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank)
    for (const plan::Message &message : *messages) {
      if (message.source != mesh.index(rank, 0))
        continue;
      uint32_t receiver = mesh.withIndex(rank, 0, message.target);
      uint32_t send = firstLap[message.source][message.send];
      uint32_t wait = firstLap[message.source][message.wait];
      uint32_t receive = firstLap[message.target][message.receive];
      auto link = [&](uint32_t from, uint32_t lap, uint32_t to, uint32_t until,
                      Lap::Waits waits) {
        Lap &waiting = profiler.laps[from][lap];
        waiting.waits = waits;
        waiting.peer = to;
        waiting.peerLap = until;
      };
      link(rank, wait, receiver, receive, Lap::Waits::ForEnd);
      link(receiver, receive, rank, send,
           onGpu ? Lap::Waits::ForStart : Lap::Waits::ForEnd);
      if (onGpu)
        link(rank, send, receiver, receive, Lap::Waits::ForStart);
    }
}

void Profiler::Layout::run() {
  for (const fb::Program *program : *plan.programs())
    addProgram(*program);
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank)
    addRank(rank);
  linkMessages();
  profiler.arrivals.resize(meetings.size());
}

//===----------------------------------------------------------------------===//
// Times
//===----------------------------------------------------------------------===//

Profiler::Profiler(const fb::Plan &plan, uint64_t hash, unsigned threads,
                   uint64_t steps) {
  skeleton.plan = plan::identify(hash);
  skeleton.threads = threads;
  for (const fb::MeshAxis *axis : *plan.mesh())
    skeleton.mesh.emplace_back(axis->name()->str(), axis->size());
  Layout(plan, *this).run();
  stepSeconds.reserve(std::min<uint64_t>(steps, 1 << 20));
}

StepClock::Time Profiler::getArrival(const Lap &lap,
                                     StepClock::Time start) const {
  switch (lap.waits) {
  case Lap::Waits::No:
    return start;
  case Lap::Waits::ForMembers:
    return arrivals[lap.meeting];
  case Lap::Waits::ForStart:
    return clocks[lap.peer].getStart(lap.peerLap);
  case Lap::Waits::ForEnd:
    return clocks[lap.peer].getEnd(lap.peerLap);
  }
  __builtin_unreachable();
}

void Profiler::addStep(double seconds) {
  if (!std::exchange(isWarm, true))
    return;
  std::fill(arrivals.begin(), arrivals.end(), StepClock::Time::min());
  StepClock::Time begin = StepClock::Time::max(), end = StepClock::Time::min();
  for (uint32_t rank = 0; rank < laps.size(); ++rank) {
    for (uint32_t i = 0; i < laps[rank].size(); ++i) {
      if (const Lap &lap = laps[rank][i]; lap.waits == Lap::Waits::ForMembers)
        arrivals[lap.meeting] =
            std::max(arrivals[lap.meeting], clocks[rank].getStart(i));
      begin = std::min(begin, clocks[rank].getStart(i));
      end = std::max(end, clocks[rank].getEnd(i));
    }
  }
  for (uint32_t rank = 0; rank < laps.size(); ++rank)
    for (uint32_t i = 0; i < laps[rank].size(); ++i) {
      const Lap &lap = laps[rank][i];
      StepClock::Time from = clocks[rank].getStart(i);
      StepClock::Time to = clocks[rank].getEnd(i);
      StepClock::Time ready = std::clamp(getArrival(lap, from), from, to);
      Total &total = totals[programOf[rank]][lap.total];
      total.waiting += toSeconds(ready - from);
      total.seconds += toSeconds(to - ready);
      total.processor += clocks[rank].getProcessorSeconds(i);
      ++total.calls;
    }
  stepSeconds.push_back(seconds);
  overhead += seconds - toSeconds(end - begin);
}

//===----------------------------------------------------------------------===//
// Several processes
//===----------------------------------------------------------------------===//

static int64_t toNanoseconds(StepClock::Time time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             time.time_since_epoch())
      .count();
}

Status Profiler::compareClocks(Rendezvous &processes) {
  const ProcessPlace &place = processes.place();
  clockOffsets.assign(place.count, 0);
  // Processes of one host have one clock.
  if (!place.hosts.empty() && place.hosts.back() == 0)
    return Status::success();
  constexpr int rounds = 20;
  std::fill(clockOffsets.begin(), clockOffsets.end(), INT64_MAX);
  for (int i = 0; i < rounds; ++i) {
    // The word of process 0 arrives a little later than it says it.
    auto word = processes.broadcast("", Rendezvous::Wait::Limited);
    if (!word.ok())
      return word.status();
    int64_t now = toNanoseconds(std::chrono::steady_clock::now());
    auto all = processes.gather(std::to_string(now), Rendezvous::Wait::Limited);
    if (!all.ok())
      return all.status();
    for (size_t j = 0; j < all->size(); ++j)
      clockOffsets[j] =
          std::min<int64_t>(clockOffsets[j], std::stoll((*all)[j]) - now);
  }
  return Status::success();
}

namespace {
struct SentLap {
  int64_t begin, end; // ns of the sender's clock
  double processor;
};
} // namespace

Status Profiler::collect(Rendezvous &processes) {
  const RankSpread &spread = processes.spread();
  uint32_t here = processes.place().index;
  std::vector<SentLap> mine;
  for (uint32_t rank = spread.firstOf(here); rank < spread.firstOf(here + 1);
       ++rank)
    for (size_t i = 0; i < laps[rank].size(); ++i)
      mine.push_back({toNanoseconds(clocks[rank].getStart(i)),
                      toNanoseconds(clocks[rank].getEnd(i)),
                      clocks[rank].getProcessorSeconds(i)});
  auto all = processes.gather(
      here == 0 ? ""
                : std::string(reinterpret_cast<const char *>(mine.data()),
                              mine.size() * sizeof(SentLap)),
      Rendezvous::Wait::Limited);
  if (!all.ok())
    return all.status();
  for (uint32_t process = 1; process < all->size(); ++process) {
    const char *next = (*all)[process].data();
    auto toTime = [&](int64_t time) {
      return StepClock::Time(
          std::chrono::nanoseconds(time - clockOffsets[process]));
    };
    for (uint32_t rank = spread.firstOf(process);
         rank < spread.firstOf(process + 1); ++rank)
      for (size_t i = 0; i < laps[rank].size(); ++i, next += sizeof(SentLap)) {
        SentLap lap; // the same plan, so there are as many
        std::memcpy(&lap, next, sizeof(lap));
        clocks[rank].set(i, toTime(lap.begin), toTime(lap.end), lap.processor);
      }
  }
  return Status::success();
}

static double getMedian(std::vector<double> values) {
  size_t middle = values.size() / 2;
  std::sort(values.begin(), values.end());
  return values.size() % 2 ? values[middle]
                           : (values[middle - 1] + values[middle]) / 2;
}

Result<plan::Profile> Profiler::finish() const {
  if (stepSeconds.empty())
    return Status::failure("a profile needs at least 2 steps: the first one is "
                           "left out");
  plan::Profile profile = skeleton;
  profile.steps = stepSeconds.size();
  profile.stepSeconds = getMedian(stepSeconds);
  profile.overheadSeconds = overhead / double(stepSeconds.size());
  for (size_t i = 0; i < profile.programs.size(); ++i) {
    auto next = totals[i].begin();
    auto assign = [&](auto &entry) {
      double calls = double(std::max<uint64_t>(next->calls, 1));
      entry.seconds = next->seconds / calls;
      entry.waiting = next->waiting / calls;
      entry.processor = next->processor / calls;
      ++next;
    };
    for (FunctionProfile &function : profile.programs[i].functions)
      for (StepProfile &step : function.steps)
        assign(step);
    for (TransferProfile &transfer : profile.programs[i].transfers)
      assign(transfer);
  }
  return profile;
}
