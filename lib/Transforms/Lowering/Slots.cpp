//===- Slots.cpp - Slots of functions -------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A slot is what an action binds a buffer to. Residuals are bound in sets: all
// of a set have the same lifetime, so that one slot stands for many values.
//
// A model has tens of residuals a layer, for each of which every microbatch in
// flight would have a buffer: sets keep the number of buffers, and with it the
// time to pack them, from growing with that.
//
//===----------------------------------------------------------------------===//

#include "Slots.h"

#include "plait/Dialect/Plan/IR/Buffers.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"

#include <map>
#include <tuple>

using namespace mlir;
using namespace plait;
using pipe::PortAttr;
using pipe::PortKind;

std::string Slot::getText() const {
  if (residuals)
    return "residuals " + std::to_string(*residuals);
  return port ? port.getText() : std::string();
}

namespace {
/// Which functions make a residual and read it for the last time.
struct Held {
  pipe::ActionKind first, last;
  int64_t bytes;
  /// The place to which, or from which, all that make or read it move it.
  std::optional<MemoryPlace> place;
};
} // namespace

static OperandRange getReturned(func::FuncOp function) {
  return function.getBody().front().getTerminator()->getOperands();
}

/// The residuals of a stage, with the first and last action that holds them, in
/// the order of the ports of `functions`. One that two functions have is one
/// entry, whose ends move apart.
static llvm::MapVector<PortAttr, Held>
findResiduals(ArrayRef<func::FuncOp> functions) {
  llvm::MapVector<PortAttr, Held> residuals;
  for (func::FuncOp function : functions) {
    pipe::ActionKind action = getStageFunction(function).getAction();
    auto visit = [&](PortAttr port, Value value) {
      if (!port || port.getKind() != PortKind::Residual)
        return;
      int64_t bytes =
          llvm::alignTo(plan::getStoredBytes(value), plan::kAlignment);
      Held &held =
          residuals.insert({port, {action, action, bytes, {}}}).first->second;
      // Of one microbatch, actions run in the order of the enumeration.
      held.first = std::min(held.first, action);
      held.last = std::max(held.last, action);
      if (!value.use_empty())
        held.place = joinPlaces(held.place, plan::getMemoryPlace(value));
    };
    for (auto [port, value] :
         llvm::zip_equal(getResultPorts(function), getReturned(function)))
      visit(port, value);
    for (auto [port, value] :
         llvm::zip_equal(getPorts(function), function.getArguments()))
      visit(port, value);
  }
  return residuals;
}

StageResiduals::StageResiduals(ArrayRef<func::FuncOp> functions,
                               int64_t inFlight) {
  auto residuals = findResiduals(functions);
  int64_t limit = 0;
  for (auto &[port, held] : residuals)
    limit += held.bytes;
  // Larger blocks leave gaps in the arena (docs/Rationale.md, "Memory is packed
  // by size").
  limit = limit / 400 * inFlight;
  // The set that is being filled, by who holds it.
  std::map<std::tuple<pipe::ActionKind, pipe::ActionKind, MemoryPlace>,
           unsigned>
      filling;
  for (auto &[port, held] : residuals) {
    MemoryPlace memory = held.place.value_or(MemoryPlace::Arena);
    auto [it, isNew] = filling.insert(
        {{held.first, held.last, memory}, unsigned(bytes.size())});
    unsigned &set = it->second;
    // A residual above the limit is a set of its own: sets are never cut.
    if (!isNew && bytes[set] + held.bytes > limit) {
      set = bytes.size();
      isNew = true;
    }
    if (isNew)
      bytes.push_back(0);
    places[port] = {set, bytes[set], memory, held.last};
    bytes[set] += held.bytes;
  }
}

/// Slots are numbered in the order of arguments, then results; a set that
/// arguments and results share is one slot.
FunctionSlots::FunctionSlots(func::FuncOp function,
                             const StageResiduals &residuals) {
  std::map<unsigned, unsigned> sets; // their slots
  auto assign = [&](PortAttr port, Value value) -> SlotPlace {
    unsigned next = slots.size();
    if (!port || port.getKind() != PortKind::Residual) {
      slots.push_back({port, std::nullopt, plan::getStoredBytes(value)});
      return {next, 0};
    }
    StageResiduals::Place place = residuals.locate(port);
    auto [it, isNew] = sets.insert({place.set, next});
    if (isNew)
      slots.push_back(
          {{}, place.set, residuals.getBytes(place.set), place.memory});
    return {it->second, place.offset};
  };
  for (auto [port, value] :
       llvm::zip_equal(getPorts(function), function.getArguments())) {
    arguments.push_back(assign(port, value));
    if (!slots[arguments.back().slot].residuals)
      continue;
    StageResiduals::Place place = residuals.locate(port);
    if (place.memory == MemoryPlace::Arena &&
        place.last == getStageFunction(function).getAction())
      released.push_back(cast<BlockArgument>(value));
  }
  for (auto [port, value] :
       llvm::zip_equal(getResultPorts(function), getReturned(function)))
    results.push_back(assign(port, value));
}
