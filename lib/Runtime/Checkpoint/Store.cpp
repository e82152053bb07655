//===- Store.cpp - Folders of checkpoints ---------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Store.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

using namespace plait;
using namespace plait::runtime;
namespace fs = std::filesystem;

static constexpr char prefix[] = "step-";
static constexpr char partial[] = ".partial";
static constexpr char damaged[] = ".damaged";

static Status failTo(const char *what, const std::string &path, int error) {
  return fail("cannot ", what, " '", path, "': ", std::strerror(error));
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

struct FileWriter::Hash {
  XXH3_state_t state; // aligned to 64 bytes
};

FileWriter::FileWriter(std::string path, int descriptor)
    : path(std::move(path)), descriptor(descriptor), hash(new Hash) {
  XXH3_64bits_reset(&hash->state);
}

FileWriter::FileWriter(FileWriter &&other) noexcept
    : path(std::move(other.path)),
      descriptor(std::exchange(other.descriptor, -1)), written(other.written),
      buffer(std::move(other.buffer)),
      hash(std::exchange(other.hash, nullptr)) {}

FileWriter::~FileWriter() {
  if (descriptor >= 0)
    close(descriptor);
  delete hash;
}

Result<FileWriter> FileWriter::create(const std::string &path) {
  int descriptor =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0)
    return failTo("write", path, errno);
  return FileWriter(path, descriptor);
}

Status FileWriter::append(std::span<const std::byte> bytes) {
  // So many that a call of the system costs nothing beside.
  constexpr size_t most = 1 << 18;
  while (!bytes.empty()) {
    size_t count = std::min(bytes.size(), most - buffer.size());
    buffer.insert(buffer.end(), bytes.begin(), bytes.begin() + count);
    bytes = bytes.subspan(count);
    if (buffer.size() == most)
      PLAIT_RETURN_IF_ERROR(flush());
  }
  return Status::success();
}

Status FileWriter::flush() {
  XXH3_64bits_update(&hash->state, buffer.data(), buffer.size());
  for (size_t done = 0; done < buffer.size();) {
    ssize_t count =
        ::write(descriptor, buffer.data() + done, buffer.size() - done);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return failTo("write", path, count ? errno : ENOSPC);
    done += count;
  }
  written += buffer.size();
  buffer.clear();
  return Status::success();
}

Result<uint64_t> FileWriter::finish() {
  PLAIT_RETURN_IF_ERROR(flush());
  return XXH3_64bits_digest(&hash->state);
}

Status FileWriter::sync() {
  if (fsync(descriptor) != 0 || close(std::exchange(descriptor, -1)) != 0)
    return failTo("write", path, errno);
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Folders
//===----------------------------------------------------------------------===//

/// A name is on the disk when its directory is.
static Status syncDirectory(const std::string &path) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0)
    return failTo("open directory", path, errno);
  // Some file systems cannot, and do not have to.
  int error = fsync(descriptor) != 0 && errno != EINVAL ? errno : 0;
  close(descriptor);
  return error ? failTo("sync directory", path, error) : Status::success();
}

static Status renameFolder(const std::string &from, const std::string &to) {
  if (rename(from.c_str(), to.c_str()) != 0)
    return fail("cannot rename '", from, "' to '", to,
                "': ", std::strerror(errno));
  return Status::success();
}

static std::string folderName(uint64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "%s%08llu", prefix,
                static_cast<unsigned long long>(step));
  return name;
}

bool runtime::parseFolderName(const std::string &name, uint64_t &step) {
  constexpr size_t most = 18; // digits of what fits into 64 bits
  size_t digits = name.size() - std::min(name.size(), std::strlen(prefix));
  if (!name.starts_with(prefix) || digits < 1 || digits > most ||
      name.find_first_not_of("0123456789", std::strlen(prefix)) !=
          std::string::npos)
    return false;
  step = std::stoull(name.substr(std::strlen(prefix)));
  return name == folderName(step);
}

std::string CheckpointStore::pathOf(uint64_t step) const {
  return directory + "/" + folderName(step);
}

std::string CheckpointStore::partialPathOf(uint64_t step) const {
  return pathOf(step) + partial;
}

Status CheckpointStore::make() const {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error)
    return fail("cannot make directory '", directory, "': ", error.message());
  return Status::success();
}

Result<std::vector<CheckpointStore::Entry>> CheckpointStore::list() const {
  std::error_code error;
  fs::directory_iterator folder(directory, error);
  if (error)
    return fail("cannot read directory '", directory, "': ", error.message());
  std::vector<Entry> entries;
  for (const fs::directory_entry &entry : folder)
    if (uint64_t step = 0; entry.is_directory(error) &&
                           parseFolderName(entry.path().filename(), step))
      entries.push_back({step, pathOf(step)});
  std::sort(entries.begin(), entries.end(),
            [](const Entry &a, const Entry &b) { return a.step > b.step; });
  return entries;
}

Status CheckpointStore::removeUnfinished() const {
  std::error_code error;
  std::vector<fs::path> found;
  for (const fs::directory_entry &entry :
       fs::directory_iterator(directory, error)) {
    std::string name = entry.path().filename();
    uint64_t step = 0;
    if (name.ends_with(partial) &&
        parseFolderName(name.substr(0, name.size() - std::strlen(partial)),
                        step))
      found.push_back(entry.path());
  }
  for (const fs::path &path : found)
    if (fs::remove_all(path, error); error)
      return fail("cannot remove '", path.string(), "': ", error.message());
  return Status::success();
}

Status CheckpointStore::begin(uint64_t step) const {
  abandon(step);
  std::string path = partialPathOf(step);
  if (mkdir(path.c_str(), 0777) != 0)
    return failTo("make directory", path, errno);
  return Status::success();
}

Status CheckpointStore::commit(uint64_t step) const {
  PLAIT_RETURN_IF_ERROR(syncDirectory(partialPathOf(step)));
  PLAIT_RETURN_IF_ERROR(renameFolder(partialPathOf(step), pathOf(step)));
  return syncDirectory(directory);
}

void CheckpointStore::abandon(uint64_t step) const {
  std::error_code ignored; // the next run tries again
  fs::remove_all(partialPathOf(step), ignored);
}

Status CheckpointStore::prune(uint64_t keep) const {
  auto entries = list();
  if (!entries.ok())
    return entries.status();
  for (size_t i = keep; i < entries->size(); ++i)
    PLAIT_RETURN_IF_ERROR(remove((*entries)[i].step));
  return Status::success();
}

Status CheckpointStore::remove(uint64_t step) const {
  PLAIT_RETURN_IF_ERROR(renameFolder(pathOf(step), partialPathOf(step)));
  abandon(step);
  return Status::success();
}

Status CheckpointStore::setAside(uint64_t step) const {
  std::error_code ignored;
  fs::remove_all(pathOf(step) + damaged, ignored);
  return renameFolder(pathOf(step), pathOf(step) + damaged);
}

Result<std::vector<CheckpointStore::Entry>>
runtime::findCheckpoints(const std::string &path) {
  std::error_code error;
  if (fs::exists(path + "/" + indexName, error))
    return std::vector<CheckpointStore::Entry>{{0, path}};
  return CheckpointStore(path).list();
}

Status runtime::failToFind(const std::string &path) {
  return fail("'", path, "' has no checkpoint: neither index.json nor folders ",
              folderName(1), " and so on");
}
