//===- Writer.cpp - Writing checkpoints beside the steps ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Writer.h"

#include "Core/Windows.h"
#include "Processes.h"

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

/// Each rank writes its file. In vain is not a failure of the rank.
Status CheckpointWriter::copyAside(std::vector<WrittenFile> &written) {
  std::mutex mutex;
  Status result = Status::success();
  PLAIT_RETURN_IF_ERROR(executor.forEachRank([&](uint32_t rank) {
    auto found = files.find(rank);
    if (found == files.end())
      return Status::success();
    auto file = writeRankFile(
        place->store.partialPathOf(step), found->second,
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
  Status status =
      agreeOn(executor, place->isKeeper ? begin() : Status::success());
  std::vector<WrittenFile> written;
  if (status.ok())
    status = doTogether(executor, [&] { return copyAside(written); });
  if (!status.ok()) {
    conclude(status);
    return Status::success();
  }
  auto texts = tellAll(executor, printFiles(written));
  if (!texts.ok())
    return texts.status();
  StoredFiles all;
  for (const std::string &text : *texts)
    addFiles(text, all);
  if (place->isKeeper) {
    for (StoredFile &file : index.files)
      file = all.at(file.name);
    index.run = run;
  }
  startSecuring(std::move(written), std::move(all));
  return Status::success();
}

void CheckpointWriter::start(Phase next, std::function<Status()> job) {
  phase = next;
  task = std::async(std::launch::async, std::move(job));
}

void CheckpointWriter::startSecuring(std::vector<WrittenFile> written,
                                     StoredFiles all) {
  auto files = std::make_shared<std::vector<WrittenFile>>(std::move(written));
  bool isAlone = !executor.processes(); // then there is nobody to ask
  start(isAlone ? Phase::Committing : Phase::Securing,
        [this, isAlone, files, all = std::move(all)] {
          Status status = place->secure(step, *files, all);
          return status.ok() && isAlone ? commit() : status;
        });
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
  if (!place->isKeeper || !place->keep)
    return Status::success();
  if (Status status = place->store.prune(place->keep); !status.ok())
    warn("old checkpoints stay: " + status.message());
  return Status::success();
}

/// Goes on with what is being written as far as it is, or, with `wait`, until
/// it is complete.
Status CheckpointWriter::advance(bool wait) {
  while (phase == Phase::Securing || phase == Phase::Committing) {
    auto ended = askAll(executor, task,
                        wait ? askingPause : std::chrono::milliseconds(0));
    if (!ended.ok())
      return ended.status();
    if (!*ended && wait)
      continue;
    if (!*ended)
      return Status::success();
    if (phase == Phase::Securing && (*ended)->ok())
      start(Phase::Committing, [this] { return commit(); });
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
