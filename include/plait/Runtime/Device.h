//===- Device.h - What executes the steps of one rank -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One rank's memory and the four things that happen to it. All memory a plan
// uses is one arena, allocated when the device is made; the compiler has
// placed everything in it. Calls trust the plan checker: indices and ranges
// are not checked again.
//
// Calls happen in the order in which they are made. On a GPU most of them only
// enqueue work and return; Communicator::finish() waits for it. A call that
// fails may be reported by a later one.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_DEVICE_H
#define PLAIT_RUNTIME_DEVICE_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Support/Status.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace plait::runtime {

namespace fb = plan::fb;

/// Used by the thread of its rank only.
class Device {
public:
  virtual ~Device() = default;

  /// Called once by the thread that will make all further calls.
  virtual Status attachThread() = 0;

  /// The first byte of the arena, in device memory, aligned to a page. The
  /// arena starts out as zeros.
  virtual std::byte *arena() = 0;

  /// Copies host memory to arena offset `offset`. The host memory may be
  /// reused on return.
  virtual Status write(uint64_t offset, std::span<const std::byte> bytes) = 0;
  /// Copies from arena offset `offset` to host memory; done on return.
  virtual Status read(uint64_t offset, std::span<std::byte> bytes) = 0;

  /// Does at load time all that a product of this shape needs; the number is
  /// for gemm().
  virtual Result<uint32_t> prepareGemm(const fb::GemmStep &step) = 0;

  // What follows is called during a step and allocates nothing of its own.

  /// The kernel of `step` with its operands looked up.
  virtual Status kernel(const fb::KernelStep &step, std::byte *const *args,
                        const int64_t *scalars) = 0;
  /// C = A B, or C += A B with `add`.
  virtual Status gemm(uint32_t prepared, const std::byte *a, const std::byte *b,
                      std::byte *c, bool add) = 0;
  virtual Status copy(std::byte *target, const std::byte *source,
                      uint64_t bytes) = 0;
  virtual Status fillZero(std::byte *target, uint64_t bytes) = 0;
};

/// One CPU device a rank of `plan`, in rank order, each with `threads` threads
/// (at least 1). Maps the code of the plan; fails when this machine lacks a
/// feature that the code needs, or memory for the arenas.
Result<std::vector<std::unique_ptr<Device>>>
createCpuDevices(const fb::Plan &plan, unsigned threads);

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_DEVICE_H
