//===- Fuzz.h - What the fuzz targets share ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A target gives one reader of outside data any bytes. Whatever they are, it
// must return: what it accepts can be used, and for the rest there is a message
// that says why.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_FUZZ_FUZZ_H
#define PLAIT_TEST_FUZZ_FUZZ_H

#include "plait/Support/Status.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace plait::fuzz {

/// A file in memory.
class MemoryFile {
public:
  explicit MemoryFile(std::span<const uint8_t> bytes)
      : file(memfd_create("fuzz", MFD_CLOEXEC)) {
    if (file < 0 ||
        write(file, bytes.data(), bytes.size()) != ssize_t(bytes.size()))
      std::abort();
  }
  MemoryFile(const MemoryFile &) = delete;
  ~MemoryFile() { close(file); }

  std::string path() const { return "/proc/self/fd/" + std::to_string(file); }

private:
  int file;
};

/// An error says something. It may be of several lines: names that it repeats
/// have what the data gives them.
inline void require(const Status &status) {
  if (!status.ok() && status.message().empty())
    std::abort();
}

} // namespace plait::fuzz

#endif // PLAIT_TEST_FUZZ_FUZZ_H
