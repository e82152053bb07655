//===- EmitMemory.cpp - Loads and stores ----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Numbers are 32 bits wide in registers, bf16 ones 16 bits in memory: they are
// widened by every load and rounded by every store (see Support/BFloat16.h).
// Code for a processor does that with integers, the same on all of them:
// AVX-512's own conversion drops subnormals, and few machines have it. A GPU
// moves a pair as one word, whose halves a shift and a mask widen, and rounds
// pairs by an instruction.
//
// What a kernel keeps for others it also goes on with in its rounded form, as
// every reader of it will: where a gradient cancels, as that of a norm along
// what it divides by, what is left of two forms of a value would be their
// difference.
//
//===----------------------------------------------------------------------===//

#include "Emitter.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

//===----------------------------------------------------------------------===//
// bf16
//===----------------------------------------------------------------------===//

/// Returns the type that loads and stores name an element by in memory.
static Type storedType(Type element) {
  if (element.isBF16())
    return IntegerType::get(element.getContext(), 16);
  return element;
}

static unsigned bytesOf(Type element) {
  return element.getIntOrFloatBitWidth() / 8;
}

/// `element`, or the vector of it that has as many lanes as `like`.
static Type withLanes(Type element, Type like) {
  auto vector = dyn_cast<VectorType>(like);
  return vector ? vector.clone(element) : element;
}

/// A 32-bit constant in as many lanes as `like`, a type, has.
Value Emitter::number(int64_t value, Type like) {
  Value scalar = arith::ConstantOp::create(
      builder, builder.getI32IntegerAttr(static_cast<int32_t>(value)));
  auto vector = dyn_cast<VectorType>(like);
  return splat(scalar, vector ? vector.getNumElements() : 1);
}

/// The floats whose upper halves are `bits`, i16.
/// Exact: a bf16 number is the upper half of an f32 one.
Value Emitter::widen(Value bits) {
  Type words = withLanes(builder.getI32Type(), bits.getType());
  Value word = arith::ExtUIOp::create(builder, words, bits);
  word = arith::ShLIOp::create(builder, word, number(16, words));
  Type floats = withLanes(builder.getF32Type(), words);
  return arith::BitcastOp::create(builder, floats, word);
}

/// Two floats of each of the i32 in `pairs`.
/// The even lanes are the lower halves, as the machine is little-endian.
Value Emitter::widenPairs(Value pairs) {
  SmallVector<Value> words;
  int64_t count = cast<VectorType>(pairs.getType()).getNumElements();
  for (int64_t index = 0; index < count; ++index) {
    Value pair = vector::ExtractOp::create(builder, pairs, index);
    Value half = number(16, pair.getType());
    words.push_back(arith::ShLIOp::create(builder, pair, half));
    Value upper = number(0xffff0000, pair.getType());
    words.push_back(arith::AndIOp::create(builder, pair, upper));
  }
  auto type = VectorType::get({2 * count}, builder.getI32Type());
  Value all = vector::FromElementsOp::create(builder, type, words);
  return arith::BitcastOp::create(builder, type.clone(builder.getF32Type()),
                                  all);
}

/// The upper halves of `floats` after rounding, i16.
Value Emitter::round(Value floats) {
  Type type = withLanes(builder.getI32Type(), floats.getType());
  Value half = number(16, type), one = number(1, type);
  Value word = arith::BitcastOp::create(builder, type, floats);
  // Half of a unit in the last place that stays, less one, and one more where
  // that place is odd: the carry is what rounding to nearest, ties to even,
  // adds.
  Value odd = arith::ShRUIOp::create(builder, word, half);
  odd = arith::AndIOp::create(builder, odd, one);
  Value below = add(number(0x7fff, type), odd);
  Value rounded = add(word, below);
  // A NaN whose payload lies in the lower half would become infinite.
  Value quiet = number(0x400000, type);
  quiet = arith::OrIOp::create(builder, word, quiet);
  Value isNan =
      arith::CmpFOp::create(builder, arith::CmpFPredicate::UNO, floats, floats);
  rounded = arith::SelectOp::create(builder, isNan, quiet, rounded);
  rounded = arith::ShRUIOp::create(builder, rounded, half);
  Type bits = withLanes(builder.getIntegerType(16), type);
  return arith::TruncIOp::create(builder, bits, rounded);
}

/// The same by the machine's instructions: an i16, or pairs as i32.
/// The intrinsic puts its first operand into the upper half.
Value Emitter::roundPairs(Value floats) {
  auto convert = [&](StringRef intrinsic, Type type, ValueRange operands) {
    return LLVM::CallIntrinsicOp::create(
               builder, type, builder.getStringAttr(intrinsic), operands)
        .getResult(0);
  };
  Type narrow = builder.getBF16Type();
  auto vector = dyn_cast<VectorType>(floats.getType());
  if (!vector) {
    Value rounded = convert("llvm.nvvm.f2bf16.rn", narrow, floats);
    return LLVM::BitcastOp::create(builder, builder.getIntegerType(16),
                                   rounded);
  }
  SmallVector<Value> pairs;
  auto pair = VectorType::get({2}, narrow);
  for (int64_t lane = 0; lane < vector.getNumElements(); lane += 2) {
    Value low = vector::ExtractOp::create(builder, floats, lane);
    Value high = vector::ExtractOp::create(builder, floats, lane + 1);
    Value rounded = convert("llvm.nvvm.ff2bf16x2.rn", pair, {high, low});
    pairs.push_back(
        LLVM::BitcastOp::create(builder, builder.getI32Type(), rounded));
  }
  int64_t count = pairs.size();
  return vector::FromElementsOp::create(
      builder, VectorType::get({count}, builder.getI32Type()), pairs);
}

/// Whether `value` is bf16, a result, and read inside of the kernel as well.
/// Accumulating results are not: what lies in memory is then a sum.
bool Emitter::isKept(Value value) {
  if (!getElementTypeOrSelf(value).isBF16() || value.hasOneUse())
    return false;
  return llvm::any_of(llvm::seq<unsigned>(cluster.getNumResults()),
                      [&](unsigned result) {
                        return getYielded(result).get() == value &&
                               getMode(result) == plan::Accumulate::Overwrite;
                      });
}

/// `floats` as whoever loads them will have them.
/// Remembers the bits, so that the store need not round again.
Value Emitter::asKept(Value floats) {
  Value bits = roundsPairs ? roundPairs(floats) : round(floats);
  bool pairs = roundsPairs && isa<VectorType>(floats.getType());
  Value kept = pairs ? widenPairs(bits) : widen(bits);
  roundedBits[kept] = bits;
  return kept;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// `offset` counts elements, as i64.
static Value elementAddress(ImplicitLocOpBuilder &builder, Value pointer,
                            Type element, Value offset) {
  return LLVM::GEPOp::create(builder, pointer.getType(), element, pointer,
                             ArrayRef<LLVM::GEPArg>(offset));
}

/// Whole groups only: the innermost dimension of each stands for all.
Value Emitter::offsetOf(Value tensor, ArrayRef<int64_t> dims) {
  return offsetOf(tensor, dims, plan::getRowPitch(tensor));
}

/// Sums up, from the innermost dimension out, each group's index times the
/// stride of its innermost dimension: the dimensions of a group are one running
/// index, in the tensor as well as in the space. A dimension that the space
/// lacks (kNoDim) has one element here. Rows are `pitch` apart, all else
/// without gaps.
Value Emitter::offsetOf(Value tensor, ArrayRef<int64_t> dims, int64_t pitch) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(tensor.getType()).getShape();
  Value offset;
  int64_t stride = 1;
  for (int64_t index = shape.size() - 1; index >= 0; --index) {
    int64_t dim = dims[index];
    if (dim != kNoDim) {
      int64_t group = space.getGroup(dim);
      if (space.getGroups()[group].dims.back() == dim) {
        Value step = mul(groupIndex[group], stride);
        offset = offset ? add(offset, step) : step;
      }
    }
    bool isRow = index + 1 == static_cast<int64_t>(shape.size());
    stride *= isRow ? pitch : shape[index];
  }
  return offset ? offset : constant(0);
}

/// Aligned to an element, whatever it is a part of.
Value Emitter::loadScalar(Value pointer, Type element, Value offset) {
  Type stored = storedType(element);
  Value address = elementAddress(builder, pointer, stored, offset);
  Value loaded =
      LLVM::LoadOp::create(builder, stored, address, bytesOf(element));
  return element.isBF16() ? widen(loaded) : loaded;
}

/// 1. One lane without a mask is a scalar.
/// 2. Under a mask: lanes outside are zero and their memory is not touched.
///    Such loads are aligned to an element only.
/// 3. Whole vectors, aligned to their size where the machine has no others;
///    pairs of bf16 are one word each.
Value Emitter::loadMasked(Value pointer, Type element, Value offset,
                          Value lanesMask) {
  // 1.
  if (lanes == 1 && !lanesMask)
    return loadScalar(pointer, element, offset);
  Type stored = storedType(element);
  Value address = elementAddress(builder, pointer, stored, offset);
  auto type = VectorType::get({lanes}, stored);
  uint32_t bytes = bytesOf(element);
  // 2.
  if (lanesMask) {
    Value zero = arith::ConstantOp::create(builder, builder.getZeroAttr(type));
    Value loaded = LLVM::MaskedLoadOp::create(builder, type, address, lanesMask,
                                              zero, bytes);
    return element.isBF16() ? widen(loaded) : loaded;
  }
  // 3.
  bool pairs = element.isBF16() && roundsPairs;
  if (pairs)
    type = VectorType::get({lanes / 2}, builder.getI32Type());
  Value loaded = LLVM::LoadOp::create(builder, type, address,
                                      aligned ? bytes * lanes : bytes);
  if (pairs)
    return widenPairs(loaded);
  return element.isBF16() ? widen(loaded) : loaded;
}

/// A number that is rounded already (asKept) is stored as it is: rounding it
/// again would give the same bits and cost as much.
void Emitter::store(Value pointer, Type element, Value value, Value offset) {
  bool vector = isa<VectorType>(value.getType());
  Value address = elementAddress(builder, pointer, storedType(element), offset);
  if (Value bits = roundedBits.lookup(value); bits && element.isBF16())
    value = bits;
  else if (element.isBF16())
    value = roundsPairs ? roundPairs(value) : round(value);
  uint32_t bytes = bytesOf(element);
  if (vector && mask)
    LLVM::MaskedStoreOp::create(builder, value, address, mask, bytes);
  else
    LLVM::StoreOp::create(builder, value, address,
                          vector && aligned ? bytes * lanes : bytes);
}

/// Results that lack an enclosing loop's group are written at its first index
/// only. Null: always.
Value Emitter::guardOf(ArrayRef<int64_t> dims, ScopeIndex scope) {
  GroupSet has = space.getGroups(dims);
  Value guard;
  auto require = [&](Value index) {
    Value first = arith::CmpIOp::create(builder, arith::CmpIPredicate::eq,
                                        index, constant(0));
    guard = guard ? arith::AndIOp::create(builder, guard, first).getResult()
                  : first;
  };
  for (auto [group, own] : llvm::enumerate(groupScope))
    // All indices along that group would write the same number.
    if (own <= scope && !(has >> group & 1))
      require(groupIndex[group]);
  if (scope == KernelScope)
    require(function.first);
  if (scope == IndexScope && indexGuard)
    guard = guard
                ? arith::AndIOp::create(builder, guard, indexGuard).getResult()
                : indexGuard;
  return guard;
}

/// Adds to what is there, where the result accumulates over microbatches; which
/// microbatch it is comes with the call, so that one kernel serves all of them.
void Emitter::storeResult(unsigned result, Value element) {
  OpOperand &use = getYielded(result);
  ArrayRef<int64_t> dims = space.getDims(use);
  Type type = getElementTypeOrSelf(use.get());
  Value pointer = getResultPointer(result);
  Value offset =
      offsetOf(use.get(), dims, plan::getRowPitch(cluster.getResult(result)));
  plan::Accumulate mode = getMode(result);
  if (mode != plan::Accumulate::Overwrite) {
    bool vector = isa<VectorType>(element.getType());
    Value old = vector ? loadLanes(pointer, type, offset)
                       : loadScalar(pointer, type, offset);
    Value sum = arith::AddFOp::create(builder, old, element);
    // Selected, not multiplied: the old value may be a NaN of other data.
    element = mode == plan::Accumulate::Add
                  ? sum
                  : arith::SelectOp::create(builder, isFirstMicrobatch(),
                                            element, sum);
  }
  store(pointer, type, element, offset);
}

void Emitter::storeResults(ArrayRef<unsigned> results, ScopeIndex scope) {
  // All elements before any store: a result may lie where an operand does.
  SmallVector<Value> elements;
  for (unsigned result : results) {
    OpOperand &use = getYielded(result);
    bool vector = hasInner(space.getDims(use));
    elements.push_back(splat(emit(use), vector ? lanes : 1));
  }
  for (auto [result, element] : llvm::zip(results, elements)) {
    Value guard = guardOf(space.getDims(getYielded(result)), scope);
    OpBuilder::InsertionGuard restore(builder);
    if (guard) {
      auto branch = scf::IfOp::create(builder, guard, false);
      builder.setInsertionPointToStart(branch.thenBlock());
    }
    storeResult(result, element);
  }
}

/// Spills all lanes, under the mask: the same elements that a later load asks
/// for.
void Emitter::spill(Value value, unsigned result) {
  Value offset = offsetOf(value, space.getDims(value),
                          plan::getRowPitch(cluster.getResult(result)));
  store(getResultPointer(result), getElementTypeOrSelf(value),
        splat(emitValue(value), lanes), offset);
}

void Emitter::reloadFrom(Value value, unsigned result) {
  reloads[value] = result;
}
