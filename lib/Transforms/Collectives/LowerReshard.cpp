//===- LowerReshard.cpp - Reshards as collectives ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The state is, for each dimension, the row of axes that splits it, outermost
// first, with the rounds in which an axis deals it out, and the axes over which
// the block is still a partial sum. Each move changes one axis of one dimension
// (a slice: several in a row) until the state is the target's. No search: the
// order of the moves is fixed (Mover::run), so that a reshard becomes the same
// collectives wherever it stands.
//
// Blocks are of ceil(n / k) elements. Those of an axis inside of others line up
// with the outer ones only if the sizes divide; where a collective would have
// to move blocks that do not, lowering fails.
//
//===----------------------------------------------------------------------===//

#include "LowerReshard.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace plait;
using namespace plait::dist;

namespace {

/// The way of one tensor from one sharding to another. Axes of one rank do not
/// count.
class Mover {
public:
  Mover(OpBuilder &builder, Location loc, Value block, RankedTensorType whole,
        ShardingAttr from, ShardingAttr to, MeshOp mesh)
      : builder(builder), loc(loc), block(block), whole(whole), mesh(mesh),
        meshRef(FlatSymbolRefAttr::get(mesh.getSymNameAttr())),
        reduction(ReductionAttr::get(builder.getContext(),
                                     from.isOwned() ? Reduction::Sum
                                                    : from.getReduction())),
        splits(getSplits(from)), targets(getSplits(to)) {
    for (StringAttr axis : from.getPartial())
      if (mesh.getAxisSize(axis.getValue()) > 1 && !to.isPartialOver(axis))
        partial.push_back(axis);
  }

  FailureOr<Value> run();

private:
  struct Split {
    StringAttr axis; // null: none
    int64_t rounds = 1;
    bool operator==(const Split &) const = default;
    explicit operator bool() const { return bool(axis); }
  };
  using Axes = SmallVector<Split, 2>;

  SmallVector<Axes> getSplits(ShardingAttr sharding);
  /// Each does one thing of its kind, if there is one to do; true if so.
  FailureOr<bool> slice();
  FailureOr<bool> reduceScatter();
  FailureOr<bool> allReduce();
  FailureOr<bool> allToAll();
  FailureOr<bool> allGather();

  /// The axis that `dim` is split over next; null: none, or not yet.
  Split getNext(int64_t dim);
  /// The axis that `dim` has to give up first; null: none.
  Split getLast(int64_t dim);
  static bool isSplitOver(ArrayRef<Split> axes, StringAttr axis) {
    return llvm::any_of(axes,
                        [&](const Split &split) { return split.axis == axis; });
  }
  int64_t findSplit(StringAttr axis);
  int64_t countBlocks(ArrayRef<Split> axes);
  int64_t getChunk(int64_t dim, ArrayRef<Split> axes);
  int64_t sizeOf(StringAttr axis) { return mesh.getAxisSize(axis.getValue()); }
  bool isNested(int64_t dim, ArrayRef<Split> outer, ArrayRef<Split> inner);
  LogicalResult checkNested(int64_t dim, ArrayRef<Split> outer,
                            ArrayRef<Split> inner);
  RankedTensorType localType();

  OpBuilder &builder;
  Location loc;
  Value block;
  RankedTensorType whole;
  MeshOp mesh;
  FlatSymbolRefAttr meshRef;
  ReductionAttr reduction;
  SmallVector<Axes> splits, targets;  // of each dimension, now and in the end
  SmallVector<StringAttr, 2> partial; // still to be combined
};

} // namespace

/// An axis of one rank splits nothing: without it, shardings that differ in
/// nothing else need no move.
SmallVector<Mover::Axes> Mover::getSplits(ShardingAttr sharding) {
  SmallVector<Axes> result;
  for (ArrayAttr entry : sharding.getDims()) {
    result.emplace_back();
    SmallVector<StringAttr, 2> axes = getAxes(entry);
    for (StringAttr axis : axes)
      if (sizeOf(axis) > 1)
        result.back().push_back(
            {axis, axis == axes.back() ? getRounds(entry) : 1});
  }
  return result;
}

/// Only where what splits the dimension is the beginning of what should: an
/// axis inside of a wrong one would have to be taken off again.
Mover::Split Mover::getNext(int64_t dim) {
  ArrayRef<Split> now = splits[dim], target = targets[dim];
  bool isPrefix =
      now.size() < target.size() && target.take_front(now.size()) == now;
  return isPrefix ? target[now.size()] : Split();
}

/// Takes the innermost first: blocks of an outer axis can only be joined once
/// those inside of it have been.
Mover::Split Mover::getLast(int64_t dim) {
  ArrayRef<Split> now = splits[dim], target = targets[dim];
  bool isPrefix =
      now.size() <= target.size() && target.take_front(now.size()) == now;
  return isPrefix ? Split() : now.back();
}

/// The dimension that `axis` splits now, or -1.
int64_t Mover::findSplit(StringAttr axis) {
  for (auto [dim, axes] : llvm::enumerate(splits))
    if (isSplitOver(axes, axis))
      return dim;
  return -1;
}

/// Counts the blocks that a dimension is cut into by `axes`.
int64_t Mover::countBlocks(ArrayRef<Split> axes) {
  int64_t blocks = 1;
  for (const Split &split : axes)
    blocks *= sizeOf(split.axis);
  return blocks;
}

/// The elements of a block of `dim` that is split over `axes`.
int64_t Mover::getChunk(int64_t dim, ArrayRef<Split> axes) {
  return llvm::divideCeil(whole.getDimSize(dim), countBlocks(axes));
}

/// Whether the blocks over `outer` consist of whole blocks over `outer` and
/// `inner`, which is what collectives move. Otherwise some straddle a border.
bool Mover::isNested(int64_t dim, ArrayRef<Split> outer,
                     ArrayRef<Split> inner) {
  Axes all(outer);
  all.append(inner.begin(), inner.end());
  return getChunk(dim, outer) == countBlocks(inner) * getChunk(dim, all);
}

/// Reports at the reshard's location what cannot be moved; a model's sizes
/// decide about it, so that users see it.
LogicalResult Mover::checkNested(int64_t dim, ArrayRef<Split> outer,
                                 ArrayRef<Split> inner) {
  if (isNested(dim, outer, inner))
    return success();
  InFlightDiagnostic diag = emitError(loc)
                            << "cannot move " << getChunk(dim, outer)
                            << " elements of dimension " << dim << " in "
                            << countBlocks(inner) << " equal blocks";
  if (!outer.empty())
    diag << ": a part of " << whole << " over "
         << builder.getArrayAttr(
                llvm::map_to_vector(outer, [](const Split &split) -> Attribute {
                  return split.axis;
                }));
  return diag;
}

/// Returns the type of a rank's block, as the tensor is split now.
RankedTensorType Mover::localType() {
  SmallVector<int64_t> shape;
  for (auto [dim, axes] : llvm::enumerate(splits))
    shape.push_back(getChunk(dim, axes));
  return RankedTensorType::get(shape, whole.getElementType());
}

//===----------------------------------------------------------------------===//
// Moves
//===----------------------------------------------------------------------===//

/// Over all axes that follow in a row: their blocks need not be nested. What
/// deals out in rounds is a slice of its own.
FailureOr<bool> Mover::slice() {
  for (auto [dim, axes] : llvm::enumerate(splits)) {
    Axes before = axes;
    SmallVector<Attribute> added;
    int64_t rounds = 1;
    // Every rank must hold what is cut: an axis that still splits another
    // dimension, or is still partial, comes later as an exchange or a scatter.
    for (Split next = getNext(dim);
         next && findSplit(next.axis) < 0 && rounds == 1 &&
         (next.rounds == 1 || added.empty()) &&
         !llvm::is_contained(partial, next.axis);
         next = getNext(dim)) {
      axes.push_back(next);
      added.push_back(next.axis);
      rounds = next.rounds;
    }
    if (added.empty())
      continue;
    // The whole dimension is padded by the op itself.
    if (!before.empty() &&
        failed(
            checkNested(dim, before, ArrayRef(axes).drop_front(before.size()))))
      return failure();
    block = SliceOp::create(
        builder, loc, localType(), block, meshRef, builder.getArrayAttr(added),
        builder.getI64IntegerAttr(dim), builder.getI64IntegerAttr(rounds));
    return true;
  }
  return false;
}

/// A sum that is split in the end anyway is made in blocks: an all-reduce and a
/// slice would send twice as much.
FailureOr<bool> Mover::reduceScatter() {
  for (StringAttr axis : partial)
    for (auto [dim, axes] : llvm::enumerate(splits)) {
      Split next = getNext(dim);
      if (next.axis != axis)
        continue;
      if (failed(checkNested(dim, axes, next)))
        return failure();
      axes.push_back(next);
      llvm::erase(partial, axis);
      block = ReduceScatterOp::create(builder, loc, localType(), block, meshRef,
                                      axis, reduction,
                                      builder.getI64IntegerAttr(dim),
                                      builder.getI64IntegerAttr(next.rounds));
      return true;
    }
  return false;
}

/// Not of what is split in the end, which is scattered once others made room.
FailureOr<bool> Mover::allReduce() {
  for (StringAttr axis : partial) {
    if (llvm::any_of(targets,
                     [&](const Axes &axes) { return isSplitOver(axes, axis); }))
      continue;
    llvm::erase(partial, axis);
    block =
        AllReduceOp::create(builder, loc, block.getType(), block, meshRef, axis,
                            reduction, DenseI64ArrayAttr(), UnitAttr());
    return true;
  }
  return false;
}

/// One axis leaves a dimension and splits another: each rank sends all but one
/// of its blocks, where a gather would have it receive all blocks of all
/// others.
FailureOr<bool> Mover::allToAll() {
  for (auto [source, axes] : llvm::enumerate(splits)) {
    Split last = getLast(source);
    // Only in one round: it has no layout of others.
    for (size_t target = 0; last && last.rounds == 1 && target < splits.size();
         ++target) {
      // What is cut out of a whole dimension may have padding.
      if (target == source || getNext(target) != last ||
          !isNested(target, splits[target], last))
        continue;
      if (failed(checkNested(source, ArrayRef(axes).drop_back(), last)))
        return failure();
      axes.pop_back();
      splits[target].push_back(last);
      block = AllToAllOp::create(builder, loc, localType(), block, meshRef,
                                 last.axis, builder.getI64IntegerAttr(target),
                                 builder.getI64IntegerAttr(source));
      return true;
    }
  }
  return false;
}

/// The last resort: for an axis that splits nothing in the end, or has to make
/// room for one that goes outside of it.
FailureOr<bool> Mover::allGather() {
  for (auto [dim, axes] : llvm::enumerate(splits)) {
    Split last = getLast(dim);
    if (!last)
      continue;
    if (failed(checkNested(dim, ArrayRef(axes).drop_back(), last)))
      return failure();
    axes.pop_back();
    block = AllGatherOp::create(builder, loc, localType(), block, meshRef,
                                last.axis, builder.getI64IntegerAttr(dim),
                                builder.getI64IntegerAttr(last.rounds));
    return true;
  }
  return false;
}

/// Each move, in this order, leaves less for those after it: what nobody wants
/// is cut off, sums are made in blocks rather than whole, and what can be
/// exchanged is not gathered.
///
/// Ends, since every move brings an axis to its place or takes one off a
/// dimension, and as long as something is missing one of them applies: where
/// nothing has to be given up, what comes next in some dimension is split
/// nowhere, so that it can be sliced or scattered.
FailureOr<Value> Mover::run() {
  using Move = FailureOr<bool> (Mover::*)();
  constexpr Move moves[] = {&Mover::slice, &Mover::reduceScatter,
                            &Mover::allReduce, &Mover::allToAll,
                            &Mover::allGather};
  for (bool moved = true; moved;) {
    moved = false;
    for (Move move : moves) {
      FailureOr<bool> done = (this->*move)();
      if (failed(done))
        return failure();
      if ((moved = *done))
        break;
    }
  }
  return block;
}

FailureOr<Value> plait::lowerReshard(OpBuilder &builder, Location loc,
                                     Value block, RankedTensorType whole,
                                     ShardingAttr from, ShardingAttr to,
                                     MeshOp mesh) {
  return Mover(builder, loc, block, whole, from, to, mesh).run();
}
