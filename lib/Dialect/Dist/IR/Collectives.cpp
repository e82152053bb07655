//===- Collectives.cpp - Collectives of the dist dialect ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a kind of collective reads, writes and combines is a row of
// plait/Support/Collectives.h. The ops here add what is a question of shapes:
// how their tensors are cut into blocks.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/Dist/IR/Dist.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace plait;
using namespace plait::dist;

std::string dist::stringifyKind(CollectiveKind kind) {
  std::string word(getFacts(kind).name);
  llvm::replace(word, '-', '_');
  return word;
}

/// The words are the table's, with underscores for hyphens.
FailureOr<CollectiveKind> dist::parseKind(AsmParser &parser) {
  SMLoc loc = parser.getCurrentLocation();
  StringRef word;
  if (parser.parseKeyword(&word))
    return failure();
  std::string known;
  for (size_t kind = 0; kind < std::size(collectives); ++kind) {
    std::string own = stringifyKind(CollectiveKind(kind));
    if (word == own)
      return CollectiveKind(kind);
    known += (known.empty() ? "" : ", ") + own;
  }
  return parser.emitError(loc)
         << "'" << word << "' is no collective, expected one of " << known;
}

/// The number of ranks along `axis`, or failure with an error on `op` (C1).
static FailureOr<int64_t> countRanks(Operation *op, FlatSymbolRefAttr meshName,
                                     StringRef axis) {
  auto mesh = SymbolTable::lookupNearestSymbolFrom<MeshOp>(op, meshName);
  if (!mesh)
    return op->emitOpError("is on ") << meshName << ", which is no mesh";
  if (!mesh.hasAxis(axis))
    return op->emitOpError("is on axis \"")
           << axis << "\", which mesh " << meshName << " does not have";
  return mesh.getAxisSize(axis);
}

/// Checks that `dim` exists and that all other extents agree (C2).
static LogicalResult verifyOtherDims(Operation *op, Value input, Value result,
                                     ArrayRef<int64_t> dims) {
  auto from = cast<RankedTensorType>(input.getType());
  auto to = cast<RankedTensorType>(result.getType());
  // First that the dimensions exist: extent() of another would read past the
  // shape.
  for (int64_t dim : dims)
    if (dim < 0 || dim >= from.getRank())
      return op->emitOpError("works on dimension ")
             << dim << " of a tensor of rank " << from.getRank();
  if (from.getRank() != to.getRank() ||
      from.getElementType() != to.getElementType())
    return op->emitOpError("changes ") << from << " to " << to;
  for (int64_t dim = 0; dim < from.getRank(); ++dim)
    if (!llvm::is_contained(dims, dim) &&
        from.getDimSize(dim) != to.getDimSize(dim))
      return op->emitOpError("changes dimension ")
             << dim << " from " << from.getDimSize(dim) << " to "
             << to.getDimSize(dim);
  return success();
}

static int64_t extent(Value value, int64_t dim) {
  return cast<RankedTensorType>(value.getType()).getDimSize(dim);
}

static LogicalResult emitExtentError(Operation *op, int64_t dim, int64_t from,
                                     int64_t to, int64_t blocks) {
  return op->emitOpError("turns ")
         << from << " elements of dimension " << dim << " into " << to
         << " over " << blocks << " ranks";
}

/// (C4) of all-gather, reduce-scatter and slice.
static LogicalResult verifyRounds(Operation *op, Value block, int64_t dim,
                                  int64_t rounds) {
  if (rounds >= 1 && extent(block, dim) % rounds == 0)
    return success();
  return op->emitOpError("deals out blocks of ")
         << extent(block, dim) << " elements of dimension " << dim << " in "
         << rounds << " rounds";
}

/// (C4) of all-reduce, (C5) of reduce-scatter.
static LogicalResult verifyReduction(Operation *op, Reduction reduction) {
  if (reduction != Reduction::Owned)
    return success();
  return op->emitOpError("combines by ")
         << stringifyReduction(reduction) << ", expected sum or max";
}

LogicalResult AllReduceOp::verify() {
  // (C1)
  FailureOr<int64_t> size = countRanks(*this, getMeshAttr(), getAxis());
  if (failed(size))
    return failure();
  // (C2)
  if (getInput().getType() != getResult().getType())
    return emitOpError("changes ")
           << getInput().getType() << " to " << getResult().getType();
  // (C3)
  int64_t last = -1;
  for (int64_t member : getMembers().value_or(ArrayRef<int64_t>())) {
    if (member <= last || member >= *size)
      return emitOpError("has member ")
             << member << " after " << last << " on an axis of " << *size;
    last = member;
  }
  // (C4)
  return verifyReduction(*this, getReduction());
}

/// A write to nothing in particular, so that neither CSE nor dead code
/// elimination touches an ordered sum: other programs take part, and wait for
/// it.
void AllReduceOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  if (getOrdered())
    effects.emplace_back(MemoryEffects::Write::get());
}

CollectiveKind AllReduceOp::getKind() { return CollectiveKind::AllReduce; }

// How the elements are grouped does not matter to a sum: one block.
CollectiveBlocks AllReduceOp::getBlocks() {
  return {1, 1, getResult().getType().getNumElements()};
}

/// Of a gather or scatter: `whole` is a `block` of every rank.
template <typename OpTy>
static LogicalResult verifyBlocks(OpTy op, Value block, Value whole) {
  // (C1)
  FailureOr<int64_t> blocks = countRanks(op, op.getMeshAttr(), op.getAxis());
  if (failed(blocks))
    return failure();
  // (C2)
  int64_t dim = op.getDim();
  if (failed(verifyOtherDims(op, op.getInput(), op.getResult(), {dim})))
    return failure();
  // (C3)
  if (extent(whole, dim) != extent(block, dim) * *blocks)
    return emitExtentError(op, dim, extent(op.getInput(), dim),
                           extent(op.getResult(), dim), *blocks);
  // (C4)
  return verifyRounds(op, block, dim, op.getRounds());
}

LogicalResult AllGatherOp::verify() {
  return verifyBlocks(*this, getInput(), getResult());
}

/// The product of the extents of `type` in [begin, end).
static int64_t extents(RankedTensorType type, int64_t begin, int64_t end) {
  int64_t product = 1;
  for (int64_t dim = begin; dim < end; ++dim)
    product *= type.getDimSize(dim);
  return product;
}

/// Blocks of type `block` that lie side by side along `dim` of a tensor, or in
/// as many parts of it as there are rounds.
static CollectiveBlocks blocksAlong(Value block, int64_t dim, int64_t rounds) {
  auto type = cast<RankedTensorType>(block.getType());
  return {extents(type, 0, dim) * rounds, 1,
          extents(type, dim, type.getRank()) / rounds};
}

CollectiveKind AllGatherOp::getKind() { return CollectiveKind::AllGather; }

CollectiveBlocks AllGatherOp::getBlocks() {
  return blocksAlong(getInput(), getDim(), getRounds());
}

LogicalResult ReduceScatterOp::verify() {
  if (failed(verifyBlocks(*this, getResult(), getInput())))
    return failure();
  // (C5)
  return verifyReduction(*this, getReduction());
}

CollectiveKind ReduceScatterOp::getKind() {
  return CollectiveKind::ReduceScatter;
}

CollectiveBlocks ReduceScatterOp::getBlocks() {
  return blocksAlong(getResult(), getDim(), getRounds());
}

/// What one dimension loses the other one gains, by the number of ranks.
LogicalResult AllToAllOp::verify() {
  // (C1)
  FailureOr<int64_t> blocks = countRanks(*this, getMeshAttr(), getAxis());
  if (failed(blocks))
    return failure();
  // (C2)
  int64_t split = getSplit(), concat = getConcat();
  if (split == concat)
    return emitOpError("splits and concatenates dimension ") << split;
  if (failed(verifyOtherDims(*this, getInput(), getResult(), {split, concat})))
    return failure();
  // (C3)
  // Multiplied rather than divided, so that an extent that does not divide is
  // an error and not rounded.
  for (auto [dim, up, down] :
       {std::tuple(split, int64_t(1), *blocks), {concat, *blocks, 1}}) {
    int64_t from = extent(getInput(), dim), to = extent(getResult(), dim);
    if (from * up != to * down)
      return emitExtentError(*this, dim, from, to, *blocks);
  }
  return success();
}

CollectiveKind AllToAllOp::getKind() { return CollectiveKind::AllToAll; }

/// A block is [outer, middle, chunk]: the extents before the first of the two
/// dimensions, from it to the second, and from the second on. In one tensor the
/// blocks lie along the first dimension, in the other one along the second.
CollectiveBlocks AllToAllOp::getBlocks() {
  int64_t split = getSplit(), concat = getConcat();
  // Of one block, all extents are the smaller ones.
  SmallVector<int64_t> shape(getInput().getType().getShape());
  shape[split] = getResult().getType().getDimSize(split);
  auto block =
      RankedTensorType::get(shape, getInput().getType().getElementType());
  auto [first, last] = std::minmax(split, concat);
  return {extents(block, 0, first), extents(block, first, last),
          extents(block, last, block.getRank()), split > concat};
}

//===----------------------------------------------------------------------===//
// Rows of experts
//===----------------------------------------------------------------------===//

/// `whole` is a `block` of every rank along dimension 0, and begins with
/// `dims`.
template <typename OpTy>
static LogicalResult verifyRows(OpTy op, Value block, Value whole,
                                ArrayRef<int64_t> dims) {
  // (C1)
  FailureOr<int64_t> blocks = countRanks(op, op.getMeshAttr(), op.getAxis());
  if (failed(blocks))
    return failure();
  // (C2)
  if (failed(verifyOtherDims(op, op.getInput(), op.getResult(), {0})))
    return failure();
  if (extent(whole, 0) != extent(block, 0) * *blocks)
    return emitExtentError(op, 0, extent(op.getInput(), 0),
                           extent(op.getResult(), 0), *blocks);
  // (C3)
  auto type = cast<RankedTensorType>(whole.getType());
  if (!getElementTypeOrSelf(op.getIds()).isInteger() || dims.empty() ||
      type.getRank() <= int64_t(dims.size()) ||
      type.getShape().take_front(dims.size()) != dims)
    return op.emitOpError("has ids ")
           << op.getIds().getType() << " for rows of " << type;
  // (C4)
  if (int64_t(op.getExperts()) < 1)
    return op.emitOpError("has ")
           << int64_t(op.getExperts()) << " experts a rank, expected 1 or more";
  return success();
}

/// Each row of the ids, or each id, stands for the numbers behind those of its
/// dimensions.
template <typename OpTy>
static RowSelection selectRows(OpTy op, Value whole, int64_t choices) {
  RowSelection rows{op.getIds(), 1, choices, int64_t(op.getExperts())};
  int64_t ids = op.getIds().getType().getNumElements();
  rows.width =
      cast<RankedTensorType>(whole.getType()).getNumElements() * choices / ids;
  return rows;
}

LogicalResult DispatchOp::verify() {
  ArrayRef<int64_t> ids = getIds().getType().getShape();
  return verifyRows(*this, getInput(), getResult(),
                    ids.empty() ? ids : ids.drop_back());
}

std::optional<Reduction> DispatchOp::getCombination() { return std::nullopt; }

CollectiveKind DispatchOp::getKind() { return CollectiveKind::AllGather; }

CollectiveBlocks DispatchOp::getBlocks() {
  return blocksAlong(getInput(), 0, 1);
}

std::optional<RowSelection> DispatchOp::getSelection() {
  return selectRows(*this, getResult(), getIds().getType().getShape().back());
}

LogicalResult CombineOp::verify() {
  return verifyRows(*this, getResult(), getInput(),
                    getIds().getType().getShape());
}

/// Names the sum that it is of the rows of owners and others' zeros.
std::optional<Reduction> CombineOp::getCombination() { return Reduction::Sum; }

CollectiveKind CombineOp::getKind() { return CollectiveKind::ReduceScatter; }

CollectiveBlocks CombineOp::getBlocks() {
  return blocksAlong(getResult(), 0, 1);
}

std::optional<RowSelection> CombineOp::getSelection() {
  return selectRows(*this, getInput(), /*choices=*/1);
}

//===----------------------------------------------------------------------===//
// SliceOp
//===----------------------------------------------------------------------===//

/// Unlike collectives, which move equal blocks, a slice may have a last block
/// with padding: it is only cut out.
LogicalResult SliceOp::verify() {
  // (C1)
  int64_t blocks = 1;
  llvm::StringSet<> named;
  for (auto axis : getAxes().getAsRange<StringAttr>()) {
    FailureOr<int64_t> ranks = countRanks(*this, getMeshAttr(), axis);
    if (failed(ranks))
      return failure();
    if (!named.insert(axis.getValue()).second)
      return emitOpError("names axis ") << axis << " twice";
    blocks *= *ranks;
  }
  // (C2)
  int64_t dim = getDim();
  if (failed(verifyOtherDims(*this, getInput(), getResult(), {dim})))
    return failure();
  // (C3)
  int64_t from = extent(getInput(), dim), to = extent(getResult(), dim);
  if (to != static_cast<int64_t>(llvm::divideCeil(from, blocks)))
    return emitExtentError(*this, dim, from, to, blocks);
  // (C4)
  if (getRounds() != 1 && (getAxes().size() != 1 || from != to * blocks))
    return emitOpError("deals out ")
           << from << " elements of dimension " << dim << " over " << getAxes()
           << " in rounds, expected equal blocks over one axis";
  return verifyRounds(*this, getResult(), dim, getRounds());
}

FusionRole SliceOp::getFusionRole() { return FusionRole::Reindex; }

/// Element i of the rank is element begin + i of the whole; beyond the extent
/// it is zero. As a map it fuses into whatever kernel reads the block. Dealt
/// out in rounds, there is a piece for each, behind what the other ranks have
/// of those before.
IndexMap SliceOp::getIndexMap() {
  int64_t dim = getDim(), whole = extent(getInput(), dim);
  if (getRounds() == 1)
    return {dim, {{whole, 0}}, IndexMap::Begin::Index};
  IndexMap map{dim, {}, IndexMap::Begin::Read};
  int64_t own = extent(getResult(), dim) / getRounds();
  for (int64_t round = 0; round < int64_t(getRounds()); ++round)
    map.pieces.push_back(
        {(round + 1) * own, round * (whole / int64_t(getRounds()) - own)});
  return map;
}

SmallVector<RankTerm> SliceOp::getRankBegin() {
  auto mesh =
      SymbolTable::lookupNearestSymbolFrom<MeshOp>(*this, getMeshAttr());
  return mesh.getBegin(getAxes(), extent(getResult(), getDim()) / getRounds());
}

Value SliceOp::emitElement(ElementContext &, ValueRange operands) {
  return operands.front();
}
