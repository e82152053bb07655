//===- Callees.cpp - Reads and writes of function calls -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where values lie is what passes have written down: in a slot, which is the
// caller's, or in a buffer of the program. Before phase `lower` nothing lies
// anywhere.
//
//===----------------------------------------------------------------------===//

#include "Callees.h"

#include "plait/Dialect/Plan/IR/Buffers.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// In no slot: in a buffer of the program, or nowhere yet.
static SlotBytes getSlotBytes(plan::PlaceAttr place, Value value) {
  SlotBytes bytes;
  if (place && place.isInSlot()) {
    bytes.slot = place.getSlot();
    bytes.begin = place.getOffset();
    bytes.end = bytes.begin + plan::getStoredBytes(value);
  }
  return bytes;
}

/// Null before phase `lower`.
static plan::PlaceAttr getPlace(func::FuncOp function, Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return function.getArgAttrOfType<plan::PlaceAttr>(argument.getArgNumber(),
                                                      kPlaceAttr);
  auto result = cast<OpResult>(value);
  auto places = result.getOwner()->getAttrOfType<ArrayAttr>(plan::kPlacesAttr);
  return places && result.getResultNumber() < places.size()
             ? dyn_cast<plan::PlaceAttr>(places[result.getResultNumber()])
             : plan::PlaceAttr();
}

/// Of a result that is added to a sum: clusters have a mode for each result,
/// other ops an attribute, and overwriting is the default.
static plan::Accumulate getMode(OpResult result) {
  int32_t mode = 0;
  if (auto cluster = dyn_cast<plan::ClusterOp>(result.getOwner())) {
    if (auto modes = cluster.getAccumulate())
      mode = (*modes)[result.getResultNumber()];
  } else if (auto own = result.getOwner()->getAttrOfType<IntegerAttr>(
                 kAccumulateAttr)) {
    mode = own.getInt();
  }
  return static_cast<plan::Accumulate>(mode);
}

/// In the order of the ops that write and not of the `nn.accumulate`: two of
/// one function may add to one sum, and then the first of them begins it. A sum
/// that is no result of an op has no mode.
SmallVector<Adding> Callees::findAddings(func::FuncOp function) {
  SmallVector<std::pair<Operation *, Adding>> found;
  for (auto op : function.getOps<nn::AccumulateOp>())
    if (auto result = dyn_cast<OpResult>(op.getTensor())) {
      std::pair key(op.getSymbolAttr().getAttr(), op.getSlot());
      unsigned sum = sums.try_emplace(key, sums.size()).first->second;
      found.push_back({result.getOwner(),
                       {sum, getMode(result), op, op.getSlot().isState()}});
    }
  llvm::stable_sort(found, [](const auto &a, const auto &b) {
    return a.first != b.first && a.first->isBeforeInBlock(b.first);
  });
  return llvm::map_to_vector(found, [](const auto &own) { return own.second; });
}

/// What lies in a buffer of the program makes that buffer a named one.
///
/// Neighbours are joined: of a workspace, in which each op has its place, one
/// range is left for every call to look at.
SmallVector<SlotBytes> Callees::findWrites(func::FuncOp function) {
  SmallVector<SlotBytes> found;
  for (Operation &op : function.getBody().front())
    for (Value result : op.getResults()) {
      plan::PlaceAttr place = getPlace(function, result);
      SlotBytes bytes = getSlotBytes(place, result);
      if (bytes.slot >= 0)
        found.push_back(bytes);
      else if (place)
        named.insert(place.getBuffer().getAttr());
    }
  llvm::sort(found, [](const SlotBytes &a, const SlotBytes &b) {
    return std::pair(a.slot, a.begin) < std::pair(b.slot, b.begin);
  });
  SmallVector<SlotBytes> writes;
  for (const SlotBytes &next : found) {
    if (!writes.empty() && writes.back().slot == next.slot &&
        next.begin <= writes.back().end)
      writes.back().end = std::max(writes.back().end, next.end);
    else
      writes.push_back(next);
  }
  return writes;
}

/// Results are bound to where the values lie that the function returns.
void Callees::add(func::FuncOp function, pipe::FunctionAttr own) {
  unsigned number = callees.size();
  Callee &callee = callees[function.getSymNameAttr()];
  callee.function = function;
  callee.own = own;
  callee.number = number;
  auto bind = [&](DictionaryAttr attrs, Value value) -> Bound {
    return {attrs ? attrs.getAs<pipe::PortAttr>(pipe::kPortAttr)
                  : pipe::PortAttr(),
            getSlotBytes(getPlace(function, value), value)};
  };
  for (auto [index, argument] : llvm::enumerate(function.getArguments()))
    callee.takes.push_back(bind(function.getArgAttrDict(index), argument));
  Operation *end = function.getBody().front().getTerminator();
  for (auto [index, value] : llvm::enumerate(end->getOperands()))
    callee.gives.push_back(bind(function.getResultAttrDict(index), value));
  callee.writes = findWrites(function);
  callee.addings = findAddings(function);
  if (auto bytes = function->getAttrOfType<DenseI64ArrayAttr>(kSlotBytesAttr))
    callee.slotBytes = bytes.asArrayRef();
}

Callees::Callees(ModuleOp module) {
  for (auto function : module.getOps<func::FuncOp>())
    if (auto own =
            function->getAttrOfType<pipe::FunctionAttr>(pipe::kFunctionAttr))
      add(function, own);
}
