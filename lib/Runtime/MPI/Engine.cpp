//===- Engine.cpp - The thread that calls MPI -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Engine.h"

#include "Core/Futex.h"
#include "plait/Runtime/Communicator.h"

#include <algorithm>
#include <sys/prctl.h>
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
/// With nothing under way only warnings may come.
constexpr microseconds idlePause(10000);
/// How long warnings of others are waited for.
constexpr milliseconds grace(400);

} // namespace

Result<std::unique_ptr<MpiEngine>>
MpiEngine::start(std::unique_ptr<MpiLibrary> library, milliseconds timeLimit) {
  std::unique_ptr<MpiEngine> engine(new MpiEngine(timeLimit));
  engine->library = std::move(library);
  engine->thread = std::thread([&engine = *engine] { engine.serve(); });
  std::atomic<bool> never = false;
  if (waitWhileEqual(engine->phase, 0, never, timeLimit) !=
      WaitResult::Changed) {
    (void)engine.release(); // see leave()
    return fail("waited longer than ", timeLimit.count() / 1000.0,
                " seconds for MPI to start");
  }
  if (!engine->started.ok())
    return engine->started.status();
  return engine;
}

MpiEngine::~MpiEngine() { thread.join(); }

bool MpiEngine::leave() {
  stopping = true;
  ++calls;
  wakeAll(calls);
  std::atomic<bool> never = false;
  return waitWhileEqual(phase, 1, never, timeLimit) == WaitResult::Changed;
}

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

Status MpiEngine::wait(MpiJob &job, milliseconds limit) {
  switch (waitWhileEqual(job.busy, 1, aborted, limit)) {
  case WaitResult::Changed:
    return Status::success();
  case WaitResult::TimedOut:
    return fail("waited longer than ", limit.count() / 1000.0,
                " seconds for another rank");
  case WaitResult::Aborted: {
    std::string why = reason();
    return Status::failure(why.empty() ? anotherFailed : why);
  }
  }
  __builtin_unreachable();
}

std::string MpiEngine::reason() {
  std::lock_guard lock(mutex);
  return failure;
}

Status MpiEngine::run(std::vector<MpiTransfer> transfers, milliseconds limit) {
  MpiJob job;
  job.transfers = std::move(transfers);
  submit(job);
  Status status = wait(job, limit);
  if (!status.ok()) {
    // The caller may have to go on, as after a checkpoint that was not written:
    // what waits next says why.
    giveUp(/*byItself=*/true, status.message());
    awaitHalt();
  }
  return status;
}

void MpiEngine::abort() { giveUp(/*byItself=*/true); }

void MpiEngine::giveUp(bool byItself, std::string reason) {
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

void MpiEngine::setAbortHandler(std::function<void()> handler) {
  std::lock_guard lock(mutex);
  abortHandler = std::move(handler);
  if (aborted && abortHandler)
    abortHandler();
}

void MpiEngine::awaitHalt() {
  std::atomic<bool> never = false;
  waitWhileEqual(phase, 1, never, forEver);
}

bool MpiEngine::isFirstToFail() const {
  return hasFailedItself &&
         std::none_of(failedOthers.begin(), failedOthers.end(),
                      [&](uint32_t other) { return other < joined.index; });
}

//===----------------------------------------------------------------------===//
// The thread
//===----------------------------------------------------------------------===//

void MpiEngine::serve() {
  // Pauses end when they should, not 50 us later.
  prctl(PR_SET_TIMERSLACK, 1);
  auto world = library->start();
  if (world.ok())
    joined = std::move(*world);
  started = world.ok() ? Result<bool>(true) : world.status();
  phase = 1;
  wakeAll(phase);
  Clock::time_point last = Clock::now(); // that anything happened
  while (started.ok() && !aborted && !(stopping && active == 0)) {
    uint32_t seen = calls;
    bool any = false;
    if (Status status = serveOnce(any); !status.ok())
      giveUp(/*byItself=*/true, status.message());
    Clock::time_point now = Clock::now();
    if (any)
      last = now;
    auto quiet = std::chrono::duration_cast<microseconds>(now - last);
    if (active == 0)
      waitBriefly(calls, seen, idlePause);
    else if (quiet > spinning)
      waitBriefly(
          calls, seen,
          std::clamp(quiet / pausesPerWait, shortestPause, longestPause));
  }
  if (aborted)
    exchangeWarnings();
  else if (started.ok())
    library->finish();
  phase = 2;
  wakeAll(phase);
}

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
    // From here on the job is its owner's.
    std::atomic<uint32_t> &busy = job.busy;
    busy = 0;
    wakeAll(busy);
  }
  PLAIT_RETURN_IF_ERROR(library->readWarnings(failedOthers));
  if (!failedOthers.empty())
    giveUp(/*byItself=*/false);
  return Status::success();
}

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

void MpiEngine::exchangeWarnings() {
  // Who was stopped for long finds what others have said in the meantime.
  constexpr int polls = 100;
  for (int i = 0; i < polls && failedOthers.empty(); ++i)
    if (!library->readWarnings(failedOthers).ok())
      break;
  if (!failedOthers.empty())
    hasFailedItself = false;
  if (hasFailedItself)
    library->warn();
  Clock::time_point end = Clock::now() + grace;
  while (Clock::now() < end && library->readWarnings(failedOthers).ok())
    std::this_thread::sleep_for(milliseconds(1));
}
