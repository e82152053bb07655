//===- Files.h - Reading and replacing files --------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What every reader and writer of plait shares: read-only mappings, and outputs
// that appear only when they are complete.
//
// What is read has to be a regular file, which has a size and can be read
// again. Short texts that are read once, by readText(), may come from a pipe as
// well.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_FILES_H
#define PLAIT_PLAN_FILES_H

#include "plait/Support/Status.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plait {

/// A whole file, mapped read-only and private. Movable; unmapped on
/// destruction. Reading is safe from any number of threads. The file must not
/// be truncated by others while it is mapped.
class MappedFile {
public:
  /// Fails when `path` cannot be opened or is not a regular file; `what` names
  /// the file's role in messages, as in "cannot open plan 'x': …".
  static Result<MappedFile> open(const std::string &path,
                                 const std::string &what);

  MappedFile(MappedFile &&other) noexcept;
  MappedFile &operator=(MappedFile &&other) noexcept;
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return {data, length}; }

  /// Gives the memory back that holds what has been read; what is read again is
  /// fetched again.
  void release() const;
  /// Has the system read these bytes, which are in the file, without waiting.
  void prefetch(uint64_t offset, uint64_t count) const;

private:
  MappedFile(const uint8_t *data, size_t length) : data(data), length(length) {}

  const uint8_t *data = nullptr;
  size_t length = 0;
};

/// Fails as MappedFile::open() does, for what a library reads by its name.
Status checkInput(const std::string &path, const std::string &what);

/// A text that is read once, from a file, a pipe or a device. Fails where that
/// is no file and brings more than 64 MiB, or is a pipe to which nobody writes
/// for two seconds.
Result<std::string> readText(const std::string &path, const std::string &what);

/// A new, empty file under a name of its own. It is removed with the object, or
/// when a signal ends the process (see Signals.h).
class TemporaryFile {
public:
  /// Its name begins with `prefix` and ends with `suffix`.
  static Result<TemporaryFile> create(const std::string &prefix,
                                      const std::string &suffix = "");

  TemporaryFile(TemporaryFile &&other) noexcept;
  TemporaryFile &operator=(TemporaryFile &&) = delete;
  ~TemporaryFile();

  const std::string &getName() const { return name; }
  /// Open for reading and writing.
  int getDescriptor() const { return descriptor; }

  /// Closes the file and gives it the name `target`, in the place of what had
  /// it. The object is empty afterwards.
  Status renameTo(const std::string &target);

private:
  TemporaryFile(std::string name, int descriptor, size_t slot)
      : name(std::move(name)), descriptor(descriptor), slot(slot) {}

  std::string name; // empty: nothing to remove
  int descriptor;
  size_t slot; // of what signals remove
};

/// Removes the temporary files that there are. For signal handlers: takes no
/// lock and no memory.
void removeTemporaryFiles() noexcept;

/// Whether `path` means standard output.
inline bool isStandardOutput(const std::string &path) { return path == "-"; }

/// Options, or other names for people, with their paths; an empty one is none.
using NamedPaths = std::vector<std::pair<std::string, std::string>>;

/// Fails where two of `outputs` are standard output or the same file, or where
/// one of them is a file of `inputs`, which is needed once more.
Status checkOutputs(const NamedPaths &outputs, const NamedPaths &inputs = {});

/// An output that is complete or not there: it appears under its path, or goes
/// to where the path leads, with commit(). Destruction without commit() leaves
/// nothing behind.
///
/// A regular file, or one that does not exist yet, is written aside and renamed
/// over; of a link, that is what the link leads to. Devices, pipes, "-" and
/// what standard output or standard error are already are written to.
class OutputFile {
public:
  enum class Content { Text, Binary };

  /// Fails where `path` cannot be written, and for binary content on a
  /// terminal.
  static Result<OutputFile> create(const std::string &path,
                                   Content content = Content::Text);

  OutputFile(OutputFile &&other) noexcept;
  OutputFile &operator=(OutputFile &&) = delete;
  ~OutputFile();

  /// Writes at the absolute position `offset`. Threads may write disjoint
  /// ranges at the same time.
  Status writeAt(uint64_t offset, std::span<const uint8_t> bytes);

  /// Sets the size; bytes never written read as zero.
  Status resize(uint64_t bytes);

  /// Lets the output appear. Nothing may be written afterwards.
  Status commit();

private:
  OutputFile(std::string path, std::string target, TemporaryFile file)
      : path(std::move(path)), target(std::move(target)),
        file(std::move(file)) {}
  OutputFile(std::string path, int buffer, int stream)
      : path(std::move(path)), buffer(buffer), stream(stream) {}

  static Result<OutputFile> createStream(const std::string &path, int stream,
                                         Content content);
  int getDescriptor() const { return file ? file->getDescriptor() : buffer; }
  Status copyToStream();

  std::string path; // as messages show it
  // What is renamed over.
  std::string target;
  std::optional<TemporaryFile> file;
  // What is written to: `stream` gets the content of `buffer`, in memory.
  int buffer = -1;
  int stream = -1;
};

/// Whether OutputFile could write to `path`, for work that takes long before it
/// does. What is no file is not opened, since its reader would see the end.
Status checkWritable(const std::string &path);

/// Writes `text` to `path` as OutputFile does.
Status writeTextFile(const std::string &path, std::string_view text);

} // namespace plait

#endif // PLAIT_PLAN_FILES_H
