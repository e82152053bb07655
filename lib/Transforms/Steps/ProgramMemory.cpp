//===- ProgramMemory.cpp - Memory of a program's steps --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Resolves the buffers and slots that steps work with to ranges of bytes in a
// program's memory, and verifies that all of them lie in bounds, which the
// passes over steps rely on.
//
// A slot is bound by each action, a buffer has one offset in its program: so a
// step's memory is a range of bytes only together with the action that calls
// it.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/Pipe/IR/Pipe.h"
#include "plait/Dialect/Plan/IR/Buffers.h"
#include "plait/Transforms/Steps.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace plait;
using namespace plait::plan;

/// Without a schedule, as in tests of single passes, inputs have one
/// microbatch. It is behind all parameters of the module, and most ranks of a
/// long pipeline have no inputs.
ProgramMemory::ProgramMemory(ProgramOp program) {
  bool hasInputs = false;
  for (auto buffer : program.getBody().getOps<BufferOp>()) {
    bool isInput = pipe::PortAttr::namesModelInput(buffer.getSymName());
    buffers[buffer.getSymNameAttr()] = {buffer, isInput};
    hasInputs |= isInput;
  }
  if (auto schedule =
          hasInputs ? pipe::findSchedule(program->getParentOfType<ModuleOp>())
                    : pipe::ScheduleOp())
    microbatches = std::max<int64_t>(1, schedule.getMicrobatches());
}

/// The bytes of the program's memory, end excluded, that `action` has of the
/// buffer.
ProgramMemory::Range ProgramMemory::getRange(ActionOp action,
                                             Attribute name) const {
  auto [buffer, isInput] = buffers.at(cast<FlatSymbolRefAttr>(name).getAttr());
  int64_t begin = buffer.getAddress(), bytes = buffer.getBytes();
  // Of an input an action has the rows of its microbatch.
  if (isInput) {
    bytes = getInputStride(buffer);
    begin += int64_t(action.getMicrobatch().value_or(0)) * bytes;
  }
  return {begin, begin + bytes};
}

ProgramMemory::Range ProgramMemory::getBound(ActionOp action,
                                             int64_t slot) const {
  return getRange(action, action.getBuffers()[slot]);
}

ProgramMemory::Range ProgramMemory::getMoved(ActionOp action) const {
  return getRange(action, action.getBuffers()[0]);
}

/// A buffer that a step names directly is whole, inputs included: only slots
/// are bound to one microbatch.
ProgramMemory::Range ProgramMemory::resolve(ActionOp action,
                                            MemoryAttr memory) const {
  int64_t base = memory.getBuffer() ? find(memory.getBuffer()).getAddress()
                                    : getBound(action, memory.getSlot()).begin;
  return {base + memory.getOffset(), base + memory.getEnd()};
}

/// Returns functions in the order of the first calls; a function that is
/// missing is left out, for `verifySteps` to report.
SmallVector<FunctionOp> plait::getCalled(ProgramOp program,
                                         SymbolTableCollection &symbols) {
  llvm::SetVector<Attribute> names;
  for (auto action : program.getBody().getOps<ActionOp>())
    if (auto callee = action.getCalleeAttr())
      names.insert(callee.getAttr());
  auto module = program->getParentOfType<ModuleOp>();
  SmallVector<FunctionOp> functions;
  for (Attribute name : names)
    if (auto function =
            symbols.lookupSymbolIn<FunctionOp>(module, cast<StringAttr>(name)))
      functions.push_back(function);
  return functions;
}

//===----------------------------------------------------------------------===//
// Verification
//===----------------------------------------------------------------------===//

/// Verifies that what `op` names is inside of a buffer of the program.
static LogicalResult verifyBuffer(Operation *op, StringRef what,
                                  MemoryAttr memory, ProgramOp program,
                                  const ProgramMemory &buffers) {
  if (!memory.getBuffer())
    return success();
  BufferOp buffer = buffers.find(memory.getBuffer());
  if (!buffer)
    return op->emitOpError("has ")
           << what << " in " << memory.getBuffer() << ", which program @"
           << program.getSymName() << " does not have";
  if (memory.getEnd() > int64_t(buffer.getBytes()))
    return op->emitOpError("has ")
           << what << " up to byte " << memory.getEnd() << " of "
           << memory.getBuffer() << ", which has " << buffer.getBytes();
  return success();
}

/// Tells where a use of `step` has to be: one end of each copy is in another
/// place, and nothing else.
static MemoryPlace getPlaceOf(StepOpInterface step, const StepUse &use) {
  auto copy = dyn_cast<CopyOp>(*step);
  return copy && use.writes == leavesArena(copy.getKind())
             ? getOtherPlace(copy.getKind())
             : MemoryPlace::Arena;
}

/// `step` uses `buffer`, which it names or is bound to, and has to be in
/// `place`.
static LogicalResult verifyPlace(Operation *step, StringRef what,
                                 BufferOp buffer, MemoryPlace place) {
  MemoryPlace found = buffer.getMemoryPlace();
  if (found == place)
    return success();
  return step->emitOpError("has ")
         << what << " in " << FlatSymbolRefAttr::get(buffer.getSymNameAttr())
         << ", which is in " << getFacts(found).words
         << "; of all steps copies alone use "
         << getFacts(std::max(found, place)).words << ", at one end";
}

/// The uses of slots by the steps of `function`, one for each slot and memory.
static SmallVector<std::pair<Operation *, StepUse>>
findSlotUses(FunctionOp function) {
  llvm::SetVector<std::pair<int64_t, int64_t>> seen; // slot, place
  SmallVector<std::pair<Operation *, StepUse>> uses;
  for (StepOpInterface step : getSteps(function))
    for (const StepUse &use : step.getUses())
      if (use.memory.getSlot() >= 0 &&
          seen.insert({use.memory.getSlot(), int64_t(getPlaceOf(step, use))}))
        uses.push_back({step, use});
  return uses;
}

/// Verifies that what tables and steps of `function` use lies in buffers of the
/// program, and inside of them.
static LogicalResult verifyFunction(FunctionOp function, ProgramOp program,
                                    const ProgramMemory &buffers) {
  for (auto constant : function.getBody().getOps<ConstantOp>())
    if (failed(verifyBuffer(constant, "a table", constant.getMemory(), program,
                            buffers)))
      return failure();
  for (StepOpInterface step : getSteps(function))
    for (const StepUse &use : step.getUses()) {
      if (failed(verifyBuffer(step, use.what, use.memory, program, buffers)))
        return failure();
      if (use.memory.getBuffer() &&
          failed(verifyPlace(step, use.what,
                             buffers.find(use.memory.getBuffer()),
                             getPlaceOf(step, use))))
        return failure();
    }
  return success();
}

/// `action` binds as many bytes to each slot as the function works with; more
/// is fine.
static LogicalResult
verifyCall(ActionOp action, FunctionOp function, const ProgramMemory &buffers,
           ArrayRef<std::pair<Operation *, StepUse>> slotUses) {
  ArrayRef<int64_t> slots = function.getBytes();
  if (action.getBuffers().size() != slots.size())
    return action.emitOpError("binds ")
           << action.getBuffers().size() << " buffers, but @"
           << function.getSymName() << " has " << slots.size() << " slots";
  for (auto [slot, bytes] : llvm::enumerate(slots)) {
    ProgramMemory::Range bound = buffers.getBound(action, slot);
    if (bound.end - bound.begin < bytes)
      return action.emitOpError("binds ")
             << bound.end - bound.begin << " bytes to slot " << slot << " of @"
             << function.getSymName() << ", which has " << bytes;
  }
  for (const auto &[step, use] : slotUses) {
    auto bound =
        cast<FlatSymbolRefAttr>(action.getBuffers()[use.memory.getSlot()]);
    if (failed(verifyPlace(step, use.what, buffers.find(bound),
                           getPlaceOf(cast<StepOpInterface>(step), use))))
      return failure();
  }
  return success();
}

/// Verifies what no single op's verifier can see, because it takes the program
/// and its functions together. Passes over steps resolve memory without checks
/// of their own: dumps are edited by hand, and an unknown buffer would be a
/// null pointer there.
LogicalResult plait::verifySteps(ModuleOp module) {
  SymbolTableCollection symbols;
  llvm::DenseMap<FunctionOp, ProgramOp> callers;
  for (auto program : module.getOps<ProgramOp>()) {
    ProgramMemory buffers(program);
    llvm::DenseMap<StringAttr, FunctionOp> functions;
    llvm::DenseMap<StringAttr, SmallVector<std::pair<Operation *, StepUse>>>
        slotUses;
    for (FunctionOp function : getCalled(program, symbols)) {
      functions[function.getSymNameAttr()] = function;
      slotUses[function.getSymNameAttr()] = findSlotUses(function);
      // Steps name buffers of a program, which have other offsets in another.
      auto [caller, isNew] = callers.try_emplace(function, program);
      if (!isNew)
        return function.emitOpError("is called by programs @")
               << caller->second.getSymName() << " and @"
               << program.getSymName() << ", expected one";
      if (failed(verifyFunction(function, program, buffers)))
        return failure();
    }
    for (auto action : program.getBody().getOps<ActionOp>()) {
      auto callee = action.getCalleeAttr();
      if (!callee)
        continue;
      FunctionOp function = functions.lookup(callee.getAttr());
      if (!function)
        return action.emitOpError("calls ")
               << callee << ", which is no function of steps";
      if (failed(verifyCall(action, function, buffers,
                            slotUses[callee.getAttr()])))
        return failure();
    }
  }
  return success();
}
