//===- HostMemory.h - One space of offsets for two memories -----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a rank does not need all the time can lie in the memory of its host.
// Both memories share one space of offsets, so that all that is said of bytes,
// which live together, which steps use the same, holds for either without a
// word about which it is. The arena is what lies below the boundary, and may
// grow without moving what lies on the host.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_HOSTMEMORY_H
#define PLAIT_SUPPORT_HOSTMEMORY_H

#include <cstdint>

namespace plait {

/// The offset where the host's memory begins; no arena and no host has as many
/// bytes.
inline constexpr uint64_t hostBegin = uint64_t(1) << 48;

constexpr bool isOnHost(uint64_t offset) { return offset >= hostBegin; }

} // namespace plait

#endif // PLAIT_SUPPORT_HOSTMEMORY_H
