//===- ReplicaFolder.cpp - Folders of copies in memory --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Names and rights of the folders in which hosts keep copies in memory:
// BASE/plait-DIRECTORY-ID-HOST, with a hash of the checkpoint directory's path
// and the id of the run. The id is in a file of the checkpoint directory as
// well (.replica), which is how the next run of that directory recognises what
// is its own. What lies in a folder is CheckpointStore's.
//
// BASE is as /dev/shm is, which everybody may write to. So a folder counts only
// if it is this user's, and no folder of another name than those above is
// touched.
//
//===----------------------------------------------------------------------===//

#include "ReplicaFolder.h"

#include "Core/Processes.h"
#include "Index.h"
#include "plait/Plan/Files.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

using namespace plait;
using namespace plait::runtime;
namespace fs = std::filesystem;

static constexpr char markName[] = ".replica";
static constexpr char prefix[] = "plait-";
static constexpr size_t digits = 16; // of printHash()

/// Drawn rather than made of time and host: what a run in the same directory
/// has left must not be taken for this one's.
ReplicaMark ReplicaMark::draw() {
  std::random_device device;
  return {printHash(uint64_t(device()) << 32 | device()), 0};
}

/// The id becomes a part of a path, so that anything but hexadecimal digits is
/// refused: a mark that somebody has edited must not lead out of the base.
std::optional<ReplicaMark> ReplicaMark::read(const std::string &directory) {
  auto content = MappedFile::open(directory + "/" + markName, "mark");
  if (!content.ok())
    return std::nullopt;
  std::istringstream file(
      std::string(content->bytes().begin(), content->bytes().end()));
  ReplicaMark mark;
  if (!(file >> mark.id >> mark.step) || mark.id.size() != digits ||
      mark.id.find_first_not_of("0123456789abcdef") != std::string::npos)
    return std::nullopt;
  return mark;
}

/// Under another name first, as all outputs: a run that is killed meanwhile
/// leaves the mark before.
Status ReplicaMark::write(const std::string &directory) const {
  auto file = OutputFile::create(directory + "/" + markName);
  if (!file.ok())
    return file.status();
  std::string text = id + " " + std::to_string(step) + "\n";
  PLAIT_RETURN_IF_ERROR(file->writeAt(
      0, {reinterpret_cast<const uint8_t *>(text.data()), text.size()}));
  return file->commit();
}

void ReplicaMark::remove(const std::string &directory) {
  unlink((directory + "/" + markName).c_str());
}

/// Names what stands for the path of a checkpoint directory. A hash, since a
/// path may be longer than a name may be and has slashes. Links are resolved,
/// so that the ways to write a path that lead to one directory give one name.
/// Process 0 computes it for all: on other hosts the path may be another one.
static std::string nameDirectory(const std::string &path) {
  std::error_code error;
  // With a slash at its end or without.
  std::string whole =
      (fs::weakly_canonical(path, error) / "").lexically_normal();
  return printHash(XXH3_64bits(whole.data(), whole.size()));
}

/// The answer is two words; without an id it is nothing, and both stay empty.
Result<ReplicaFolder> ReplicaFolder::share(Rendezvous *processes,
                                           const std::string &base,
                                           const std::string &directory,
                                           const std::optional<std::string> &id,
                                           const std::string &host) {
  auto text =
      tellFromFirst(processes, id ? nameDirectory(directory) + " " + *id : "");
  if (!text.ok())
    return text.status();
  ReplicaFolder folder = {base, "", "", host};
  std::istringstream(*text) >> folder.directory >> folder.id;
  return folder;
}

/// Only process 0 reads the mark, so that all agree even while it changes.
Result<ReplicaFolder> ReplicaFolder::find(Rendezvous *processes,
                                          const std::string &base,
                                          const std::string &directory,
                                          const std::string &host) {
  std::optional<std::string> id;
  if (!processes || processes->place().index == 0)
    if (auto mark = ReplicaMark::read(directory))
      id = mark->id;
  return share(processes, base, directory, id, host);
}

std::string ReplicaFolder::path() const {
  return base + "/" + prefix + directory + "-" + id + "-" + host;
}

/// mkdir() does not follow a link that somebody has put there, and says who was
/// first; what is there already is used only if exists() finds it to be this
/// user's.
Status ReplicaFolder::make() const {
  std::error_code error;
  fs::create_directories(base, error);
  std::string name = path();
  if (mkdir(name.c_str(), 0700) == 0)
    return Status::success();
  if (errno != EEXIST)
    return fail("cannot make directory '", name, "': ", std::strerror(errno));
  return exists() ? Status::success()
                  : fail("'", name, "' is not a directory of this user");
}

/// lstat(), not stat(): a link to a directory of this user may be somebody
/// else's.
bool ReplicaFolder::exists() const {
  struct stat found = {};
  return lstat(path().c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
         found.st_uid == geteuid();
}

/// Only names of exactly the form that path() gives, of the same directory and
/// host. Ids have one length, so that equal lengths keep a host "b" from
/// matching the folder of a host "a-b".
std::vector<std::string> ReplicaFolder::removeOthers() const {
  std::vector<std::string> told;
  std::error_code error;
  std::string mine = fs::path(path()).filename();
  std::string begin = prefix + directory + "-", end = "-" + host;
  for (const fs::directory_entry &entry : fs::directory_iterator(base, error)) {
    std::string name = entry.path().filename();
    if (name == mine || !name.starts_with(begin) || !name.ends_with(end) ||
        name.size() != mine.size())
      continue;
    // Removing fails where it is another user's.
    fs::remove_all(entry.path(), error);
    told.push_back((error ? "cannot remove '" : "removed '") +
                   entry.path().string() +
                   "', copies of an earlier run of this directory");
  }
  return told;
}

uint64_t ReplicaFolder::bytes() const {
  std::error_code error;
  uint64_t sum = 0;
  for (const fs::directory_entry &entry :
       fs::recursive_directory_iterator(path(), error))
    if (entry.is_regular_file(error))
      sum += entry.file_size(error);
  return sum;
}
