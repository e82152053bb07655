//===- Shards.h - What all ranks do with their shards -----------*- C++ -*-===//
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

namespace plait::runtime {

using ShardJob = std::function<Status(uint32_t rank, const fb::Shard &shard,
                                      const fb::Parameter &parameter)>;

/// Calls `job` for all shards of all ranks of this process, on the threads of
/// the ranks.
Status forEachShard(Executor &executor, const ShardJob &job);

/// Sets `tensor` of a shard to what `source` has of the file tensor. Called on
/// the thread of the rank, as is the next.
Status setTensor(Executor &executor, uint32_t rank, const fb::Shard &shard,
                 const fb::Parameter &parameter, const ShardTensor &tensor,
                 const ElementSource &source);

/// Sets the weights of a shard, and the copy that the program computes with.
Status setWeights(Executor &executor, uint32_t rank, const fb::Shard &shard,
                  const fb::Parameter &parameter, const ElementSource &source);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_SHARDS_H
