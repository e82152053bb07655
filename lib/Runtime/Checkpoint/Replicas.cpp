//===- Replicas.cpp - The copies that hosts have in memory ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the hosts of a run still have in memory of a checkpoint directory, put
// together from what each of them says. No host has all files of a step: each
// has those of its own processes and of the host before it, so that a step is
// whole if every file is on some host that is still there.
//
// Everything here is said by the process that leads a host and heard by all,
// and each process computes the same list from the same texts.
//
//===----------------------------------------------------------------------===//

#include "Replicas.h"

#include "Core/Processes.h"
#include "plait/Plan/Files.h"
#include "plait/Plan/Json.h"

#include <filesystem>
#include <mutex>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

using namespace plait;
using namespace plait::runtime;
using Json = nlohmann::json;

namespace {

/// The text of the index in the folder `path`, whole or not.
/// Not parsed, since its bytes are hashed and sent to other hosts as they are.
Result<std::string> readIndex(const std::string &path) {
  auto file = MappedFile::open(path + "/" + indexName, "checkpoint");
  if (!file.ok())
    return file.status();
  return std::string(reinterpret_cast<const char *>(file->bytes().data()),
                     file->bytes().size());
}

/// `path` is for the message only.
Result<CheckpointIndex> parseIndex(const std::string &path,
                                   const std::string &text) {
  auto index = CheckpointIndex::parse(
      {reinterpret_cast<const uint8_t *>(text.data()), text.size()});
  return index.ok() ? std::move(index)
                    : fail("checkpoint '", path, "/", indexName, "' ",
                           index.status().message());
}

} // namespace

/// Without --replica, and where the directory has no mark of a run, the list
/// stays empty, in all processes or in none.
Result<Replicas> Replicas::find(Executor &executor, const std::string &base,
                                const std::string &directory) {
  if (base.empty())
    return Replicas(executor, HostGroups());
  auto groups = HostGroups::of(executor.processes());
  if (!groups.ok())
    return groups.status();
  Replicas replicas(executor, std::move(*groups));
  auto found = ReplicaFolder::find(executor.processes(), base, directory,
                                   replicas.groups.hostName());
  if (!found.ok())
    return found.status();
  const ReplicaFolder &folder = replicas.folder = *found;
  if (folder.id.empty())
    return replicas;
  auto texts = tellAll(executor, replicas.groups.leadsHost() && folder.exists()
                                     ? replicas.describeFolder()
                                     : "");
  if (!texts.ok())
    return texts.status();
  replicas.merge(*texts);
  PLAIT_RETURN_IF_ERROR(replicas.dropIncomplete());
  return replicas;
}

std::string Replicas::pathOf(const Entry &entry) const {
  return CheckpointStore(folder.path()).pathOf(entry.step);
}

/// Describes what this host has: of each checkpoint step, hash of the index,
/// number of files and the numbers of those that are missing.
std::string Replicas::describeFolder() const {
  Json checkpoints = Json::array(), warnings = Json::array();
  // Content is not read here: which of the copies are tried is not known yet,
  // and reading all of them would take as long as reading a checkpoint each. A
  // folder that cannot be listed counts as empty.
  auto found = CheckpointStore(folder.path()).list();
  for (const auto &entry :
       found.ok() ? *found : std::vector<CheckpointStore::Entry>()) {
    auto text = readIndex(entry.path);
    auto index = text.ok() ? parseIndex(entry.path, *text) : text.status();
    if (!index.ok()) {
      warnings.push_back(index.status().message());
      continue;
    }
    Json missing = Json::array();
    std::error_code error;
    for (uint32_t i = 0; i < index->files.size(); ++i)
      if (std::string path = entry.path + "/" + index->files[i].name;
          !std::filesystem::exists(path, error))
        missing.push_back(i);
    checkpoints.push_back({entry.step, XXH3_64bits(text->data(), text->size()),
                           index->files.size(), missing});
  }
  return Json{{"checkpoints", checkpoints}, {"warnings", warnings}}.dump();
}

/// Puts together what all hosts have.
void Replicas::merge(const std::vector<std::string> &texts) {
  for (uint32_t process = 0; process < texts.size(); ++process) {
    if (texts[process].empty())
      continue;
    Json told = parsePrintedJson<Json>(texts[process]);
    for (const std::string warning : told["warnings"])
      if (executor.leads())
        executor.warn(warning);
    for (const Json &one : told["checkpoints"]) {
      uint64_t step = one[0], hash = one[1];
      size_t count = one[2];
      // The hash of the index tells apart two states of the same step, as a run
      // that was resumed from an earlier step writes them again.
      auto known = std::find_if(list.begin(), list.end(), [&](const Entry &x) {
        return x.step == step && x.hash == hash;
      });
      if (known == list.end())
        known = list.insert(
            list.end(),
            {step, hash,
             FilesByHost(groups.hosts(), std::vector<bool>(count))});
      std::vector<bool> &files = known->files[groups.hostOf(process)];
      files.assign(count, true);
      for (uint32_t missing : one[3])
        files[missing] = false;
    }
  }
  std::stable_sort(
      list.begin(), list.end(),
      [](const Entry &a, const Entry &b) { return a.step > b.step; });
}

/// The first file that no host has; nothing: all are there.
static std::optional<size_t> findLacking(const FilesByHost &files) {
  for (size_t file = 0; file < files.front().size(); ++file)
    if (std::none_of(files.begin(), files.end(),
                     [&](const std::vector<bool> &host) { return host[file]; }))
      return file;
  return std::nullopt;
}

/// One that lacks a file is worth a word where no newer one is whole.
Status Replicas::dropIncomplete() {
  std::vector<Entry> whole;
  for (const Entry &entry : list) {
    std::optional<size_t> lacking = findLacking(entry.files);
    if (!lacking) {
      whole.push_back(entry);
      continue;
    }
    // An older one is not needed then.
    if (!whole.empty())
      continue;
    auto index = shareIndex(entry);
    if (!index.ok())
      return index.status();
    if (executor.leads())
      executor.warn("no host has '" + index->files[*lacking].name + "' of '" +
                    pathOf(entry) + "' in memory; trying the one before");
  }
  list = std::move(whole);
  return Status::success();
}

/// The lowest host that has it tells the others.
Result<CheckpointIndex> Replicas::shareIndex(const Entry &entry) const {
  // A host that has any file of a step has its index, too: a folder gets its
  // name with both.
  auto hasIt = [](const std::vector<bool> &files) {
    return std::find(files.begin(), files.end(), true) != files.end();
  };
  auto first = std::find_if(entry.files.begin(), entry.files.end(), hasIt);
  uint32_t teller = groups.firstOf(uint32_t(first - entry.files.begin()));
  Result<std::string> mine = std::string();
  if (groups.process() == teller)
    mine = readIndex(pathOf(entry));
  PLAIT_RETURN_IF_ERROR(agreeOn(executor, mine.status()));
  auto texts = tellAll(executor, *mine);
  if (!texts.ok())
    return texts.status();
  return parseIndex(pathOf(entry), (*texts)[teller]);
}

/// The files of this host, shared by its ranks, that are not what the index
/// says: a JSON list of pairs of number and reason.
Result<std::string> Replicas::findDamaged(const Entry &entry,
                                          const CheckpointIndex &index) const {
  std::mutex mutex;
  Json damaged = Json::array();
  uint32_t first = 0, ranks = executor.mesh().ranks();
  if (Rendezvous *processes = executor.processes()) {
    // The processes of a host follow each other, and so do their ranks.
    const RankSpread &spread = processes->spread();
    uint32_t process = groups.firstOf(groups.host());
    first = spread.firstOf(process);
    ranks = spread.firstOf(process + groups.sizeOf(groups.host())) - first;
  }
  const std::vector<bool> &here = entry.files[groups.host()];
  PLAIT_RETURN_IF_ERROR(executor.forEachRank([&](uint32_t rank) {
    uint32_t number = 0; // among those that are here
    for (uint32_t file = 0; file < here.size(); ++file) {
      if (!here[file] || number++ % ranks != rank - first)
        continue;
      Status status =
          CheckpointReader::verify(pathOf(entry), index.files[file]);
      std::lock_guard lock(mutex);
      if (!status.ok())
        damaged.push_back({file, status.message()});
    }
    return Status::success();
  }));
  return damaged.empty() ? "" : damaged.dump();
}

/// 1. All processes get the index.
/// 2. Each host verifies its files, shared among its ranks, and tells the
///    others what is damaged.
/// 3. A damaged file counts as one that the host lacks. If another host has it,
///    the step is still whole, and the damage is worth a warning.
/// 4. Open what is good here; RemoteFiles gets the rest.
Result<CheckpointReader> Replicas::open(Entry &entry) {
  // 1.
  auto index = shareIndex(entry);
  if (!index.ok())
    return index.status();
  // 2.
  Result<std::string> mine = std::string();
  PLAIT_RETURN_IF_ERROR(doTogether(executor, [&] {
    mine = findDamaged(entry, *index);
    return mine.status();
  }));
  auto texts = tellAll(executor, *mine);
  if (!texts.ok())
    return texts.status();
  // 3.
  std::vector<std::string> reasons;
  for (uint32_t process = 0; process < texts->size(); ++process)
    for (const Json &one : (*texts)[process].empty()
                               ? Json::array()
                               : parsePrintedJson<Json>((*texts)[process])) {
      entry.files[groups.hostOf(process)][one[0].get<size_t>()] = false;
      reasons.push_back(one[1]);
    }
  if (findLacking(entry.files))
    return Status::failure(reasons.front());
  for (const std::string &reason : reasons)
    if (executor.leads())
      executor.warn(reason + "; another host has it");
  // 4.
  auto reader = CheckpointReader::open(pathOf(entry), std::move(*index),
                                       entry.files[groups.host()]);
  PLAIT_RETURN_IF_ERROR(agreeOn(executor, reader.status()));
  return reader;
}

Status Replicas::load(const Entry &entry,
                      const CheckpointReader &reader) const {
  RemoteFiles remote(executor, groups, entry.files, reader);
  return runtime::load(executor, reader,
                       groups.hosts() > 1 ? &remote : nullptr);
}
