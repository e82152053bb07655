//===- Ranks.cpp - Ranks, groups and blocks of a mesh ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Arithmetic of ranks: coordinates in the mesh, blocks of dimensions, parts of
// packs. Compiler, checker and runtime use these functions, so that they mean
// the same by a sharding. A plan has passed checkStructure() where it is an
// argument, but for the checks that are part of it.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Ranks.h"

#include "plait/Plan/Defaults.h"

#include <algorithm>
#include <numeric>

using namespace plait;
using namespace plait::plan;

RankGrid::RankGrid(const fb::Plan &plan) {
  for (const fb::MeshAxis *axis : *plan.mesh()) {
    if (axis->name()->string_view() == kSitesAxis)
      outermost = axes();
    sizes.push_back(axis->size());
  }
}

/// Fits 32 bits, as checkStructure() has seen.
uint32_t RankGrid::ranks() const {
  uint32_t product = 1;
  for (uint32_t size : sizes)
    product *= size;
  return product;
}

/// Ranks are numbered row-major over the mesh, the last axis fastest; those of
/// a site follow each other.
uint32_t RankGrid::stride(uint32_t axis) const {
  if (outermost && axis == outermost)
    return ranks() / sizes[axis];
  uint32_t product = 1;
  for (uint32_t inner = axis + 1; inner < axes(); ++inner)
    if (!outermost || inner != outermost)
      product *= sizes[inner];
  return product;
}

/// Site by site, and of each in the order of its ranks.
uint32_t RankGrid::peerOf(uint32_t rank) const {
  uint32_t each = programRanks() / sites(); // of a site
  return rank / (ranks() / sites()) * each + rank % each;
}

uint32_t RankGrid::rankOf(uint32_t program, uint32_t peer) const {
  uint32_t each = programRanks() / sites();
  return peer / each * (ranks() / sites()) + program * each + peer % each;
}

uint32_t RankGrid::index(uint32_t rank, uint32_t axis) const {
  return rank / stride(axis) % sizes[axis];
}

/// Subtracts what `rank` has along the axis, adds `index`.
uint32_t RankGrid::withIndex(uint32_t rank, uint32_t axis,
                             uint32_t index) const {
  uint32_t step = stride(axis);
  return rank - this->index(rank, axis) * step + index * step;
}

/// Whether `axis` of a plan splits `what`; one without a meaning splits
/// nothing.
static bool splits(const fb::MeshAxis &axis, Splits what) {
  const AxisFacts *facts = findAxis(axis.name()->string_view());
  return facts && facts->splits == what;
}

uint32_t RankGrid::partsOf(const fb::Plan &plan, Splits what) {
  uint32_t parts = what == Splits::Batch ? RankGrid(plan).sites() : 1;
  for (const fb::MeshAxis *axis : *plan.mesh())
    if (splits(*axis, what))
      parts *= axis->size();
  return parts;
}

/// Axes further in cut what those further out leave.
uint32_t RankGrid::partOf(const fb::Plan &plan, uint32_t rank,
                          Splits what) const {
  bool bySite = outermost && what == Splits::Batch;
  uint32_t part = bySite ? index(rank, outermost) : 0;
  for (uint32_t axis = 0; axis < axes(); ++axis)
    if (splits(*plan.mesh()->Get(axis), what))
      part = part * size(axis) + index(rank, axis);
  return part;
}

/// Affine in the rank's coordinate along one axis; -1 stands for a constant.
int64_t plan::valueOf(const RankGrid &mesh, uint32_t rank,
                      const fb::RankScalar &scalar) {
  return scalar.bias() +
         (scalar.axis() < 0 ? 0
                            : scalar.scale() * mesh.index(rank, scalar.axis()));
}

/// Several axes may contribute, each by a term of its own.
int64_t plan::valueOf(const RankGrid &mesh, uint32_t rank,
                      const RankScalars *scalars) {
  int64_t sum = 0;
  for (uint32_t i = 0; i < length(scalars); ++i)
    sum += valueOf(mesh, rank, *scalars->Get(i));
  return sum;
}

/// Part of the checks: the mesh is sound, the scalar may be anything.
Status plan::checkAxis(const RankGrid &mesh, const fb::RankScalar &scalar,
                       const std::string &what) {
  if (scalar.axis() >= -1 && scalar.axis() < int64_t(mesh.axes()))
    return Status::success();
  return fail(what, " names axis ", scalar.axis(), ", there are ", mesh.axes());
}

/// Without looking at each rank: terms are monotonous in the coordinates.
Status plan::checkRange(const RankGrid &mesh, const RankScalars *scalars,
                        int64_t most, const std::string &what) {
  int64_t largest = 0;
  for (uint32_t i = 0; i < length(scalars); ++i) {
    const fb::RankScalar &scalar = *scalars->Get(i);
    PLAIT_RETURN_IF_ERROR(checkAxis(mesh, scalar, what));
    // No term is negative, so the largest sum is that of the last rank of
    // every axis.
    int64_t steps = scalar.axis() < 0 ? 0 : mesh.size(scalar.axis()) - 1;
    int64_t term = 0;
    if (scalar.bias() < 0 || scalar.scale() < 0 ||
        __builtin_mul_overflow(scalar.scale(), steps, &term) ||
        __builtin_add_overflow(scalar.bias(), term, &term) ||
        __builtin_add_overflow(largest, term, &largest))
      return fail(what, " adds ", scalar.bias(), " and up to ", steps,
                  " times ", scalar.scale(), ", allowed are sums of 0 to ",
                  most);
  }
  if (largest > most)
    return fail(what, " is up to ", largest, ", allowed are 0 to ", most);
  return Status::success();
}

/// Returns them in one form, so that groups with and without a list of members
/// are the same.
std::vector<uint32_t> plan::membersOf(const RankGrid &mesh,
                                      const fb::CollectiveStep &step) {
  if (length(step.members()))
    return {step.members()->begin(), step.members()->end()};
  std::vector<uint32_t> all(mesh.size(step.axis()));
  std::iota(all.begin(), all.end(), 0u);
  return all;
}

/// The product of the axes over which the dimension is split.
int64_t plan::blockCount(const RankGrid &mesh,
                         const fb::DimSharding &sharding) {
  int64_t count = 1;
  if (sharding.axes())
    for (uint8_t axis : *sharding.axes())
      count *= mesh.size(axis);
  return count;
}

/// Axes are ordered, the first one outermost: the block's number is their
/// coordinates as one number.
Block plan::blockOf(const RankGrid &mesh, uint32_t rank,
                    const fb::DimSharding &sharding, int64_t global,
                    uint32_t ownAxis) {
  int64_t index = 0, count = 1;
  if (sharding.axes())
    for (uint8_t axis : *sharding.axes())
      if (axis != ownAxis || ownAxis == 0) {
        index = index * mesh.size(axis) + mesh.index(rank, axis);
        count *= mesh.size(axis);
      }
  // Blocks are all as long as the first; the last ones may hold padding, or
  // nothing.
  int64_t extent = (global + count - 1) / count;
  int64_t begin = std::min(index * extent, global);
  return {begin, extent, std::min(extent, global - begin)};
}

const DimShardings &plan::dimsOf(const fb::Shard &shard, bool isDivided) {
  return isDivided && shard.state_dims() ? *shard.state_dims() : *shard.dims();
}

/// All ranks' blocks have the same extents, padding included; rank 0 stands for
/// them.
int64_t plan::countElements(const RankGrid &mesh,
                            const flatbuffers::Vector<int64_t> &shape,
                            const BlockSplits &splits) {
  int64_t elements = 1;
  for (uint32_t dim = 0; dim < shape.size(); ++dim)
    elements *=
        blockOf(mesh, 0, *splits.dims.Get(dim), shape.Get(dim), splits.ownAxis)
            .extent;
  return elements;
}

std::vector<uint32_t> plan::axesOf(const fb::Division &division) {
  std::vector<uint32_t> axes = {division.axis()};
  if (const auto *inner = division.inner_axes())
    axes.insert(axes.end(), inner->begin(), inner->end());
  return axes;
}

/// The coordinates along all axes that do not split the shard, as one number.
Replica plan::replicaOf(const RankGrid &mesh, uint32_t rank,
                        const fb::Shard &shard, const Sharing &sharing) {
  Replica replica = {0, 1};
  // The pipeline axis picks the program, it never replicates a shard.
  for (uint32_t axis = 1; axis < mesh.axes(); ++axis) {
    bool splits = axis == sharing.ownAxis ||
                  (sharing.division && divides(*sharing.division, axis));
    for (const fb::DimSharding *dim : dimsOf(shard, sharing.isDivided))
      if (dim->axes())
        splits |= std::count(dim->axes()->begin(), dim->axes()->end(), axis);
    if (splits)
      continue;
    replica.index = replica.index * mesh.size(axis) + mesh.index(rank, axis);
    replica.count *= mesh.size(axis);
  }
  return replica;
}

bool plan::divides(const fb::Division &division, uint32_t axis) {
  return std::ranges::count(axesOf(division), axis) > 0;
}

/// Ranks along the division's axes have ranges of equal length of the pack, one
/// after the other; the parameter is a range of it, too. What a rank has is
/// where both meet, which may be nothing.
Part plan::partOf(const RankGrid &mesh, uint32_t rank,
                  const fb::Division *division, int64_t elements) {
  if (!division)
    return {0, elements, 0};
  // In elements of the pack.
  int64_t length = division->elements(), first = division->begin();
  int64_t index = 0;
  for (uint32_t axis : axesOf(*division))
    index = index * mesh.size(axis) + mesh.index(rank, axis);
  int64_t start = index * length;
  int64_t begin = std::clamp(start, first, first + elements);
  int64_t end = std::clamp(start + length, first, first + elements);
  return {begin - first, end - begin, begin - start};
}
