//===- Files.h - Reading and replacing files --------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What every reader and writer of plait shares: read-only mappings, and output
// files that appear under their name only when they are complete.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_FILES_H
#define PLAIT_PLAN_FILES_H

#include "plait/Support/Status.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

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

private:
  MappedFile(const uint8_t *data, size_t length) : data(data), length(length) {}

  const uint8_t *data = nullptr;
  size_t length = 0;
};

/// A file being written aside: it lives under a temporary name beside `path`
/// until commit() renames it. Destruction without commit() removes it, so that
/// a failure never leaves a partial file behind.
class OutputFile {
public:
  static Result<OutputFile> create(const std::string &path);

  OutputFile(OutputFile &&other) noexcept;
  OutputFile &operator=(OutputFile &&) = delete;
  ~OutputFile();

  /// Writes at the absolute position `offset`. Threads may write disjoint
  /// ranges at the same time.
  Status writeAt(uint64_t offset, std::span<const uint8_t> bytes);

  /// Sets the size; bytes never written read as zero.
  Status resize(uint64_t bytes);

  /// Gives the file its final name. Nothing may be written afterwards.
  Status commit();

private:
  OutputFile(std::string path, std::string temporary, int descriptor)
      : path(std::move(path)), temporary(std::move(temporary)),
        descriptor(descriptor) {}

  std::string path;
  std::string temporary;
  int descriptor = -1;
};

/// Writes `text` to `path`, aside first and then renamed.
Status writeTextFile(const std::string &path, std::string_view text);

} // namespace plait

#endif // PLAIT_PLAN_FILES_H
