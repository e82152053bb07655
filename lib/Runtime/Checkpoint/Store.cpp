//===- Store.cpp - Folders of checkpoints ---------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two layers. FileWriter gets the bytes of one file to the system: the caller's
// thread computes the checksum while a thread of the file's own writes, past
// the page cache where that is possible. CheckpointStore gives folders their
// names: everything that a crash may interrupt is ordered so that a folder
// called step-N is complete, whatever instant the machine stops at. That rests
// on two promises of POSIX file systems: rename() is atomic, and a name is on
// the disk once its directory has been synced.
//
// Nothing here knows what is in a checkpoint; see Index.h and RankFile.h. Nor
// does anything here lock: that only one process changes a directory is the
// business of the callers (Saver.cpp takes a lock, Writer.cpp names a keeper).
//
//===----------------------------------------------------------------------===//

#include "Store.h"

#include "plait/Support/Errno.h"

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
// What follows a folder's name, and makes it one that list() does not see.
static constexpr char partial[] = ".partial";
static constexpr char damaged[] = ".damaged";
static constexpr char spare[] = ".spare";

/// "cannot write 'run/x': No space left on device". `error` is a value of
/// errno, taken by the caller at once: building the message may change errno.
static Status failTo(const char *what, const std::string &path, int error) {
  return fail(getWriteCode(error), "cannot ", what, " '", path,
              "': ", std::strerror(error));
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

/// So many that calls of the system and turns of threads cost nothing beside,
/// and so few that they stay in a core's cache. Blocks of all devices divide
/// it.
static constexpr size_t bufferBytes = 1 << 19;

/// Behind a pointer, so that the header does not need the library's, whose
/// state type is visible to static linking only.
struct FileWriter::Hash {
  XXH3_state_t state; // aligned to 64 bytes
};

/// Whether what is written goes past the page cache. File systems need not be
/// able to.
static void setDirect(int descriptor, bool value) {
  // Failure is not looked at: a file system that refuses the flag leaves the
  // file as it was, which is slower and as correct.
  int flags = fcntl(descriptor, F_GETFL);
  (void)fcntl(descriptor, F_SETFL,
              value ? flags | O_DIRECT : flags & ~O_DIRECT);
}

/// Whether the system refuses direct writes of this file, or at this place.
static bool refusesDirect(int descriptor, int error) {
  // EINVAL alone does not say why; with the flag off it is a failure as any
  // other.
  return error == EINVAL && (fcntl(descriptor, F_GETFL) & O_DIRECT);
}

/// Writes all of `bytes` at the file's offset, in as many calls as that takes.
/// Where the device wants other alignments than those of a PageAllocator and
/// `bufferBytes`, the system answers the first direct write with EINVAL; the
/// file then goes through the page cache from there on. Only one thread may
/// write to `descriptor` at a time, since the offset and the flag are the
/// file's.
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
      // A write of nothing has no errno; a full device is what it comes from.
      return failTo("write", path, count ? errno : ENOSPC);
    bytes = bytes.subspan(count);
  }
  return Status::success();
}

/// Writes buffers in the order in which it gets them. All are full but the
/// last.
/// The queue is bounded, so that a slow disk slows the caller down rather than
/// filling the memory with copies of a checkpoint: a file has `most` buffers
/// and the caller's own, 2.5 MiB in all. Buffers go round and are allocated
/// once.
///
/// After a failure the thread takes buffers and drops them. It must not stop:
/// the caller may be waiting for room in the queue.
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
    // The buffer that is being written still counts: it is at the front.
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

  /// Direct writes need a length that the device's blocks divide, which only
  /// full buffers have. Once somebody waits, the rest goes through the page
  /// cache, whose speed is that of memory; the flag stays off from then on.
  Status write(const Buffer &buffer) {
    if (buffer.size() < bufferBytes || (isAwaited && *isAwaited))
      setDirect(descriptor, false);
    return writeAll(descriptor, path, buffer);
  }

  /// The loop of the thread. The lock is held but while a buffer is written,
  /// and the buffer is taken out of the deque's first element rather than the
  /// element out of the deque, so that put() counts it until it is done.
  void run() {
    setDirect(descriptor, true);
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return isEnding || !full.empty(); });
      // Only when all that was put before finish() has been taken.
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
        // Only the first failure gets here, since nothing is written after it.
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

// Files shorter than a buffer never start a thread: finish() writes them
// itself.
FileWriter::FileWriter(std::string path, int descriptor,
                       const std::atomic<bool> *isAwaited)
    : path(std::move(path)), descriptor(descriptor), isAwaited(isAwaited),
      hash(std::make_unique<Hash>()) {
  XXH3_64bits_reset(&hash->state);
}

// The thread has the descriptor and its own copy of the path, and no pointer to
// this object, so that a writer can be moved while it is at work.
FileWriter::FileWriter(FileWriter &&other) noexcept
    : path(std::move(other.path)),
      descriptor(std::exchange(other.descriptor, -1)),
      isAwaited(other.isAwaited), written(other.written),
      buffer(std::move(other.buffer)), hash(std::move(other.hash)),
      thread(std::move(other.thread)) {}

FileWriter::~FileWriter() {
  // The thread has to end first: it would write to a descriptor that is closed,
  // or to the file that got its number next.
  thread.reset();
  if (descriptor >= 0)
    close(descriptor);
}

Result<FileWriter> FileWriter::create(const std::string &path,
                                      const std::atomic<bool> *isAwaited) {
  // Without O_TRUNC: an old file keeps its pages, which is why spare folders
  // are kept. finish() cuts off what is left of it.
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
    // At the first full buffer, which says that the file is a long one.
    if (!thread)
      thread = std::make_unique<Thread>(descriptor, path, isAwaited);
    PLAIT_RETURN_IF_ERROR(flush());
  }
  return Status::success();
}

/// Gives what has been collected to the thread, or writes it where there is
/// none. The checksum is of what was meant to be written, and computed before
/// it is: a file that the disk or memory corrupts afterwards does not verify.
Status FileWriter::flush() {
  XXH3_64bits_update(&hash->state, buffer.data(), buffer.size());
  written += buffer.size();
  if (thread)
    return thread->put(buffer);
  return writeAll(descriptor, path, std::exchange(buffer, {}));
}

/// The thread has to end first: what it failed at is this call's to report. A
/// file that was written over may have been longer, so its length is set.
Result<uint64_t> FileWriter::finish() {
  PLAIT_RETURN_IF_ERROR(flush());
  if (thread)
    PLAIT_RETURN_IF_ERROR(thread->finish());
  if (ftruncate(descriptor, written) != 0)
    return failTo("write", path, errno);
  return XXH3_64bits_digest(&hash->state);
}

/// fsync() before close(), which says nothing of what writing back meets later.
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

// Atomic, and refuses to replace a folder that has something in it.
static Status renameFolder(const std::string &from, const std::string &to) {
  if (rename(from.c_str(), to.c_str()) != 0)
    return failTo("rename", from + "' to '" + to, errno);
  return Status::success();
}

/// Zeros in front make the order of names that of steps, up to 99,999,999;
/// beyond that names get longer, and are still read.
static std::string folderName(uint64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "%s%08llu", prefix,
                static_cast<unsigned long long>(step));
  return name;
}

/// Reads what folderName() gives and nothing else: comparing with it refuses
/// numbers with too many zeros, so that no two folders are of one step.
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

/// Goes by the names alone. That a folder is complete follows from its name;
/// that its content is undamaged is what CheckpointReader::verify() finds out.
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

/// Removes what a run that was killed has left. Has to be called by who has the
/// directory for himself: a folder that another run is writing looks the same.
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
  // Collected first: what an iterator does while entries go is unspecified.
  std::error_code ignored; // what stays is in no index
  std::vector<fs::path> others;
  for (const fs::directory_entry &entry :
       fs::directory_iterator(folder, ignored))
    if (!files.contains(entry.path().filename()))
      others.push_back(entry.path());
  for (const fs::path &path : others)
    fs::remove_all(path, ignored);
}

/// A spare folder becomes the new one by one rename, with its files in it,
/// which FileWriter writes over. keepAsSpare() has synced that it lost the name
/// of a checkpoint: writing over files under that name would damage one.
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

/// Makes the checkpoint appear. The files' content is on the disk when this is
/// called; what is missing is their names.
/// 1. Sync the folder, so that the names of its files are on the disk.
/// 2. Rename it, at which instant it becomes a checkpoint for every reader.
/// 3. Sync the directory, so that the new name survives a crash. Where this
///    fails the checkpoint is there all the same, and nobody counts on it.
Status CheckpointStore::commit(uint64_t step) const {
  PLAIT_RETURN_IF_ERROR(syncDirectory(partialPathOf(step)));
  PLAIT_RETURN_IF_ERROR(renameFolder(partialPathOf(step), pathOf(step)));
  return syncDirectory(directory);
}

/// Best effort: what stays has a partial name, and removeUnfinished() of the
/// next run finds it.
void CheckpointStore::abandon(uint64_t step) const {
  std::error_code ignored; // the next run tries again
  fs::remove_all(partialPathOf(step), ignored);
}

/// Begins with the oldest, so that what a crash leaves are the newest ones.
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

/// There is at most one spare folder: the one before makes room first.
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

/// Renames first: removing takes many calls, and a folder that lacks files must
/// not be called a checkpoint in between.
Status CheckpointStore::remove(uint64_t step) const {
  PLAIT_RETURN_IF_ERROR(renameFolder(pathOf(step), partialPathOf(step)));
  abandon(step);
  return Status::success();
}

/// Keeps the content for whoever wants to know what happened to it. A damaged
/// folder of an earlier time has to go, since rename() does not replace it.
Status CheckpointStore::setAside(uint64_t step) const {
  std::error_code ignored;
  fs::remove_all(pathOf(step) + damaged, ignored);
  return renameFolder(pathOf(step), pathOf(step) + damaged);
}

bool runtime::wasRemoved(const std::string &checkpoint) {
  std::error_code error; // what cannot be seen is there
  return !fs::exists(checkpoint, error) && !error;
}

/// A path that has an index is taken as one checkpoint, whatever its name, so
/// that a folder that was copied or renamed can be resumed. Its step is in the
/// index; the 0 here is never compared with others.
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
