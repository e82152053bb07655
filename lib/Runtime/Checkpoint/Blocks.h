//===- Blocks.h - Blocks of checkpoints between processes -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CHECKPOINT_BLOCKS_H
#define PLAIT_LIB_RUNTIME_CHECKPOINT_BLOCKS_H

#include "MPI/Library.h"

namespace plait::runtime {

/// A block of a checkpoint, on its way to process `peer` or from it.
inline MpiTransfer transferOf(MpiTransfer::Kind kind, uint32_t peer,
                              uint32_t tag, std::span<std::byte> block) {
  return {kind,
          MpiChannel::Checkpoints,
          peer,
          tag,
          Region{block.data(), int64_t(block.size())},
          nullptr};
}

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CHECKPOINT_BLOCKS_H
