//===- Engine.h - The thread that calls MPI ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One thread of the process makes all calls of MPI. The others hand it
// transfers and sleep until they are done: messages move while their ranks
// compute, and who waits can give up. MPI itself cannot wait without a core of
// its own; this thread asks it from time to time, ever less often the longer
// nothing happens.
//
// When a process fails it warns all others, whose waiting ends, and who answer.
// One that is killed warns nobody: where MPI would not tell, the process before
// it on its host sees that it has ended, and fails.
// For a moment the warnings of others are still heard, so that of several that
// fail at once one can speak for all, and can name those who say nothing; then
// MPI is not called any more.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_MPI_ENGINE_H
#define PLAIT_LIB_RUNTIME_MPI_ENGINE_H

#include "Core/Sockets.h"
#include "Library.h"
#include "plait/Support/Status.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace plait::runtime {

/// Transfers that are waited for together. Stays where it is, with all memory
/// that the transfers name, until it is done or the engine has halted.
class MpiJob {
public:
  std::vector<MpiTransfer> transfers;

private:
  friend class MpiEngine;
  size_t pending = 0;             // of the engine's thread
  std::atomic<uint32_t> busy = 0; // from submit() on until it is done
};

class MpiEngine {
public:
  /// Joins the others through `library`: MPI, or what stands in for it.
  static Result<std::unique_ptr<MpiEngine>>
  start(std::unique_ptr<MpiLibrary> library,
        std::chrono::milliseconds timeLimit);
  ~MpiEngine();

  /// Takes leave of the others, if nothing has failed. Has to be called before
  /// destruction. False: the thread is caught in MPI, which waits for others
  /// that do not answer; then the engine must live as long as the process.
  bool leave();

  const MpiLibrary::World &world() const { return joined; }

  /// Hands over a job that is not busy.
  void submit(MpiJob &job);
  /// Returns when it is done. Fails after `limit`, or after a failure of this
  /// process or another.
  Status wait(MpiJob &job, std::chrono::milliseconds limit);
  /// Both, for a job that nobody else sees. After a failure this process gives
  /// up, and nothing touches the transfers' memory any more.
  Status run(std::vector<MpiTransfer> transfers,
             std::chrono::milliseconds limit);
  static constexpr std::chrono::milliseconds forEver =
      std::chrono::hours(24 * 3650); // longer ones overflow in nanoseconds

  /// This process gives up.
  void abort();
  bool isAborted() const { return aborted; }
  /// Why this process gave up; empty where another one did, or a rank.
  std::string reason();
  /// `handler` is called once when this process or another gives up, perhaps at
  /// once, from any thread, and must not call the engine. Empty: nothing is.
  void setAbortHandler(std::function<void()> handler);
  /// After abort() here or elsewhere: returns when no transfer touches memory
  /// any more.
  void awaitHalt();
  /// After awaitHalt(): whether this process failed by itself, and none before
  /// it in the order of processes did.
  bool isFirstToFail() const;
  /// After awaitHalt() of a process that has failed by itself: the others that
  /// have said nothing to that, so that it is they who are waited for.
  const std::vector<uint32_t> &silentOthers() const { return silent; }

private:
  MpiEngine(std::chrono::milliseconds timeLimit) : timeLimit(timeLimit) {}

  void serve();
  void exchangeNotices();
  void answerNew(size_t &answered);
  void findSilent();
  void watchNeighbour();
  bool neighbourHasEnded() const;
  /// Begins what has been submitted; whether that was anything.
  Status beginSubmitted(bool &any);
  Status serveOnce(bool &any);
  void giveUp(bool byItself, Status reason = Status::success());

  std::chrono::milliseconds timeLimit; // for start and leave
  std::unique_ptr<MpiLibrary> library;
  MpiLibrary::World joined;
  Result<bool> started = false;

  std::mutex mutex; // of the four below
  std::vector<MpiJob *> submitted;
  std::function<void()> abortHandler;
  bool hasFailedItself = false;
  Status failure = Status::success(); // of MPI

  std::atomic<uint32_t> calls = 0; // changes when the thread has to look up
  std::atomic<uint32_t> phase = 0; // 1: has started, 2: has halted
  std::atomic<bool> aborted = false, stopping = false;
  size_t active = 0; // jobs begun
  std::vector<void *> finished;
  MpiLibrary::Notices notices;
  std::vector<uint32_t> silent;
  Socket neighbour; // refers to its process; none: nothing is known of it
  std::thread thread;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_MPI_ENGINE_H
