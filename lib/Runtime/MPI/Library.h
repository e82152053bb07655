//===- Library.h - Interface to libraries of messages -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// MPI, and UCX where no launcher of MPI has started the processes, behind an
// interface that lives in a module for each (MpiModule.cpp, UcxModule.cpp). One
// is opened where a launcher has started several processes: nobody else needs
// these libraries to be installed, or waits for them to load. The modules use
// nothing of the runtime but this header.
//
// All calls from start() on come from one thread, which is all that any MPI
// allows (MPI_THREAD_FUNNELED).
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_MPI_LIBRARY_H
#define PLAIT_LIB_RUNTIME_MPI_LIBRARY_H

#include "plait/Support/Status.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

namespace plait::runtime {

/// Memory that is sent or received: `planes` times `rows` times `bytes` bytes
/// in a row, distances in bytes. Both ends of a message have equally many
/// bytes, not necessarily in the same form.
struct Region {
  std::byte *begin = nullptr;
  int64_t bytes = 0;
  int64_t rows = 1, rowStride = 0;
  int64_t planes = 1, planeStride = 0;
};

/// Messages of different channels do not meet; within one, those of the same
/// two processes and tag arrive in order.
enum class MpiChannel : uint8_t { Control, Collectives, Messages, Checkpoints };
constexpr size_t mpiChannels = 4;

struct MpiTransfer {
  /// The last two are calls of all processes, in the same order.
  enum class Kind : uint8_t { Send, Receive, AllGather, Broadcast };

  Kind kind;
  MpiChannel channel = MpiChannel::Control;
  uint32_t peer = 0; // of Send and Receive, as is the tag
  uint32_t tag = 0;  // at most MpiLibrary::World::largestTag
  Region region;     // what goes out or comes in; of AllGather contiguous
  // Of AllGather: where the regions of all processes go, one after the other.
  std::byte *all = nullptr;
};

class MpiLibrary {
public:
  virtual ~MpiLibrary() = default;

  /// All processes of the run. Those of a host have consecutive indices.
  struct World {
    uint32_t index = 0, count = 1;
    uint32_t localIndex = 0; // on this host
    uint32_t largestTag = 0;
    uint32_t processors = 0; // that those of this host may use together
    // The process behind this one on its host, behind the last one the first,
    // and the system's number of it, as this process sees it; 0: it is unknown.
    uint32_t neighbour = 0;
    pid_t neighbourId = 0;
    // Whether the library itself says so where a process has ended.
    bool tellsOfEnds = false;
    std::string host;
    std::vector<uint32_t> hosts;        // by process, numbers from 0
    std::vector<std::string> hostNames; // by these numbers
  };

  /// Joins the other processes.
  virtual Result<World> start() = 0;
  /// Begins a transfer; poll() will name `cookie` when it is complete.
  virtual Status begin(const MpiTransfer &transfer, void *cookie) = 0;
  /// Gives MPI time, and adds the cookies of what is complete to `finished`.
  virtual Status poll(std::vector<void *> &finished) = 0;

  /// The notices that a process gives of itself beside all transfers: to all
  /// that it fails, to one that fails that it is there.
  struct Notices {
    std::vector<uint32_t> failed, answered; // processes
  };

  /// Tells all others that this process fails; returns at once.
  virtual void warn() = 0;
  /// Tells one that has warned that this process has heard it; likewise.
  virtual void answer(uint32_t peer) = 0;
  /// Adds what has come since the last call to `notices`.
  virtual Status readNotices(Notices &notices) = 0;

  /// Takes leave of the others, and waits for them.
  virtual void finish() = 0;
};

/// A library whose processes have met by other means (Rendezvous.h). Sends and
/// receives only. Who can reach its ports is trusted.
class MetLibrary : public MpiLibrary {
public:
  /// Opens the end of this process, at the network interface that has the
  /// numeric `address`, and returns what the others reach it by: any bytes.
  virtual Result<std::string> open(const std::string &address) = 0;
  /// Has to be called before start(), with what open() has returned in each
  /// process. This one will talk to `peers`, which name it as well; others may
  /// be added later. The library knows its largestTag.
  virtual Status connect(World world, std::vector<std::string> addresses,
                         std::span<const uint32_t> peers) = 0;
};

/// The functions that the modules export.
using OpenMpiLibrary = MpiLibrary *();
constexpr char openMpiLibraryName[] = "plaitOpenMpiLibrary";
using OpenUcxLibrary = MetLibrary *();
constexpr char openUcxLibraryName[] = "plaitOpenUcxLibrary";

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_MPI_LIBRARY_H
