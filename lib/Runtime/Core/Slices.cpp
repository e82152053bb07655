//===- Slices.cpp - Slices of sharded tensors -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Three coordinate systems meet here: elements of a rank's block (`local`), of
// the parameter, and of the tensor in the file, of which the parameter may be a
// box. All are row-major, and a run is a range that is contiguous in block and
// target at once. Enumerating runs costs one step a row of the block, whatever
// the mesh; what the shards are is known from lib/Plan's blockOf() and
// partOf().
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Slices.h"
#include "plait/Plan/Masters.h"

#include <algorithm>
#include <vector>

using namespace plait;
using namespace plait::runtime;

namespace {

using Shape = flatbuffers::Vector<int64_t>;

/// Joins neighbouring runs, so that a block of whole rows is one run. The
/// destructor hands over the last run: a merger lives as long as its
/// enumeration. Runs come in ascending order, so that only neighbours can join.
class RunMerger {
public:
  explicit RunMerger(const RunVisitor &visit) : visit(visit) {}
  ~RunMerger() {
    if (pending.count)
      visit(pending);
  }

  /// Joins only where both sides continue: a block with padding has gaps in
  /// `local`, a split last dimension has them in `global`.
  void add(const Run &run) {
    if (pending.local + pending.count == run.local &&
        pending.global + pending.count == run.global) {
      pending.count += run.count;
      return;
    }
    if (pending.count)
      visit(pending);
    pending = run;
  }

private:
  const RunVisitor &visit;
  Run pending = {0, 0, 0};
};

/// Returns where element `index` of the row-major box `parameter.box_shape`
/// lies in the file tensor. Takes the index apart from the last dimension on,
/// whose stride is 1, and puts it together with the strides of the file.
int64_t fileIndex(const fb::Parameter &parameter, int64_t index) {
  int64_t result = 0;
  int64_t stride = 1;
  for (uint32_t dim = parameter.file_shape()->size(); dim-- > 0;) {
    int64_t size = parameter.box_shape()->Get(dim);
    result += (parameter.box_begin()->Get(dim) + index % size) * stride;
    index /= size;
    stride *= parameter.file_shape()->Get(dim);
  }
  return result;
}

/// The rows of a rank's block: runs along the last dimension. Padding is never
/// visited: runs end at `valid`, while strides in the block are its padded
/// extents. Ranks whose block lies wholly in the padding have no runs. A tensor
/// without dimensions is one run of one element.
void forEachRow(const plan::RankGrid &mesh, uint32_t rank, const Shape &shape,
                const plan::BlockSplits &splits, const RunVisitor &visit) {
  uint32_t dims = shape.size();
  std::vector<plan::Block> blocks;
  for (uint32_t dim = 0; dim < dims; ++dim)
    blocks.push_back(plan::blockOf(mesh, rank, *splits.dims.Get(dim),
                                   shape.Get(dim), splits.ownAxis));
  for (const plan::Block &block : blocks)
    if (block.valid == 0)
      return;

  std::vector<int64_t> index(dims, 0);
  while (true) {
    // Horner's scheme over both shapes at once.
    Run run = {0, 0, dims ? blocks.back().valid : 1};
    for (uint32_t dim = 0; dim < dims; ++dim) {
      run.local = run.local * blocks[dim].extent + index[dim];
      run.global = run.global * shape.Get(dim) + blocks[dim].begin + index[dim];
    }
    visit(run);
    // Count up over all dimensions but the last.
    int64_t dim = int64_t(dims) - 2;
    for (; dim >= 0 && ++index[dim] == blocks[dim].valid; --dim)
      index[dim] = 0;
    if (dim < 0)
      return;
  }
}

} // namespace

/// `global` is the row-major index in the parameter: so a gradient is put
/// together as one tensor.
void runtime::forEachParameterRun(const plan::RankGrid &mesh, uint32_t rank,
                                  const fb::Parameter &parameter,
                                  const plan::BlockSplits &splits,
                                  const RunVisitor &visit) {
  RunMerger merger(visit);
  forEachRow(mesh, rank, *parameter.shape(), splits,
             [&](const Run &run) { merger.add(run); });
}

/// The same runs, with `global` in the file's tensor. A parameter that is the
/// whole tensor has a box as wide as the file, and its runs are joined again by
/// the second merger.
void runtime::forEachFileRun(const plan::RankGrid &mesh, uint32_t rank,
                             const fb::Parameter &parameter,
                             const plan::BlockSplits &splits,
                             const RunVisitor &visit) {
  RunMerger merger(visit);
  uint32_t dims = parameter.box_shape()->size();
  int64_t width = dims ? parameter.box_shape()->Get(dims - 1) : 1;
  forEachParameterRun(mesh, rank, parameter, splits, [&](Run run) {
    // A run of the view may cover several rows of the box.
    while (run.count) {
      int64_t count = std::min(run.count, width - run.global % width);
      merger.add({run.local, fileIndex(parameter, run.global), count});
      run.local += count;
      run.global += count;
      run.count -= count;
    }
  });
}

/// The result's `local` counts from the beginning of the part, as does the
/// buffer that holds the part; an empty run has count 0.
Run runtime::clip(const Run &run, const plan::Part &part) {
  int64_t begin = std::max(run.local, part.begin);
  int64_t end = std::min(run.local + run.count, part.begin + part.count);
  if (begin >= end)
    return {0, 0, 0};
  return {begin - part.begin, run.global + begin - run.local, end - begin};
}

/// Every rank computes in f32 with the weight, which is therefore whole. In
/// bf16 it computes with the copy, and the weight is a master copy, which is
/// state and divided as state is.
ShardTensor runtime::weightOf(const fb::Shard &shard) {
  bool isMaster = shard.compute_dtype() == fb::DType::BF16;
  bool divides = shard.division() || shard.state_dims();
  return {shard.weight(), plan::sharingOf(shard, divides && isMaster),
          plan::isRounded(shard)};
}

/// A rank's part of the reduced gradient has a buffer of its own where rows of
/// a pack are divided; with state dims the gradient is reduced and scattered
/// into blocks.
ShardTensor runtime::gradientOf(const fb::Shard &shard) {
  if (const fb::Division *division = shard.division())
    return {division->reduced(), plan::sharingOf(shard, true)};
  return {shard.gradient(),
          plan::sharingOf(shard, shard.state_dims() != nullptr)};
}

/// All state slots of a parameter are divided alike, but for those that say
/// how themselves and what each rank along an axis has of its own.
ShardTensor runtime::stateOf(const fb::Shard &shard,
                             const fb::StateSlot &slot) {
  if (slot.division())
    return {slot.offset(), {false, slot.division()}};
  bool isDivided = slot.like_weight() ? weightOf(shard).sharing.isDivided
                                      : shard.division() || shard.state_dims();
  const fb::Division *division = shard.division();
  isDivided &= !division || !plan::divides(*division, slot.own_axis());
  plan::Sharing sharing = plan::sharingOf(shard, isDivided);
  sharing.ownAxis = slot.own_axis();
  return {slot.offset(), sharing};
}

/// A division is applied to the elements of the block, so its part begins at a
/// byte inside of the tensor; a block without one begins at 0. Offsets count
/// elements of its type; a copy in bf16 is never divided, so that its piece
/// begins at 0, too.
Piece::Piece(const plan::RankGrid &mesh, uint32_t rank, const fb::Shard &shard,
             const fb::Parameter &parameter, const ShardTensor &tensor)
    : splits(plan::dimsOf(shard, tensor.sharing.isDivided),
             tensor.sharing.ownAxis),
      part(plan::partOf(mesh, rank, tensor.sharing.division,
                        plan::countElements(mesh, *parameter.shape(), splits))),
      offset(tensor.offset), isRounded(tensor.isRounded) {
  offset += part.offset * elementBytes();
}

/// `begin` counts from the piece's own beginning. Slices of slices are right,
/// too, since part and offset move together.
Piece Piece::slice(int64_t begin, int64_t count) const {
  Piece result = *this;
  result.part.begin += begin;
  result.part.count = count;
  result.part.offset += begin;
  result.offset += begin * elementBytes();
  return result;
}

int64_t runtime::elementCount(const Shape &shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}
