//===- Executor.cpp - Runs the programs of a plan -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ties the parts of a process together: a backend for the plan, a Rank for each
// rank, and RankThreads that run them side by side. All that is done during a
// step is in Rank; this file says who fails for whom, and what is said then.
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Executor.h"

#include "Backend.h"
#include "Rank.h"
#include "RankThreads.h"
#include "Sites/SiteMeeting.h"
#include "Topology.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/StepParts.h"
#include "plait/Runtime/Rendezvous.h"
#include "plait/Runtime/Trainer.h"
#include "plait/Runtime/Version.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

using namespace plait;
using namespace plait::runtime;

namespace {

/// The time that a rank needs to notice that another one has failed, and to
/// come back.
constexpr std::chrono::milliseconds leastPatience = std::chrono::seconds(3);

/// Members are destroyed in reverse order: threads end before the ranks that
/// they run, and ranks before the devices they use.
class ThreadExecutor : public Executor {
public:
  /// Threads are there from now on, but idle: nothing of the ranks is used
  /// before prepare().
  ThreadExecutor(const fb::Plan &source, Backend parts,
                 const std::vector<plan::Message> &messages,
                 const ExecutorOptions &options)
      : source(source), meshOf(source), others(options.processes),
        sites(options.sites), hearer(options.reporter), notes(options.notes),
        onStuck(options.onStuck), backend(std::move(parts)),
        threads(
            backend.ranks, std::max(options.timeLimit, leastPatience),
            [this](uint32_t index) { return release(index); },
            [this](const Status &failure) { giveUp(failure); }) {
    // Message numbers are the same in all processes, as they follow from the
    // plan.
    for (uint32_t i = 0; i < backend.ranks.size(); ++i) {
      walkers.push_back(std::make_unique<Rank>(source, meshOf, backend.ranks[i],
                                               backend.parts[i]));
      walkers.back()->assignMessages(messages);
      walkers.back()->setGuard(options.guardEvery);
      walkers.back()->setStress(options.stress);
      if (sites)
        walkers.back()->meetApart();
    }
    cutRecordings(messages, options);
    setClocks();
  }
  ~ThreadExecutor() override;

  /// Prepares on each rank's own thread, which its device may want, and all at
  /// once: joining a group may wait for the other members.
  Status prepare() {
    return threads.run(
        [this](uint32_t index) { return walkers[index]->prepare(); });
  }

  Result<StepMetrics> runStep(uint64_t number, const Batches &batches,
                              const StepScalars &scalars, StepScope scope,
                              const StepScalars *next) override;
  bool isAhead() const override { return ahead.has_value(); }

  Status meetSites(RunState &state, bool begins, bool resumed) override;

  /// Indices of threads become ranks.
  Status forEachRank(const std::function<Status(uint32_t)> &job) override {
    return threads.run(
        [&](uint32_t index) { return job(backend.ranks[index]); });
  }

  /// False where a device only enqueues work: a wait of the rank's thread would
  /// not hold that back.
  bool holdUpdates(std::function<void()> wait) override {
    auto runsLater = [](RankBackend &part) { return part.device->runsLater(); };
    if (std::any_of(backend.parts.begin(), backend.parts.end(), runsLater))
      return false;
    for (std::unique_ptr<Rank> &walker : walkers)
      walker->holdUpdates(wait);
    return true;
  }

  /// Returns the device of a global rank, which must be one of this process.
  /// Its index is the place in the ascending list of those ranks.
  Device &device(uint32_t rank) override {
    auto found =
        std::lower_bound(backend.ranks.begin(), backend.ranks.end(), rank);
    return *backend.parts[found - backend.ranks.begin()].device;
  }
  std::span<const uint32_t> ranks() const override { return backend.ranks; }
  const std::string &placement() const override { return backend.placement; }
  const std::string &libraries() const override { return backend.libraries; }
  const std::string &libraryChoices() const override {
    return backend.libraryChoices;
  }
  Result<std::string> describeMemory() override {
    return backend.describeMemory ? backend.describeMemory() : std::string();
  }
  Reporter *reporter() const override { return hearer; }
  Rendezvous *processes() override { return others; }
  const plan::RankGrid &mesh() const override { return meshOf; }
  const fb::Plan &plan() const override { return source; }

private:
  void goAhead(uint64_t number, const Batches &batches,
               const StepScalars &scalars);
  Status takeSums(SiteMeeting &meeting, const RunState &state,
                  const RoundEnd &end);
  Status takeMissed(SiteMeeting &meeting, RunState &state, RoundEnd &end);
  Status giveState(SiteMeeting &meeting, uint64_t updates);
  void setClocks();
  void cutRecordings(const std::vector<plan::Message> &messages,
                     const ExecutorOptions &options);
  std::string release(uint32_t failed);
  void giveUp(const Status &failure);

  const fb::Plan &source;
  plan::RankGrid meshOf;
  Rendezvous *others;
  SiteMember *sites;                                // or null
  Reporter *hearer;                                 // or null
  StepNotes *notes;                                 // or null
  std::function<void(const std::string &)> onStuck; // or empty
  Backend backend;
  std::vector<std::unique_ptr<Rank>> walkers;
  // How enqueueing the step after the last one went; nothing: it has not been.
  std::optional<Status> ahead;
  RankThreads threads; // last: ends before what its jobs use
};

/// A step that was enqueued and is not wanted ends before anything goes: ranks
/// of other processes may not take part in it, for which there is a time limit
/// here only. After a failure all are released already.
ThreadExecutor::~ThreadExecutor() {
  if (ahead && ahead->ok())
    (void)threads.run(
        [&](uint32_t index) { return walkers[index]->finishStep(0); });
}

/// Metrics are the same on all ranks, so that those of the first one here do.
/// 1. Begin the step, unless it was begun ahead, and end it, if no other is to
///    follow at once, in one go.
/// 2. Begin the next one, and then wait for this one. A failure to begin it is
///    told when its turn comes, unless it is why this one failed.
Result<StepMetrics> ThreadExecutor::runStep(uint64_t number,
                                            const Batches &batches,
                                            const StepScalars &scalars,
                                            StepScope scope,
                                            const StepScalars *next) {
  setClocks();
  if (!std::all_of(walkers.begin(), walkers.end(),
                   [](const auto &walker) { return walker->canGoAhead(); }))
    next = nullptr;
  // 1.
  std::optional<Status> begun = std::exchange(ahead, std::nullopt);
  if (begun)
    PLAIT_RETURN_IF_ERROR(*begun);
  if (!begun || !next)
    PLAIT_RETURN_IF_ERROR(threads.run([&](uint32_t index) -> Status {
      Rank &walker = *walkers[index];
      if (!begun) {
        PLAIT_RETURN_IF_ERROR(walker.feedStep(number, batches, scalars));
        PLAIT_RETURN_IF_ERROR(walker.enqueueStep(number, scope));
      }
      return next ? Status::success() : walker.finishStep(number);
    }));
  if (!next)
    return walkers.front()->metrics();
  // 2.
  goAhead(number + 1, batches, *next);
  Status done = threads.run(
      [&](uint32_t index) { return walkers[index]->finishStep(number); });
  if (done.ok())
    return walkers.front()->metrics();
  Status following = ahead.value_or(Status::success());
  ahead.reset();
  return followsAnother(done) && !following.ok() ? following : done;
}

/// Begins a step beside the one that runs, on all ranks or on none. One whose
/// data cannot be read is begun again when its turn comes, and fails then.
void ThreadExecutor::goAhead(uint64_t number, const Batches &batches,
                             const StepScalars &scalars) {
  std::atomic<bool> canBegin = true;
  Status status = threads.run([&](uint32_t index) {
    if (!walkers[index]->feedStep(number, batches, scalars).ok())
      canBegin = false;
    return Status::success();
  });
  if (status.ok() && canBegin)
    ahead = threads.run([&](uint32_t index) {
      return walkers[index]->enqueueStep(number, StepScope::Train);
    });
}

/// Sets the clocks of the next step. They are asked before each step, since
/// notes may be taken of some steps only.
void ThreadExecutor::setClocks() {
  for (uint32_t i = 0; notes && i < walkers.size(); ++i)
    walkers[i]->setClock(notes->isEnabled() ? &notes->clock(backend.ranks[i])
                                            : nullptr);
}

/// The same cuts in all processes, as they follow from the plan.
void ThreadExecutor::cutRecordings(const std::vector<plan::Message> &messages,
                                   const ExecutorOptions &options) {
  auto hasParts = [](const RankBackend &part) {
    return part.graph && part.graph->hasParts();
  };
  if (!options.graphOperations ||
      std::none_of(backend.parts.begin(), backend.parts.end(), hasParts))
    return;
  plan::StepCuts cuts =
      plan::cutSteps(source, messages, options.graphOperations);
  for (uint32_t i = 0; i < walkers.size(); ++i)
    walkers[i]->setCuts(cuts[meshOf.index(backend.ranks[i], 0)]);
}

/// 1. What the ranks offer, one after the other.
/// 2. The others.
/// 3. The end of the step, or the state of a site that has ended it.
Status ThreadExecutor::meetSites(RunState &state, bool begins, bool resumed) {
  if (!sites || !(begins || sites->isDue(state.step)))
    return Status::success();
  SiteMeeting meeting(*this, *sites);
  // 1. What is offered.
  std::vector<std::vector<std::byte>> moved(walkers.size());
  std::vector<std::byte> all;
  if (!begins)
    PLAIT_RETURN_IF_ERROR(threads.run([&](uint32_t index) {
      return walkers[index]->offer(state.step, moved[index]);
    }));
  for (const std::vector<std::byte> &one : moved)
    all.insert(all.end(), one.begin(), one.end());
  // 2. The others.
  Result<RoundEnd> end = begins ? meeting.begin(state.step, resumed)
                                : meeting.agree(state.step, all);
  if (!end.ok() || end->outcome == RoundEnd::GoOn)
    return end.status();
  // 3. What becomes of it.
  if (end->outcome == RoundEnd::Missed) {
    bool keeps = end->keeps;
    PLAIT_RETURN_IF_ERROR(takeMissed(meeting, state, *end));
    if (keeps)
      PLAIT_RETURN_IF_ERROR(threads.run([&](uint32_t index) {
        return walkers[index]->resumeFrom(state.step, moved[index]);
      }));
    if (end->outcome == RoundEnd::Missed || end->outcome == RoundEnd::GoOn)
      return Status::success();
  }
  if (end->outcome != RoundEnd::Agreed) {
    state.step = end->step;
    if (end->isNew)
      state.updates = end->updates;
    bool keeps = end->outcome == RoundEnd::LeftOut;
    return threads.run([&](uint32_t index) {
      auto kept = meeting.keptOf(backend.ranks[index], *end);
      return walkers[index]->takeKept(state.step, kept, end->isNew, keeps);
    });
  }
  PLAIT_RETURN_IF_ERROR(takeSums(meeting, state, *end));
  return end->gives ? giveState(meeting, state.updates) : Status::success();
}

Status ThreadExecutor::takeSums(SiteMeeting &meeting, const RunState &state,
                                const RoundEnd &end) {
  return threads.run([&](uint32_t index) {
    auto sums = meeting.sumsOf(backend.ranks[index], end);
    return walkers[index]->agree(state.step, sums, end.count);
  });
}

/// Does by itself, round by round, what the others have done; `end` becomes
/// that of the last one.
Status ThreadExecutor::takeMissed(SiteMeeting &meeting, RunState &state,
                                  RoundEnd &end) {
  while (true) {
    state.step = end.step;
    PLAIT_RETURN_IF_ERROR(takeSums(meeting, state, end));
    if (!end.more)
      return Status::success();
    Result<RoundEnd> next = meeting.next();
    if (!next.ok())
      return next.status();
    end = std::move(*next);
    if (end.outcome != RoundEnd::Missed)
      return Status::success();
  }
}

Status ThreadExecutor::giveState(SiteMeeting &meeting, uint64_t updates) {
  std::vector<uint64_t> begins = {0};
  for (const std::unique_ptr<Rank> &walker : walkers)
    begins.push_back(begins.back() + walker->countKept());
  std::vector<std::byte> kept(begins.back());
  PLAIT_RETURN_IF_ERROR(threads.run([&](uint32_t index) {
    return walkers[index]->readKept(std::span(kept).subspan(
        begins[index], begins[index + 1] - begins[index]));
  }));
  return meeting.give(kept, updates);
}

/// Lets all ranks fail. Where one has waited too long, returns lines on what
/// the others do. Positions are read before the communicators are aborted:
/// afterwards all ranks would be on their way out. Only where the rank that
/// failed was itself waiting is it of interest what the others do.
std::string ThreadExecutor::release(uint32_t failed) {
  constexpr size_t most = 16;
  std::string lines;
  size_t told = 0;
  if (failed < walkers.size() && walkers[failed]->isWaiting())
    for (uint32_t i = 0; i < walkers.size(); ++i)
      if (std::string line = walkers[i]->describePosition();
          i != failed && !line.empty() && told++ < most)
        lines += "\n  " + line;
  if (told > most)
    lines += "\n  and " + std::to_string(told - most) + " more ranks";
  for (RankBackend &part : backend.parts)
    part.communicator->abort();
  return lines;
}

/// A rank that does not come back would keep the process for ever. Whoever runs
/// the plan decides what becomes of that; other processes need not wait.
void ThreadExecutor::giveUp(const Status &failure) {
  std::string text = failure.message();
  for (const std::unique_ptr<Rank> &walker : walkers)
    if (std::string line = walker->describePosition();
        !line.empty() && !walker->isWaiting())
      text += "\n  given up: " + line;
  if (onStuck)
    onStuck(text);
  if (others)
    others->disconnect();
}

#if !PLAIT_HAS_CPU || !PLAIT_HAS_CUDA
/// Only built where a backend is missing.
Result<Backend> missingBackend(const char *name, const char *option) {
  return fail("the plan is for ", name, ", which this plait-run was built ",
              "without (", option, ")");
}
#endif

/// Creates what the plan names; both are chosen when plait is built.
Result<Backend> createBackend(const fb::Plan &plan, const Topology &topology,
                              const ExecutorOptions &options) {
  std::string_view name = plan::backendOf(plan);
  if (name == "cpu") {
#if PLAIT_HAS_CPU
    return createCpuBackend(plan, topology, options);
#else
    return missingBackend("cpu", "PLAIT_ENABLE_CPU");
#endif
  }
  if (name == "cuda") {
#if PLAIT_HAS_CUDA
    return createCudaBackend(plan, topology, options);
#else
    return missingBackend("cuda", "PLAIT_ENABLE_CUDA");
#endif
  }
  return fail("the plan is for backend '", name, "', known are cpu and cuda");
}

} // namespace

/// 1. What the plan says: messages, and which ranks are in this process, before
///    anything asks for them. Without overlap everything is in stream 0.
/// 2. The backend: memory, code, connections. This is where a plan that does
///    not fit fails.
/// 3. Ranks prepare on their threads.
Result<std::unique_ptr<Executor>>
Executor::create(const fb::Plan &plan, const ExecutorOptions &options) {
  Result<std::vector<plan::Message>> messages = plan::matchMessages(plan);
  if (!messages.ok())
    return messages.status();
  // 1. Who is here.
  if (options.processes)
    options.processes->spread(plan::RankGrid(plan).ranks());
  // The same in all processes: they connect by it.
  Topology topology = topologyOf(plan, *messages);
  if (!options.overlap)
    topology.streams.clear();
  // 2. What the plan needs.
  Result<Backend> backend = createBackend(plan, topology, options);
  if (!backend.ok())
    return backend.status();
  auto executor = std::make_unique<ThreadExecutor>(plan, std::move(*backend),
                                                   *messages, options);
  // 3. What each rank needs.
  PLAIT_RETURN_IF_ERROR(executor->prepare());
  return std::unique_ptr<Executor>(std::move(executor));
}

/// Processes compare it before they start: numbers may depend on it.
std::string runtime::describeVersion() {
  std::string version = "plait " PLAIT_VERSION;
#if PLAIT_HAS_CPU
  version += describeCpuLibraries();
#endif
  return version;
}

std::string runtime::describeLibraries() {
  std::string text = describeVersion();
#if PLAIT_HAS_CUDA
  text += "\n" + describeCudaLibraries();
#endif
  return text;
}
