//===- Writer.cpp - Writing checkpoints beside the steps ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Writer.h"

#include "Core/Processes.h"
#include "Core/Windows.h"

#include <mutex>
#include <nlohmann/json.hpp>

using namespace plait;
using namespace plait::runtime;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

static std::string printFiles(const std::vector<WrittenFile> &files) {
  Json list = Json::array();
  for (const WrittenFile &file : files)
    list.push_back({file.entry.name, file.entry.bytes, file.entry.hash});
  return list.dump();
}

/// Of one process by another of the same program.
static void addFiles(const std::string &text, StoredFiles &files) {
  for (const Json &entry : Json::parse(text)) {
    StoredFile file = {entry[0], entry[1], entry[2]};
    files[file.name] = file;
  }
}

CheckpointWriter::~CheckpointWriter() {
  if (task.valid())
    task.wait();
}

Status CheckpointWriter::afterStep(const RunRecord &run) {
  PLAIT_RETURN_IF_ERROR(advance(/*wait=*/false));
  Result<bool> due = isDue(run.step);
  if (!due.ok())
    return due.status();
  return *due ? save(run) : Status::success();
}

Status CheckpointWriter::finish(const RunRecord &run) {
  PLAIT_RETURN_IF_ERROR(advance(/*wait=*/true));
  if (savedStep != run.step) {
    PLAIT_RETURN_IF_ERROR(save(run));
    PLAIT_RETURN_IF_ERROR(advance(/*wait=*/true));
  }
  if (place->isKeeper)
    place->store.removeSpare(); // there is no next one
  return savedStep == run.step
             ? Status::success()
             : fail("the checkpoint of step ", run.step,
                    ", the last one, is not in '", place->store.path(), "'");
}

/// All processes write the same steps: by time, those that rank 0 says.
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

/// Of the ranks' threads: what is being copied may change from here on.
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

Status CheckpointWriter::duringStep() {
  if (!holds)
    return Status::success();
  holds = false;
  Status status = awaitAll(executor, copied);
  copiedByAll.set_value(); // also where it fails: nobody is to wait for ever
  return status;
}

Status CheckpointWriter::begin() {
  std::set<std::string> names;
  for (const StoredFile &file : index.files)
    names.insert(file.name);
  return place->store.begin(step, names);
}

Status CheckpointWriter::save(const RunRecord &run) {
  PLAIT_RETURN_IF_ERROR(advance(/*wait=*/true)); // one at a time
  step = run.step;
  lastSave = Clock::now();
  index.run = run;
  Status status =
      agreeOn(executor, place->isKeeper ? begin() : Status::success());
  if (status.ok() && !isBeside)
    status = doTogether(executor, [this] { return copyFiles(); });
  if (status.ok())
    startWriting();
  else
    conclude(status);
  return Status::success();
}

void CheckpointWriter::start(Phase next, std::function<Status()> job) {
  phase = next;
  task = std::async(std::launch::async, std::move(job));
}

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
    addFiles(printFiles(written), all);
    fillIndex(all);
    return commit();
  });
}

/// What all processes have written.
Result<StoredFiles> CheckpointWriter::shareFiles() {
  auto texts = tellAll(executor, printFiles(written));
  if (!texts.ok())
    return texts.status();
  StoredFiles all;
  for (const std::string &text : *texts)
    addFiles(text, all);
  return all;
}

void CheckpointWriter::fillIndex(const StoredFiles &all) {
  if (place->isKeeper)
    for (StoredFile &file : index.files)
      file = all.at(file.name);
}

/// From a phase that has ended well in all processes.
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

Status CheckpointWriter::commit() {
  if (!place->isKeeper)
    return Status::success();
  PLAIT_RETURN_IF_ERROR(writeIndex(place->store, index));
  return place->store.commit(index.run.step);
}

/// What is no longer needed now that all processes have the newest one.
Status CheckpointWriter::prune() {
  if (executor.leads())
    place->conclude(step);
  if (!place->isKeeper)
    return Status::success();
  if (Status status = place->prune(); !status.ok())
    warn("old checkpoints stay: " + status.message());
  return Status::success();
}

/// Goes on with what is being written as far as it is, or, with `wait`, until
/// it is complete.
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

/// What is being written is complete, or it is not and never will be.
void CheckpointWriter::conclude(const Status &status) {
  phase = Phase::Idle;
  task = {};
  written.clear(); // what is open still takes room
  if (status.ok()) {
    savedStep = step;
    start(Phase::Pruning, [this] { return prune(); });
    return;
  }
  if (place->isKeeper)
    place->store.abandon(step);
  if (executor.leads())
    warn("no checkpoint of step " + std::to_string(step) + place->words + ": " +
         status.message());
}
