//===- Store.h - Folders of checkpoints -------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How checkpoints appear and go. A folder has its name, step-00000120, from
// when everything in it is on the disk until it is given another one to be
// removed; under other names, step-00000120.partial, nobody reads it.
//
// In memory the last one that was given up may wait as step-00000100.spare for
// the next one to be written over it: pages that a file has cost a tenth of new
// ones. Files on disks do without the page cache instead.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CHECKPOINT_STORE_H
#define PLAIT_LIB_RUNTIME_CHECKPOINT_STORE_H

#include "plait/Support/Status.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace plait::runtime {

/// The name of the index in every checkpoint's folder.
constexpr char indexName[] = "index.json";

/// Allocates pages, which devices read themselves.
template <typename T> struct PageAllocator {
  using value_type = T;
  static constexpr std::align_val_t alignment{4096};

  PageAllocator() = default;
  template <typename Other> PageAllocator(const PageAllocator<Other> &) {}

  T *allocate(size_t count) {
    return static_cast<T *>(::operator new(count * sizeof(T), alignment));
  }
  void deallocate(T *values, size_t) { ::operator delete(values, alignment); }
  bool operator==(const PageAllocator &) const = default;
};

/// A file that is written from its beginning to its end. The caller computes
/// the checksum, a thread of the file's own gives to the system what has one.
///
/// All of a long file but its end goes past the page cache, where the file
/// system can: finding pages and copying into them takes several times as much
/// of the processors as the devices' own reading does (FastPersist, Wang et al.
/// 2024). That is as fast as the disk, so who cannot wait for it gets the rest
/// into the page cache, which is as fast as memory.
class FileWriter {
public:
  /// Writes over a file that is there. `isAwaited` outlives the writer; null:
  /// nobody waits.
  static Result<FileWriter>
  create(const std::string &path, const std::atomic<bool> *isAwaited = nullptr);
  FileWriter(FileWriter &&other) noexcept;
  FileWriter &operator=(FileWriter &&) = delete;
  ~FileWriter();

  /// May fail for what was appended before.
  Status append(std::span<const std::byte> bytes);

  /// Returns the bytes that have been appended so far.
  uint64_t bytes() const { return written + buffer.size(); }

  /// Gives all of it to the system, and ends the file there; nothing may be
  /// appended afterwards. Returns the XXH3-64 of it.
  Result<uint64_t> finish();

  /// Returns when what finish() gave to the system is on the disk.
  Status sync();

private:
  struct Hash;
  class Thread;

  using Buffer = std::vector<std::byte, PageAllocator<std::byte>>;

  FileWriter(std::string path, int descriptor,
             const std::atomic<bool> *isAwaited);
  Status flush();

  std::string path;
  int descriptor;
  const std::atomic<bool> *isAwaited;
  uint64_t written = 0;
  Buffer buffer;
  std::unique_ptr<Hash> hash;     // a state of the library
  std::unique_ptr<Thread> thread; // from the first full buffer to finish()
};

/// The checkpoints in a directory.
class CheckpointStore {
public:
  struct Entry {
    uint64_t step;
    std::string path;
  };

  explicit CheckpointStore(std::string directory)
      : directory(std::move(directory)) {}

  /// Complete ones, newest first. Fails where there is no such directory.
  Result<std::vector<Entry>> list() const;

  /// Makes the directory where there is none.
  Status make() const;
  /// Removes what nobody reads.
  Status removeUnfinished() const;

  const std::string &path() const { return directory; }
  std::string pathOf(uint64_t step) const;
  std::string partialPathOf(uint64_t step) const;

  /// Makes a folder under the partial name, in which there may be old ones of
  /// `files`, to be written over.
  Status begin(uint64_t step, const std::set<std::string> &files) const;
  /// Gives that folder, whose files are on the disk, its name.
  Status commit(uint64_t step) const;
  /// Removes it.
  void abandon(uint64_t step) const;

  /// Removes one; not a folder that lacks files for a while.
  Status remove(uint64_t step) const;
  /// Removes all but the `keep` newest; the last that is given up may stay as
  /// the spare one.
  Status prune(uint64_t keep, bool keepsSpare) const;
  /// Removes that.
  void removeSpare() const;

  /// Lets a damaged one be none: it is renamed to step-00000120.damaged.
  Status setAside(uint64_t step) const;

private:
  Status keepAsSpare(uint64_t step) const;

  std::string directory;
};

/// Whether a checkpoint that could not be read has been removed meanwhile, by
/// the run that writes to its directory. Then the reader looks for the newest
/// again, so many times.
bool wasRemoved(const std::string &checkpoint);
constexpr int mostLooks = 20;

/// The checkpoints of `path`, newest first: it is a directory of them, or one
/// itself. None where there are none; fails where there is no directory.
Result<std::vector<CheckpointStore::Entry>>
findCheckpoints(const std::string &path);
/// That there are none.
Status failToFind(const std::string &path);

/// The step of a folder's name, if it is that of a complete checkpoint.
bool parseFolderName(const std::string &name, uint64_t &step);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CHECKPOINT_STORE_H
