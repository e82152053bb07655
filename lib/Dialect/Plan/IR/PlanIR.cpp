//===- PlanIR.cpp - The plan dialect ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The ops of value form, that is clusters, and programs with their buffers and
// actions; steps are in PlanSteps.cpp. A program's verifier proves what the
// runtime relies on without checking: that no two buffers which are live at the
// same time share a byte. It runs after every pass, on hundreds of thousands of
// buffers, so that it has to take no more than the time to sort them.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/Plan/IR/PlanIR.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "plait/Interfaces/OpInterfaces.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"

#include <map>

using namespace mlir;
using namespace plait;
using namespace plait::plan;

/// `slot 3` or `@"w value"`; a slot of -1 stands for none.
static ParseResult parseSlotOrBuffer(AsmParser &parser, int64_t &slot,
                                     FlatSymbolRefAttr &buffer) {
  slot = -1;
  if (succeeded(parser.parseOptionalKeyword("slot")))
    return parser.parseInteger(slot);
  return parser.parseAttribute(buffer);
}

static void printSlotOrBuffer(AsmPrinter &printer, int64_t slot,
                              FlatSymbolRefAttr buffer) {
  if (buffer)
    printer << buffer;
  else
    printer << "slot " << slot;
}

static OptionalParseResult parsePlace(OpAsmParser &parser, IntegerAttr &place) {
  for (const MemoryPlaceFacts &facts : otherPlaces)
    if (succeeded(parser.parseOptionalKeyword(facts.name))) {
      place = parser.getBuilder().getI64IntegerAttr(int64_t(facts.place));
      return success();
    }
  return std::nullopt;
}

static void printPlace(OpAsmPrinter &printer, BufferOp buffer, IntegerAttr) {
  printer << getFacts(buffer.getMemoryPlace()).name;
}

/// "host_bytes 64" of each place beside the arena that has any.
static OptionalParseResult parseOtherBytes(OpAsmParser &parser,
                                           DenseI64ArrayAttr &bytes) {
  SmallVector<int64_t> values;
  for (const MemoryPlaceFacts &facts : otherPlaces) {
    std::string keyword = (Twine(facts.name) + "_bytes").str();
    if (failed(parser.parseOptionalKeyword(keyword)))
      continue;
    values.resize(size_t(facts.place));
    if (parser.parseInteger(values.back()))
      return failure();
  }
  bytes = parser.getBuilder().getDenseI64ArrayAttr(values);
  return values.empty() ? OptionalParseResult() : success();
}

static void printOtherBytes(OpAsmPrinter &printer, ProgramOp program,
                            DenseI64ArrayAttr) {
  llvm::ListSeparator separator(" ");
  for (const MemoryPlaceFacts &facts : otherPlaces)
    if (int64_t bytes = program.getPlaceBytes(facts.place))
      printer << StringRef(separator) << facts.name << "_bytes " << bytes;
}

#include "plait/Dialect/Plan/IR/PlanDialect.cpp.inc"
#include "plait/Dialect/Plan/IR/PlanEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "plait/Dialect/Plan/IR/PlanAttrs.cpp.inc"
#define GET_OP_CLASSES
#include "plait/Dialect/Plan/IR/PlanOps.cpp.inc"

void PlanDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "plait/Dialect/Plan/IR/PlanAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "plait/Dialect/Plan/IR/PlanOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// ClusterOp
//===----------------------------------------------------------------------===//

LogicalResult ClusterOp::verify() {
  Block &block = getBody().front();
  // (C1)
  auto yield = cast<YieldOp>(block.getTerminator());
  if (block.getArgumentTypes() != getOperandTypes())
    return emitOpError("has block arguments that are not its operands' types");
  if (yield.getOperandTypes() != getResultTypes())
    return emitOpError("yields types that are not its results'");
  // (C2)
  // That there is a kernel for these ops together is asked of KernelShape.h by
  // who forms clusters.
  for (Operation &op : block.without_terminator())
    if (!isa<FusableOpInterface>(op)) {
      InFlightDiagnostic diag = emitOpError("holds an op that no kernel fuses");
      diag.attachNote(op.getLoc()) << "this one: " << op.getName();
      return diag;
    }
  // (C3)
  if (auto modes = getAccumulate()) {
    bool valid = modes->size() == getNumResults() &&
                 llvm::all_of(*modes, [](int32_t mode) {
                   return symbolizeAccumulate(mode).has_value();
                 });
    if (!valid)
      return emitOpError("has ") << modes->size() << " accumulate modes for "
                                 << getNumResults() << " results";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// MoveOp
//===----------------------------------------------------------------------===//

Value MoveOp::getOffloaded() {
  return leavesArena(getKind()) ? getResult() : getInput();
}

/// (C1)
LogicalResult MoveOp::verify() {
  const MemoryPlaceFacts &facts = getFacts(getOtherPlace(getKind()));
  for (Operation *user : getOffloaded().getUsers()) {
    auto other = dyn_cast<MoveOp>(user);
    bool isStored = user->hasTrait<OpTrait::IsTerminator>() ||
                    nn::getSlotAccess(user) == nn::SlotAccess::Replace;
    if (isStored || (other && other.getOffloaded() == getOffloaded() &&
                     getOtherPlace(other.getKind()) == facts.place))
      continue;
    InFlightDiagnostic diag = emitOpError("has ")
                              << stringifyCopyKind(getKind())
                              << " what another op uses on the " << facts.name;
    diag.attachNote(user->getLoc()) << "this one: " << user->getName();
    return diag;
  }
  return success();
}

MemoryPlace plan::getMemoryPlace(Value value) {
  auto find = [&](Operation *op) {
    auto move = dyn_cast_or_null<MoveOp>(op);
    return move && move.getOffloaded() == value ? getOtherPlace(move.getKind())
                                                : MemoryPlace::Arena;
  };
  MemoryPlace place = find(value.getDefiningOp());
  for (Operation *user : value.getUsers())
    place = std::max(place, find(user));
  return place;
}

//===----------------------------------------------------------------------===//
// ProgramOp
//===----------------------------------------------------------------------===//

int64_t ProgramOp::getPlaceBytes(MemoryPlace place) {
  if (place == MemoryPlace::Arena)
    return getBytes();
  size_t index = size_t(place) - 1;
  return index < getOtherBytes().size() ? getOtherBytes()[index] : 0;
}

LogicalResult BufferOp::verify() {
  // The accessors of integers are unsigned.
  int64_t offset = getOffset(), bytes = getBytes();
  int64_t first = getFirst(), last = getLast();
  // (C1)
  if (offset < 0 || offset % kAlignment || bytes < 0)
    return emitOpError("is at ")
           << offset << " with " << bytes << " bytes; offsets are multiples of "
           << kAlignment;
  // (C2)
  if (first < 0 || first > last)
    return emitOpError("lives over [") << first << ", " << last << "]";
  // (C3)
  if (uint64_t(getPlace()) >= memoryPlaceCount)
    return emitOpError("is in place ")
           << getPlace() << ", expected below " << memoryPlaceCount;
  return success();
}

/// An action is a call or a transfer, and has the fields of the one or the
/// other; which ones belong to it is a question of its kind alone.
LogicalResult ActionOp::verify() {
  pipe::ActionKind kind = getKind();
  // (C1)
  if (kind == pipe::ActionKind::Joint)
    return emitOpError("is joint, expected what a rank does");
  // (C2)
  bool call = getCallee().has_value();
  bool transfer = getPeer() && getTensor() && getBuffers().size() == 1;
  if (isTransfer() && (call || !transfer))
    return emitOpError("is a transfer; expected a peer, a tensor and one "
                       "buffer, and no function");
  if (!isTransfer() && (!call || getPeer() || getTensor() || getBackward()))
    return emitOpError("is a call; expected a function, and neither peer nor "
                       "tensor");
  // (C3)
  bool ofRank = pipe::isOfRank(kind);
  if (!ofRank && (!getStage() || !getMicrobatch()))
    return emitOpError("has no stage or no microbatch");
  if (ofRank && (getStage() || getMicrobatch()))
    return emitOpError("happens once a step, but has a stage or a microbatch");
  // The accessors of integers are unsigned; a negative one in the text would be
  // a huge one here.
  for (auto number : {getStage(), getMicrobatch(), getPeer(), getTensor()})
    if (static_cast<int64_t>(number.value_or(0)) < 0)
      return emitOpError("has a number below 0: ")
             << static_cast<int64_t>(*number);
  return success();
}

namespace {
/// A buffer's bytes [begin, end) over the actions [first, last].
struct Box {
  int64_t first, last, begin, end;
  BufferOp buffer;
};
} // namespace

static LogicalResult reportOverlap(BufferOp buffer, BufferOp other) {
  InFlightDiagnostic diag = buffer.emitOpError("overlaps @")
                            << other.getSymName()
                            << ", which is live at the same time";
  diag.attachNote(other.getLoc()) << "the other buffer";
  return diag;
}

/// (C3) In the order in which buffers begin to live, the ones that are alive
/// lie apart, so that the next can only overlap its neighbours among them.
static LogicalResult verifyDisjoint(ArrayRef<BufferOp> buffers) {
  SmallVector<Box> boxes;
  for (BufferOp buffer : buffers)
    if (int64_t bytes = buffer.getBytes()) {
      int64_t begin = buffer.getAddress();
      boxes.push_back({int64_t(buffer.getFirst()), int64_t(buffer.getLast()),
                       begin, begin + bytes, buffer});
    }
  llvm::stable_sort(
      boxes, [](const Box &a, const Box &b) { return a.first < b.first; });
  std::map<int64_t, const Box *> alive;      // by their first byte
  std::multimap<int64_t, const Box *> dying; // by their last action
  // Before a buffer is compared, those go that have died by then. What is left
  // alive is disjoint, so that the neighbours in the order of addresses are the
  // only ones it can overlap.
  for (const Box &box : boxes) {
    for (; !dying.empty() && dying.begin()->first < box.first;
         dying.erase(dying.begin()))
      alive.erase(dying.begin()->second->begin);
    auto next = alive.lower_bound(box.begin);
    if (next != alive.end() && next->first < box.end)
      return reportOverlap(box.buffer, next->second->buffer);
    if (next != alive.begin() && std::prev(next)->second->end > box.begin)
      return reportOverlap(std::prev(next)->second->buffer, box.buffer);
    alive.emplace(box.begin, &box);
    dying.emplace(box.last, &box);
  }
  return success();
}

/// Collects buffers and actions in one walk, then checks each buffer against
/// the arena and the number of actions, the names that actions bind, and at
/// last all buffers against each other.
LogicalResult ProgramOp::verifyRegions() {
  // Offsets of a place end where those of the next begin.
  for (const MemoryPlaceFacts &facts : memoryPlaces)
    if (uint64_t bytes = getPlaceBytes(facts.place); bytes >= placeLimit)
      return emitOpError("has ") << bytes
                                 << " bytes of one memory, expected 0 "
                                    "to below "
                                 << placeLimit;
  SmallVector<BufferOp> buffers;
  llvm::StringMap<BufferOp> names;
  SmallVector<ActionOp> actions;
  for (Operation &op : getBody().front()) {
    if (auto buffer = dyn_cast<BufferOp>(op)) {
      buffers.push_back(buffer);
      // (C5)
      if (!names.try_emplace(buffer.getSymName(), buffer).second)
        return buffer.emitOpError("names a second buffer @")
               << buffer.getSymName();
    } else if (auto action = dyn_cast<ActionOp>(op)) {
      actions.push_back(action);
    } else {
      // (C1)
      return op.emitOpError("stands in a program, which holds buffers and "
                            "actions only");
    }
  }
  for (BufferOp buffer : buffers) {
    // (C2)
    // Subtracted, not added: numbers of a hand-written program may overflow.
    MemoryPlace place = buffer.getMemoryPlace();
    uint64_t limit = getPlaceBytes(place);
    if (buffer.getOffset() > limit ||
        buffer.getBytes() > limit - buffer.getOffset())
      return buffer.emitOpError("of ")
             << buffer.getBytes() << " bytes at " << buffer.getOffset()
             << " is not inside " << getFacts(place).words << " of " << limit
             << " bytes";
    // (C4)
    if (buffer.getLast() >= actions.size())
      return buffer.emitOpError("lives until action ")
             << buffer.getLast() << " of " << actions.size();
  }
  for (ActionOp action : actions)
    for (auto name : action.getBuffers().getAsRange<FlatSymbolRefAttr>())
      if (!names.contains(name.getValue()))
        return action.emitOpError("binds ") << name << ", which is no buffer";
  return verifyDisjoint(buffers);
}
