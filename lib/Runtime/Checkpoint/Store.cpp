//===- Store.cpp - Folders of checkpoints ---------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Store.h"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <filesystem>
#include <mutex>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

using namespace plait;
using namespace plait::runtime;
namespace fs = std::filesystem;

static constexpr char prefix[] = "step-";
static constexpr char partial[] = ".partial";
static constexpr char damaged[] = ".damaged";
static constexpr char spare[] = ".spare";

static Status failTo(const char *what, const std::string &path, int error) {
  return fail("cannot ", what, " '", path, "': ", std::strerror(error));
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

/// So many that calls of the system and turns of threads cost nothing beside,
/// and so few that they stay in a core's cache. Blocks of all devices divide
/// it.
static constexpr size_t bufferBytes = 1 << 19;

struct FileWriter::Hash {
  XXH3_state_t state; // aligned to 64 bytes
};

/// Whether what is written goes past the page cache. File systems need not be
/// able to.
static void setDirect(int descriptor, bool value) {
  int flags = fcntl(descriptor, F_GETFL);
  (void)fcntl(descriptor, F_SETFL,
              value ? flags | O_DIRECT : flags & ~O_DIRECT);
}

/// Of this file, or at this place.
static bool refusesDirect(int descriptor, int error) {
  return error == EINVAL && (fcntl(descriptor, F_GETFL) & O_DIRECT);
}

static Status writeAll(int descriptor, const std::string &path,
                       std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0 && refusesDirect(descriptor, errno)) {
      setDirect(descriptor, false);
      continue;
    }
    if (count <= 0)
      return failTo("write", path, count ? errno : ENOSPC);
    bytes = bytes.subspan(count);
  }
  return Status::success();
}

/// Writes buffers in the order in which it gets them. All are full but the
/// last.
class FileWriter::Thread {
public:
  Thread(int descriptor, const std::string &path,
         const std::atomic<bool> *isAwaited)
      : descriptor(descriptor), path(path), isAwaited(isAwaited),
        thread([this] { run(); }) {}
  ~Thread() { (void)finish(); }

  /// Takes `buffer` and leaves an empty one. Waits while too many are on their
  /// way; fails when the file has.
  Status put(Buffer &buffer) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return full.size() < most; });
    full.push_back(std::move(buffer));
    buffer = {};
    if (!spare.empty()) {
      buffer = std::move(spare.back());
      spare.pop_back();
    }
    changed.notify_all();
    return status;
  }

  /// Returns when all is written, or nothing more can be.
  Status finish() {
    if (!thread.joinable())
      return status;
    {
      std::lock_guard lock(mutex);
      isEnding = true;
      changed.notify_all();
    }
    thread.join();
    return status;
  }

private:
  static constexpr size_t most = 4; // buffers on their way

  Status write(const Buffer &buffer) {
    if (buffer.size() < bufferBytes || (isAwaited && *isAwaited))
      setDirect(descriptor, false);
    return writeAll(descriptor, path, buffer);
  }

  void run() {
    setDirect(descriptor, true);
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return isEnding || !full.empty(); });
      if (full.empty())
        return;
      Buffer buffer = std::move(full.front());
      bool isLost = !status.ok();
      lock.unlock();
      // Where writing has failed, the caller is told by its next call.
      Status written = isLost ? Status::success() : write(buffer);
      buffer.clear();
      lock.lock();
      if (!written.ok())
        status = std::move(written);
      full.pop_front();
      spare.push_back(std::move(buffer));
      changed.notify_all();
    }
  }

  int descriptor;
  std::string path;
  const std::atomic<bool> *isAwaited;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Buffer> full; // the first is being written
  std::vector<Buffer> spare;
  Status status = Status::success();
  bool isEnding = false;
  std::thread thread; // last: starts when all else is there
};

FileWriter::FileWriter(std::string path, int descriptor,
                       const std::atomic<bool> *isAwaited)
    : path(std::move(path)), descriptor(descriptor), isAwaited(isAwaited),
      hash(std::make_unique<Hash>()) {
  XXH3_64bits_reset(&hash->state);
}

FileWriter::FileWriter(FileWriter &&other) noexcept
    : path(std::move(other.path)),
      descriptor(std::exchange(other.descriptor, -1)),
      isAwaited(other.isAwaited), written(other.written),
      buffer(std::move(other.buffer)), hash(std::move(other.hash)),
      thread(std::move(other.thread)) {}

FileWriter::~FileWriter() {
  thread.reset();
  if (descriptor >= 0)
    close(descriptor);
}

Result<FileWriter> FileWriter::create(const std::string &path,
                                      const std::atomic<bool> *isAwaited) {
  int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0)
    return failTo("write", path, errno);
  return FileWriter(path, descriptor, isAwaited);
}

Status FileWriter::append(std::span<const std::byte> bytes) {
  buffer.reserve(bufferBytes);
  while (!bytes.empty()) {
    size_t count = std::min(bytes.size(), bufferBytes - buffer.size());
    buffer.insert(buffer.end(), bytes.begin(), bytes.begin() + count);
    bytes = bytes.subspan(count);
    if (buffer.size() < bufferBytes)
      continue;
    if (!thread)
      thread = std::make_unique<Thread>(descriptor, path, isAwaited);
    PLAIT_RETURN_IF_ERROR(flush());
  }
  return Status::success();
}

Status FileWriter::flush() {
  XXH3_64bits_update(&hash->state, buffer.data(), buffer.size());
  written += buffer.size();
  if (thread)
    return thread->put(buffer);
  return writeAll(descriptor, path, std::exchange(buffer, {}));
}

Result<uint64_t> FileWriter::finish() {
  PLAIT_RETURN_IF_ERROR(flush());
  if (thread)
    PLAIT_RETURN_IF_ERROR(thread->finish());
  if (ftruncate(descriptor, written) != 0)
    return failTo("write", path, errno);
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

/// The folders in `directory` that are named as a checkpoint and then `ending`.
static std::vector<std::string> findFolders(const std::string &directory,
                                            const std::string &ending) {
  std::error_code error;
  std::vector<std::string> found;
  for (const fs::directory_entry &entry :
       fs::directory_iterator(directory, error)) {
    std::string name = entry.path().filename();
    uint64_t step = 0;
    if (name.ends_with(ending) &&
        parseFolderName(name.substr(0, name.size() - ending.size()), step))
      found.push_back(entry.path());
  }
  return found;
}

Status CheckpointStore::removeUnfinished() const {
  removeSpare();
  for (const std::string &path : findFolders(directory, partial)) {
    std::error_code error;
    if (fs::remove_all(path, error); error)
      return fail("cannot remove '", path, "': ", error.message());
  }
  return Status::success();
}

/// Leaves only `files` in a folder.
static void removeOthers(const std::string &folder,
                         const std::set<std::string> &files) {
  std::error_code ignored; // what stays is in no index
  std::vector<fs::path> others;
  for (const fs::directory_entry &entry :
       fs::directory_iterator(folder, ignored))
    if (!files.contains(entry.path().filename()))
      others.push_back(entry.path());
  for (const fs::path &path : others)
    fs::remove_all(path, ignored);
}

Status CheckpointStore::begin(uint64_t step,
                              const std::set<std::string> &files) const {
  abandon(step);
  std::string path = partialPathOf(step);
  for (const std::string &old : findFolders(directory, spare))
    if (rename(old.c_str(), path.c_str()) == 0) {
      removeOthers(path, files);
      return Status::success();
    }
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

Status CheckpointStore::prune(uint64_t keep, bool keepsSpare) const {
  auto entries = list();
  if (!entries.ok())
    return entries.status();
  for (size_t i = entries->size(); i-- > keep;)
    PLAIT_RETURN_IF_ERROR(keepsSpare && i == keep
                              ? keepAsSpare((*entries)[i].step)
                              : remove((*entries)[i].step));
  return Status::success();
}

Status CheckpointStore::keepAsSpare(uint64_t step) const {
  removeSpare();
  PLAIT_RETURN_IF_ERROR(renameFolder(pathOf(step), pathOf(step) + spare));
  // After a crash, too, it must not have its name when it is written over.
  return syncDirectory(directory);
}

void CheckpointStore::removeSpare() const {
  std::error_code ignored; // the next run tries again
  for (const std::string &path : findFolders(directory, spare))
    fs::remove_all(path, ignored);
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
