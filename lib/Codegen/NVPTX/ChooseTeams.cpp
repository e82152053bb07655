//===- ChooseTeams.cpp - Division of a block's threads into teams ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How many threads compute a parallel index, how they stand, and how much each
// of them moves at once. Nothing is emitted here. The choices follow from
// extents alone, so that kernels are the same on all machines for which a plan
// is compiled; docs/GPU.md has the table and what the assembler makes of it.
//
//===----------------------------------------------------------------------===//

#include "Teams.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

/// The most that one instruction moves.
static constexpr int64_t kMostBytes = 16;

/// Numbers that the sums of one loop over rows may have in a thread, so that it
/// does, with what they are made of, with 128 registers.
static constexpr int64_t kMostSums = 16;

/// Blocks from which a GPU has enough of them: nearly two for each
/// multiprocessor of an H100.
static constexpr int64_t kManyBlocks = 256;

/// The multiprocessors of the largest of the GPUs (B200).
static constexpr int64_t kMultiprocessors = 148;

/// The least that memory moves at once.
static constexpr int64_t kSectorBytes = 32;

/// Column sums are held in registers, a vector each: more of them than this are
/// split into parts, which other blocks compute.
ShapeLimits codegen::getGPULimits(const VectorAccess &access) {
  ShapeLimits limits;
  limits.elements = true;
  limits.columnSums = std::min<int64_t>(4, kMostSums / access.lanes);
  return limits;
}

/// Bytes of an element of the tensors in memory that fill the space, the widest
/// of them.
static int64_t widestElement(plan::ClusterOp cluster,
                             const IterationSpace &space) {
  GroupSet all = (GroupSet(1) << space.getGroups().size()) - 1;
  int64_t widest = 0;
  auto visit = [&](OpOperand &use) {
    if (space.getGroups(space.getDims(use)) == all)
      widest = std::max<int64_t>(
          widest, getElementTypeOrSelf(use.get()).getIntOrFloatBitWidth() / 8);
  };
  Block &body = cluster.getBody().front();
  for (BlockArgument input : body.getArguments())
    llvm::for_each(input.getUses(), visit);
  llvm::for_each(body.getTerminator()->getOpOperands(), visit);
  return widest ? widest : 4;
}

/// Begins with 16 bytes and halves until everything fits: the extent of the
/// inner group, and all boundaries and shifts inside of a row. Ends at one
/// element at the latest.
VectorAccess codegen::chooseAccess(plan::ClusterOp cluster,
                                   const IterationSpace &space) {
  VectorAccess access;
  access.bytes = widestElement(cluster, space);
  if (space.getInner() < 0)
    return access;
  // A thread has the same elements of all tensors, so the widest type decides
  // how many: the others move less at once.
  int64_t &lanes = access.lanes = kMostBytes / access.bytes;
  auto fit = [&](int64_t extent) {
    while (extent % lanes)
      lanes /= 2;
  };
  fit(space.getGroups()[space.getInner()].extent);
  for (Operation &op : cluster.getBody().front().without_terminator()) {
    std::optional<IndexMap> map = findIndexMap(&op);
    // Reindexing along other dimensions moves whole rows.
    if (!map || space.getGroup(space.getDims(op.getResult(0))[map->dim]) !=
                    space.getInner())
      continue;
    // No vector is in two pieces, and all that is read is aligned. A rank
    // begins at a multiple of its extent.
    for (const IndexMap::Piece &piece : map->pieces) {
      fit(piece.end);
      fit(piece.shift);
    }
  }
  return access;
}

/// Whether whole vectors may reach beyond the end of each row, into what lies
/// between rows, in all tensors that have the inner group.
/// Tensors without the inner group do not matter. All others have to be rows of
/// their own, with nothing reindexed in them: the surplus lanes of a load would
/// be another row's, and those of a store would destroy it.
static bool hasRoomBetweenRows(plan::ClusterOp cluster,
                               const IterationSpace &space, int64_t lanes) {
  const Group &inner = space.getGroups()[space.getInner()];
  auto fits = [&](OpOperand &use, Value stored) {
    ArrayRef<int64_t> dims = space.getDims(use);
    bool isInner = (space.getGroups(dims) >> space.getInner() & 1) != 0;
    return !isInner || (dims.size() > 1 && dims.back() == inner.dims.back() &&
                        plan::getRowPitch(stored) % lanes == 0);
  };
  Block &body = cluster.getBody().front();
  for (BlockArgument input : body.getArguments())
    for (OpOperand &use : input.getUses())
      if (!isa<plan::YieldOp>(use.getOwner()) &&
          (readsMemory(use) || !fits(use, input)))
        return false;
  return inner.dims.size() == 1 &&
         llvm::all_of(
             body.getTerminator()->getOpOperands(), [&](OpOperand &use) {
               return !isa<BlockArgument>(use.get()) &&
                      fits(use, cluster.getResult(use.getOperandNumber()));
             });
}

/// Only for kernels over rows without totals: they know the end of a row, and
/// leave the surplus lanes out of sums (RowEmitter::countedLanes()).
void codegen::widenAccess(plan::ClusterOp cluster, const IterationSpace &space,
                          const KernelShape &shape, VectorAccess &access) {
  auto *rows = std::get_if<RowShape>(&shape);
  int64_t lanes = kMostBytes / access.bytes;
  if (!rows || space.getInner() < 0 || access.lanes == lanes ||
      !rows->totals.empty() || rows->block ||
      !hasRoomBetweenRows(cluster, space, lanes))
    return;
  access.lanes = lanes;
  access.beyondRows = true;
}

/// Rounds to a power of two, as all numbers of threads are.
static int64_t roundUp(int64_t count) {
  return static_cast<int64_t>(llvm::PowerOf2Ceil(std::max<int64_t>(1, count)));
}

/// A warp reads up to 8 vectors a thread of a row; longer rows take a block.
/// Sums over all rows take one block, a warp or less a row.
static Teams chooseRowTeams(const IterationSpace &space, const RowShape &shape,
                            int64_t lanes) {
  int64_t inner = space.getInner(), rows = 1;
  for (int64_t group = 0; group < inner; ++group)
    rows *= space.getGroups()[group].extent;
  int64_t vectors =
      inner < 0 ? 1 : llvm::divideCeil(space.getGroups()[inner].extent, lanes);
  int64_t warp = std::min(kWarp, roundUp(vectors));
  if (!shape.totals.empty() && rows > 1)
    return {512, warp, 1};
  if (vectors > 8 * kWarp) {
    int64_t threads = std::clamp<int64_t>(roundUp(vectors / 8), 64, 512);
    return {threads, threads, 1};
  }
  // A single row has a block of its own, however short.
  int64_t threads =
      std::clamp<int64_t>(roundUp(rows * warp), kWarp, int64_t(256));
  return {threads, warp, 1};
}

/// Chooses teams as wide as memory likes, but narrow enough that there are many
/// blocks.
static Teams chooseColumnTeams(const IterationSpace &space,
                               const ColumnShape &shape,
                               const VectorAccess &access) {
  int64_t rows = 1, others = shape.parts.size();
  for (int64_t group : shape.reduced)
    rows *= space.getGroups()[group].extent;
  for (int64_t group : shape.kept)
    others *= space.getGroups()[group].extent;
  // Whole ones, by the choice of lanes.
  int64_t vectors = space.getGroups()[space.getInner()].extent / access.lanes;
  int64_t least = kSectorBytes / (access.bytes * access.lanes);
  int64_t width = std::max(least, std::min(kWarp, roundUp(vectors)));
  // Narrower until there are blocks for all multiprocessors, but not below what
  // memory moves at once.
  while (width > least &&
         others * llvm::divideCeil(vectors, width) < kManyBlocks)
    width /= 2;
  // At least 4 rows a thread, or a warp's worth of threads; few blocks are
  // large ones, and those that have a multiprocessor for themselves the
  // largest. On an H200 144 blocks of 1024 threads read 1.3 times as fast as of
  // 512, 192 blocks 0.6 times.
  int64_t blocks = others * llvm::divideCeil(vectors, width);
  int64_t most = blocks <= kMultiprocessors ? 1024
                 : blocks < kManyBlocks     ? 512
                                            : 256;
  int64_t threads = std::clamp<int64_t>(roundUp(width * rows / 4), kWarp, most);
  return {threads, threads / width, width};
}

/// Scatter kernels have a warp a team, for its ballot; elementwise ones need no
/// team, nor do those that scatter by sorted tokens.
Teams codegen::chooseTeams(const IterationSpace &space,
                           const KernelShape &shape,
                           const VectorAccess &access) {
  if (auto *rows = std::get_if<RowShape>(&shape))
    return chooseRowTeams(space, *rows, access.lanes);
  if (auto *columns = std::get_if<ColumnShape>(&shape))
    return chooseColumnTeams(space, *columns, access);
  if (auto *scatter = std::get_if<ScatterShape>(&shape);
      scatter && !isSorted(scatter->op))
    return {128, kWarp, 1};
  return {256, 1, 1};
}
