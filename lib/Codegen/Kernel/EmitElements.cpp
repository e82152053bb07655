//===- EmitElements.cpp - The elements of ops -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The role of an op says where its operands' elements come from; the op itself
// says what is computed with them.
//
//===----------------------------------------------------------------------===//

#include "Emitter.h"
#include "plait/Analysis/KernelShape.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

namespace {

/// The emitter, as an op sees it that emits `lanes` elements.
/// Ops see elements of their own dimensions and do not know about scopes,
/// groups or masks; this translates. `dims` are the dimensions of the space
/// that the element has.
class LaneContext : public ElementContext {
public:
  LaneContext(Emitter &emitter, Operation *op, ArrayRef<int64_t> dims,
              int64_t lanes)
      : ElementContext(emitter.builder, op->getLoc()), emitter(emitter), op(op),
        dims(dims), lanes(lanes) {}

  int64_t getLanes() const override { return lanes; }
  Value getIndex(int64_t dim) override {
    return emitter.indexOf(dims[dim], lanes);
  }
  Value getConstant(Attribute scalar) override {
    Value value =
        arith::ConstantOp::create(builder, loc, cast<TypedAttr>(scalar));
    return emitter.splat(value, lanes);
  }
  Value getRankValue(ArrayRef<RankTerm> terms) override {
    return narrow(emitter.sumTerms(terms));
  }
  Value getCallValue() override { return narrow(emitter.callValue(op)); }

private:
  Value narrow(Value wide) {
    Value value =
        arith::TruncIOp::create(builder, loc, builder.getI32Type(), wide);
    return emitter.splat(value, lanes);
  }

  Emitter &emitter;
  Operation *op;
  ArrayRef<int64_t> dims;
  int64_t lanes;
};

} // namespace

/// Lets `op` emit its element; true in `costly` if that took a function of the
/// math dialect, which stands for tens of instructions.
static Value emitElement(Emitter &emitter, Operation *op,
                         ArrayRef<int64_t> dims, ValueRange operands,
                         bool &costly) {
  LaneContext context(emitter, op, dims,
                      emitter.hasInner(dims) ? emitter.lanes : 1);
  SmallVector<Value> elements;
  for (Value operand : operands)
    elements.push_back(emitter.splat(operand, context.getLanes()));
  Block *block = emitter.builder.getInsertionBlock();
  Block::iterator end = emitter.builder.getInsertionPoint();
  Operation *before = end == block->begin() ? nullptr : &*std::prev(end);
  Value result = cast<FusableOpInterface>(op).emitElement(context, elements);
  auto begin = before ? std::next(before->getIterator()) : block->begin();
  for (Operation &emitted : llvm::make_range(begin, end))
    costly |= isa<math::MathDialect>(emitted.getDialect()) &&
              !isa<math::SqrtOp>(emitted);
  return result;
}

Value Emitter::pointerOf(OpOperand &input) const {
  return function.pointers[cast<BlockArgument>(input.get()).getArgNumber()];
}

Value Emitter::emit(OpOperand &use) {
  return isa<BlockArgument>(use.get()) ? emitInput(use) : emitValue(use.get());
}

/// The load stands in the scope of its indices: what a whole row shares is
/// loaded once a row. An aligned or masked vector of lanes where the tensor has
/// the inner group, else one number.
Value Emitter::emitInput(OpOperand &use) {
  ArrayRef<int64_t> dims = space.getDims(use);
  ScopeIndex scope = getScope(use);
  unsigned number = cast<BlockArgument>(use.get()).getArgNumber();
  // One load in each scope, however many ops read the element; an operand that
  // is read with other dimensions is another element.
  auto key = std::pair(number, std::vector<int64_t>(dims.begin(), dims.end()));
  auto [place, inserted] = scopes[scope].loads.try_emplace(key);
  if (!inserted)
    return place->second;
  OpBuilder::InsertionGuard guard(builder);
  moveTo(scope);
  Type element = getElementTypeOrSelf(use.get());
  Value offset = offsetOf(use.get(), dims);
  Value &loaded = place->second;
  return loaded = hasInner(dims) ? loadLanes(pointerOf(use), element, offset)
                                 : loadScalar(pointerOf(use), element, offset);
}

/// Each value is emitted once in each instance of its scope, when it is first
/// asked for; enter() forgets it when the loop goes on.
Value Emitter::emitValue(Value value) {
  Operation *op = value.getDefiningOp();
  // Repeats by nature: whoever wants lanes makes them.
  if (getRole(op) == FusionRole::Broadcast)
    return emit(op->getOpOperand(0));
  ScopeIndex scope = getScope(value);
  if (Value known = scopes[scope].values.lookup(value))
    return known;
  OpBuilder::InsertionGuard guard(builder);
  moveTo(scope);
  Value element;
  // An earlier sweep has left it in memory; same thread, same lanes.
  if (auto stored = reloads.find(value); stored != reloads.end()) {
    int64_t pitch = plan::getRowPitch(cluster.getResult(stored->second));
    element =
        loadLanes(getResultPointer(stored->second), getElementTypeOrSelf(value),
                  offsetOf(value, space.getDims(value), pitch));
  } else {
    element = emitOp(op);
    if (isKept(value))
      element = asKept(element);
  }
  scopes[scope].values[value] = element;
  return element;
}

/// Not cached: a summand has one reader, the reduction.
Value Emitter::emitSummand(const Reduction &reduction) {
  OpOperand &operand = reduction.op->getOpOperand(0);
  bool costs = false;
  return emitElement(*this, reduction.op, space.getDims(operand), emit(operand),
                     costs);
}

/// Cost is inherited: a cheap op of a costly value is as costly to repeat,
/// unless the value is in memory.
Value Emitter::emitOp(Operation *op) {
  SmallVector<Value> operands;
  bool costs = false;
  if (getRole(op) == FusionRole::Gather) {
    operands.push_back(emitGather(op));
  } else {
    for (OpOperand &operand : op->getOpOperands()) {
      operands.push_back(readsMemory(operand) ? emitReindexed(op)
                                              : emit(operand));
      costs |=
          costly.contains(operand.get()) && !reloads.contains(operand.get());
    }
  }
  Value result = op->getResult(0);
  Value element =
      emitElement(*this, op, space.getDims(result), operands, costs);
  if (costs)
    costly.insert(result);
  return element;
}

//===----------------------------------------------------------------------===//
// Elements from other places
//===----------------------------------------------------------------------===//

/// Ids count from the beginning of the whole table; a rank that has a part of
/// it subtracts where its part begins. The comparison is unsigned, so that it
/// also catches ids below it. Ids outside are not an error here: another rank
/// may have the row, and this one contributes zero.
Value Emitter::emitRow(Operation *op, int64_t rows, Value &inside) {
  Value id = emit(op->getOpOperand(1));
  Value row = arith::ExtSIOp::create(builder, builder.getI64Type(), id);
  auto fusable = cast<FusableOpInterface>(op);
  if (SmallVector<RankTerm> begin = fusable.getRankBegin(); !begin.empty()) {
    Value own = arith::SubIOp::create(builder, row, sumTerms(begin));
    if (int64_t limit = fusable.getRowLimit()) {
      // Padding is a row of the block, but not of the table.
      Value exists = arith::CmpIOp::create(builder, arith::CmpIPredicate::slt,
                                           row, constant(limit));
      own = arith::SelectOp::create(builder, exists, own, constant(-1));
    }
    row = own;
  }
  inside = arith::CmpIOp::create(builder, arith::CmpIPredicate::ult, row,
                                 constant(rows));
  return row;
}

/// Emits what lies at `offset`, or zero if it is not `inside` the tensor. The
/// offset is set to 0 first: memory outside of the tensor must not be touched,
/// not even for lanes that are thrown away.
Value Emitter::emitInside(Value inside, Value pointer, Type element,
                          int64_t width, Value offset) {
  offset = arith::SelectOp::create(builder, inside, offset, constant(0));
  // A whole vector from the start may pass the end of a small tensor, so the
  // lanes are masked rather than moved.
  if (width > 1 && !aligned) {
    Value lanesMask = splat(inside, width);
    if (mask)
      lanesMask = arith::AndIOp::create(builder, lanesMask, mask);
    return loadMasked(pointer, element, offset, lanesMask);
  }
  Value loaded = width > 1 ? loadLanes(pointer, element, offset)
                           : loadScalar(pointer, element, offset);
  Value zero =
      arith::ConstantOp::create(builder, builder.getZeroAttr(loaded.getType()));
  return arith::SelectOp::create(builder, inside, loaded, zero);
}

/// The table's row comes from the id, not from the loops; its columns do.
Value Emitter::emitGather(Operation *op) {
  OpOperand &table = op->getOpOperand(0);
  auto type = cast<RankedTensorType>(table.get().getType());
  Value inside;
  Value row = emitRow(op, type.getDimSize(0), inside);
  Value column = offsetOf(table.get(), space.getDims(table));
  Value offset = add(mul(row, type.getDimSize(1)), column);
  return emitInside(inside, pointerOf(table), type.getElementType(),
                    hasInner(space.getDims(table)) ? lanes : 1, offset);
}

/// The elements between neighbours along `dim` in memory.
static int64_t strideOf(Value tensor, int64_t dim) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(tensor.getType()).getShape();
  int64_t last = shape.size() - 1;
  int64_t stride = dim == last ? 1 : plan::getRowPitch(tensor);
  for (int64_t between = dim + 1; between < last; ++between)
    stride *= shape[between];
  return stride;
}

/// The loop counts from the beginning of the rank. Where the op's index map
/// counts from that of the whole, the group's index is that of the whole while
/// the operand is emitted.
Value Emitter::emitReindexed(Operation *op) {
  IndexMap map = *findIndexMap(op);
  OpOperand &input = op->getOpOperand(0);
  int64_t group = space.getGroup(space.getDims(input)[map.dim]);
  Value own = groupIndex[group];
  if (map.begin == IndexMap::Begin::Index)
    groupIndex[group] =
        add(own, sumTerms(cast<FusableOpInterface>(op).getRankBegin()));
  // Aligned vectors were chosen so that none is in two pieces (chooseAccess).
  bool isCut = group == space.getInner() && lanes > 1 && !aligned;
  Value read = isCut ? emitPieces(op, map) : emitPiece(op, map);
  groupIndex[group] = own;
  return read;
}

/// Returns the offset of what is read at the index itself, without the shift of
/// a piece.
Value Emitter::offsetOfRead(Operation *op, const IndexMap &map) {
  Value input = op->getOperand(0);
  Value offset = offsetOf(input, space.getDims(op->getOpOperand(0)));
  if (map.begin != IndexMap::Begin::Read)
    return offset;
  Value begin = sumTerms(cast<FusableOpInterface>(op).getRankBegin());
  return add(offset, mul(begin, strideOf(input, map.dim)));
}

/// All lanes are in one piece.
/// 1. The offset of the index itself.
/// 2. Plus the shift of the piece in which the index lies, selected among
///    constants: no branch, and one load.
/// 3. The load, under a condition if the pieces do not cover the dimension.
/// 4. The sign, where a piece is negated, as half of a rotation is.
Value Emitter::emitPiece(Operation *op, const IndexMap &map) {
  OpOperand &input = op->getOpOperand(0);
  ArrayRef<int64_t> dims = space.getDims(input);
  Type element = getElementTypeOrSelf(input.get());
  Value index = groupIndex[space.getGroup(dims[map.dim])];
  // 1.
  int64_t stride = strideOf(input.get(), map.dim);
  Value offset = offsetOfRead(op, map);
  auto isBelow = [&](int64_t end) -> Value {
    return arith::CmpIOp::create(builder, arith::CmpIPredicate::slt, index,
                                 constant(end));
  };
  /// Selects what `choose` gives for the piece in which the index is.
  auto select = [&](llvm::function_ref<Value(const IndexMap::Piece &)> choose) {
    Value chosen = choose(map.pieces.back());
    for (const IndexMap::Piece &piece :
         llvm::reverse(ArrayRef(map.pieces).drop_back()))
      chosen = arith::SelectOp::create(builder, isBelow(piece.end),
                                       choose(piece), chosen);
    return chosen;
  };
  // 2.
  if (map.pieces.size() > 1 || map.pieces[0].shift)
    offset = add(offset, select([&](const IndexMap::Piece &piece) {
                   return constant(piece.shift * stride);
                 }));
  // 3.
  bool vector = hasInner(dims);
  int64_t extent = space.getExtent(dims[map.dim]);
  Value read;
  if (!map.covers(extent))
    read = emitInside(isBelow(map.pieces.back().end), pointerOf(input), element,
                      vector ? lanes : 1, offset);
  else
    read = vector ? loadLanes(pointerOf(input), element, offset)
                  : loadScalar(pointerOf(input), element, offset);
  // 4.
  if (llvm::none_of(map.pieces,
                    [](const IndexMap::Piece &piece) { return piece.negated; }))
    return read;
  Value negated = arith::NegFOp::create(builder, read);
  return select([&](const IndexMap::Piece &piece) {
    return piece.negated ? negated : read;
  });
}

/// A piece may end between two lanes: each piece has a load of its own lanes.
/// 1. For each piece the lanes that lie in it: before its end, not before that
///    of the one before it, and within the row's own mask.
/// 2. A load for each piece under its lanes; the others are zero.
/// 3. Select by lane, from the last piece to the first. Lanes beyond the last
///    piece, where the map does not cover the dimension, keep the zero of the
///    last load.
Value Emitter::emitPieces(Operation *op, const IndexMap &map) {
  OpOperand &input = op->getOpOperand(0);
  ArrayRef<int64_t> dims = space.getDims(input);
  Type element = getElementTypeOrSelf(input.get());
  int64_t stride = strideOf(input.get(), map.dim);
  Value offset = offsetOfRead(op, map);
  Value index = indexOf(dims[map.dim], lanes);
  auto both = [&](Value a, Value b) -> Value {
    return a && b ? arith::AndIOp::create(builder, a, b).getResult()
           : a    ? a
                  : b;
  };
  // 1. The lanes before each end; null: all.
  SmallVector<Value> below, own;
  bool covers = map.covers(space.getExtent(dims[map.dim]));
  for (const IndexMap::Piece &piece : map.pieces) {
    Value before = below.empty() ? Value() : below.back();
    if (before) {
      Value ones = arith::ConstantOp::create(
          builder, cast<TypedAttr>(builder.getOneAttr(before.getType())));
      before = arith::XOrIOp::create(builder, before, ones);
    }
    bool isLast = &piece == &map.pieces.back();
    below.push_back(
        isLast && covers
            ? Value()
            : arith::CmpIOp::create(builder, arith::CmpIPredicate::slt, index,
                                    number(piece.end, index.getType())));
    own.push_back(both(both(below.back(), before), mask));
  }
  // 2.
  SmallVector<Value> read;
  for (auto [piece, lanesMask] : llvm::zip_equal(map.pieces, own)) {
    Value from =
        piece.shift ? add(offset, constant(piece.shift * stride)) : offset;
    Value loaded = loadMasked(pointerOf(input), element, from, lanesMask);
    read.push_back(piece.negated
                       ? arith::NegFOp::create(builder, loaded).getResult()
                       : loaded);
  }
  // 3.
  Value result = read.back();
  for (size_t k = map.pieces.size() - 1; k-- > 0;)
    result = arith::SelectOp::create(builder, below[k], read[k], result);
  return result;
}
