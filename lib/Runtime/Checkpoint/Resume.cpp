//===- Resume.cpp - Going on from a checkpoint ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Contents.h"
#include "Core/Shards.h"
#include "Processes.h"
#include "Reader.h"
#include "Store.h"
#include "plait/Plan/Defaults.h"
#include "plait/Runtime/Checkpoint.h"

#include <cstdio>
#include <mutex>

using namespace plait;
using namespace plait::runtime;

/// Fails unless all processes see the same checkpoints.
static Status compareViews(Executor &executor, const std::string &path,
                           const std::vector<CheckpointStore::Entry> &found) {
  std::string mine;
  for (const CheckpointStore::Entry &entry : found)
    mine += entry.path + "\n";
  auto all = tellAll(executor, mine);
  if (!all.ok())
    return all.status();
  for (const std::string &other : *all)
    if (other != mine)
      return fail("processes see different checkpoints in '", path,
                  "': it has to be on a file system that they share");
  return Status::success();
}

/// Fails where a file is not what its checksum says. The ranks share the files.
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
static Result<CheckpointReader> openVerified(Executor &executor,
                                             const std::string &path) {
  Result<CheckpointReader> reader = CheckpointReader::open(path);
  PLAIT_RETURN_IF_ERROR(agreeOn(executor, reader.status()));
  PLAIT_RETURN_IF_ERROR(agreeOn(executor, verifyFiles(executor, *reader)));
  return reader;
}

static Status load(Executor &executor, const CheckpointReader &reader) {
  return forEachShard(executor, [&](uint32_t rank, const fb::Shard &shard,
                                    const fb::Parameter &parameter) {
    auto sourceOf = [&](const std::string &slot) -> ElementSource {
      CheckpointReader::Cursor cursor(
          reader, *reader.find(parameter.file_name()->str(), slot));
      return [cursor](int64_t begin, std::span<float> target) mutable {
        return cursor.read(begin, target);
      };
    };
    PLAIT_RETURN_IF_ERROR(
        setWeights(executor, rank, shard, parameter, sourceOf(weightSlot)));
    for (uint32_t i = 0; i < plan::length(shard.state()); ++i) {
      const fb::StateSlot &slot = *shard.state()->Get(i);
      PLAIT_RETURN_IF_ERROR(setTensor(executor, rank, shard, parameter,
                                      stateOf(shard, slot),
                                      sourceOf(slot.name()->str())));
    }
    return Status::success();
  });
}

Result<std::optional<Resumed>>
runtime::resume(Executor &executor, const std::string &path, bool mayBeNone) {
  auto found = findCheckpoints(path);
  // Where there may be no checkpoint there may be no directory.
  if (!found.ok() && mayBeNone)
    found = std::vector<CheckpointStore::Entry>();
  PLAIT_RETURN_IF_ERROR(agreeOn(executor, found.status()));
  PLAIT_RETURN_IF_ERROR(compareViews(executor, path, *found));
  if (found->empty())
    return mayBeNone ? Result<std::optional<Resumed>>(std::nullopt)
                     : failToFind(path);
  Resumed resumed;
  Status reason = Status::success(); // why the newest is none
  for (const CheckpointStore::Entry &entry : *found) {
    Result<CheckpointReader> reader = openVerified(executor, entry.path);
    if (!reader.ok()) {
      if (executor.leads() && found->size() > 1)
        std::fprintf(stderr, "plait-run: warning: %s; trying the one before\n",
                     reader.status().message().c_str());
      if (reason.ok())
        reason = reader.status();
      resumed.damaged.push_back(entry.step);
      continue;
    }
    PLAIT_RETURN_IF_ERROR(
        agreeOn(executor, reader->checkFits(executor.plan())));
    PLAIT_RETURN_IF_ERROR(agreeOn(executor, load(executor, *reader)));
    resumed.run = reader->index().run;
    resumed.path = entry.path;
    return std::optional(std::move(resumed));
  }
  return found->size() > 1 ? fail("no checkpoint in '", path, "' is whole")
                           : reason;
}
