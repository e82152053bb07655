//===- Writer.cpp - Writing checkpoints beside the steps ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Writer.h says why checkpoints are written beside the steps. Here it is a
// state machine of one checkpoint at a time, which the run's thread advances
// after each step:
//
//   Idle -> Writing -> [Spreading] -> Committing -> Pruning -> Idle
//
// Each phase but Idle is a task of a thread of its own, `task`. The run's
// thread never waits for it but at the end of the run and before the next
// checkpoint; it asks, after each step and in all processes at once, whether
// the task has ended everywhere (askAll() of Processes.h). All processes take
// the same turns, since they decide by the same answers: every exchange between
// them has its partner.
//
// What goes wrong with a checkpoint is never a failure of the run. conclude()
// removes the folder and keeps the reason, which is told after the next step,
// and the machine is Idle again. Only exchanges between processes that fail end
// the run.
//
//===----------------------------------------------------------------------===//

#include "Writer.h"

#include "Core/Processes.h"
#include "Core/Windows.h"
#include "plait/Plan/Json.h"

#include <cerrno>
#include <cstring>
#include <mutex>

using namespace plait;
using namespace plait::runtime;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

/// Prints what a process tells the others of its files: names, sizes and
/// checksums, which the index has to have. JSON, as names are arbitrary text.
static std::string printFiles(const std::vector<WrittenFile> &files) {
  Json list = Json::array();
  for (const WrittenFile &file : files)
    list.push_back({file.entry.name, file.entry.bytes, file.entry.hash});
  return list.dump();
}

/// Adds the files of one process, as another of the same program has printed
/// them.
static void addFiles(const std::string &text, StoredFiles &files) {
  for (const Json &entry : parsePrintedJson<Json>(text)) {
    StoredFile file = {entry[0], entry[1], entry[2]};
    files[file.name] = file;
  }
}

// The task refers to this object. The last phase may still make its folder a
// checkpoint, which is a gain: all its files are there.
CheckpointWriter::~CheckpointWriter() {
  if (task.valid())
    task.wait();
}

/// First what is on its way, then what is due: a checkpoint that has ended
/// gives its place to the next one in the same call.
Status CheckpointWriter::afterStep(const RunRecord &run) {
  PLAIT_RETURN_IF_ERROR(advance(/*wait=*/false));
  warnOfFailure();
  Result<bool> due = isDue(run.step);
  if (!due.ok())
    return due.status();
  return *due ? save(run) : Status::success();
}

Status CheckpointWriter::settle() {
  PLAIT_RETURN_IF_ERROR(advance(/*wait=*/true));
  warnOfFailure();
  return Status::success();
}

/// Unlike between steps, a last checkpoint that is missing is an error here:
/// the user is told by the exit code that the run cannot be continued from its
/// end.
Status CheckpointWriter::finish(const RunRecord &run) {
  PLAIT_RETURN_IF_ERROR(advance(/*wait=*/true));
  // The last step may have been due by itself, in vain too.
  bool wasDue = savedStep == run.step || (!failure.ok() && step == run.step);
  if (!wasDue) {
    PLAIT_RETURN_IF_ERROR(save(run));
    PLAIT_RETURN_IF_ERROR(advance(/*wait=*/true));
  }
  if (place->isKeeper)
    place->store.removeSpare(); // there is no next one
  return savedStep == run.step
             ? Status::success()
             : fail(failure.code(), "no checkpoint of step ", run.step,
                    ", the last one", place->words, ": ", failure.message());
}

/// Between steps, so that what fails in the last one is told once, as the
/// run's failure.
void CheckpointWriter::warnOfFailure() {
  if (!failure.ok() && executor.leads())
    executor.warn("no checkpoint of step " + std::to_string(step) +
                  place->words + ": " + failure.message());
  failure = Status::success();
}

/// All processes write the same steps: by time, those that rank 0 says.
/// Steps are a matter of arithmetic; clocks differ between processes, so that
/// those of all but rank 0 are not asked. Costs an exchange after each step
/// only where the interval is a time.
Result<bool> CheckpointWriter::isDue(uint64_t step) {
  if (every.steps)
    return step % every.steps == 0;
  if (every.seconds.count() == 0)
    return false;
  bool mine = Clock::now() - lastSave >= every.seconds;
  auto all = tellAll(executor, executor.leads() && mine ? "due" : "");
  if (!all.ok())
    return all.status();
  return std::any_of(all->begin(), all->end(),
                     [](const std::string &one) { return !one.empty(); });
}

/// Reads the elements where the rank's device has them and gives them to the
/// system, a window at a time. `isAwaited` is passed on, as it decides whether
/// the file goes through the page cache; see FileWriter.
Status CheckpointWriter::copyFile(uint32_t rank, const RankFile &file) {
  auto copied = writeRankFile(
      place->store.partialPathOf(step), file,
      [&](const StoredPiece &stored, FileWriter &out) {
        return readElements(executor.device(rank), executor.mesh(), rank,
                            stored.parameter, stored.piece,
                            [&](int64_t, std::span<const float> elements) {
                              return out.append(std::as_bytes(elements));
                            });
      },
      &isAwaited);
  if (!copied.ok())
    return copied.status();
  std::lock_guard lock(copying);
  written.push_back(std::move(*copied));
  return Status::success();
}

/// The files of all ranks, at once. In vain is not a failure of a rank.
/// Beside a step the threads are this function's own, since those of the ranks
/// compute; between steps they are the ranks' own, on which a device may be
/// used. A failure is collected rather than returned by the job: forEachRank()
/// would take it for a rank that cannot go on, and end the run.
Status CheckpointWriter::copyFiles() {
  std::map<uint32_t, Status> results;
  for (const auto &[rank, file] : files)
    results.emplace(rank, Status::success());
  auto copy = [&](uint32_t rank) {
    if (auto file = files.find(rank); file != files.end())
      results.at(rank) = copyFile(rank, file->second);
    return Status::success();
  };
  if (isBeside) {
    // Their destructors wait for the threads.
    std::vector<std::future<Status>> copies;
    for (const auto &[rank, file] : files)
      copies.push_back(std::async(std::launch::async, copy, rank));
  } else {
    PLAIT_RETURN_IF_ERROR(executor.forEachRank(copy));
  }
  for (const auto &[rank, result] : results)
    PLAIT_RETURN_IF_ERROR(Status(result));
  return Status::success();
}

/// Lets the ranks' threads wait: what is being copied may change from here on.
/// The hook of Executor::holdUpdates(): called in each step by each rank of
/// this process, before its first update. Returns at once where nothing is
/// copied.
///
/// `released` is copied first. It is replaced between steps only, so that no
/// lock is needed.
void CheckpointWriter::awaitCopies() {
  // So long a disk may take more than memory.
  constexpr std::chrono::seconds patience(1);
  std::shared_future<void> copies = released;
  if (!copies.valid())
    return;
  if (copies.wait_for(patience) == std::future_status::timeout)
    isAwaited = true;
  copies.wait();
}

/// Releases the ranks of this process when all processes have copied. Their own
/// copy being done is not enough: a rank that goes on alone would wait in the
/// next collective, under the time limit for processes that have stopped, for
/// one whose disk is slow.
Status CheckpointWriter::duringStep() {
  if (!holds)
    return Status::success();
  holds = false;
  Status status = awaitAll(executor, copied);
  copiedByAll.set_value(); // also where it fails: nobody is to wait for ever
  return status;
}

/// The names of all files are known from the plan: those of an old folder that
/// is written over and are not among them have to go.
Status CheckpointWriter::begin() {
  std::set<std::string> names;
  for (const StoredFile &file : index.files)
    names.insert(file.name);
  return place->store.begin(step, names);
}

/// Makes the folder and starts to fill it:
/// 1. end what is on its way, as there is one folder and one index at a time;
/// 2. let the keepers make the folder. All processes have to know that it is
///    there before one of them opens a file in it;
/// 3. where nothing may be read beside a step, copy here, while the ranks rest;
/// 4. start the rest as a task.
Status CheckpointWriter::save(const RunRecord &run) {
  PLAIT_RETURN_IF_ERROR(settle()); // one at a time
  step = run.step;
  lastSave = Clock::now();
  index.run = run;
  // 2.
  Status status =
      agreeOn(executor, place->isKeeper ? begin() : Status::success());
  // 3. With the others, as the copies of a large rank may take longer than the
  //    time limit of an exchange.
  if (status.ok() && !isBeside)
    status = doTogether(executor, [this] { return copyFiles(); });
  // 4.
  if (status.ok())
    startWriting();
  else
    conclude(status);
  return Status::success();
}

/// `job` may use what `task` guards (see Writer.h) without a lock: this thread
/// keeps away from it until the future is ready.
void CheckpointWriter::start(Phase next, std::function<Status()> job) {
  phase = next;
  task = std::async(std::launch::async, std::move(job));
}

/// Starts the first phase. There are two futures, since two events are waited
/// for: `copied`, that this process has read the last element that the step
/// will change, and `released`, that all have. Alone they are one, and all
/// phases up to the commit are one task, which needs no exchange.
///
/// A promise that is shared with the task keeps `copied` from being broken when
/// this object makes the next one.
void CheckpointWriter::startWriting() {
  auto done = std::make_shared<std::promise<void>>();
  isAwaited = false;
  copied = done->get_future().share();
  bool isAlone = !executor.processes(); // then there is nobody to ask
  copiedByAll = {};
  holds = isBeside && !isAlone;
  released = holds ? copiedByAll.get_future().share() : copied;
  start(isAlone ? Phase::Committing : Phase::Writing, [this, isAlone, done] {
    Status status = isBeside ? copyFiles() : Status::success();
    done->set_value();
    if (status.ok())
      status = place->secure(written);
    if (!status.ok() || !isAlone)
      return status;
    StoredFiles all;
    // By way of the text, as processes would tell each other.
    addFiles(printFiles(written), all);
    fillIndex(all);
    return commit();
  });
}

/// Tells all processes what all have written.
Result<StoredFiles> CheckpointWriter::shareFiles() {
  auto texts = tellAll(executor, printFiles(written));
  if (!texts.ok())
    return texts.status();
  StoredFiles all;
  for (const std::string &text : *texts)
    addFiles(text, all);
  return all;
}

/// makeIndex() has named the files in the order of the ranks; sizes and
/// checksums are known when they are written. `all` has each of them, since all
/// processes have ended their phase well.
void CheckpointWriter::fillIndex(const StoredFiles &all) {
  if (place->isKeeper)
    for (StoredFile &file : index.files)
      file = all.at(file.name);
}

/// Goes on from a phase that has ended well in all processes.
Status CheckpointWriter::goOn() {
  if (phase == Phase::Writing) {
    auto all = shareFiles();
    if (!all.ok())
      return all.status();
    fillIndex(*all);
    if (place->spreads()) {
      start(Phase::Spreading,
            [this, all = *all] { return place->spread(step, all); });
      return Status::success();
    }
  }
  start(Phase::Committing, [this] { return commit(); });
  return Status::success();
}

/// Durable data has to come before what names it: the files were secured in the
/// Writing phase, the index is synced by writeIndex(), then the folder gets its
/// name.
Status CheckpointWriter::commit() {
  if (!place->isKeeper)
    return Status::success();
  PLAIT_RETURN_IF_ERROR(writeIndex(place->store, index));
  return place->store.commit(index.run.step);
}

/// Removes what is no longer needed now that all processes have the newest one.
Status CheckpointWriter::prune() {
  // After all keepers have committed: the mark must not name a step that some
  // host lacks.
  if (executor.leads())
    place->conclude(step);
  if (!place->isKeeper)
    return Status::success();
  if (Status status = place->prune(); !status.ok())
    executor.warn("old checkpoints stay: " + status.message());
  return Status::success();
}

/// Goes on with what is being written as far as it is, or, with `wait`, until
/// it is complete.
/// Each turn of the loop is one exchange, which all processes take part in.
/// With `wait` it gives each `askingPause` to its own task before it asks
/// again. Pruning is not asked about: it is each keeper's own business, and a
/// process that is still at it only delays its own next checkpoint.
Status CheckpointWriter::advance(bool wait) {
  while (phase == Phase::Writing || phase == Phase::Spreading ||
         phase == Phase::Committing) {
    auto ended = askAll(executor, task,
                        wait ? askingPause : std::chrono::milliseconds(0));
    if (!ended.ok())
      return ended.status();
    if (!*ended && wait)
      continue;
    if (!*ended)
      return Status::success();
    // A failure of any process ends the checkpoint in all of them, in the same
    // turn.
    if (phase != Phase::Committing && (*ended)->ok())
      PLAIT_RETURN_IF_ERROR(goOn());
    else
      conclude(**ended);
  }
  if (phase == Phase::Pruning &&
      (wait ||
       task.wait_for(std::chrono::seconds(0)) == std::future_status::ready)) {
    task.wait();
    phase = Phase::Idle;
  }
  return Status::success();
}

/// Tells what helps against a failure, where that is known: against a full
/// disk.
static std::string adviseOn(const Status &failure,
                            const CheckpointPlace &place) {
  return failure.code() == Code::DiskFull && !place.keep
             ? "; all checkpoints are kept, with `keep` N the newest N"
             : "";
}

/// Ends a checkpoint, good or bad, in all processes alike: what is being
/// written is complete, or never will be. Files are closed here at the latest:
/// a descriptor that is open keeps the disk's blocks of a folder that has been
/// removed.
void CheckpointWriter::conclude(const Status &status) {
  phase = Phase::Idle;
  task = {};
  written.clear(); // what is open still takes room
  if (status.ok()) {
    savedStep = step;
    // Only when the new one is complete are old ones removed.
    start(Phase::Pruning, [this] { return prune(); });
    return;
  }
  if (place->isKeeper)
    place->store.abandon(step);
  failure = fail(status.code(), status.message(), adviseOn(status, *place));
}
