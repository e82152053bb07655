//===- Place.cpp - Directories of checkpoints -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What differs between checkpoints on the disk that all share and those in the
// memory of each host. On the disk a file is safe when it is synced. In memory
// it is when another host has it, too: each process sends its files to its
// neighbour and writes down what its givers send, as the same files in its own
// host's folder.
//
// No sizes or names are sent, as both ends know them from what all processes
// have told (StoredFiles). So a sender has to send exactly that many bytes and
// a receiver to take them, whatever else fails on either side.
//
//===----------------------------------------------------------------------===//

#include "Place.h"

#include "Blocks.h"
#include "Core/Processes.h"
#include "MPI/Engine.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <future>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

/// The bytes that are sent at once: few, since steps send through the same
/// engine.
static constexpr size_t blockBytes = 1 << 18;

/// One after the other: the disk is the same, and nobody waits for it.
Status DiskPlace::secure(std::vector<WrittenFile> &written) {
  for (WrittenFile &file : written)
    PLAIT_RETURN_IF_ERROR(file.file.sync());
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Sends this process's files to the neighbour while it receives those of its
/// givers. The two run at once because hosts form a ring: if all sent first,
/// all could wait for a receiver. Both finish before an error returns.
Status HostFolderPlace::spread(uint64_t step, const StoredFiles &all) {
  auto sent = std::async(std::launch::async, [&] { return send(step, all); });
  Status result = Status::success();
  for (uint32_t giver : groups.giversOf(groups.process()))
    if (Status status = receive(step, all, giver); !status.ok())
      result = status;
  Status status = sent.get();
  return status.ok() ? result : status;
}

void HostFolderPlace::conclude(uint64_t step) {
  // Only a supervisor misses it.
  (void)ReplicaMark{folder.id, step}.write(checkpoints);
}

/// The files of the ranks of `process`, by ascending rank: sender and receiver
/// derive the same order from it and exchange no names. A rank that stores
/// nothing has none.
std::vector<StoredFile> HostFolderPlace::filesOf(uint32_t process,
                                                 const StoredFiles &all) const {
  std::vector<StoredFile> files;
  const RankSpread &spread = processes->spread();
  uint32_t end = spread.firstOf(process + 1);
  for (uint32_t rank = spread.firstOf(process); rank < end; ++rank)
    if (auto file = all.find(rankFileName(rank)); file != all.end())
      files.push_back(file->second);
  return files;
}

/// Calls `use(block)` for the parts of a file of `bytes` bytes.
template <typename Use> static Status forEachBlock(uint64_t bytes, Use use) {
  std::vector<std::byte> block(std::min<uint64_t>(bytes, blockBytes));
  for (uint64_t done = 0; done < bytes; done += block.size()) {
    block.resize(std::min<uint64_t>(bytes - done, blockBytes));
    PLAIT_RETURN_IF_ERROR(use(done, std::span(block)));
  }
  return Status::success();
}

/// The neighbour waits for as many bytes as it knows of. What cannot be read is
/// sent as zeros, whose checksum is another one.
Status HostFolderPlace::send(uint64_t step, const StoredFiles &all) const {
  uint32_t peer = groups.neighbourOf(groups.process());
  Status result = Status::success();
  for (const StoredFile &file : filesOf(groups.process(), all)) {
    std::string path = store.partialPathOf(step) + "/" + file.name;
    int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
      result = fail("cannot open '", path, "': ", std::strerror(errno));
    auto sendBlock = [&](uint64_t done, std::span<std::byte> block) {
      ssize_t count = pread(descriptor, block.data(), block.size(), done);
      if (count != ssize_t(block.size())) {
        if (descriptor >= 0)
          result =
              fail("cannot read '", path,
                   "': ", count < 0 ? std::strerror(errno) : "it is too short");
        std::fill(block.begin(), block.end(), std::byte(0));
      }
      return processes->engine()->run(
          {transferOf(MpiTransfer::Kind::Send, peer, 0, block)},
          MpiEngine::forEver);
    };
    Status sent = forEachBlock(file.bytes, sendBlock);
    if (descriptor >= 0)
      close(descriptor);
    PLAIT_RETURN_IF_ERROR(std::move(sent));
  }
  return result;
}

/// Takes all that the giver sends, even where it cannot be written.
Status HostFolderPlace::receive(uint64_t step, const StoredFiles &all,
                                uint32_t giver) const {
  Status result = Status::success();
  auto note = [&](const Status &status) {
    if (result.ok() && !status.ok())
      result = status;
  };
  for (const StoredFile &file : filesOf(giver, all)) {
    std::string path = store.partialPathOf(step) + "/" + file.name;
    auto out = FileWriter::create(path);
    note(out.status());
    PLAIT_RETURN_IF_ERROR(
        forEachBlock(file.bytes, [&](uint64_t, std::span<std::byte> block) {
          PLAIT_RETURN_IF_ERROR(processes->engine()->run(
              {transferOf(MpiTransfer::Kind::Receive, giver, 0, block)},
              MpiEngine::forEver));
          if (out.ok() && result.ok())
            note(out->append(block));
          return Status::success();
        }));
    if (!result.ok())
      continue;
    auto hash = out->finish();
    note(hash.status());
    if (hash.ok() && *hash != file.hash)
      note(fail("'", path, "' has arrived with another checksum"));
  }
  return result;
}
