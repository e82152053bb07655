//===- Saver.cpp - Writing checkpoints beside the steps -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the next step would overwrite is copied between two steps: each rank
// writes what it holds to its file, which takes it as far as the page cache, at
// the speed of memory and without memory of the rank's own. That all of it gets
// to the disk is waited for by a thread beside the steps.
//
// Of several processes each has such a thread. When all have said, after some
// step, that theirs has finished, the one of rank 0 writes the index and gives
// the folder its name.
//
//===----------------------------------------------------------------------===//

#include "Core/Windows.h"
#include "Processes.h"
#include "RankFile.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

namespace {

/// What processes tell each other of a task: nothing while it goes on.
constexpr char doneWord[] = "done";

std::string printFiles(const std::vector<WrittenFile> &files) {
  Json list = Json::array();
  for (const WrittenFile &file : files)
    list.push_back({file.entry.name, file.entry.bytes, file.entry.hash});
  return list.dump();
}

/// Of one process by another of the same program.
void addFiles(const std::string &text,
              std::map<std::string, StoredFile> &files) {
  for (const Json &entry : Json::parse(text)) {
    StoredFile file = {entry[0], entry[1], entry[2]};
    files[file.name] = file;
  }
}

void warn(const std::string &message) {
  std::fprintf(stderr, "plait-run: warning: %s\n", message.c_str());
}

/// A directory that no other run writes to.
class DirectoryLock {
public:
  ~DirectoryLock() {
    if (descriptor >= 0)
      close(descriptor);
  }

  Status take(const std::string &directory) {
    descriptor = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // File systems without locks have to do without.
    if (descriptor >= 0 && flock(descriptor, LOCK_EX | LOCK_NB) != 0 &&
        errno == EWOULDBLOCK)
      return fail("checkpoint directory '", directory,
                  "' is in use by another run");
    return Status::success();
  }

private:
  int descriptor = -1;
};

class Saver : public Checkpointer {
public:
  Saver(Executor &executor, const CheckpointOptions &options)
      : executor(executor), options(options), store(options.directory) {}

  ~Saver() override {
    // A run that failed: what is complete becomes one, as after a step.
    if (task.valid())
      (void)task.get();
  }

  Status prepare(const PlanIdentity &identity,
                 const std::optional<Resumed> &resumed) {
    for (uint32_t rank : executor.ranks())
      if (RankFile file = RankFile::of(executor.plan(), executor.mesh(), rank);
          !file.contents.empty())
        files.emplace(rank, std::move(file));
    Status status = executor.leads() ? prepareDirectory(identity, resumed)
                                     : Status::success();
    return agreeOn(executor, status);
  }

  Status afterStep(const RunRecord &run) override {
    PLAIT_RETURN_IF_ERROR(advance(/*wait=*/false));
    Result<bool> due = isDue(run.step);
    if (!due.ok())
      return due.status();
    return *due ? save(run) : Status::success();
  }

  Status settle() override { return advance(/*wait=*/true); }

  Status finish(const RunRecord &run) override {
    PLAIT_RETURN_IF_ERROR(advance(/*wait=*/true));
    if (checkSaved(run.step).ok())
      return Status::success();
    PLAIT_RETURN_IF_ERROR(save(run));
    PLAIT_RETURN_IF_ERROR(advance(/*wait=*/true));
    return checkSaved(run.step);
  }

private:
  enum class Phase { Idle, Syncing, Committing };

  /// Fails in all processes where rank 0 has not seen it complete.
  Status checkSaved(uint64_t step) {
    return agreeOn(executor, !executor.leads() || step == savedStep
                                 ? Status::success()
                                 : fail("the checkpoint of step ", step,
                                        ", the last one, is not in '",
                                        options.directory, "'"));
  }

  Status prepareDirectory(const PlanIdentity &identity,
                          const std::optional<Resumed> &resumed);
  Result<bool> isDue(uint64_t step);
  Status save(const RunRecord &run);
  Status copyAside(std::vector<WrittenFile> &written);
  Status advance(bool wait);
  Status startCommit();
  void startSync(std::vector<WrittenFile> written);
  Status commit();
  Status conclude(const Status &status);

  Executor &executor;
  CheckpointOptions options;
  CheckpointStore store;
  DirectoryLock lock;
  std::map<uint32_t, RankFile> files; // of the ranks of this process
  Clock::time_point lastSave = Clock::now();
  uint64_t savedStep = UINT64_MAX; // the newest that is complete

  Phase phase = Phase::Idle;
  uint64_t step = 0; // of what is being written
  std::future<Status> task;
  CheckpointIndex index; // in the process of rank 0; the task's while it lasts
};

} // namespace

Status Saver::prepareDirectory(const PlanIdentity &identity,
                               const std::optional<Resumed> &resumed) {
  Result<CheckpointIndex> made = makeIndex(executor.plan(), identity);
  if (!made.ok())
    return made.status();
  index = std::move(*made);
  PLAIT_RETURN_IF_ERROR(store.make());
  PLAIT_RETURN_IF_ERROR(lock.take(options.directory));
  PLAIT_RETURN_IF_ERROR(store.removeUnfinished());
  auto entries = store.list();
  if (!entries.ok())
    return entries.status();
  std::error_code error;
  bool goesOn =
      resumed && std::filesystem::equivalent(store.pathOf(resumed->run.step),
                                             resumed->path, error);
  for (const CheckpointStore::Entry &entry : *entries) {
    if (!goesOn)
      return fail("'", options.directory, "' has a checkpoint of step ",
                  entry.step,
                  " of another run; --resume it, or name another "
                  "directory");
    if (entry.step <= resumed->run.step)
      continue;
    const auto &damaged = resumed->damaged;
    if (std::find(damaged.begin(), damaged.end(), entry.step) == damaged.end())
      return fail("'", options.directory, "' has a checkpoint of step ",
                  entry.step, ", the run goes on from step ", resumed->run.step,
                  "; name another directory");
    PLAIT_RETURN_IF_ERROR(store.setAside(entry.step));
  }
  if (goesOn)
    savedStep = resumed->run.step;
  return Status::success();
}

/// All processes write the same steps: by time, those that rank 0 says.
Result<bool> Saver::isDue(uint64_t step) {
  if (options.everySteps)
    return step % options.everySteps == 0;
  if (options.everySeconds.count() == 0)
    return false;
  bool mine = Clock::now() - lastSave >= options.everySeconds;
  auto all = tellAll(executor, executor.leads() && mine ? "due" : "");
  if (!all.ok())
    return all.status();
  return std::any_of(all->begin(), all->end(),
                     [](const std::string &one) { return !one.empty(); });
}

/// Each rank writes its file. In vain is not a failure of the rank.
Status Saver::copyAside(std::vector<WrittenFile> &written) {
  std::mutex mutex;
  Status result = Status::success();
  PLAIT_RETURN_IF_ERROR(executor.forEachRank([&](uint32_t rank) {
    auto found = files.find(rank);
    if (found == files.end())
      return Status::success();
    auto file = writeRankFile(
        store.partialPathOf(step), found->second,
        [&](const StoredPiece &stored, FileWriter &out) {
          return readElements(executor.device(rank), executor.mesh(), rank,
                              stored.parameter, stored.piece,
                              [&](int64_t, std::span<const float> elements) {
                                return out.append(std::as_bytes(elements));
                              });
        });
    std::lock_guard lock(mutex);
    if (file.ok())
      written.push_back(std::move(*file));
    else
      result = file.status();
    return Status::success();
  }));
  return result;
}

Status Saver::save(const RunRecord &run) {
  PLAIT_RETURN_IF_ERROR(advance(/*wait=*/true)); // one at a time
  step = run.step;
  lastSave = Clock::now();
  Status status = agreeOn(executor, executor.leads() ? store.begin(step)
                                                     : Status::success());
  std::vector<WrittenFile> written;
  if (status.ok())
    status = agreeOn(executor, copyAside(written));
  if (!status.ok())
    return conclude(status);
  auto all = tellAll(executor, printFiles(written));
  if (!all.ok())
    return all.status();
  if (executor.leads()) {
    std::map<std::string, StoredFile> entries;
    for (const std::string &text : *all)
      addFiles(text, entries);
    for (StoredFile &file : index.files)
      file = entries.at(file.name);
    index.run = run;
  }
  startSync(std::move(written));
  return Status::success();
}

void Saver::startSync(std::vector<WrittenFile> written) {
  phase = Phase::Syncing;
  task = std::async(
      std::launch::async, [this, written = std::move(written)]() mutable {
        for (WrittenFile &file : written)
          PLAIT_RETURN_IF_ERROR(file.file.sync());
        // Alone there is nobody to ask.
        return executor.processes() ? Status::success() : commit();
      });
}

Status Saver::commit() {
  PLAIT_RETURN_IF_ERROR(writeIndex(store, index));
  PLAIT_RETURN_IF_ERROR(store.commit(index.run.step));
  if (Status status =
          options.keep ? store.prune(options.keep) : Status::success();
      !status.ok())
    warn("old checkpoints stay: " + status.message());
  return Status::success();
}

/// Goes on with what is being written as far as it is, or, with `wait`, until
/// it is complete.
Status Saver::advance(bool wait) {
  auto isDone = [&] {
    if (wait)
      task.wait();
    return task.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  if (phase == Phase::Syncing && !executor.processes())
    phase = Phase::Committing;
  if (phase == Phase::Syncing) {
    std::string mine;
    if (isDone()) {
      Status status = task.get();
      mine = status.ok() ? doneWord : status.message();
      // What is said once has to be said until all are done.
      std::promise<Status> again;
      again.set_value(status);
      task = again.get_future();
    }
    if (wait)
      PLAIT_RETURN_IF_ERROR(agreeOn(executor, Status::success()));
    auto all = tellAll(executor, mine);
    if (!all.ok())
      return all.status();
    for (const std::string &one : *all)
      if (one.empty())
        return Status::success();
    for (const std::string &one : *all)
      if (one != doneWord)
        return conclude(Status::failure(one));
    PLAIT_RETURN_IF_ERROR(startCommit());
  }
  if (phase == Phase::Committing && isDone())
    return conclude(task.get());
  return Status::success();
}

/// Of several processes that of rank 0 commits.
Status Saver::startCommit() {
  phase = Phase::Committing;
  if (executor.leads())
    task = std::async(std::launch::async, [this] { return commit(); });
  return Status::success();
}

/// What is being written is complete, or it is not and never will be.
Status Saver::conclude(const Status &status) {
  phase = Phase::Idle;
  task = {};
  if (status.ok()) {
    savedStep = step;
    return Status::success();
  }
  if (!executor.leads())
    return Status::success();
  store.abandon(step);
  warn("no checkpoint of step " + std::to_string(step) + ": " +
       status.message());
  return Status::success();
}

Result<std::unique_ptr<Checkpointer>>
Checkpointer::create(Executor &executor, const CheckpointOptions &options,
                     const PlanIdentity &identity,
                     const std::optional<Resumed> &resumed) {
  auto saver = std::make_unique<Saver>(executor, options);
  PLAIT_RETURN_IF_ERROR(saver->prepare(identity, resumed));
  return std::unique_ptr<Checkpointer>(std::move(saver));
}

Status runtime::parseCheckpointEvery(const std::string &text,
                                     CheckpointOptions &options) {
  size_t digits = text.find_first_not_of("0123456789");
  std::string unit = digits == std::string::npos ? "" : text.substr(digits);
  const std::map<std::string, uint64_t> seconds = {
      {"s", 1}, {"m", 60}, {"h", 3600}};
  bool isTime = seconds.contains(unit);
  uint64_t number = 0;
  if (digits != 0 && text.size() - unit.size() <= 9 &&
      text.size() > unit.size())
    number = std::stoull(text);
  if (number == 0 || (!unit.empty() && !isTime))
    return fail("'", text,
                "' is neither a number of steps, as 100, nor a time, as 30s, "
                "30m or 2h");
  if (isTime)
    options.everySeconds = std::chrono::seconds(number * seconds.at(unit));
  else
    options.everySteps = number;
  return Status::success();
}
