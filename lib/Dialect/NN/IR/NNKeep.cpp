//===- NNKeep.cpp - Ops that keep some elements of each chunk -------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which elements of a chunk are kept depends on all of them, and where a kept
// one is sent depends on how many are kept before it: no sweep of sums over a
// row computes that, so each of these ops emits the loops over a row itself.
//
// Magnitudes are compared as integers, the bits of a number without its sign:
// they are in the same order, and what is no number is above all that are. The
// k-th largest is found bit by bit, from the highest on: a bit is 1 if k
// magnitudes are as large as the prefix with it. That takes 31 counts over the
// row, whatever k is, and is exact.
//
//===----------------------------------------------------------------------===//

#include "Constraints.h"
#include "plait/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace plait;
using namespace plait::nn;

//===----------------------------------------------------------------------===//
// Verifiers
//===----------------------------------------------------------------------===//

LogicalResult nn::verifyTensors(Operation *op, Value input,
                                DenseI64ArrayAttr counts) {
  ArrayRef<int64_t> shape = shapeOf(input), elements = counts.asArrayRef();
  // (C1)
  if (elements.empty() ||
      llvm::any_of(elements, [](int64_t count) { return count < 1; }))
    return op->emitOpError("has tensors of ")
           << counts << " elements, expected at least 1 each";
  // (C2)
  if (shape.size() < 2)
    return op->emitOpError("has ")
           << input.getType() << ", expected rows or parts";
  if (elements.size() == 1 &&
      elements[0] == ShapedType::getNumElements(shape.drop_front()))
    return success();
  int64_t rows = 0;
  for (int64_t count : elements)
    rows += llvm::divideCeil(count, shape.back());
  if (rows <= shape[shape.size() - 2])
    return success();
  return op->emitOpError("has ")
         << input.getType() << " for tensors of " << counts << " elements";
}

LogicalResult OccupiedOp::verify() {
  return verifyTensors(*this, getInput(), getElementsAttr());
}

LogicalResult KeepTopOp::verify() {
  int64_t block = getBlock(), keep = getKeep();
  // (C1)
  if (block < 1 || shapeOf(getInput()).empty())
    return emitOpError("has chunks of ")
           << block << " elements of " << getInput().getType()
           << ", expected at least 1 of one dimension or more";
  // (C2)
  if (keep >= 1 && keep <= block)
    return success();
  return emitOpError("keeps ")
         << keep << " elements of a chunk, expected 1 to " << block;
}

/// Whether `some` has the dimensions of `all` but the last, of which it has no
/// more.
static bool areRowsOf(Value some, Value all) {
  ArrayRef<int64_t> own = shapeOf(some), whole = shapeOf(all);
  return !own.empty() && own.size() == whole.size() &&
         own.drop_back() == whole.drop_back() && own.back() <= whole.back();
}

static LogicalResult verifyRows(Operation *op, Value some, Value all) {
  if (areRowsOf(some, all))
    return success();
  return op->emitOpError("has ")
         << some.getType() << " of " << all.getType()
         << ", expected as many rows, and no more columns";
}

LogicalResult CompactOp::verify() {
  return verifyRows(*this, getResult(), getInput());
}

LogicalResult ExpandOp::verify() {
  return verifyRows(*this, getInput(), getResult());
}

/// Verifies both ops of columns, which may be more than there are.
static LogicalResult verifyColumns(Operation *op, Value columns, Value mask) {
  ArrayRef<int64_t> own = shapeOf(columns), all = shapeOf(mask);
  if (!own.empty() && own.size() == all.size() &&
      own.drop_back() == all.drop_back())
    return success();
  return op->emitOpError("has columns ")
         << columns.getType() << " of " << mask.getType()
         << ", expected as many rows";
}

LogicalResult FindOp::verify() {
  return verifyColumns(*this, getResult(), getMask());
}

LogicalResult MarkOp::verify() {
  return verifyColumns(*this, getInput(), getResult());
}

//===----------------------------------------------------------------------===//
// Ends of tensors
//===----------------------------------------------------------------------===//

bool OccupiedOp::computesIndices() { return true; }

/// An element of a tensor's last row is one if its column is below the count of
/// those that are left for it. All other rows are full, but for those behind
/// the last tensor.
Value OccupiedOp::emitElement(ElementContext &context, ValueRange) {
  auto integer = [&](int64_t value) {
    return context.getConstant(
        context.builder.getI32IntegerAttr(static_cast<int32_t>(value)));
  };
  OpBuilder &builder = context.builder;
  ArrayRef<int64_t> shape = shapeOf(getInput());
  int64_t columns = shape.back(), next = 0;
  Value row = context.getIndex(shape.size() - 2), count = integer(columns);
  auto limit = [&](arith::CmpIPredicate when, int64_t at, int64_t elements) {
    Value is =
        arith::CmpIOp::create(builder, context.loc, when, row, integer(at));
    count = arith::SelectOp::create(builder, context.loc, is, integer(elements),
                                    count);
  };
  for (int64_t elements : getElements()) {
    next += llvm::divideCeil(elements, columns);
    if (int64_t rest = elements % columns)
      limit(arith::CmpIPredicate::eq, next - 1, rest);
  }
  limit(arith::CmpIPredicate::sge, next, 0);
  Value column = context.getIndex(shape.size() - 1);
  Value is = arith::CmpIOp::create(builder, context.loc,
                                   arith::CmpIPredicate::slt, column, count);
  Value one = context.getConstant(builder.getF32FloatAttr(1));
  Value zero = context.getConstant(builder.getF32FloatAttr(0));
  return arith::SelectOp::create(builder, context.loc, is, one, zero);
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

FusionRole KeepTopOp::getFusionRole() { return FusionRole::Rows; }
FusionRole CompactOp::getFusionRole() { return FusionRole::Rows; }
FusionRole ExpandOp::getFusionRole() { return FusionRole::Rows; }
FusionRole FindOp::getFusionRole() { return FusionRole::Rows; }
FusionRole MarkOp::getFusionRole() { return FusionRole::Rows; }

static Value emitNoElement() {
  llvm_unreachable("elements of rows are emitted together");
}

Value KeepTopOp::emitElement(ElementContext &, ValueRange) {
  return emitNoElement();
}
Value CompactOp::emitElement(ElementContext &, ValueRange) {
  return emitNoElement();
}
Value ExpandOp::emitElement(ElementContext &, ValueRange) {
  return emitNoElement();
}
Value FindOp::emitElement(ElementContext &, ValueRange) {
  return emitNoElement();
}
Value MarkOp::emitElement(ElementContext &, ValueRange) {
  return emitNoElement();
}

namespace {
/// Loops over the columns of one row, and what is computed there.
class RowLoops {
public:
  explicit RowLoops(RowContext &context)
      : context(context), at(context.builder), loc(context.loc) {}

  Value column(int64_t value) {
    return arith::ConstantOp::create(at, loc, at.getI64IntegerAttr(value));
  }
  Value integer(int32_t value) {
    return arith::ConstantOp::create(at, loc, at.getI32IntegerAttr(value));
  }
  Value real(float value) {
    return arith::ConstantOp::create(at, loc, at.getF32FloatAttr(value));
  }
  template <typename OpTy> Value make(Value a, Value b) {
    return OpTy::create(at, loc, a, b);
  }
  Value compare(arith::CmpIPredicate when, Value a, Value b) {
    return arith::CmpIOp::create(at, loc, when, a, b);
  }
  Value select(Value is, Value yes, Value no) {
    return arith::SelectOp::create(at, loc, is, yes, no);
  }
  Value splat(Value scalar, int64_t lanes) {
    if (lanes == 1)
      return scalar;
    auto type = VectorType::get({lanes}, scalar.getType());
    return vector::BroadcastOp::create(at, loc, type, scalar);
  }

  /// Calls `body` with 0, `step`, … below `extent` and what is carried, which
  /// it returns anew; returns the last.
  SmallVector<Value>
  over(int64_t extent, int64_t step, ValueRange carried,
       function_ref<SmallVector<Value>(Value, ValueRange)> body) {
    auto loop = scf::ForOp::create(at, loc, column(0), column(extent),
                                   column(step), carried);
    OpBuilder::InsertionGuard guard(at);
    at.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> next =
        body(loop.getInductionVar(), loop.getRegionIterArgs());
    if (!carried.empty())
      scf::YieldOp::create(at, loc, next);
    return SmallVector<Value>(loop.getResults());
  }

  /// Emits `body` where `condition` holds.
  void when(Value condition, function_ref<void()> body) {
    auto branch = scf::IfOp::create(at, loc, condition, false);
    OpBuilder::InsertionGuard guard(at);
    at.setInsertionPointToStart(branch.thenBlock());
    body();
  }

  Value load(unsigned operand, Value column, int64_t lanes = 1) {
    return context.load(operand, column, lanes);
  }
  void store(Value element, Value column) { context.store(element, column); }
  /// Stores a number in all of `extent` columns.
  void fill(float number, int64_t extent) {
    over(extent, 1, {}, [&](Value index, ValueRange) -> SmallVector<Value> {
      store(real(number), index);
      return {};
    });
  }
  Value isMarked(Value mask) {
    return arith::CmpFOp::create(at, loc, arith::CmpFPredicate::UNE, mask,
                                 real(0));
  }

  RowContext &context;
  OpBuilder &at;
  Location loc;
};

/// Magnitudes of one row, as integers.
class Magnitudes {
public:
  Magnitudes(RowLoops &loops, int64_t columns)
      : loops(loops), columns(columns),
        lanes(columns % loops.context.getLanes() ? 1
                                                 : loops.context.getLanes()) {}

  Value load(Value column, int64_t lanes) {
    Value x = loops.load(0, column, lanes);
    Type type = loops.at.getI32Type();
    if (auto vector = dyn_cast<VectorType>(x.getType()))
      type = vector.clone(type);
    Value bits = arith::BitcastOp::create(loops.at, loops.loc, type, x);
    Value mask = loops.splat(loops.integer(0x7fffffff), lanes);
    return loops.make<arith::AndIOp>(bits, mask);
  }

  /// How many are above a bound, or as large.
  Value count(arith::CmpIPredicate when, Value bound) {
    Value all = loops.splat(bound, lanes);
    Value none = loops.splat(loops.integer(0), lanes);
    Value found =
        loops.over(columns, lanes, none, [&](Value index, ValueRange carried) {
          Value is = loops.compare(when, load(index, lanes), all);
          Value one =
              arith::ExtUIOp::create(loops.at, loops.loc, none.getType(), is);
          return SmallVector<Value>{loops.make<arith::AddIOp>(carried[0], one)};
        })[0];
    if (lanes == 1)
      return found;
    return vector::ReductionOp::create(loops.at, loops.loc,
                                       vector::CombiningKind::ADD, found);
  }

  /// The `keep`-th largest.
  Value findBound(int64_t keep) {
    Value least = loops.integer(static_cast<int32_t>(keep));
    return loops.over(
        31, 1, loops.integer(0), [&](Value digit, ValueRange carried) {
          Value shift = arith::TruncIOp::create(loops.at, loops.loc,
                                                loops.at.getI32Type(), digit);
          Value bit = loops.make<arith::ShRUIOp>(loops.integer(1 << 30), shift);
          Value wanted = loops.make<arith::OrIOp>(carried[0], bit);
          Value are =
              loops.compare(arith::CmpIPredicate::sge,
                            count(arith::CmpIPredicate::sge, wanted), least);
          return SmallVector<Value>{loops.select(are, wanted, carried[0])};
        })[0];
  }

private:
  RowLoops &loops;
  int64_t columns, lanes;
};
} // namespace

/// 1. The smallest magnitude that is kept.
/// 2. How many that are equal to it are kept: those that the larger ones leave.
/// 3. One element after the other.
void KeepTopOp::emitRow(RowContext &context) {
  RowLoops loops(context);
  int64_t columns = shapeOf(getInput()).back();
  Magnitudes magnitudes(loops, columns);
  // 1.
  Value bound = magnitudes.findBound(getKeep());
  // 2.
  Value larger = magnitudes.count(arith::CmpIPredicate::sgt, bound);
  Value left = loops.make<arith::SubIOp>(
      loops.integer(static_cast<int32_t>(getKeep())), larger);
  // 3.
  loops.over(columns, 1, left, [&](Value index, ValueRange carried) {
    Value own = magnitudes.load(index, 1);
    Value isLarger = loops.compare(arith::CmpIPredicate::sgt, own, bound);
    Value isEqual = loops.compare(arith::CmpIPredicate::eq, own, bound);
    Value isFree =
        loops.compare(arith::CmpIPredicate::sgt, carried[0], loops.integer(0));
    Value takes = loops.make<arith::AndIOp>(isEqual, isFree);
    Value keeps = loops.make<arith::OrIOp>(isLarger, takes);
    loops.store(loops.select(keeps, loops.real(1), loops.real(0)), index);
    Value one = arith::ExtUIOp::create(loops.at, loops.loc,
                                       loops.at.getI32Type(), takes);
    return SmallVector<Value>{loops.make<arith::SubIOp>(carried[0], one)};
  });
}

/// Calls `body` for each column of `mask`, an operand, that is not 0, with how
/// many there were before; no more than `most`.
static void overMarked(RowLoops &loops, unsigned mask, int64_t columns,
                       int64_t most, function_ref<void(Value, Value)> body) {
  Value first = loops.column(0), last = loops.column(most);
  loops.over(columns, 1, first, [&](Value index, ValueRange carried) {
    Value isMarked = loops.isMarked(loops.load(mask, index));
    Value fits = loops.compare(arith::CmpIPredicate::slt, carried[0], last);
    Value takes = loops.make<arith::AndIOp>(isMarked, fits);
    loops.when(takes, [&] { body(index, carried[0]); });
    Value one = arith::ExtUIOp::create(loops.at, loops.loc,
                                       loops.at.getI64Type(), takes);
    return SmallVector<Value>{loops.make<arith::AddIOp>(carried[0], one)};
  });
}

void CompactOp::emitRow(RowContext &context) {
  RowLoops loops(context);
  int64_t kept = shapeOf(getResult()).back();
  loops.fill(0, kept);
  overMarked(
      loops, 1, shapeOf(getInput()).back(), kept,
      [&](Value from, Value to) { loops.store(loops.load(0, from), to); });
}

void ExpandOp::emitRow(RowContext &context) {
  RowLoops loops(context);
  int64_t columns = shapeOf(getResult()).back();
  loops.fill(0, columns);
  overMarked(
      loops, 1, columns, shapeOf(getInput()).back(),
      [&](Value to, Value from) { loops.store(loops.load(0, from), to); });
}

void FindOp::emitRow(RowContext &context) {
  RowLoops loops(context);
  int64_t kept = shapeOf(getResult()).back();
  loops.fill(-1, kept);
  overMarked(loops, 0, shapeOf(getMask()).back(), kept,
             [&](Value from, Value to) {
               loops.store(arith::SIToFPOp::create(loops.at, loops.loc,
                                                   loops.at.getF32Type(), from),
                           to);
             });
}

/// Checks what another rank has sent: it says where to write.
void MarkOp::emitRow(RowContext &context) {
  RowLoops loops(context);
  int64_t columns = shapeOf(getResult()).back();
  loops.fill(0, columns);
  loops.over(shapeOf(getInput()).back(), 1, {},
             [&](Value index, ValueRange) -> SmallVector<Value> {
               Value given = arith::FPToSIOp::create(loops.at, loops.loc,
                                                     loops.at.getI32Type(),
                                                     loops.load(0, index));
               Value bound = loops.integer(static_cast<int32_t>(columns));
               Value fits =
                   loops.compare(arith::CmpIPredicate::ult, given, bound);
               Value to = arith::ExtUIOp::create(loops.at, loops.loc,
                                                 loops.at.getI64Type(), given);
               loops.when(fits, [&] { loops.store(loops.real(1), to); });
               return {};
             });
}
