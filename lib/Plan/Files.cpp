//===- Files.cpp - Reading and replacing files ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reading by mapping, writing aside and renaming. A reader never sees half of
// an output, and an error or a signal leaves the old file where it was.
// Temporary names are kept in static slots, because a signal handler may
// neither allocate nor lock.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Files.h"

#include "plait/Support/Errno.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace plait;

namespace {

/// A descriptor that is closed at the end of its scope.
class Descriptor {
public:
  explicit Descriptor(int number) : number(number) {}
  Descriptor(Descriptor &&other) noexcept
      : number(std::exchange(other.number, -1)) {}
  ~Descriptor() {
    if (number >= 0)
      close(number);
  }
  int get() const { return number; }

private:
  int number;
};

/// An open file, pipe or device with its kind and size.
struct Input {
  Descriptor descriptor;
  struct stat info;
};

} // namespace

/// The reason of an output that fails, with its code.
static Status failWith(int error) {
  return fail(getWriteCode(error), std::strerror(error));
}

/// A pipe without a writer would be waited for: nothing here blocks.
static Result<Input> openInput(const std::string &path,
                               const std::string &what) {
  Input input = {
      Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), {}};
  if (input.descriptor.get() < 0 ||
      fstat(input.descriptor.get(), &input.info) != 0)
    return fail(Code::CannotRead, "cannot open ", what, " '", path,
                "': ", std::strerror(errno));
  return input;
}

/// Directories can be opened, and devices would be read for ever.
static Result<Input> openRegular(const std::string &path,
                                 const std::string &what) {
  auto input = openInput(path, what);
  if (input.ok() && !S_ISREG(input->info.st_mode))
    return fail(Code::CannotRead, "cannot read ", what, " '", path,
                "': not a regular file");
  return input;
}

Status plait::checkInput(const std::string &path, const std::string &what) {
  return openRegular(path, what).status();
}

/// The descriptor is closed at once: the mapping keeps the file.
Result<MappedFile> MappedFile::open(const std::string &path,
                                    const std::string &what) {
  auto input = openRegular(path, what);
  if (!input.ok())
    return input.status();
  size_t length = static_cast<size_t>(input->info.st_size);
  // An empty mapping is an error of mmap, but an empty file is not ours.
  void *data = nullptr;
  if (length)
    data = mmap(nullptr, length, PROT_READ, MAP_PRIVATE,
                input->descriptor.get(), 0);
  if (data == MAP_FAILED)
    return fail(Code::CannotRead, "cannot map ", what, " '", path,
                "': ", std::strerror(errno));
  return MappedFile(static_cast<const uint8_t *>(data), length);
}

/// Appends what can be read at once; how much, or -1 with errno set.
static ssize_t appendBlock(int descriptor, std::string &text) {
  char block[1 << 16];
  ssize_t count = 0;
  do
    count = ::read(descriptor, block, sizeof(block));
  while (count < 0 && errno == EINTR);
  text.append(block, std::max<ssize_t>(count, 0));
  return count;
}

/// 1. Files have a size.
/// 2. A pipe of which nobody has opened the other end reads as one that has
///    ended. Who writes may be about to start.
/// 3. From then on its end is waited for.
Result<std::string> plait::readText(const std::string &path,
                                    const std::string &what) {
  constexpr size_t most = 64 << 20;
  constexpr int waits = 100, waitMicroseconds = 20000;
  // 1.
  auto input = openInput(path, what);
  if (!input.ok())
    return input.status();
  if (S_ISREG(input->info.st_mode)) {
    auto file = MappedFile::open(path, what);
    if (!file.ok())
      return file.status();
    return std::string(file->bytes().begin(), file->bytes().end());
  }
  // 2.
  std::string text;
  int descriptor = input->descriptor.get();
  bool isPipe = S_ISFIFO(input->info.st_mode);
  ssize_t count = appendBlock(descriptor, text);
  for (int i = 0; isPipe && count == 0 && i < waits; ++i) {
    usleep(waitMicroseconds);
    count = appendBlock(descriptor, text);
  }
  if (isPipe && count == 0)
    return fail(Code::CannotRead, "cannot read ", what, " '", path,
                "': a pipe to which nobody writes");
  // 3.
  bool isAwaited = count < 0 && errno == EAGAIN;
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  while ((count > 0 || isAwaited) && text.size() <= most) {
    count = appendBlock(descriptor, text);
    isAwaited = false;
  }
  if (count < 0)
    return fail(Code::CannotRead, "cannot read ", what, " '", path,
                "': ", std::strerror(errno));
  if (text.size() > most)
    return fail(Code::CannotRead, "cannot read ", what, " '", path,
                "': it is no file and has "
                "more than ",
                most, " bytes");
  return text;
}

/// The source becomes empty, and its destructor does nothing.
MappedFile::MappedFile(MappedFile &&other) noexcept
    : data(std::exchange(other.data, nullptr)),
      length(std::exchange(other.length, 0)) {}

/// Leaves what was mapped here to be unmapped with `other`.
MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
  std::swap(data, other.data);
  std::swap(length, other.length);
  return *this;
}

MappedFile::~MappedFile() {
  if (data)
    munmap(const_cast<uint8_t *>(data), length);
}

/// The mapping is private and read-only, so that dropped pages are read again.
void MappedFile::release() const {
  if (data) // advice: nothing depends on it
    madvise(const_cast<uint8_t *>(data), length, MADV_DONTNEED);
}

/// madvise() wants the beginning of a page.
void MappedFile::prefetch(uint64_t offset, uint64_t count) const {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  uint64_t begin = offset / page * page;
  if (count) // advice: nothing depends on it
    madvise(const_cast<uint8_t *>(data) + begin, offset + count - begin,
            MADV_WILLNEED);
}

//===----------------------------------------------------------------------===//
// Temporary files
//===----------------------------------------------------------------------===//

namespace {

/// A name that a signal handler can read at any time. Free, then Taken while
/// the name is written, then Set: a handler that interrupts takeSlot() sees no
/// half name.
struct Slot {
  enum State : int { Free, Taken, Set };

  std::atomic<int> state = Free;
  char name[PATH_MAX];
};

/// More outputs than are ever written at once. Those beyond are not removed by
/// signals.
constexpr size_t slotCount = 16;
Slot slots[slotCount];
static_assert(std::atomic<int>::is_always_lock_free);

} // namespace

/// Lock-free: several threads may open outputs. `slotCount` is no slot.
static size_t takeSlot(const std::string &name) {
  if (name.size() >= PATH_MAX)
    return slotCount;
  for (size_t i = 0; i < slotCount; ++i) {
    int expected = Slot::Free;
    if (!slots[i].state.compare_exchange_strong(expected, Slot::Taken))
      continue;
    std::memcpy(slots[i].name, name.c_str(), name.size() + 1);
    slots[i].state = Slot::Set;
    return i;
  }
  return slotCount;
}

/// After the file is gone or has its final name.
static void freeSlot(size_t slot) {
  if (slot < slotCount)
    slots[slot].state = Slot::Free;
}

/// The names of other processes are not here: each removes its own.
void plait::removeTemporaryFiles() noexcept {
  for (const Slot &slot : slots)
    if (slot.state == Slot::Set)
      unlink(slot.name);
}

/// Creates the file in the directory of `prefix`, for a file can only be
/// renamed within a file system. O_EXCL: a name that is there is somebody
/// else's, and the next one is tried.
Result<TemporaryFile> TemporaryFile::create(const std::string &prefix,
                                            const std::string &suffix) {
  static std::atomic<unsigned> counter = 0;
  while (true) {
    // Process and count: unique among threads and processes of this host.
    std::string name = prefix + ".tmp-" + std::to_string(getpid()) + "-" +
                       std::to_string(counter++) + suffix;
    // First the slot: a signal may come as soon as there is a file.
    size_t slot = takeSlot(name);
    int descriptor =
        ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0)
      return TemporaryFile(std::move(name), descriptor, slot);
    int error = errno;
    freeSlot(slot);
    if (error != EEXIST)
      return failWith(error);
  }
}

/// An empty name says that there is nothing to remove.
TemporaryFile::TemporaryFile(TemporaryFile &&other) noexcept
    : name(std::exchange(other.name, "")),
      descriptor(std::exchange(other.descriptor, -1)), slot(other.slot) {}

TemporaryFile::~TemporaryFile() {
  if (descriptor >= 0)
    close(descriptor);
  if (name.empty())
    return;
  unlink(name.c_str());
  freeSlot(slot);
}

/// Keeps the name on failure, and the destructor removes the file.
Status TemporaryFile::renameTo(const std::string &target) {
  // Some file systems say only now that the disk is full.
  if (close(std::exchange(descriptor, -1)) != 0 ||
      rename(name.c_str(), target.c_str()) != 0)
    return failWith(errno);
  name.clear();
  freeSlot(slot);
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Outputs
//===----------------------------------------------------------------------===//

/// Whether writing one replaces the other: devices and pipes are not replaced.
static bool isSameFile(const std::string &one, const std::string &other) {
  std::error_code error;
  if (std::filesystem::exists(one, error))
    return std::filesystem::is_regular_file(one, error) &&
           std::filesystem::equivalent(one, other, error);
  auto resolve = [&](const std::string &path) {
    return std::filesystem::weakly_canonical(
        std::filesystem::absolute(path, error), error);
  };
  return resolve(one) == resolve(other);
}

static Status checkPair(const std::pair<std::string, std::string> &output,
                        const std::pair<std::string, std::string> &other) {
  const auto &[option, path] = output;
  if (path.empty() || other.second.empty())
    return Status::success();
  if (isStandardOutput(path) && isStandardOutput(other.second))
    return fail(option, " and ", other.first, " are both standard output");
  if (!isStandardOutput(path) && isSameFile(path, other.second))
    return fail(option, " and ", other.first, " are the same file, '", path,
                "'");
  return Status::success();
}

Status plait::checkOutputs(const NamedPaths &outputs,
                           const NamedPaths &inputs) {
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    for (auto other = output + 1; other != outputs.end(); ++other)
      PLAIT_RETURN_IF_ERROR(checkPair(*output, *other));
    for (const auto &input : inputs)
      PLAIT_RETURN_IF_ERROR(checkPair(*output, input));
  }
  return Status::success();
}

/// Names the path that the user gave, not the one it leads to.
static Status failToWrite(const std::string &path, const Status &reason) {
  return fail(reason.code(), "cannot write '", path, "': ", reason.message());
}

/// `error` is a value of errno.
static Status failToWrite(const std::string &path, int error) {
  return failToWrite(path, failWith(error));
}

/// Returns what `path` leads to after all of its last component's links,
/// whether it exists or not.
static std::string followLinks(std::string path) {
  std::error_code error;
  // As many as the system follows; stat() has said that there are not more.
  for (int i = 0; i < 40; ++i) {
    auto next = std::filesystem::read_symlink(path, error);
    if (error)
      break;
    path = std::filesystem::path(path).parent_path() / next;
  }
  return path;
}

/// Standard output or standard error where they are the file of `info`, else
/// -1: /dev/stdout may be a regular file that others write to as well.
static int findOwnStream(const struct stat &info) {
  for (int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat own;
    if (fstat(stream, &own) == 0 && own.st_dev == info.st_dev &&
        own.st_ino == info.st_ino)
      return stream;
  }
  return -1;
}

/// Streams cannot be written at positions or taken back: what is written goes
/// to memory first, and commit() sends it in one go.
Result<OutputFile> OutputFile::createStream(const std::string &path, int stream,
                                            Content content) {
  if (stream < 0)
    return failToWrite(path, errno);
  // Owns the stream, whatever becomes of the rest.
  OutputFile file(path, -1, stream);
  file.buffer = memfd_create("plait-output", MFD_CLOEXEC);
  if (file.buffer < 0)
    return failToWrite(path, errno);
  if (content == Content::Binary && isatty(stream))
    return failToWrite(path, fail(Code::CannotWrite,
                                  "it is a terminal, and what is written is "
                                  "binary; redirect it or name a file"));
  return file;
}

/// 1. "-", and paths that lead to this program's own output: a stream.
/// 2. Devices and pipes: a stream as well, since a rename would replace them by
///    a file.
/// 3. Regular files, there or not: a temporary file beside what the path leads
///    to, so that a link stays a link.
Result<OutputFile> OutputFile::create(const std::string &path,
                                      Content content) {
  auto duplicate = [](int stream) { return fcntl(stream, F_DUPFD_CLOEXEC, 0); };
  // 1. Standard output.
  if (isStandardOutput(path))
    return createStream(path, duplicate(STDOUT_FILENO), content);
  struct stat info;
  bool exists = stat(path.c_str(), &info) == 0;
  if (!exists && errno != ENOENT)
    return failToWrite(path, errno);
  if (exists && S_ISDIR(info.st_mode))
    return failToWrite(path, EISDIR);
  // A rename would take the file away from whoever reads it.
  if (int own = exists ? findOwnStream(info) : -1; own >= 0)
    return createStream(path, duplicate(own), content);
  // 2. Devices and pipes.
  if (exists && !S_ISREG(info.st_mode))
    return createStream(
        path, ::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC), content);
  // 3. Files.
  std::string target = followLinks(path);
  Result<TemporaryFile> file = TemporaryFile::create(target);
  if (!file.ok())
    return failToWrite(path, file.status());
  if (exists) // what is replaced says who may read it
    fchmod(file->getDescriptor(), info.st_mode & 0777);
  return OutputFile(path, std::move(target), std::move(*file));
}

/// Descriptors move, so that they are closed once.
OutputFile::OutputFile(OutputFile &&other) noexcept
    : path(std::move(other.path)), target(std::move(other.target)),
      file(std::exchange(other.file, std::nullopt)),
      buffer(std::exchange(other.buffer, -1)),
      stream(std::exchange(other.stream, -1)) {}

/// A temporary file that was not committed is removed by its own destructor.
OutputFile::~OutputFile() {
  for (int descriptor : {buffer, stream})
    if (descriptor >= 0)
      close(descriptor);
}

/// Positions are explicit: no two threads share an offset.
Status OutputFile::writeAt(uint64_t offset, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    ssize_t written = pwrite(getDescriptor(), bytes.data(), bytes.size(),
                             static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return failToWrite(path, errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return Status::success();
}

/// Allocates no blocks: what is not written costs none.
Status OutputFile::resize(uint64_t bytes) {
  if (ftruncate(getDescriptor(), static_cast<off_t>(bytes)) != 0)
    return failToWrite(path, errno);
  return Status::success();
}

/// Copies in blocks, from memory; a pipe whose reader has gone fails here.
Status OutputFile::copyToStream() {
  std::vector<char> block(1 << 16);
  for (off_t position = 0;;) {
    ssize_t size = pread(buffer, block.data(), block.size(), position);
    if (size <= 0)
      return size == 0 ? Status::success() : failToWrite(path, errno);
    position += size;
    for (ssize_t done = 0; done < size;) {
      ssize_t written = ::write(stream, block.data() + done, size - done);
      if (written < 0 && errno == EINTR)
        continue;
      if (written < 0)
        return failToWrite(path, errno);
      done += written;
    }
  }
}

/// Nothing is left to remove afterwards.
Status OutputFile::commit() {
  if (!file)
    return copyToStream();
  Status status = file->renameTo(target);
  return status.ok() ? status : failToWrite(path, status);
}

/// A file beside it is made and removed.
Status plait::checkWritable(const std::string &path) {
  std::error_code error;
  bool isOther = std::filesystem::is_other(path, error);
  if (isStandardOutput(path) || isOther)
    return Status::success();
  return OutputFile::create(path).status();
}

/// Replaces it in one piece, so that readers see all of it or the old file.
Status plait::writeTextFile(const std::string &path, std::string_view text) {
  Result<OutputFile> file = OutputFile::create(path);
  if (!file.ok())
    return file.status();
  PLAIT_RETURN_IF_ERROR(file->writeAt(
      0, {reinterpret_cast<const uint8_t *>(text.data()), text.size()}));
  return file->commit();
}
