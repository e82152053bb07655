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
#include "plait/Dialect/Plan/IR/RowPitch.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

namespace {

/// The emitter, as an op sees it that emits `lanes` elements.
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

Value Emitter::emitInput(OpOperand &use) {
  ArrayRef<int64_t> dims = space.getDims(use);
  ScopeIndex scope = getScope(use);
  unsigned number = cast<BlockArgument>(use.get()).getArgNumber();
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

Value Emitter::emitSummand(const Reduction &reduction) {
  OpOperand &operand = reduction.op->getOpOperand(0);
  bool costs = false;
  return emitElement(*this, reduction.op, space.getDims(operand), emit(operand),
                     costs);
}

Value Emitter::emitOp(Operation *op) {
  SmallVector<Value> operands;
  bool costs = false;
  switch (getRole(op)) {
  case FusionRole::Gather:
    operands.push_back(emitGather(op));
    break;
  case FusionRole::RotateHalf:
    operands.push_back(emitRotated(op));
    break;
  case FusionRole::Slice:
    operands.push_back(emitSlice(op));
    break;
  default:
    for (OpOperand &operand : op->getOpOperands()) {
      operands.push_back(emit(operand));
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

/// What lies at `offset`, or zero if it is not `inside` the tensor.
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

Value Emitter::emitRotated(Operation *op) {
  OpOperand &input = op->getOpOperand(0);
  ArrayRef<int64_t> dims = space.getDims(input);
  int64_t half = space.getExtent(dims.back()) / 2;
  Type element = getElementTypeOrSelf(input.get());
  Value offset = offsetOf(input.get(), dims);
  if (aligned)
    return emitRotatedWhole(input, offset, half);
  Value index = indexOf(dims.back(), lanes);
  Value bound = arith::ConstantOp::create(
      builder, builder.getI32IntegerAttr(static_cast<int32_t>(half)));
  Value first = arith::CmpIOp::create(builder, arith::CmpIPredicate::slt, index,
                                      splat(bound, lanes));
  auto ones = builder.getOneAttr(first.getType());
  Value second = arith::XOrIOp::create(
      builder, first,
      arith::ConstantOp::create(builder, cast<TypedAttr>(ones)));
  Value firstMask = first, secondMask = second;
  if (mask) {
    firstMask = arith::AndIOp::create(builder, first, mask);
    secondMask = arith::AndIOp::create(builder, second, mask);
  }
  Value above = add(offset, constant(half));
  Value below = add(offset, constant(-half));
  Value upper = loadMasked(pointerOf(input), element, above, firstMask);
  Value lower = loadMasked(pointerOf(input), element, below, secondMask);
  Value negated = arith::NegFOp::create(builder, upper);
  return arith::SelectOp::create(builder, first, negated, lower);
}

/// One half or the other holds all lanes.
Value Emitter::emitRotatedWhole(OpOperand &input, Value offset, int64_t half) {
  Value first =
      arith::CmpIOp::create(builder, arith::CmpIPredicate::slt,
                            groupIndex[space.getInner()], constant(half));
  Value above = constant(half), below = constant(-half);
  Value shift = arith::SelectOp::create(builder, first, above, below);
  Value turned = loadLanes(pointerOf(input), getElementTypeOrSelf(input.get()),
                           add(offset, shift));
  Value negated = arith::NegFOp::create(builder, turned);
  return arith::SelectOp::create(builder, first, negated, turned);
}

/// The rank's first index moves all its loads; `dim` is a group of its own.
Value Emitter::emitSlice(Operation *op) {
  OpOperand &input = op->getOpOperand(0);
  ArrayRef<int64_t> dims = space.getDims(input);
  auto type = cast<RankedTensorType>(input.get().getType());
  int64_t dim = getDimAttr(op), group = space.getGroup(dims[dim]);
  Value first = sumTerms(cast<FusableOpInterface>(op).getRankBegin());
  Value own = groupIndex[group];
  Value shifted = add(own, first);
  groupIndex[group] = shifted;
  Value offset = offsetOf(input.get(), dims);
  Value extent = constant(type.getDimSize(dim));
  bool vector = hasInner(dims) && lanes > 1;
  if (group != space.getInner() || !vector || aligned) {
    groupIndex[group] = own;
    Value inside = arith::CmpIOp::create(builder, arith::CmpIPredicate::slt,
                                         shifted, extent);
    return emitInside(inside, pointerOf(input), type.getElementType(),
                      vector ? lanes : 1, offset);
  }
  Value index = indexOf(dims[dim], lanes);
  groupIndex[group] = own;
  Value bound = arith::TruncIOp::create(builder, builder.getI32Type(), extent);
  Value inside = arith::CmpIOp::create(builder, arith::CmpIPredicate::slt,
                                       index, splat(bound, lanes));
  if (mask)
    inside = arith::AndIOp::create(builder, inside, mask);
  return loadMasked(pointerOf(input), type.getElementType(), offset, inside);
}
