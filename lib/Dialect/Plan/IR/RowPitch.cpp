//===- RowPitch.cpp - How a value lies in memory --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where a pitch stands depends on whose value it is: on the op for a result, on
// the function for an argument, on a kernel for its inputs. An argument of a
// cluster has none of its own but that of the operand behind it, so that
// clusters need not repeat what their surroundings say. The same holds for what
// is sorted behind tokens.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/Plan/IR/RowPitch.h"

#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Support/SortedTokens.h"

#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace plait;

/// Returns what the attribute `name` says of the value, or 0.
static int64_t findNumber(Value value, StringRef name) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    Operation *parent = argument.getOwner()->getParentOp();
    if (auto cluster = dyn_cast<plan::ClusterOp>(parent))
      return findNumber(cluster.getOperand(argument.getArgNumber()), name);
    if (auto kernel = dyn_cast<plan::KernelOp>(parent)) {
      auto numbers = kernel->getAttrOfType<DenseI64ArrayAttr>(name);
      return numbers ? numbers[argument.getArgNumber()] : 0;
    }
    auto function = dyn_cast<FunctionOpInterface>(parent);
    auto number = function ? function.getArgAttrOfType<IntegerAttr>(
                                 argument.getArgNumber(), name)
                           : IntegerAttr();
    return number ? number.getInt() : 0;
  }
  auto numbers = value.getDefiningOp()->getAttrOfType<DenseI64ArrayAttr>(name);
  return numbers ? numbers[cast<OpResult>(value).getResultNumber()] : 0;
}

/// Never below the extent, so that an attribute of 0 means none.
int64_t plan::getRowPitch(Value value) {
  auto shape = cast<RankedTensorType>(value.getType()).getShape();
  return std::max(findNumber(value, kPitchAttr),
                  shape.empty() ? 1 : shape.back());
}

int64_t plan::getSortedEntries(Value value) {
  return findNumber(value, kSortedAttr);
}

bool plan::isSortedEntries(int64_t entries, Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return entries == 0 || (entries > 0 && entries < INT32_MAX && tensor &&
                          tensor.getElementType().isInteger(32));
}

/// The last row is as long as all others: buffers are sized for whole rows.
int64_t plan::getStoredBytes(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  if (int64_t entries = getSortedEntries(value))
    return SortedTokens{type.getNumElements(), entries}.getWords() *
           int64_t(sizeof(int32_t));
  int64_t extent = type.getRank() ? type.getShape().back() : 1;
  int64_t rows = extent ? type.getNumElements() / extent : 0;
  return rows * getRowPitch(value) * type.getElementTypeBitWidth() / 8;
}

/// Bounded, since a pitch in IR that was written by hand decides how much
/// memory is allocated.
bool plan::isRowPitch(int64_t pitch, Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (pitch == 0 || !tensor)
    return pitch == 0;
  int64_t extent = tensor.getRank() ? tensor.getShape().back() : 1;
  constexpr int64_t line = 128;
  return pitch >= extent && pitch - extent <= line;
}

/// Fails unless attribute `name` is absent, or has a number that is right for
/// each input; `what` says which are.
static LogicalResult verifyNumbers(Operation *kernel, TypeRange inputs,
                                   StringRef name,
                                   bool (*isRight)(int64_t, Type),
                                   const char *what) {
  Attribute given = kernel->getAttr(name);
  auto numbers = dyn_cast_or_null<DenseI64ArrayAttr>(given);
  if (!given || (numbers && size_t(numbers.size()) == inputs.size() &&
                 llvm::all_of_zip(numbers.asArrayRef(), inputs, isRight)))
    return success();
  return kernel->emitOpError("has ")
         << given << " as " << name << ", expected an i64 for each of "
         << inputs.size() << " inputs: 0, or " << what;
}

LogicalResult plan::verifyLayouts(Operation *kernel, TypeRange inputs) {
  if (failed(verifyNumbers(kernel, inputs, kPitchAttr, isRowPitch,
                           "the extent of its rows and up to 128 more")))
    return failure();
  return verifyNumbers(kernel, inputs, kSortedAttr, isSortedEntries,
                       "of i32 one below 2147483647");
}

/// Below `shortest` a pitch would waste a good part of each row; from `longRow`
/// on rounding to a whole line takes a sixteenth more at most.
int64_t plan::choosePitch(int64_t extent, int64_t bytes) {
  constexpr int64_t shortest = 64, longRow = 1024, load = 16, line = 128;
  if (extent < shortest || extent * bytes % load == 0)
    return extent;
  return llvm::alignTo(extent * bytes, extent < longRow ? load : line) / bytes;
}
