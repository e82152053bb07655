//===- Ranks.h - Ranks, groups and blocks of a mesh -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The arithmetic of a mesh, in one place for the compiler, the checker and the
// runtime. Ranks are numbered row-major: the last axis varies fastest, but for
// that of sites, which is the slowest wherever it stands.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_RANKS_H
#define PLAIT_PLAN_RANKS_H

#include "plait/Configuration/Mesh.h"
#include "plait/Plan/Plan_generated.h"
#include "plait/Support/Status.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plait::plan {

/// The axis whose ranks are whole copies of the others, see Plan.fbs.
inline constexpr std::string_view kSitesAxis = "sites";

/// The sizes of the mesh axes, outermost first. Immutable.
class RankGrid {
public:
  explicit RankGrid(std::vector<uint32_t> sizes) : sizes(std::move(sizes)) {}
  explicit RankGrid(const fb::Plan &plan);

  uint32_t axes() const { return static_cast<uint32_t>(sizes.size()); }
  uint32_t size(uint32_t axis) const { return sizes[axis]; }

  /// The number of ranks: the product of the sizes.
  uint32_t ranks() const;

  /// The coordinate of `rank` along `axis`.
  uint32_t index(uint32_t rank, uint32_t axis) const;

  /// The rank that differs from `rank` only in its coordinate along `axis`.
  uint32_t withIndex(uint32_t rank, uint32_t axis, uint32_t index) const;

  /// The axis of sites; 0: there is none, and then one site.
  uint32_t sitesAxis() const { return outermost; }
  uint32_t sites() const { return outermost ? sizes[outermost] : 1; }

  /// The ranks that run one program.
  uint32_t programRanks() const { return ranks() / sizes[0]; }
  /// The number of `rank` among those, ascending with it, and the inverse.
  uint32_t peerOf(uint32_t rank) const;
  uint32_t rankOf(uint32_t program, uint32_t peer) const;

  /// The parts that the axes which split `what` make of it together. Sites
  /// split the batch, before all others.
  static uint32_t partsOf(const fb::Plan &plan, Splits what);
  /// The one of them that `rank` has.
  uint32_t partOf(const fb::Plan &plan, uint32_t rank, Splits what) const;

private:
  uint32_t stride(uint32_t axis) const;

  std::vector<uint32_t> sizes;
  uint32_t outermost = 0; // the axis of sites
};

/// `scalar` on `rank`, but for what it says of the first microbatch.
int64_t valueOf(const RankGrid &mesh, uint32_t rank,
                const fb::RankScalar &scalar);

/// The sum of `scalars`, which may be null: 0.
using RankScalars = flatbuffers::Vector<const fb::RankScalar *>;
int64_t valueOf(const RankGrid &mesh, uint32_t rank,
                const RankScalars *scalars);

/// Fails unless the axis of `scalar` is one of the mesh; `what` is its name in
/// the message.
Status checkAxis(const RankGrid &mesh, const fb::RankScalar &scalar,
                 const std::string &what);

/// Fails unless the sum of `scalars` is from 0 to `most` on all ranks.
Status checkRange(const RankGrid &mesh, const RankScalars *scalars,
                  int64_t most, const std::string &what);

/// The part of one tensor dimension that a rank holds: elements
/// [begin, begin + valid) of the global dimension, stored at the front of
/// `extent` local elements; the rest is padding. `valid` is 0 where the whole
/// block lies beyond the end.
struct Block {
  int64_t begin;
  int64_t extent;
  int64_t valid;
};

/// The coordinates along its axis of those who take part in `step`, ascending.
std::vector<uint32_t> membersOf(const RankGrid &mesh,
                                const fb::CollectiveStep &step);

/// How many blocks `sharding` cuts a dimension into.
int64_t blockCount(const RankGrid &mesh, const fb::DimSharding &sharding);

/// The shardings of a tensor's dimensions.
using DimShardings = flatbuffers::Vector<flatbuffers::Offset<fb::DimSharding>>;

/// How a tensor is split: as `dims` say, but for an axis along which each rank
/// has one of its own; 0: there is none. Refers to the dimensions.
struct BlockSplits {
  BlockSplits(const DimShardings &dims, uint32_t ownAxis = 0)
      : dims(dims), ownAxis(ownAxis) {}

  const DimShardings &dims;
  uint32_t ownAxis;
};

/// The block of `rank` of a dimension of `global` elements, which axis
/// `ownAxis` does not split.
Block blockOf(const RankGrid &mesh, uint32_t rank,
              const fb::DimSharding &sharding, int64_t global,
              uint32_t ownAxis = 0);

/// How a tensor of `shard` lies: its values, or, with `isDivided`, what the
/// ranks that hold the same values divide.
const DimShardings &dimsOf(const fb::Shard &shard, bool isDivided);

/// The elements of a rank's block of a tensor of this shape, padding included.
int64_t countElements(const RankGrid &mesh,
                      const flatbuffers::Vector<int64_t> &shape,
                      const BlockSplits &splits);

/// Which of the ranks that hold the same elements of a shard one is.
struct Replica {
  uint32_t index, count;
};

/// The axes whose ranks have parts of a pack, major to minor.
std::vector<uint32_t> axesOf(const fb::Division &division);
/// Whether `axis` is one of them.
bool divides(const fb::Division &division, uint32_t axis);

/// Says what ranks that hold the same values of a shard have of a tensor.
struct Sharing {
  bool isDivided = false; // it lies as dimsOf() says of these
  /// How its elements are divided by ranges; null: they are not.
  const fb::Division *division = nullptr;
  uint32_t ownAxis = 0; // ranks along it each have another one; 0: none has
};

/// The sharing of the optimizer's state, or, without `isDivided`, of values.
inline Sharing sharingOf(const fb::Shard &shard, bool isDivided) {
  return {isDivided, isDivided ? shard.division() : nullptr};
}

/// Returns, of the ranks of a program that hold the same block of `shard`,
/// those that differ along the axes that do not split it. Of what ranks share
/// otherwise, each holds what it has of it.
Replica replicaOf(const RankGrid &mesh, uint32_t rank, const fb::Shard &shard,
                  const Sharing &sharing = {});

/// True for exactly one of these ranks.
inline bool isFirstReplica(const RankGrid &mesh, uint32_t rank,
                           const fb::Shard &shard,
                           const Sharing &sharing = {}) {
  return replicaOf(mesh, rank, shard, sharing).index == 0;
}

/// The part that a rank holds of a shard's tensor: `count` of the elements of
/// its block (see dimsOf), row-major, from `begin` on. They lie from element
/// `offset` on of where the plan places the tensor.
struct Part {
  int64_t begin, count, offset;
};

/// The part of `rank` of a block of `elements` that ranks divide by ranges; of
/// one that they do not (null), all of it.
Part partOf(const RankGrid &mesh, uint32_t rank, const fb::Division *division,
            int64_t elements);

} // namespace plait::plan

#endif // PLAIT_PLAN_RANKS_H
