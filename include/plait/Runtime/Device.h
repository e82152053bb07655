//===- Device.h - Device of a rank ------------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One rank's memory and the five things that happen to it. All memory a plan
// uses is one arena, and for some plans a part of the host's memory, allocated
// when the device is made; the compiler has placed everything in them. Calls
// trust the plan checker: indices and ranges are not checked again.
//
// Calls happen in the order in which they are made. On a GPU most of them only
// enqueue work and return; Communicator::finish() waits for it. A call that
// fails may be reported by a later one.
//
// A GPU does several things at once, each in a stream of its own: what is
// enqueued in one stream happens in order, and streams wait for each other by
// events. The calls of a Device are stream 0, but for copies to and from the
// host and some kernels; streamOf(), Group::streamNumber() and
// Communicator::streamOf() name the others. A CPU's device has stream 0 only:
// who has more gives each a thread (see Rank.h).
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_DEVICE_H
#define PLAIT_RUNTIME_DEVICE_H

#include "plait/Configuration/SiteCompression.h"
#include "plait/Plan/Plan_generated.h"
#include "plait/Support/MemoryPlaces.h"
#include "plait/Support/Status.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace plait::runtime {

namespace fb = plan::fb;

/// The addresses of the tensors of a GemmStep. Null: the step has none.
struct GemmOperands {
  const std::byte *a, *b;
  std::byte *c;
  const std::byte *bias = nullptr;
  std::byte *geluInput = nullptr; // written forward, read backward
};

/// The addresses of the tensors of a GroupedGemmStep.
struct GroupedGemmOperands {
  const std::byte *a, *b, *ids;
  std::byte *c;
};

/// The addresses of the tensors of an AttentionStep. Null: the step has none.
struct AttentionOperands {
  const std::byte *q, *k, *v;
  std::byte *o, *stats;                // written forward, read backward
  const std::byte *gradient = nullptr; // of o
  std::byte *dq = nullptr, *dk = nullptr, *dv = nullptr;
  const std::byte *starts = nullptr; // of documents
  const std::byte *dropoutKeys = nullptr;
  const std::byte *sinks = nullptr; // of query heads
};

/// The addresses of the tensors of an OuterStep, and the numbers of its rule.
/// Null: the step has none.
struct OuterOperands {
  std::byte *value, *anchor, *momentum, *copy;
  const std::byte *others;
  std::byte *mixed;
  float sites, rate, beta;
  float weight;  // of what has been received
  bool isFirst;  // exchange of an agreement
  uint32_t drop; // on either side of a mean
  float keep;    // of its own weights where it takes others
  std::byte *correction = nullptr;
  float learningRate = 0;     // of the step
  float every = 1;            // steps from one agreement to the next
  std::byte *error = nullptr; // of messages; null: none is kept
  const SiteCompression *compress = nullptr;
  double radius = 0;   // of what a site has moved by
  uint32_t copies = 1; // of each square
};

/// The place where a rank's block of an AttentionStep begins in the whole: what
/// its query 0 is among the keys, and its key head 0 among all, which dropout
/// asks for.
struct AttentionBegin {
  int64_t query = 0, group = 0;
};

/// Used by the thread of its rank only, but for read(): see
/// Executor::holdUpdates().
class Device {
public:
  virtual ~Device() = default;

  /// Called once by the thread that will make all further calls.
  virtual Status attachThread() = 0;

  /// The first byte of what the rank has of a place, aligned to a page; of
  /// those that the plan has no bytes of, any. All starts out as zeros. The
  /// arena is in device memory.
  virtual std::byte *memory(MemoryPlace place) = 0;
  std::byte *arena() { return memory(MemoryPlace::Arena); }

  /// Copies `bytes` to `offset`, which may be in any place. The caller's memory
  /// may be reused on return.
  virtual Status write(uint64_t offset, std::span<const std::byte> bytes) = 0;
  /// Copies from `offset`, which may be in any place; done on return.
  virtual Status read(uint64_t offset, std::span<std::byte> bytes) = 0;

  /// Does at load time all that a GEMM of this shape needs; the number is
  /// for gemm().
  virtual Result<uint32_t> prepareGemm(const fb::GemmStep &step) = 0;
  /// The same for an attention; the number is for attention(). Fails where this
  /// device cannot compute it, or not in the memory that the plan has for it.
  virtual Result<uint32_t> prepareAttention(const fb::AttentionStep &step,
                                            AttentionBegin begin) = 0;

  /// The same for a grouped GEMM on a rank whose first expert is `first`; the
  /// number is for groupedGemm(). Fails where this device has none.
  virtual Result<uint32_t> prepareGroupedGemm(const fb::GroupedGemmStep &step,
                                              int64_t first) {
    return Status::failure("this device computes no grouped GEMMs");
  }

  // What follows is called during a step and allocates nothing of its own.

  /// The kernel of `step` with its operands looked up. In `stream`, which is 0
  /// where the device has no others.
  virtual Status kernel(const fb::KernelStep &step, std::byte *const *args,
                        const int64_t *scalars, uint32_t stream) = 0;
  /// C = A B and the step's epilogue, or C += A B with `add`.
  virtual Status gemm(uint32_t prepared, const GemmOperands &operands,
                      bool add) = 0;
  virtual Status attention(uint32_t prepared,
                           const AttentionOperands &operands) = 0;
  /// Adds to C with `add`. Called with numbers of prepareGroupedGemm() only.
  virtual Status groupedGemm(uint32_t prepared,
                             const GroupedGemmOperands &operands, bool add) {
    return Status::failure("this device computes no grouped GEMMs");
  }
  virtual Status outer(const fb::OuterStep &step,
                       const OuterOperands &operands) {
    return Status::failure("this device computes nothing between sites");
  }
  /// Copies `bytes` bytes in stream streamOf(kind).
  virtual Status copy(std::byte *target, const std::byte *source,
                      uint64_t bytes, fb::CopyKind kind) = 0;
  virtual Status fillZero(std::byte *target, uint64_t bytes) = 0;

  // Streams. Events are numbered from 0.

  /// Which has the copies of a kind.
  virtual uint32_t streamOf(fb::CopyKind kind) const { return 0; }
  /// Makes room, at load time, for events below `count`.
  virtual Status makeEvents(uint32_t count) { return Status::success(); }
  /// Event `event` is all that `stream` has been given so far; it may be
  /// recorded again, which does not change what waits for it already.
  virtual Status record(uint32_t event, uint32_t stream) {
    return Status::success();
  }
  /// Lets what `stream` is given from now on happen after `event`.
  virtual Status wait(uint32_t event, uint32_t stream) {
    return Status::success();
  }
  /// All other streams wait for what stream 0 has been given so far.
  virtual Status fork() { return Status::success(); }
  /// Stream 0 waits for what all other streams have been given so far.
  virtual Status join() { return Status::success(); }

  // Steps. The next one may be enqueued before the last one is waited for: then
  // two are ended and not collected, the most there may be, and the next call
  // is Communicator::finish().

  /// Ends a step. What is at `offset` by then, 256 bytes at most, is for
  /// collect().
  virtual Status endStep(uint64_t offset, uint64_t bytes) {
    return Status::success();
  }
  /// Copies what the oldest step that was ended has left at `offset`, after
  /// Communicator::finish(), which waits for that step.
  virtual Status collect(uint64_t offset, std::span<std::byte> bytes) {
    return read(offset, bytes);
  }
  /// The bytes that write() takes while a step that was ended is not done; 0:
  /// the device runs no step ahead.
  virtual uint64_t roomAhead() const { return 0; }

  // Time. A device that works later than it is called, and whose steps are
  // measured, is asked for stamps, numbered from 0.

  virtual bool runsLater() const { return false; }
  /// Makes room, at load time, for stamps below `count`.
  virtual Status makeStamps(uint32_t count) { return Status::success(); }
  /// Stamp `index` is when `stream` has done what it has been given so far.
  virtual Status stamp(uint32_t index, uint32_t stream) {
    return Status::success();
  }
  /// After Communicator::finish().
  virtual Result<std::chrono::steady_clock::time_point>
  readStamp(uint32_t index) {
    return std::chrono::steady_clock::time_point();
  }
};

/// One CPU device for each of `ranks` of `plan`, each with `threads` threads
/// (at least 1). Maps the code of the plan; fails when this machine lacks a
/// feature that the code needs, or memory for the arenas.
Result<std::vector<std::unique_ptr<Device>>>
createCpuDevices(const fb::Plan &plan, std::span<const uint32_t> ranks,
                 unsigned threads);

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_DEVICE_H
