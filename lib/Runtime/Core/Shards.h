//===- Shards.h - Loops over the shards of all ranks ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_SHARDS_H
#define PLAIT_LIB_RUNTIME_CORE_SHARDS_H

#include "Windows.h"
#include "plait/Runtime/Executor.h"

#include <functional>
#include <span>
#include <vector>

namespace plait::runtime {

using ShardJob = std::function<Status(uint32_t rank, const fb::Shard &shard,
                                      const fb::Parameter &parameter)>;

/// Calls `job` for all shards of all ranks of this process, on the threads of
/// the ranks.
Status forEachShard(Executor &executor, const ShardJob &job);

/// The arena of a rank. Without a device it is one of another process: nothing
/// is written, but sources are asked for the same elements in the same order.
struct RankArena {
  RankArena(Executor &executor, uint32_t rank)
      : mesh(executor.mesh()), rank(rank), device(&executor.device(rank)) {}
  RankArena(const plan::RankGrid &mesh, uint32_t rank)
      : mesh(mesh), rank(rank) {}

  Status write(uint64_t offset, std::span<const std::byte> bytes) const {
    return device ? device->write(offset, bytes) : Status::success();
  }

  const plan::RankGrid &mesh;
  uint32_t rank;
  Device *device = nullptr;
};

/// Sets `tensor` of a shard to what `source` has of the file tensor. Called on
/// the thread of the rank, as is the next.
Status setTensor(const RankArena &arena, const fb::Shard &shard,
                 const fb::Parameter &parameter, const ShardTensor &tensor,
                 const ElementSource &source);

/// Sets the weights of a shard, and the copy that the program computes with.
Status setWeights(const RankArena &arena, const fb::Shard &shard,
                  const fb::Parameter &parameter, const ElementSource &source);

/// Sets elements of the copy of `shard` that the program computes with, if
/// there is one, from element `begin` of the rank's block on.
Status storeCopy(const RankArena &arena, const fb::Shard &shard, int64_t begin,
                 std::span<const float> elements);

/// The elements of `piece` of a rank's block, out of all `values` of the
/// parameter.
std::vector<float> cutOut(const plan::RankGrid &mesh, uint32_t rank,
                          const fb::Parameter &parameter, const Piece &piece,
                          std::span<const float> values);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_SHARDS_H
