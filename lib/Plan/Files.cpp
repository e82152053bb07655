//===- Files.cpp - Reading and replacing files ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Files.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace plait;

Result<MappedFile> MappedFile::open(const std::string &path,
                                    const std::string &what) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    return fail("cannot open ", what, " '", path, "': ", std::strerror(errno));
  struct stat info;
  if (fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(descriptor);
    return fail("cannot read ", what, " '", path, "': not a regular file");
  }
  size_t length = static_cast<size_t>(info.st_size);
  // An empty mapping is an error of mmap, but an empty file is not ours.
  void *data = nullptr;
  if (length)
    data = mmap(nullptr, length, PROT_READ, MAP_PRIVATE, descriptor, 0);
  int error = errno;
  close(descriptor);
  if (data == MAP_FAILED)
    return fail("cannot map ", what, " '", path, "': ", std::strerror(error));
  return MappedFile(static_cast<const uint8_t *>(data), length);
}

MappedFile::MappedFile(MappedFile &&other) noexcept
    : data(std::exchange(other.data, nullptr)),
      length(std::exchange(other.length, 0)) {}

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
  std::swap(data, other.data);
  std::swap(length, other.length);
  return *this;
}

MappedFile::~MappedFile() {
  if (data)
    munmap(const_cast<uint8_t *>(data), length);
}

Result<OutputFile> OutputFile::create(const std::string &path) {
  std::string temporary = path + ".XXXXXX";
  int descriptor = mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor < 0)
    return fail("cannot write '", path, "': ", std::strerror(errno));
  // mkostemp creates the file for its owner alone; outputs follow the umask.
  mode_t mask = umask(0);
  umask(mask);
  fchmod(descriptor, 0666 & ~mask);
  return OutputFile(path, std::move(temporary), descriptor);
}

OutputFile::OutputFile(OutputFile &&other) noexcept
    : path(std::move(other.path)), temporary(std::move(other.temporary)),
      descriptor(std::exchange(other.descriptor, -1)) {}

OutputFile::~OutputFile() {
  if (descriptor < 0)
    return;
  close(descriptor);
  unlink(temporary.c_str());
}

Status OutputFile::writeAt(uint64_t offset, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    ssize_t written = pwrite(descriptor, bytes.data(), bytes.size(),
                             static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return fail("cannot write '", path, "': ", std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return Status::success();
}

Status OutputFile::resize(uint64_t bytes) {
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0)
    return fail("cannot write '", path, "': ", std::strerror(errno));
  return Status::success();
}

Status OutputFile::commit() {
  bool closed = close(std::exchange(descriptor, -1)) == 0;
  if (closed && rename(temporary.c_str(), path.c_str()) == 0)
    return Status::success();
  int error = errno;
  unlink(temporary.c_str());
  return fail("cannot write '", path, "': ", std::strerror(error));
}

Status plait::writeTextFile(const std::string &path, std::string_view text) {
  Result<OutputFile> file = OutputFile::create(path);
  if (!file.ok())
    return file.status();
  PLAIT_RETURN_IF_ERROR(file->writeAt(
      0, {reinterpret_cast<const uint8_t *>(text.data()), text.size()}));
  return file->commit();
}
