//===- Slices.h - Slices of sharded tensors ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A parameter is a view of a box of a file tensor, and a rank holds a padded
// block of that view. Everything that moves parameters between ranks and the
// outside (loading, initialising, saving, comparing) walks the same runs.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_SLICES_H
#define PLAIT_RUNTIME_SLICES_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Plan/Ranks.h"

#include <cstdint>
#include <functional>

namespace plait::runtime {

namespace fb = plan::fb;

/// `count` elements that are contiguous on both sides.
struct Run {
  int64_t local;  // index in the rank's padded block
  int64_t global; // index in the other tensor
  int64_t count;
};

using RunVisitor = std::function<void(const Run &)>;

/// The runs between the block of `rank`, of a tensor that is split as `splits`
/// say, and the parameter as a row-major tensor of shape parameter.shape. Local
/// indices increase.
void forEachParameterRun(const plan::RankGrid &mesh, uint32_t rank,
                         const fb::Parameter &parameter,
                         const plan::BlockSplits &splits,
                         const RunVisitor &visit);

/// The same between the block and the whole tensor of the safetensors file.
void forEachFileRun(const plan::RankGrid &mesh, uint32_t rank,
                    const fb::Parameter &parameter,
                    const plan::BlockSplits &splits, const RunVisitor &visit);

/// Returns what a run has in common with a part of the block; `local` is then
/// relative to the part, and `count` 0 where that is nothing.
Run clip(const Run &run, const plan::Part &part);

/// A tensor of a shard: where it lies in the arena, in bytes, and what ranks
/// have of it.
struct ShardTensor {
  uint64_t offset;
  plan::Sharing sharing;
  bool isRounded = false; // in bf16, else in f32
};

/// The weights, in f32 unless they have no master: a master copy is divided
/// with the rest of the optimizer's state.
ShardTensor weightOf(const fb::Shard &shard);
/// The gradient after a step.
ShardTensor gradientOf(const fb::Shard &shard);
/// Returns what the optimizer keeps.
ShardTensor stateOf(const fb::Shard &shard, const fb::StateSlot &slot);

/// The part that a rank holds of such a tensor. Refers to the shard.
struct Piece {
  Piece(const plan::RankGrid &mesh, uint32_t rank, const fb::Shard &shard,
        const fb::Parameter &parameter, const ShardTensor &tensor);

  plan::BlockSplits splits;
  plan::Part part; // of the rank's block
  uint64_t offset; // of the part, in the arena, in bytes
  bool isRounded;  // its elements are bf16

  uint64_t elementBytes() const { return isRounded ? 2 : sizeof(float); }
  /// The `count` elements from element `begin` of the part on.
  Piece slice(int64_t begin, int64_t count) const;
};

/// The number of elements of a shape.
int64_t elementCount(const flatbuffers::Vector<int64_t> &shape);

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_SLICES_H
