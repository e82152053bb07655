//===- SiteMessages.h - Compressed messages of sites ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CPU_SITEMESSAGES_H
#define PLAIT_LIB_RUNTIME_CPU_SITEMESSAGES_H

#include "plait/Configuration/SiteCompression.h"
#include "plait/Runtime/Device.h"

#include <cstdint>
#include <span>

namespace plait::runtime {

/// Writes a chunk as so many words as it takes. `numbers` are as many as a
/// chunk has at most; those that are missing count as zeros.
void encodeChunk(const SiteCompression &compression,
                 std::span<const float> numbers, uint32_t *words);

/// Adds what the words say to `numbers`.
void addChunk(const SiteCompression &compression, const uint32_t *words,
              std::span<float> numbers);

/// Returns the chunks of an Encode or Decode step.
int64_t countChunks(const SiteCompression &compression,
                    const fb::OuterStep &step);

/// Does chunks [begin, end) of an Encode or Decode step, by its formula in
/// Plan.fbs, in fp32. Chunks are independent of each other.
void runMessages(const fb::OuterStep &step, const OuterOperands &operands,
                 int64_t begin, int64_t end);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CPU_SITEMESSAGES_H
