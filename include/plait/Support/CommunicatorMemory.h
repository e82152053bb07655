//===- CommunicatorMemory.h - GPU memory of communicators -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a GPU needs beside its arena, by what a mesh makes: one answer for the
// planner, the plan and the run.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_COMMUNICATORMEMORY_H
#define PLAIT_SUPPORT_COMMUNICATORMEMORY_H

#include <algorithm>
#include <cstdint>

namespace plait {

/// The memory of a GPU that a rank's communicators take beside its arena.
struct CommunicatorMemory {
  uint32_t groups = 0;  // of two members or more
  uint32_t routes = 0;  // from or to the rank
  uint64_t scratch = 0; // bytes that its groups pack tensors into, exactly

  /// Returns about how many bytes NCCL 2.30 takes for them, by its source
  /// (init.cc, nvls.cc): for the rings of a group 16 to 24 channels of 10 MiB,
  /// as much again where it has trees or switches add; for a route 4 channels.
  /// Nobody has measured it.
  uint64_t estimate() const {
    constexpr uint64_t group = 300'000'000, route = 50'000'000;
    return groups * group + routes * route + scratch;
  }
};

/// Returns the bytes that a GPU needs beside its arena: those that its hardware
/// file reserves, or more where a context of half a gigabyte and the
/// communicators take more. 0 of them: nothing is to be reserved.
inline uint64_t getReserve(uint64_t reserved, const CommunicatorMemory &made) {
  constexpr uint64_t context = 500'000'000;
  return reserved && (made.groups || made.routes)
             ? std::max(reserved, context + made.estimate())
             : reserved;
}

} // namespace plait

#endif // PLAIT_SUPPORT_COMMUNICATORMEMORY_H
