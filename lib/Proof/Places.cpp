//===- Places.cpp - Check of values' addresses ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A function is executed in order, over memory of which it is known for each
// byte which op wrote it last. A value is intact while no later op has written
// to its place. That buffers of different names do not overlap while they live
// is the verifier's matter (plan.program, C3), and that calls bind them rightly
// Program.cpp's.
//
// Each function is checked by itself, in one walk over its ops:
// 1. Arguments and results are bound to their places.
// 2. Before an op, each operand has to be intact; after it, its results are
//    written, where nothing that it reads may lie, unless the op can work in
//    place.
// 3. What the step finds and leaves has to be at its home: slots of parameters
//    in their buffers, numbers of the trainer where it puts and looks for them.
//    At the end nothing else may be left there.
// Functions before phase `lower` have no places and pass.
//
//===----------------------------------------------------------------------===//

#include "Places.h"

#include "KernelMemory.h"

#include "plait/Configuration/Optimizers.h"
#include "plait/Dialect/Pipe/IR/Pipe.h"
#include "plait/Dialect/Plan/IR/Buffers.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"

#include <map>

using namespace mlir;
using namespace plait;
using namespace plait::proof;
using nn::Slot;

namespace {

/// What bytes are counted in: a slot of the caller, or (-1) a buffer of the
/// program.
using SlotOrBuffer = std::pair<int64_t, StringAttr>;

/// A range of bytes.
///
/// In the bytes of the slot or buffer. Two places are equal only if they have
/// the same bytes.
struct Place {
  SlotOrBuffer in;
  int64_t begin, end;

  bool operator==(const Place &) const = default;
  bool isInSlot() const { return in.first >= 0; }
  StringAttr getBuffer() const { return in.second; }
  bool overlaps(const Place &other) const {
    return in == other.in && begin < other.end && other.begin < end;
  }
  std::string print() const {
    std::string bytes =
        ("bytes " + Twine(begin) + " to " + Twine(end) + " of ").str();
    return isInSlot() ? bytes + "slot " + std::to_string(in.first)
                      : bytes + '"' + getBuffer().str() + '"';
  }
};

/// Who wrote the bytes of a buffer last, and when.
///
/// A map of disjoint intervals for each slot or buffer. A write splits the
/// intervals at its two ends and replaces those between, so it costs O(log n)
/// and what it removes was inserted once.
class Memory {
public:
  struct Write {
    int64_t end;
    unsigned time;
    Operation *op;
    /// What is there is what the buffer's parameter, or sum, is to be.
    bool isMeant = false;
  };

  /// `write.end` has to be the place's end.
  void write(const Place &place, Write write) {
    Writes &writes = memory[place.in];
    split(writes, place.begin);
    split(writes, place.end);
    writes.erase(writes.lower_bound(place.begin),
                 writes.lower_bound(place.end));
    writes[place.begin] = write;
  }
  /// The first write to a byte of `place` with a property; null: none.
  const Write *find(const Place &place,
                    llvm::function_ref<bool(const Write &)> has) {
    // The interval before may reach into the place.
    Writes &writes = memory[place.in];
    auto it = writes.upper_bound(place.begin);
    if (it != writes.begin())
      --it;
    for (; it != writes.end() && it->first < place.end; ++it)
      if (it->second.end > place.begin && has(it->second))
        return &it->second;
    return nullptr;
  }

private:
  using Writes = std::map<int64_t, Write>; // by their begin, disjoint
  /// Makes `at` a border of intervals if it lies within one.
  static void split(Writes &writes, int64_t at) {
    auto it = writes.lower_bound(at);
    if (it == writes.begin() || (it != writes.end() && it->first == at))
      return;
    --it;
    if (it->second.end <= at)
      return;
    Write rest = it->second;
    it->second.end = at;
    writes[at] = rest;
  }

  llvm::DenseMap<SlotOrBuffer, Writes> memory;
};

/// Buffers that are there for the whole step, by what all functions use them
/// for.
struct Standing {
  /// The op whose numbers a buffer holds from the beginning.
  llvm::MapVector<StringAttr, Operation *> tables;
  /// An op that finds or leaves something there.
  llvm::DenseMap<StringAttr, Operation *> homes;
};

/// The places of one function's values in the course of its ops.
///
/// Times are numbers of ops in the function, from 1 on: arguments have 0, so
/// everything is written after them.
class Frame {
public:
  Frame(func::FuncOp function, const Symbols &symbols, Standing &standing,
        Report &report)
      : function(function), symbols(symbols), standing(standing),
        report(report) {}
  LogicalResult run();

private:
  struct Known {
    Place place;
    unsigned time; // of its op
  };
  LogicalResult bind(Value value, plan::PlaceAttr place, Operation *op);
  /// That nobody has written to the value's place since.
  LogicalResult checkIntact(Operation *op, Value value);
  /// That the op may write its results where they are bound; then writes them.
  LogicalResult checkResults(Operation *op);
  LogicalResult checkHome(Operation *op, const nn::StepMemory &memory,
                          Value value);
  /// That the buffer of a table holds the table that `op` stands for.
  LogicalResult checkTable(Operation *op);
  LogicalResult checkAccess(Operation *op);
  LogicalResult checkLeft(Operation *op, Value value);
  Place findHome(StringRef symbol, Slot slot, Type type) const;
  Place findHome(const nn::StepMemory &memory, Type type) const;

  func::FuncOp function;
  const Symbols &symbols;
  Standing &standing;
  Report &report;
  ArrayRef<int64_t> slotBytes;
  llvm::DenseMap<SlotOrBuffer, SmallVector<Place, 1>> arguments;
  unsigned time = 0; // counts ops
  Memory written;    // so far
  llvm::DenseMap<Value, Known> known;
};

} // namespace

/// Without pitch: slots of parameters are dense.
static int64_t getBytes(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor.getNumElements() * tensor.getElementTypeBitWidth() / 8;
}

/// Puts what `op` computes, or what is given to the function, at its place.
///
/// Slots are the caller's, and their sizes are declared on the function; the
/// sizes of buffers are the verifier's matter.
LogicalResult Frame::bind(Value value, plan::PlaceAttr attr, Operation *op) {
  int64_t slot = attr.getSlot();
  StringAttr buffer =
      attr.isInSlot() ? StringAttr() : attr.getBuffer().getAttr();
  Place place{{slot, buffer},
              attr.getOffset(),
              attr.getOffset() + plan::getStoredBytes(value)};
  if (place.isInSlot()) {
    int64_t bytes = slot < int64_t(slotBytes.size()) ? slotBytes[slot] : 0;
    if (place.end > bytes)
      return report.wrong(op)
             << "has " << place.print() << ", which has " << bytes;
  }
  known[value] = {place, time};
  return success();
}

LogicalResult Frame::checkIntact(Operation *op, Value value) {
  auto own = known.find(value);
  if (own == known.end())
    return success();
  // The op's own write of the value has the same time as the value.
  const Memory::Write *later =
      written.find(own->second.place, [&](const Memory::Write &write) {
        return write.time > own->second.time;
      });
  if (!later)
    return success();
  InFlightDiagnostic diag = report.wrong(op);
  diag << "takes " << own->second.place.print()
       << ", where something else was written since";
  diag.attachNote(later->op->getLoc()) << "by this op";
  return diag;
}

static ArrayRef<int64_t> shapeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

static int64_t countElements(Value value) {
  return ShapedType::getNumElements(shapeOf(value));
}

/// Whether the op of a cluster makes each element of its result from the same
/// element of its operands, or from one that they repeat.
static bool isElementwise(Operation *op) {
  return getFacts(op).elementwise || getFacts(op).repeats;
}

/// The sums (and maxima) that a cluster has to end, one after the other, before
/// it knows each of its values. What is computed after as many is computed in
/// one pass over a row, and what was computed before may be computed again.
static llvm::DenseMap<Value, unsigned> countSums(Block &body) {
  llvm::DenseMap<Value, unsigned> sums;
  for (Operation &op : body.without_terminator()) {
    unsigned most = 0;
    for (Value operand : op.getOperands())
      most = std::max(most, sums.lookup(operand));
    // A reduction over dimensions of extent 1 moves no pass.
    bool ends = isReduction(&op) && countElements(op.getOperand(0)) >
                                        countElements(op.getResult(0));
    sums[op.getResult(0)] = most + ends;
  }
  return sums;
}

/// Whether a kernel may write `result` where `operand` lies: all that it
/// computes of the operand's elements, it computes of each alone or adds up, at
/// the latest in the pass that writes the result.
///
/// Two conditions on each op of the body:
/// 1. What reads the operand reads it at the index at which it writes, or adds
///    it up. A gather could read an element that was overwritten before.
/// 2. Nothing as large as the operand is computed after another sum than the
///    result: it might have to be computed again from the operand once that is
///    gone.
/// The types have to be the same, so that elements have the same bytes.
static bool mayOverwrite(plan::ClusterOp cluster, unsigned result,
                         unsigned operand) {
  Block &body = cluster.getBody().front();
  Value written = body.getTerminator()->getOperand(result);
  BlockArgument read = body.getArgument(operand);
  if (written.getType() != read.getType())
    return false;
  llvm::DenseMap<Value, unsigned> sums = countSums(body);
  for (Operation &op : body.without_terminator()) {
    Value value = op.getResult(0);
    bool reads = llvm::is_contained(op.getOperands(), read);
    bool isAlike =
        isReduction(&op) ||
        (isElementwise(&op) && countElements(value) == countElements(read));
    bool isLater = countElements(value) >= countElements(read) &&
                   sums.lookup(value) > sums.lookup(written);
    if ((reads && !isAlike) || isLater)
      return false;
  }
  return true;
}

/// Whether `op` may put its result exactly where `operand` is: it has read of
/// that what it needs by then.
///
/// A library's matmul may read only the addend in place (its C), since the
/// factors are read many times. An all-reduce is elementwise over ranks.
static bool mayOverwrite(Operation *op, OpResult result, OpOperand &operand) {
  if (auto cluster = dyn_cast<plan::ClusterOp>(op))
    return mayOverwrite(cluster, result.getResultNumber(),
                        operand.getOperandNumber());
  if (auto matmul = dyn_cast<nn::FusedMatmulOp>(op)) {
    MutableOperandRange addend = matmul.getAddendMutable();
    return !addend.empty() && &addend[0] == &operand;
  }
  return isa<dist::AllReduceOp>(op) || op->hasTrait<OpTrait::Elementwise>();
}

/// Whether `operand` is joined exactly where its part of the result, at
/// `place`, is. Nothing is written there.
static bool isPart(OpOperand &operand, const Place &place, const Place &own) {
  if (!isa<nn::ConcatOp>(operand.getOwner()))
    return false;
  int64_t bytes = own.end - own.begin;
  return own.in == place.in &&
         own.begin == place.begin + operand.getOperandNumber() * bytes;
}

/// What an op reads must not be overwritten before it is read: nothing is
/// written near an operand but for what may be exactly where it is.
///
/// For each result:
/// 1. It is not where an argument of the function lies, which the caller may
///    use again. Residuals it may not: Program.cpp has a call take away those
///    that the function writes over.
/// 2. It is not where an operand lies, but for an op in place; what is joined
///    lies in its part of it, and a table that rows are scattered into is
///    there.
/// 3. It is not where another result of the op lies.
/// Only when all are checked are they written, since the order in which an op
/// writes its results is not defined.
LogicalResult Frame::checkResults(Operation *op) {
  for (OpResult result : op->getResults()) {
    auto own = known.find(result);
    if (own == known.end())
      continue;
    // 1. Arguments.
    const Place &place = own->second.place;
    auto given = arguments.find(place.in);
    if (given != arguments.end() &&
        llvm::any_of(given->second, [&](const Place &argument) {
          return place.overlaps(argument);
        }))
      return report.wrong(op) << "writes to " << place.print()
                              << ", which belongs to the caller";
    // 2. Operands.
    std::optional<unsigned> table;
    if (auto cluster = dyn_cast<plan::ClusterOp>(op))
      table = findTable(cluster, result.getResultNumber());
    for (OpOperand &operand : op->getOpOperands()) {
      auto other = known.find(operand.get());
      if (table == operand.getOperandNumber() && other != known.end() &&
          place != other->second.place)
        return report.wrong(op)
               << "adds rows to " << place.print() << ", but their table is at "
               << other->second.place.print();
      bool joins = isa<nn::ConcatOp>(op);
      if (other == known.end() || isPart(operand, place, other->second.place) ||
          (!joins && !place.overlaps(other->second.place)) ||
          (place == other->second.place && mayOverwrite(op, result, operand)))
        continue;
      if (joins)
        return report.wrong(op) << "joins " << other->second.place.print()
                                << " to what lies at " << place.print();
      return report.wrong(op)
             << "writes to " << place.print() << " while it reads "
             << other->second.place.print();
    }
    // 3. Other results.
    for (OpResult before :
         op->getResults().take_front(result.getResultNumber()))
      if (auto other = known.find(before);
          other != known.end() && place.overlaps(other->second.place))
        return report.wrong(op) << "writes two results to " << place.print();
  }
  for (OpResult result : op->getResults())
    if (auto own = known.find(result); own != known.end())
      written.write(own->second.place, {own->second.place.end, time, op});
  return success();
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

/// In the buffer of the pack of this rank that has the parameter, if there is
/// one, else in its own.
///
/// Independent of the pass that places buffers: from the declarations of packs
/// alone.
Place Frame::findHome(StringRef symbol, Slot slot, Type type) const {
  StringRef holder = symbol;
  int64_t begin = 0;
  auto own = function->getAttrOfType<pipe::FunctionAttr>(pipe::kFunctionAttr);
  if (auto [pack, index] = symbols.findMember(symbol, symbols.getRank(own));
      pack) {
    holder = pack.getSymName();
    begin = pack.getOffsets()[index] *
            cast<RankedTensorType>(type).getElementTypeBitWidth() / 8;
  }
  auto buffer =
      StringAttr::get(type.getContext(), holder + " " + slot.getName());
  return {{-1, buffer}, begin, begin + getBytes(type)};
}

/// Numbers of the trainer lie in the order in which the plan file lists them.
Place Frame::findHome(const nn::StepMemory &memory, Type type) const {
  auto find = [&](StringRef buffer, int index) {
    int64_t begin = index * int64_t(sizeof(float));
    return Place{{-1, StringAttr::get(type.getContext(), buffer)},
                 begin,
                 begin + getBytes(type)};
  };
  switch (memory.kind) {
  case nn::StepMemory::InSlot:
    return findHome(memory.name, memory.slot, type);
  case nn::StepMemory::Scalar:
    return find(kScalarsBuffer, findStepScalar(memory.name));
  case nn::StepMemory::Metric:
    return find(kMetricsBuffer,
                findMetric(function->getParentOfType<ModuleOp>(), memory.name));
  }
  llvm_unreachable("no other memory");
}

static std::string print(const nn::StepMemory &memory) {
  if (memory.kind != nn::StepMemory::InSlot)
    return memory.name.str();
  return ("@" + memory.name + " " + memory.slot.getName()).str();
}

/// The memory is `value` from here on, which `op` reads from or leaves in its
/// place.
///
/// A read: the value lies at the memory's home, and nothing was written there
/// but what belongs there. A write: what lies there is what is to be there, so
/// it is noted as meant, with the time at which it was computed: the value
/// itself stays intact by that.
LogicalResult Frame::checkHome(Operation *op, const nn::StepMemory &memory,
                               Value value) {
  auto own = known.find(value);
  Place home = findHome(memory, value.getType());
  if (own == known.end() || own->second.place != home)
    return report.wrong(op) << "has " << print(memory) << " at "
                            << (own == known.end() ? std::string("no place")
                                                   : own->second.place.print())
                            << ", but it lies at " << home.print();
  standing.homes.try_emplace(home.getBuffer(), op);
  if (op->getNumResults() == 0) {
    written.write(home, {home.end, own->second.time, op, true});
    return success();
  }
  const Memory::Write *other = written.find(
      home, [](const Memory::Write &write) { return !write.isMeant; });
  if (!other)
    return success();
  InFlightDiagnostic diag = report.wrong(op);
  diag << "reads " << print(memory) << " where something else was written";
  diag.attachNote(other->op->getLoc()) << "by this op";
  return diag;
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// Whether the op stands for what is in memory before the step computes.
static bool comesFromOutside(Operation *op) {
  return isa<MemoryOpInterface>(op) && op->getNumResults() > 0;
}

/// Tables that need no operand are not computed in the step: each lies in a
/// buffer that has nothing else.
static bool isTable(Operation *op) {
  return op->getNumOperands() == 0 && op->getNumRegions() == 0 &&
         op->getNumResults() == 1 && !comesFromOutside(op);
}

/// A table in a slot of the caller is computed like any result. One in a buffer
/// of its own is shared by all functions, so each op that is placed there has
/// to be the same op: same name, types and properties.
LogicalResult Frame::checkTable(Operation *op) {
  auto own = known.find(op->getResult(0));
  if (own == known.end() || own->second.place.isInSlot())
    return checkResults(op);
  Operation *other =
      standing.tables.try_emplace(own->second.place.getBuffer(), op)
          .first->second;
  bool isSame =
      own->second.place.begin == 0 && op->getName() == other->getName() &&
      op->getResultTypes() == other->getResultTypes() &&
      op->getName().compareOpProperties(op->getPropertiesStorage(),
                                        other->getPropertiesStorage());
  if (isSame)
    return success();
  InFlightDiagnostic diag = report.wrong(op);
  diag << "is at " << own->second.place.print();
  diag.attachNote(other->getLoc()) << "so is this op, which is another one";
  return diag;
}

/// What the op stands for lies where it is found or looked for; what it
/// computes may be written there.
LogicalResult Frame::checkAccess(Operation *op) {
  if (auto own = dyn_cast<MemoryOpInterface>(op))
    return checkHome(op, own.getMemory(),
                     op->getNumResults() ? op->getResult(0)
                                         : op->getOperand(0));
  return isTable(op) ? checkTable(op) : checkResults(op);
}

/// What is in the buffer of a parameter when the function ends is meant to be.
///
/// Temporary results may lie in a buffer that is there for the whole step only
/// until something meant is written over them. Slots of the caller have no
/// content that a later op finds.
LogicalResult Frame::checkLeft(Operation *op, Value value) {
  auto own = known.find(value);
  if (own == known.end() || comesFromOutside(op) ||
      own->second.place.isInSlot())
    return success();
  const Memory::Write *other =
      written.find(own->second.place, [&](const Memory::Write &write) {
        return write.op == op && !write.isMeant;
      });
  if (!other)
    return success();
  return report.wrong(op) << "leaves something else in "
                          << own->second.place.print();
}

/// Numbered as in the file's description.
LogicalResult Frame::run() {
  if (auto bytes = function->getAttrOfType<DenseI64ArrayAttr>(kSlotBytesAttr))
    slotBytes = bytes.asArrayRef();
  else
    return success(); // before phase lower
  // 1. Bind. Results are bound when their op is reached.
  for (BlockArgument argument : function.getArguments())
    if (auto place = function.getArgAttrOfType<plan::PlaceAttr>(
            argument.getArgNumber(), kPlaceAttr)) {
      if (failed(bind(argument, place, function)))
        return failure();
      auto port = function.getArgAttrOfType<pipe::PortAttr>(
          argument.getArgNumber(), pipe::kPortAttr);
      if (!port || port.getKind() != pipe::PortKind::Residual)
        arguments[known[argument].place.in].push_back(known[argument].place);
    }
  for (Operation &op : function.getBody().front()) {
    // 2. Operands, then results.
    ++time;
    for (Value operand : op.getOperands())
      if (failed(checkIntact(&op, operand)))
        return failure();
    if (auto places = op.getAttrOfType<ArrayAttr>(plan::kPlacesAttr))
      for (auto [result, place] : llvm::zip(op.getResults(), places))
        if (auto own = dyn_cast<plan::PlaceAttr>(place))
          if (failed(bind(result, own, &op)))
            return failure();
    if (failed(checkAccess(&op)))
      return failure();
  }
  // 3. What is left at the end.
  for (Operation &op : function.getBody().front())
    for (OpResult result : op.getResults())
      if (failed(checkLeft(&op, result)))
        return failure();
  return success();
}

LogicalResult plait::proof::checkPlaces(ModuleOp module, const Symbols &symbols,
                                        Report &report) {
  // All else is known for each function alone.
  Standing standing;
  for (auto function : module.getOps<func::FuncOp>())
    if (function->hasAttr(pipe::kFunctionAttr) &&
        failed(Frame(function, symbols, standing, report).run()))
      return failure();
  for (auto [buffer, table] : standing.tables)
    if (Operation *home = standing.homes.lookup(buffer)) {
      InFlightDiagnostic diag = report.wrong(table);
      diag << "is a table in buffer " << buffer << ", which has something else";
      diag.attachNote(home->getLoc()) << "that of this op";
      return diag;
    }
  return success();
}
