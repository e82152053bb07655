//===- PlanAttributes.cpp - Attributes on ops of other dialects -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What value form says of memory stands on ops of `nn`, `dist` and `func`.
//
// They are discardable attributes, so that no op of these dialects knows of
// memory: addresses come in phase `lower`, and go when ops become steps. What
// each has to look like is checked here, since dumps may be edited; that every
// value has an address is checked by who relies on it (plan-lower-to-steps).
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace plait;
using namespace plait::plan;

/// (C1) of places and memories.
static bool isOutside(int64_t number) {
  return number < 0 || number >= int64_t(placeLimit);
}

/// (C2) of places and memories: either a slot or a buffer, never both.
static LogicalResult
verifySlotOrBuffer(function_ref<InFlightDiagnostic()> emitError, StringRef what,
                   int64_t slot, FlatSymbolRefAttr buffer) {
  if (buffer ? slot != -1 : slot < 0)
    return emitError() << what << " is in slot " << slot
                       << ", expected 0 or more, or a buffer";
  return success();
}

LogicalResult PlaceAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                int64_t slot, FlatSymbolRefAttr buffer,
                                int64_t offset) {
  // (C1)
  // Bounded as a memory is, so that ends of places are numbers too.
  if (isOutside(offset))
    return emitError() << "a place at offset " << offset
                       << " of a buffer, expected 0 to below " << placeLimit;
  // (C2)
  return verifySlotOrBuffer(emitError, "a place", slot, buffer);
}

LogicalResult MemoryAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                 int64_t slot, FlatSymbolRefAttr buffer,
                                 int64_t offset, int64_t bytes) {
  // (C1)
  if (isOutside(offset) || isOutside(bytes))
    return emitError() << "memory of " << bytes << " bytes begins at byte "
                       << offset << ", expected numbers of 0 to below "
                       << placeLimit;
  // (C2)
  return verifySlotOrBuffer(emitError, "memory", slot, buffer);
}

/// Whether an array has what `isRight` accepts for each of `count` things.
template <typename AttrT> static bool hasEach(Attribute value, size_t count) {
  auto array = dyn_cast<ArrayAttr>(value);
  return array && array.size() == count &&
         llvm::all_of(array, llvm::IsaPred<AttrT>);
}

/// Empty if the attribute is one of value form and right on `op`, else what was
/// expected.
static StringRef getExpected(Operation *op, StringRef name, Attribute value) {
  if (name == kPlacesAttr)
    return hasEach<PlaceAttr>(value, op->getNumResults())
               ? ""
               : "a #plan.place for each result";
  // A number and no enumeration attribute: modes of clusters are a list of the
  // same numbers.
  if (name == kAccumulateAttr) {
    auto mode = dyn_cast<IntegerAttr>(value);
    return mode && mode.getType().isSignlessInteger(32) &&
                   symbolizeAccumulate(mode.getInt())
               ? ""
               : "an i32 that is 0, 1 or 2";
  }
  if (name == kSlotBytesAttr) {
    auto bytes = dyn_cast<DenseI64ArrayAttr>(value);
    return bytes && llvm::all_of(bytes.asArrayRef(),
                                 [](int64_t size) { return size >= 0; })
               ? ""
               : "an array of i64, 0 or more";
  }
  // The two are set together, and one name belongs to each size.
  if (name == kSlotNamesAttr) {
    auto bytes = op->getAttrOfType<DenseI64ArrayAttr>(kSlotBytesAttr);
    return bytes && hasEach<StringAttr>(value, bytes.size())
               ? ""
               : "a string for each of plan.slot_bytes";
  }
  // A kernel knows its inputs only after its region was verified.
  auto pitches = dyn_cast<DenseI64ArrayAttr>(value);
  if (isa<KernelOp>(op) && pitches &&
      (name == kPitchAttr || name == kSortedAttr))
    return "";
  if (name == kSortedAttr) {
    auto entries = dyn_cast<IntegerAttr>(value);
    return isa<BufferOp>(op) && entries &&
                   entries.getType().isSignlessInteger(64) &&
                   entries.getInt() > 0 && entries.getInt() < INT32_MAX
               ? ""
               : "an i64 on a buffer, above 0 and below 2147483647";
  }
  if (name != kPitchAttr)
    return "another name: the dialect has no such attribute";
  bool isRight =
      pitches && size_t(pitches.size()) == op->getNumResults() &&
      llvm::all_of_zip(pitches.asArrayRef(), op->getResultTypes(), isRowPitch);
  return isRight ? ""
                 : "an i64 for each result: 0, or the extent of its rows and "
                   "up to 128 more";
}

/// Called for every attribute of an op that begins with `plan.`: one that the
/// dialect does not know is a misspelt one.
LogicalResult PlanDialect::verifyOperationAttribute(Operation *op,
                                                    NamedAttribute attribute) {
  StringRef expected =
      getExpected(op, attribute.getName(), attribute.getValue());
  if (expected.empty())
    return success();
  return op->emitOpError("has ")
         << attribute.getName().getValue() << " = " << attribute.getValue()
         << ", expected " << expected;
}

/// The same for arguments of functions, which have one place and one pitch
/// instead of a list.
LogicalResult PlanDialect::verifyRegionArgAttribute(Operation *op, unsigned,
                                                    unsigned argument,
                                                    NamedAttribute attribute) {
  StringRef name = attribute.getName(), expected;
  Attribute value = attribute.getValue();
  Type type = cast<FunctionOpInterface>(op).getArgumentTypes()[argument];
  if (name == kPlaceAttr) {
    expected = isa<PlaceAttr>(value) ? "" : "a #plan.place";
  } else if (name == kPitchAttr) {
    auto pitch = dyn_cast<IntegerAttr>(value);
    bool isRight = pitch && pitch.getType().isSignlessInteger(64) &&
                   isRowPitch(pitch.getInt(), type);
    expected = isRight ? "" : "0, or the extent of its rows and up to 128 more";
  } else if (name == kSortedAttr) {
    auto entries = dyn_cast<IntegerAttr>(value);
    bool isRight = entries && entries.getType().isSignlessInteger(64) &&
                   isSortedEntries(entries.getInt(), type);
    expected = isRight ? "" : "an i64 on i32, 0 or more and below 2147483647";
  } else {
    expected = "another name: the dialect has no such attribute";
  }
  if (expected.empty())
    return success();
  return op->emitOpError("has argument ")
         << argument << " with " << name << " = " << value << ", expected "
         << expected;
}
