//===- Parameters.cpp - Parameters as callers give them -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Values of a whole parameter, in the memory of a process, to what its ranks
// hold of it. Weights.cpp has those of files, which do not fit into memory.
//
//===----------------------------------------------------------------------===//

#include "Shards.h"
#include "plait/Plan/Defaults.h"
#include "plait/Runtime/Weights.h"
#include "plait/Support/BFloat16.h"

#include <algorithm>

using namespace plait;
using namespace plait::runtime;

Status runtime::storeCopy(const RankArena &arena, const fb::Shard &shard,
                          int64_t begin, std::span<const float> elements) {
  if (shard.compute_dtype() != fb::DType::BF16)
    return Status::success();
  std::vector<BFloat16> rounded(elements.begin(), elements.end());
  return arena.write(shard.compute_weight() + begin * sizeof(BFloat16),
                     std::as_bytes(std::span(rounded)));
}

/// Elements of `piece` that `values` has for it; padding is zero.
std::vector<float> runtime::cutOut(const plan::RankGrid &mesh, uint32_t rank,
                                   const fb::Parameter &parameter,
                                   const Piece &piece,
                                   std::span<const float> values) {
  std::vector<float> block(piece.part.count);
  forEachParameterRun(mesh, rank, parameter, piece.splits,
                      [&](const Run &whole) {
                        Run run = clip(whole, piece.part);
                        std::copy_n(values.begin() + run.global, run.count,
                                    block.begin() + run.local);
                      });
  return block;
}

/// The copy in bf16 is of the whole block, of which the rank may have a part
/// in f32.
Status runtime::setParameter(Executor &executor, uint32_t parameter,
                             std::span<const float> values) {
  return forEachShard(executor, [&](uint32_t rank, const fb::Shard &shard,
                                    const fb::Parameter &found) {
    if (shard.parameter() != parameter)
      return Status::success();
    RankArena arena(executor, rank);
    Piece piece(arena.mesh, rank, shard, found, weightOf(shard));
    std::vector<float> block = cutOut(arena.mesh, rank, found, piece, values);
    if (!piece.isRounded)
      PLAIT_RETURN_IF_ERROR(
          arena.write(piece.offset, std::as_bytes(std::span(block))));
    // What begins as the weight lies as it does.
    for (uint32_t i = 0; i < plan::length(shard.state()); ++i)
      if (const fb::StateSlot &slot = *shard.state()->Get(i);
          slot.from_weight())
        PLAIT_RETURN_IF_ERROR(
            arena.write(piece.offset - shard.weight() + slot.offset(),
                        std::as_bytes(std::span(block))));
    if (shard.compute_dtype() != fb::DType::BF16)
      return Status::success();
    Piece copy(arena.mesh, rank, shard, found,
               {shard.compute_weight(), {/*isDivided=*/false}});
    return storeCopy(arena, shard, 0,
                     cutOut(arena.mesh, rank, found, copy, values));
  });
}
