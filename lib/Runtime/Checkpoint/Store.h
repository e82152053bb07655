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
// Of old checkpoints the last that was given up waits as step-00000100.spare, and
// the next one is written over it: pages and blocks that a file has cost a third of
// new ones.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CHECKPOINT_STORE_H
#define PLAIT_LIB_RUNTIME_CHECKPOINT_STORE_H

#include "plait/Support/Status.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace plait::runtime {

/// Of every checkpoint, in its folder.
constexpr char indexName[] = "index.json";

/// A file that is written from its beginning to its end. The caller computes the
/// checksum, a thread of the file's own gives to the system what has one: two
/// threads do not make a file system write to one file faster, but each takes
/// about half the time.
class FileWriter {
public:
  /// Writes over a file that is there.
  static Result<FileWriter> create(const std::string &path);
  FileWriter(FileWriter &&other) noexcept;
  FileWriter &operator=(FileWriter &&) = delete;
  ~FileWriter();

  /// May fail for what was appended before.
  Status append(std::span<const std::byte> bytes);

  /// Of what has been appended so far.
  uint64_t bytes() const { return written + buffer.size(); }

  /// Gives all of it to the system, and ends the file there; nothing may be
  /// appended afterwards. Returns the XXH3-64 of it.
  Result<uint64_t> finish();

  /// Returns when what finish() gave to the system is on the disk.
  Status sync();

private:
  struct Hash;
  class Thread;

  FileWriter(std::string path, int descriptor);
  Status flush();

  std::string path;
  int descriptor;
  uint64_t written = 0;
  std::vector<std::byte> buffer;
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
  /// Removes all but the `keep` newest, of which the last stays as the spare one.
  Status prune(uint64_t keep) const;
  /// Removes that.
  void removeSpare() const;

  /// Lets a damaged one be none: it is renamed to step-00000120.damaged.
  Status setAside(uint64_t step) const;

private:
  Status keepAsSpare(uint64_t step) const;

  std::string directory;
};

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
