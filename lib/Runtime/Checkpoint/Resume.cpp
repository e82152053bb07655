//===- Resume.cpp - Going on from a checkpoint ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which checkpoint a run goes on from. Candidates come from the disk and from
// the memory of hosts, newest first; each is read as a whole, and its checksums
// compared, before a single element is loaded, so that a run never has half of
// one state and half of another. All processes take the same decisions:
// whatever one alone can see, a file that is damaged for example, is agreed on
// first.
//
//===----------------------------------------------------------------------===//

#include "Core/Processes.h"
#include "Replicas.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

using namespace plait;
using namespace plait::runtime;

/// All agree on whether something is so in process 0.
static Result<bool> askFirst(Executor &executor, bool mine) {
  auto word = tellFromFirst(executor.processes(), mine ? "yes" : "no");
  return word.ok() ? Result<bool>(*word == "yes") : word.status();
}

/// The checkpoints of `path`, which all processes see alike. Fails where they
/// do not: a directory that is not shared would give every process other
/// tensors, or only some of them, and the run would go on with them. By text:
/// which names there are, in which order.
static Result<std::vector<CheckpointStore::Entry>>
lookTogether(Executor &executor, const std::string &path, bool mayBeNone) {
  for (int look = 1; look <= mostLooks; ++look) {
    auto found = findCheckpoints(path);
    // Where there may be no checkpoint there may be no directory.
    if (!found.ok() && mayBeNone)
      found = std::vector<CheckpointStore::Entry>();
    PLAIT_RETURN_IF_ERROR(agreeOn(executor, found.status()));
    std::string mine;
    for (const CheckpointStore::Entry &entry : *found)
      mine += entry.path + "\n";
    auto all = tellAll(executor, mine);
    if (!all.ok())
      return all.status();
    if (std::all_of(all->begin(), all->end(),
                    [&](const std::string &other) { return other == mine; }))
      return found;
    // Another run may have written one meanwhile.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return fail("processes see different checkpoints in '", path,
              "': it has to be on a file system that they share");
}

/// Fails where a file is not what its checksum says. The ranks share the files.
/// Round robin over all ranks of the run, so that processes read different
/// files at the same time and each file is read once. `result` is this
/// process's own; the caller agrees on it.
static Status verifyFiles(Executor &executor, const CheckpointReader &reader) {
  std::mutex mutex;
  Status result = Status::success();
  uint32_t ranks = executor.mesh().ranks();
  // A rank that fails would end the run; here it only says so.
  PLAIT_RETURN_IF_ERROR(executor.forEachRank([&](uint32_t rank) {
    for (uint32_t i = rank; i < reader.index().files.size(); i += ranks)
      if (Status status = reader.verify(i); !status.ok()) {
        std::lock_guard lock(mutex);
        result = status;
      }
    return Status::success();
  }));
  return result;
}

/// Opens what is at `path` and reads all of it.
/// doTogether(), since reading a whole checkpoint may take longer than an
/// exchange between processes may.
static Result<CheckpointReader> openVerified(Executor &executor,
                                             const std::string &path) {
  Result<CheckpointReader> reader = Status::failure("");
  PLAIT_RETURN_IF_ERROR(doTogether(executor, [&] {
    reader = CheckpointReader::open(path);
    return reader.ok() ? verifyFiles(executor, *reader) : reader.status();
  }));
  return reader;
}

namespace {

/// A checkpoint that a run may go on from, on the disk or in memory.
struct Candidate {
  uint64_t step;
  std::string path;
  Replicas::Entry *replica; // null: on the disk
};

} // namespace

/// Newest first; of equal ones that in memory, which is read faster.
static std::vector<Candidate>
findCandidates(const std::vector<CheckpointStore::Entry> &stored,
               Replicas &replicas) {
  std::vector<Candidate> candidates;
  for (Replicas::Entry &entry : replicas.entries())
    candidates.push_back({entry.step, replicas.pathOf(entry), &entry});
  for (const CheckpointStore::Entry &entry : stored)
    candidates.push_back({entry.step, entry.path, nullptr});
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate &a, const Candidate &b) { return a.step > b.step; });
  return candidates;
}

/// Names the parameters that two plans say something else of, each in `list`
/// unless it is `usual` there: `describe(mine, name, theirs)` of the first, and
/// how many more there are; empty: none.
template <typename Value, typename Describe>
static std::string describeOthers(const std::map<std::string, Value> &mine,
                                  const Value &myUsual,
                                  const std::map<std::string, Value> &theirs,
                                  const Value &theirUsual, Describe describe) {
  auto find = [](const auto &list, const std::string &name,
                 const Value &usual) {
    auto found = list.find(name);
    return found == list.end() ? usual : found->second;
  };
  std::set<std::string> others;
  for (const auto *list : {&mine, &theirs})
    for (const auto &[name, value] : *list)
      if (find(mine, name, myUsual) != find(theirs, name, theirUsual))
        others.insert(name);
  if (others.empty())
    return "";
  const std::string &first = *others.begin();
  std::ostringstream text;
  describe(text, find(mine, first, myUsual), first,
           find(theirs, first, theirUsual));
  if (others.size() > 1)
    text << "; so with " << others.size() - 1 << " more";
  return text.str();
}

/// Says which parameters a plan gives another learning rate, or another
/// optimizer that keeps the same, than the plan that wrote the checkpoint did.
static std::vector<std::string>
describeOtherGroups(const PlanIdentity &mine, const PlanIdentity &theirs) {
  return {describeOthers(mine.rates, 1.0, theirs.rates, 1.0,
                         [](auto &text, double rate, const std::string &name,
                            double other) {
                           text << "the plan multiplies the learning rate of '"
                                << name << "' by " << rate
                                << ", the checkpoint's plan by " << other;
                         }),
          describeOthers(mine.optimizers, mine.optimizer, theirs.optimizers,
                         theirs.optimizer,
                         [](auto &text, const std::string &own,
                            const std::string &name, const std::string &other) {
                           text << "the plan updates '" << name << "' by "
                                << own << ", the checkpoint's plan by "
                                << other;
                         })};
}

/// 1. Find what is on the disk.
/// 2. Find what hosts have in memory of the same run.
/// 3. Try the candidates in their order. One that cannot be read is a warning,
///    and the next one is tried; but one that another run has removed meanwhile
///    is no damaged one, and `isGone`. One that can be read and does not fit
///    the plan is an error: an older one would not fit either.
/// 4. Where none is left, begin anew if that is allowed, else say why the
///    newest could not be read.
static Result<std::optional<Resumed>>
tryToResume(Executor &executor, const std::string &path, bool mayBeNone,
            const std::string &replica, bool &isGone) {
  // 1.
  auto found = lookTogether(executor, path, mayBeNone);
  if (!found.ok())
    return found.status();
  // 2.
  auto replicas = Replicas::find(executor, replica, path);
  if (!replicas.ok())
    return replicas.status();
  std::vector<Candidate> candidates = findCandidates(*found, *replicas);
  if (candidates.empty())
    return mayBeNone ? Result<std::optional<Resumed>>(std::nullopt)
                     : failToFind(path);
  // Memory that has lost its content is no reason not to begin.
  bool mayBegin = mayBeNone && found->empty();
  Resumed resumed;
  resumed.directory = path;
  resumed.replicaId = replicas->id();
  // 3.
  Status reason = Status::success(); // why the newest is none
  for (const Candidate &candidate : candidates) {
    Result<CheckpointReader> reader =
        candidate.replica ? replicas->open(*candidate.replica)
                          : openVerified(executor, candidate.path);
    if (!reader.ok() && !candidate.replica) {
      auto gone = askFirst(executor, wasRemoved(candidate.path));
      if (!gone.ok())
        return gone.status();
      if ((isGone = *gone))
        return reader.status();
    }
    if (!reader.ok()) {
      bool isLast = &candidate == &candidates.back();
      if (executor.leads() && (candidates.size() > 1 || mayBegin))
        executor.warn(
            reader.status().message() +
            (isLast ? "; there is none before" : "; trying the one before"));
      if (reason.ok())
        reason = reader.status();
      if (!candidate.replica)
        resumed.damaged.push_back(candidate.step);
      continue;
    }
    PLAIT_RETURN_IF_ERROR(doTogether(executor, [&] {
      PLAIT_RETURN_IF_ERROR(
          reader->checkFits(executor.plan(), /*beginsFeedback=*/true));
      return candidate.replica ? replicas->load(*candidate.replica, *reader)
                               : load(executor, *reader, nullptr);
    }));
    for (const std::string &others : describeOtherGroups(
             PlanIdentity::of(executor.plan(), 0), reader->index().plan))
      if (executor.leads() && !others.empty())
        executor.warn(others);
    resumed.run = reader->index().run;
    resumed.path = candidate.path;
    resumed.isReplica = candidate.replica != nullptr;
    return std::optional(std::move(resumed));
  }
  // 4.
  if (mayBegin)
    return std::optional<Resumed>();
  return candidates.size() > 1 ? fail("no checkpoint in '", path, "' is whole")
                               : reason;
}

/// Once a checkpoint is open, its files stay for as long as they are needed,
/// whoever removes their names.
Result<std::optional<Resumed>> runtime::resume(Executor &executor,
                                               const std::string &path,
                                               bool mayBeNone,
                                               const std::string &replica) {
  for (int look = 1; look <= mostLooks; ++look) {
    bool isGone = false;
    auto resumed = tryToResume(executor, path, mayBeNone, replica, isGone);
    if (!isGone)
      return resumed;
  }
  return fail("checkpoints in '", path, "' were removed while they were read, ",
              mostLooks,
              " times: the run that writes there has to keep more "
              "of them (`keep`)");
}
