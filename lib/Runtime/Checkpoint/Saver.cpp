//===- Saver.cpp - The checkpoints of a run -------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The checkpoints of a run as a whole: a CheckpointWriter for the directory
// that all processes share and, with --replica, another one for the folder in
// memory of each host. Before the run it settles to whom the directory belongs,
// what may be in it and which copies in memory are of this run; afterwards it
// hands every call on to the writers. What a checkpoint holds and how it is
// written is theirs.
//
//===----------------------------------------------------------------------===//

#include "Core/Processes.h"
#include "Writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

namespace {

/// A directory that no other run writes to.
class DirectoryLock {
public:
  ~DirectoryLock() {
    if (descriptor >= 0)
      close(descriptor);
  }

  Status take(const std::string &directory) {
    // The lock is of the open file, so that it goes with the process, however
    // that ends; a lock file would outlive a run that is killed.
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

/// Returns the files, by rank, of those of ranks [begin, end) that store
/// anything. Made once for a run: the pieces follow from the plan.
std::map<uint32_t, RankFile> filesOf(const fb::Plan &plan,
                                     const plan::RankGrid &mesh, uint32_t begin,
                                     uint32_t end) {
  std::map<uint32_t, RankFile> files;
  for (uint32_t rank = begin; rank < end; ++rank)
    if (RankFile file = RankFile::of(plan, mesh, rank); !file.contents.empty())
      files.emplace(rank, std::move(file));
  return files;
}

/// The order of members matters: the writers refer to `files` and go first, and
/// the lock is given back when both have ended their tasks.
class Saver : public Checkpointer {
public:
  Saver(Executor &executor, const CheckpointOptions &options)
      : executor(executor), options(options),
        files(filesOf(executor.plan(), executor.mesh(),
                      executor.ranks().front(), executor.ranks().back() + 1)) {}

  Status prepare(const PlanIdentity &identity,
                 const std::optional<Resumed> &resumed);

  bool holdsStep() const override {
    return disk->holdsStep() || (memory && memory->holdsStep());
  }

  Status duringStep() override {
    Status first = disk->duringStep();
    Status second = memory ? memory->duringStep() : Status::success();
    return first.ok() ? second : first;
  }

  Status afterStep(const RunRecord &run) override {
    PLAIT_RETURN_IF_ERROR(disk->afterStep(run));
    return memory ? memory->afterStep(run) : Status::success();
  }

  Status goBackTo(const Resumed &resumed) override;

  Status settle() override {
    PLAIT_RETURN_IF_ERROR(disk->settle());
    return memory ? memory->settle() : Status::success();
  }

  Status finish(const RunRecord &run) override;

private:
  Status prepareDirectory(const std::optional<Resumed> &resumed);
  Status prepareMemory(const CheckpointIndex &index,
                       const std::optional<Resumed> &resumed);
  Result<ReplicaFolder> agreeOnFolder(const HostGroups &groups,
                                      const std::optional<Resumed> &resumed);

  Executor &executor;
  CheckpointOptions options;
  DirectoryLock lock;
  bool goesOn = false; // with what is in the directory; of rank 0's process
  uint64_t storedStep = UINT64_MAX;   // that the run goes on from, on the disk
  std::map<uint32_t, RankFile> files; // of the ranks of this process
  std::optional<CheckpointWriter> disk;
  std::optional<CheckpointWriter> memory; // nothing: no copies
};

} // namespace

Status Saver::prepare(const PlanIdentity &identity,
                      const std::optional<Resumed> &resumed) {
  bool leads = executor.leads();
  // All have it: who will be the keeper of a host is not known yet.
  Result<CheckpointIndex> index = makeIndex(executor.plan(), identity);
  Status status = index.status();
  if (status.ok() && leads)
    status = prepareDirectory(resumed);
  PLAIT_RETURN_IF_ERROR(agreeOn(executor, status));
  disk.emplace(
      executor, options.every, files,
      std::make_unique<DiskPlace>(options.directory, options.keep, leads),
      *index);
  // Rank 0 alone has looked into the directory.
  auto stored = tellFromFirst(executor.processes(), std::to_string(storedStep));
  if (!stored.ok())
    return stored.status();
  // A run that is resumed at step N has N already, unless it came from memory:
  // then the disk has an older one, and the next that is due is written.
  disk->setSaved(std::stoull(*stored));
  return options.replica.empty() ? Status::success()
                                 : prepareMemory(*index, resumed);
}

/// Does, in the process of rank 0:
/// 1. take the directory, so that nothing below meets another run;
/// 2. remove what a run that was killed has left;
/// 3. find out whether this run goes on with what is there. Paths may be
///    written in many ways, so the file system compares them;
/// 4. of each checkpoint that is there, refuse what this run would mix with its
///    own: any at all of another run, and those later than the step it goes on
///    from, but for damaged ones, which are set aside;
/// 5. forget the mark of copies in memory where this run makes none.
Status Saver::prepareDirectory(const std::optional<Resumed> &resumed) {
  CheckpointStore store(options.directory);
  // 1.
  PLAIT_RETURN_IF_ERROR(store.make());
  if (access(options.directory.c_str(), W_OK | X_OK) != 0)
    return fail("cannot write to checkpoint directory '", options.directory,
                "': ", std::strerror(errno));
  PLAIT_RETURN_IF_ERROR(lock.take(options.directory));
  // 2.
  PLAIT_RETURN_IF_ERROR(store.removeUnfinished());
  auto entries = store.list();
  if (!entries.ok())
    return entries.status();
  std::error_code error;
  // 3.
  goesOn = resumed &&
           std::filesystem::equivalent(
               resumed->isReplica ? options.directory
                                  : store.pathOf(resumed->run.step),
               resumed->isReplica ? resumed->directory : resumed->path, error);
  // 4.
  for (const CheckpointStore::Entry &entry : *entries) {
    if (!goesOn)
      return fail("'", options.directory, "' has a checkpoint of step ",
                  entry.step,
                  " of another run; `resume` it, or name another "
                  "directory");
    const auto &damaged = resumed->damaged;
    bool isDamaged =
        std::find(damaged.begin(), damaged.end(), entry.step) != damaged.end();
    if (entry.step == resumed->run.step && !isDamaged)
      storedStep = entry.step;
    if (entry.step <= resumed->run.step)
      continue;
    if (!isDamaged)
      return fail("'", options.directory, "' has a checkpoint of step ",
                  entry.step, ", the run resumes from step ", resumed->run.step,
                  "; name another directory");
    PLAIT_RETURN_IF_ERROR(store.setAside(entry.step));
  }
  // 5. What earlier runs have in memory is older than what follows.
  if (options.replica.empty())
    ReplicaMark::remove(options.directory);
  return Status::success();
}

/// Removes later steps of what a host has in memory: the run does not go on
/// from them, as some host lacks a part of it.
static Status removeLater(const CheckpointStore &store, uint64_t step) {
  auto entries = store.list();
  if (!entries.ok())
    return entries.status();
  for (const CheckpointStore::Entry &entry : *entries)
    if (entry.step > step)
      PLAIT_RETURN_IF_ERROR(store.remove(entry.step));
  return Status::success();
}

/// A folder that keeps its name would be in the way of the one that the run
/// writes when it comes to that step again.
Status Saver::goBackTo(const Resumed &resumed) {
  uint64_t step = resumed.run.step;
  Status status = Status::success();
  for (uint64_t damaged : resumed.damaged)
    if (executor.leads() && status.ok() && damaged > step)
      status = disk->where().store.setAside(damaged);
  disk->forgetAfter(step);
  if (memory) {
    if (memory->where().isKeeper && status.ok())
      status = removeLater(memory->where().store, step);
    memory->forgetAfter(step);
  }
  return agreeOn(executor, status);
}

/// The run's id, which it keeps when it goes on, and with it the folder of this
/// host.
Result<ReplicaFolder>
Saver::agreeOnFolder(const HostGroups &groups,
                     const std::optional<Resumed> &resumed) {
  std::optional<std::string> id;
  Status status = Status::success();
  if (executor.leads()) {
    ReplicaMark mark = ReplicaMark::draw();
    // The folder may only be taken over by who goes on with the very run that
    // left it: then what is in it is older than what this run writes.
    if (auto old = ReplicaMark::read(options.directory);
        goesOn && old && old->id == resumed->replicaId)
      mark = *old;
    status = mark.write(options.directory);
    id = mark.id;
  }
  PLAIT_RETURN_IF_ERROR(agreeOn(executor, status));
  return ReplicaFolder::share(executor.processes(), options.replica,
                              options.directory, id, groups.hostName());
}

/// All processes. The one that leads its host cleans and makes the folder;
/// nobody goes on before all hosts have theirs, as neighbours write to each
/// other's.
Status Saver::prepareMemory(const CheckpointIndex &index,
                            const std::optional<Resumed> &resumed) {
  auto groups = HostGroups::of(executor.processes());
  if (!groups.ok())
    return groups.status();
  if (executor.leads() && groups->hosts() == 1)
    executor.warn(
        "all ranks are on one host: `replica` protects from the end of "
        "processes, not from that of the host");
  auto folder = agreeOnFolder(*groups, resumed);
  if (!folder.ok())
    return folder.status();
  auto prepareFolder = [&] {
    for (const std::string &told : folder->removeOthers())
      executor.warn(told);
    PLAIT_RETURN_IF_ERROR(folder->make());
    CheckpointStore store(folder->path());
    PLAIT_RETURN_IF_ERROR(store.removeUnfinished());
    return removeLater(store, resumed ? resumed->run.step : 0);
  };
  PLAIT_RETURN_IF_ERROR(agreeOn(
      executor, groups->leadsHost() ? prepareFolder() : Status::success()));
  memory.emplace(executor, options.replicaEvery, files,
                 std::make_unique<HostFolderPlace>(*folder, options.directory,
                                                   std::move(*groups),
                                                   executor.processes()),
                 index);
  if (resumed && resumed->isReplica && resumed->replicaId == folder->id)
    memory->setSaved(resumed->run.step);
  return Status::success();
}

/// The copies go when the disk has the last step: they protect what is not on
/// the disk, and memory that nobody needs should be given back.
Status Saver::finish(const RunRecord &run) {
  Status stored = disk->finish(run);
  if (!memory)
    return stored;
  // Where the disk has failed, memory may have the last step.
  if (!stored.ok()) {
    if (Status copied = memory->finish(run); !copied.ok() && executor.leads())
      executor.warn(copied.message());
    return stored;
  }
  PLAIT_RETURN_IF_ERROR(memory->settle());
  std::error_code ignored;
  if (memory->where().isKeeper)
    std::filesystem::remove_all(memory->where().store.path(), ignored);
  if (executor.leads())
    ReplicaMark::remove(options.directory);
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

/// Counts what this process writes itself and what it receives for its
/// neighbours, by the layouts of the files; their indices are small beside.
Result<uint64_t> runtime::replicaBytes(const fb::Plan &plan,
                                       const CheckpointOptions &options,
                                       Rendezvous *processes) {
  auto groups = HostGroups::of(processes);
  if (!groups.ok())
    return groups.status();
  plan::RankGrid mesh(plan);
  RankSpread spread = {mesh.ranks(), groups->processes()};
  std::vector<uint32_t> writers = groups->giversOf(groups->process());
  writers.push_back(groups->process());
  uint64_t bytes = 0;
  for (uint32_t process : writers)
    for (const auto &[rank, file] : filesOf(plan, mesh, spread.firstOf(process),
                                            spread.firstOf(process + 1)))
      bytes += file.layout.bytes;
  // A folder that is there already takes its part of them.
  auto folder = ReplicaFolder::find(processes, options.replica,
                                    options.directory, groups->hostName());
  if (!folder.ok())
    return folder.status();
  uint64_t before =
      folder->id.empty() ? 0 : folder->bytes() / groups->sizeOf(groups->host());
  // The one that is complete, and the one that is being written.
  return 2 * bytes - std::min(2 * bytes, before);
}

/// Reads at most nine digits, so that neither the number nor the seconds
/// overflow.
Result<CheckpointInterval>
runtime::parseCheckpointEvery(const std::string &text) {
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
  CheckpointInterval every;
  if (isTime)
    every.seconds = std::chrono::seconds(number * seconds.at(unit));
  else
    every.steps = number;
  return every;
}
