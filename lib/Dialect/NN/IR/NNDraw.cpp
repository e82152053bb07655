//===- NNDraw.cpp - All of nn.draw ------------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Random numbers of compressors. As those of dropout they are hashes of what
// does not depend on how a tensor is split: the number of a chunk in the whole
// tensor, and the column there. A rank has runs of chunks, from the innermost
// dimension on that is split, each at the same place of a run of the whole.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/NNDraw.h"

#include "Constraints.h"
#include "EmittedWords.h"

#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;
using namespace plait;
using namespace plait::nn;

uint32_t nn::getDrawKey(StringRef name) {
  uint32_t hash = 0x811c9dc5u;
  for (unsigned char byte : name.bytes())
    hash = (hash ^ byte) * 0x01000193u;
  return hash;
}

//===----------------------------------------------------------------------===//
// Verifier
//===----------------------------------------------------------------------===//

/// (C3)
static LogicalResult verifyRun(DrawOp op, int64_t run, Attribute begin) {
  if (isa<UnitAttr>(begin))
    return success();
  auto known = dyn_cast<BeginAttr>(begin);
  if (known && !known.isReordered() && run <= known.getExtent())
    return success();
  return op.emitOpError("has a run of ")
         << run << " chunks that begins at " << begin
         << ", expected unit or the #nn.begin of no shorter run";
}

LogicalResult DrawOp::verify() {
  if (failed(verifyTensors(*this, getInput(), getElementsAttr())))
    return failure();
  // (C4)
  if (int64_t block = getBlock(); block < 1)
    return emitOpError("has chunks of ")
           << block << " elements, expected at least 1";
  // (C1)
  size_t count = getElements().size();
  auto isKey = [](int64_t key) {
    return key >= 0 && key <= std::numeric_limits<uint32_t>::max();
  };
  if (getKeys().size() != count || getRuns().size() != count ||
      getBegins().size() != count || !llvm::all_of(getKeys(), isKey) ||
      llvm::any_of(getRuns(), [](int64_t run) { return run < 1; }))
    return emitOpError("has keys ")
           << getKeysAttr() << ", runs " << getRunsAttr() << " and begins "
           << getBegins() << ", expected one of each for " << count
           << " tensors";
  for (auto [run, begin] : llvm::zip_equal(getRuns(), getBegins()))
    if (failed(verifyRun(*this, run, begin)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

bool DrawOp::computesIndices() { return true; }

namespace {
/// Finds the tensor that a row belongs to, and its chunk there.
class ChunkFinder {
public:
  ChunkFinder(DrawOp op, ElementContext &context)
      : op(op), context(context), words{context} {}

  /// 1. Rows of tensors follow each other: the last one that begins at or
  ///    before the row is its own.
  /// 2. Runs of other ranks lie between those of this one.
  void find(Value row) {
    // 1.
    int64_t columns = shapeOf(op.getInput()).back(), next = 0;
    for (auto [index, elements] : llvm::enumerate(op.getElements())) {
      Value bound = words.constant(next);
      isBehind = arith::CmpIOp::create(context.builder, context.loc,
                                       arith::CmpIPredicate::sge, row, bound);
      choose(first, bound);
      chooseTensor(index);
      next += llvm::divideCeil(elements, columns);
    }
    chunk = words.emit<arith::SubIOp>(row, first);
    // 2.
    if (!isSplit())
      return;
    Value before = words.emit<arith::DivUIOp>(chunk, run);
    Value within = words.emit<arith::RemUIOp>(chunk, run);
    Value passed = words.emit<arith::MulIOp>(before, whole);
    chunk = words.add(words.add(passed, begin), within);
  }

  Value key, chunk;

private:
  bool isSplit() {
    return !llvm::all_of(op.getBegins(), llvm::IsaPred<UnitAttr>);
  }

  void choose(Value &value, Value own) {
    value = value ? arith::SelectOp::create(context.builder, context.loc,
                                            isBehind, own, value)
                  : own;
  }

  /// Takes a tensor that is not split for one run.
  void chooseTensor(size_t index) {
    choose(key, words.constant(op.getKeys()[index]));
    if (!isSplit())
      return;
    auto known = dyn_cast<BeginAttr>(op.getBegins()[index]);
    int64_t one = std::numeric_limits<int32_t>::max();
    choose(run, words.constant(known ? op.getRuns()[index] : one));
    choose(whole, words.constant(known ? known.getExtent() : 0));
    choose(begin,
           known ? context.getRankValue(known.getTerms()) : words.constant(0));
  }

  DrawOp op;
  ElementContext &context;
  EmittedWords words;
  Value isBehind, first, run, whole, begin;
};
} // namespace

/// The upper 24 bits are a number in f32 as they are.
Value DrawOp::emitElement(ElementContext &context, ValueRange operands) {
  EmittedWords words{context};
  int64_t rank = shapeOf(getInput()).size();
  ChunkFinder finder(*this, context);
  finder.find(context.getIndex(rank - 2));
  Type type = words.constant(0).getType();
  Value step =
      arith::FPToSIOp::create(context.builder, context.loc, type, operands[1]);
  BeginAttr begin = getReplicaAttr();
  Value replica = begin && !getShared() ? context.getRankValue(begin.getTerms())
                                        : words.constant(0);
  Value hash = words.constant(static_cast<uint32_t>(getSeed()));
  for (Value number :
       {step, finder.key, replica, finder.chunk, context.getIndex(rank - 1)})
    hash = extendMaskHash(words, hash, number);
  Value upper = words.shiftRight(hash, 8);
  Value number = arith::SIToFPOp::create(context.builder, context.loc,
                                         operands[1].getType(), upper);
  Value unit = context.getConstant(context.builder.getF32FloatAttr(0x1p-24f));
  return words.emit<arith::MulFOp>(number, unit);
}
