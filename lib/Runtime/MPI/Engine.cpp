//===- Engine.cpp - The thread that calls MPI -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One loop: begin what has been submitted, poll, look for warnings, sleep. How
// long it sleeps follows from how long nothing has happened, so that a wait
// costs at most a sixteenth more time and a core that others compute on is left
// to them. `calls` is the futex that ends the sleep early; `phase` tells when
// the library has started and when it is not called any more.
//
// Jobs belong to their submitters, who sleep on `busy`. The engine's last act
// on a job is to clear it.
//
//===----------------------------------------------------------------------===//

#include "Engine.h"

#include "Core/Futex.h"
#include "plait/Runtime/Communicator.h"

#include <algorithm>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

using namespace plait;
using namespace plait::runtime;

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

/// How long MPI is asked without a pause after something has happened: pieces
/// of a large message come and go that it does not speak of.
constexpr microseconds spinning(200);
/// Pauses are this part of the time that nothing has happened: waiting takes at
/// most so much longer.
constexpr int pausesPerWait = 16;
constexpr microseconds shortestPause(5), longestPause(1000);
/// The pause while nothing is under way, when only warnings may come.
constexpr microseconds idlePause(10000);
/// How long warnings of others, and their answers, are waited for.
constexpr milliseconds grace(1000);

} // namespace

/// MPI_Init may hang where the others do not come: the thread is left behind
/// then, with the engine it uses.
Result<std::unique_ptr<MpiEngine>>
MpiEngine::start(std::unique_ptr<MpiLibrary> library, milliseconds timeLimit) {
  std::unique_ptr<MpiEngine> engine(new MpiEngine(timeLimit));
  engine->library = std::move(library);
  engine->thread = std::thread([&engine = *engine] { engine.serve(); });
  std::atomic<bool> never = false;
  if (waitWhileEqual(engine->phase, 0, never, timeLimit) !=
      WaitResult::Changed) {
    (void)engine.release(); // see leave()
    return failTimedOut(timeLimit, "MPI to start");
  }
  if (!engine->started.ok())
    return engine->started.status();
  return engine;
}

/// After leave(), or where start() has failed, the thread is on its way out.
MpiEngine::~MpiEngine() { thread.join(); }

/// Jobs that are under way are finished first.
bool MpiEngine::leave() {
  stopping = true;
  ++calls;
  wakeAll(calls);
  std::atomic<bool> never = false;
  return waitWhileEqual(phase, 1, never, timeLimit) == WaitResult::Changed;
}

/// `busy` is set before the engine can see the job. A job without transfers is
/// never busy.
void MpiEngine::submit(MpiJob &job) {
  if (job.transfers.empty())
    return;
  job.busy = 1;
  {
    std::lock_guard lock(mutex);
    submitted.push_back(&job);
  }
  ++calls;
  wakeAll(calls);
}

/// The reason is that of this process; where another one has failed there is
/// none.
Status MpiEngine::wait(MpiJob &job, milliseconds limit) {
  switch (waitWhileEqual(job.busy, 1, aborted, limit)) {
  case WaitResult::Changed:
    return Status::success();
  case WaitResult::TimedOut:
    return failTimedOut(limit);
  case WaitResult::Aborted: {
    std::lock_guard lock(mutex);
    return failure.ok() ? failReleased() : failure;
  }
  }
  __builtin_unreachable();
}

std::string MpiEngine::reason() {
  std::lock_guard lock(mutex);
  return failure.ok() ? "" : failure.message();
}

/// The job is on the stack: after a failure nothing may refer to it, so that
/// the engine is halted before this returns.
Status MpiEngine::run(std::vector<MpiTransfer> transfers, milliseconds limit) {
  MpiJob job;
  job.transfers = std::move(transfers);
  submit(job);
  Status status = wait(job, limit);
  if (!status.ok()) {
    // The caller may have to go on, as after a checkpoint that was not written:
    // what waits next says why.
    giveUp(/*byItself=*/true, status);
    awaitHalt();
  }
  return status;
}

void MpiEngine::abort() { giveUp(/*byItself=*/true); }

/// The first one decides who speaks (`hasFailedItself`) and why. The handler is
/// called under the lock, so that setAbortHandler(nullptr) waits for it.
void MpiEngine::giveUp(bool byItself, Status reason) {
  std::lock_guard lock(mutex);
  if (aborted)
    return;
  hasFailedItself = byItself;
  failure = std::move(reason);
  aborted = true;
  ++calls;
  wakeAll(calls);
  if (abortHandler)
    abortHandler();
}

/// A handler that comes too late is called at once.
void MpiEngine::setAbortHandler(std::function<void()> handler) {
  std::lock_guard lock(mutex);
  abortHandler = std::move(handler);
  if (aborted && abortHandler)
    abortHandler();
}

/// Grace and polls after an abort are short, so that this needs no limit.
void MpiEngine::awaitHalt() {
  std::atomic<bool> never = false;
  waitWhileEqual(phase, 1, never, forEver);
}

/// Each of several processes that fail by themselves hears the others'
/// warnings; the lowest index speaks.
bool MpiEngine::isFirstToFail() const {
  return hasFailedItself &&
         std::none_of(notices.failed.begin(), notices.failed.end(),
                      [&](uint32_t other) { return other < joined.index; });
}

//===----------------------------------------------------------------------===//
// The thread
//===----------------------------------------------------------------------===//

/// 1. Start the library, on this thread: MPI_THREAD_FUNNELED allows no other.
/// 2. Serve until something fails, or leave() was called and all jobs are done.
///    `calls` is read before serving, so that what is submitted meanwhile ends
///    the sleep at once.
/// 3. Warn and hear warnings, or take leave; then nothing touches memory any
///    more.
void MpiEngine::serve() {
  // Pauses end when they should, not 50 us later.
  prctl(PR_SET_TIMERSLACK, 1);
  // 1. Whoever started the engine waits for `phase`.
  auto world = library->start();
  if (world.ok())
    joined = std::move(*world);
  watchNeighbour();
  started = world.ok() ? Result<bool>(true) : world.status();
  phase = 1;
  wakeAll(phase);
  // 2. Until the end of the run.
  Clock::time_point last = Clock::now(); // that anything happened
  while (started.ok() && !aborted && !(stopping && active == 0)) {
    uint32_t seen = calls;
    bool any = false;
    if (Status status = serveOnce(any); !status.ok())
      giveUp(/*byItself=*/true, status);
    Clock::time_point now = Clock::now();
    if (any)
      last = now;
    auto quiet = std::chrono::duration_cast<microseconds>(now - last);
    // One that has nothing to do with this one any more may end.
    if (active > 0 && quiet > spinning && !joined.tellsOfEnds &&
        neighbourHasEnded())
      giveUp(/*byItself=*/true, fail("process ", joined.neighbour, " on ",
                                     joined.host, " has ended"));
    if (active == 0)
      waitBriefly(calls, seen, idlePause);
    else if (quiet > spinning)
      waitBriefly(
          calls, seen,
          std::clamp(quiet / pausesPerWait, shortestPause, longestPause));
  }
  // 3. After this the library is not called.
  if (aborted)
    exchangeNotices();
  else if (started.ok())
    library->finish();
  phase = 2;
  wakeAll(phase);
}

/// Watches by a descriptor that stays with the process: numbers are used again.
/// Where the system has none of these, nobody is watched.
void MpiEngine::watchNeighbour() {
  if (joined.neighbourId)
    neighbour =
        Socket(int(syscall(SYS_pidfd_open, joined.neighbourId, /*flags=*/0)));
}

bool MpiEngine::neighbourHasEnded() const {
  pollfd event = {neighbour.get(), POLLIN, 0};
  return event.fd >= 0 && poll(&event, 1, /*timeout=*/0) > 0;
}

/// A job with several transfers is done with the last of them.
Status MpiEngine::serveOnce(bool &any) {
  PLAIT_RETURN_IF_ERROR(beginSubmitted(any));
  finished.clear();
  PLAIT_RETURN_IF_ERROR(library->poll(finished));
  for (void *cookie : finished) {
    MpiJob &job = *static_cast<MpiJob *>(cookie);
    any = true;
    if (--job.pending > 0)
      continue;
    --active;
    // From here on the job is its owner's. Its owner may destroy it as soon as
    // `busy` is 0: waking needs the address only, and a wake-up at an address
    // that is gone wakes nobody.
    std::atomic<uint32_t> &busy = job.busy;
    busy = 0;
    wakeAll(busy);
  }
  PLAIT_RETURN_IF_ERROR(library->readNotices(notices));
  if (!notices.failed.empty())
    giveUp(/*byItself=*/false);
  return Status::success();
}

/// The lock is not held while MPI is called, which may take long.
Status MpiEngine::beginSubmitted(bool &any) {
  std::vector<MpiJob *> jobs;
  {
    std::lock_guard lock(mutex);
    jobs.swap(submitted);
  }
  for (MpiJob *job : jobs) {
    any = true;
    ++active;
    job->pending = job->transfers.size();
    for (const MpiTransfer &transfer : job->transfers)
      PLAIT_RETURN_IF_ERROR(library->begin(transfer, job));
  }
  return Status::success();
}

/// 1. Warnings that had come before this process gave up: somebody else was
///    first.
/// 2. Tell the others.
/// 3. For a moment, hear who else has failed at the same time, and who is there
///    at all.
void MpiEngine::exchangeNotices() {
  // 1. Who was stopped for long finds what others have said in the meantime.
  constexpr int polls = 100;
  for (int i = 0; i < polls && notices.failed.empty(); ++i)
    if (!library->readNotices(notices).ok())
      break;
  if (!notices.failed.empty())
    hasFailedItself = false;
  // 2. Only the cause is told, not what follows from it.
  if (hasFailedItself)
    library->warn();
  // 3. isFirstToFail() compares.
  Clock::time_point end = Clock::now() + grace;
  size_t answered = 0;
  do {
    answerNew(answered);
    findSilent();
    // Others may still have to hear that this one is there.
    if (hasFailedItself && silent.empty())
      break;
    std::this_thread::sleep_for(milliseconds(1));
  } while (Clock::now() < end && library->readNotices(notices).ok());
}

/// Those that have failed, of which `answered` were answered before.
void MpiEngine::answerNew(size_t &answered) {
  for (; answered < notices.failed.size(); ++answered)
    library->answer(notices.failed[answered]);
}

void MpiEngine::findSilent() {
  std::vector<bool> isHeard(joined.count);
  isHeard[joined.index] = true;
  if (neighbourHasEnded()) // of which nothing will be heard
    isHeard[joined.neighbour] = true;
  for (const std::vector<uint32_t> *heard :
       {&notices.failed, &notices.answered})
    for (uint32_t other : *heard)
      isHeard[other] = true;
  silent.clear();
  for (uint32_t other = 0; other < joined.count; ++other)
    if (!isHeard[other])
      silent.push_back(other);
}
