//===- Program.cpp - Whether calls get what belongs to them ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The programs of all ranks are executed symbolically, over things instead of
// tensors: a buffer holds "output 0 of stage 1, microbatch 2", and a call has
// to find in its slots exactly what its function's ports name.
// 1. What calls take, give and add up is read from the functions, once
//    (readFunctions).
// 2. Ranks advance in turn, each until it waits for a message (advance).
// 3. When no rank moves, all have to be at the end of their program
//    (tellWaiting). A round of step 2 looks at every rank once, besides the
//    actions that it advances. Deadlocks and memory are left to the plan
//    checker.
//
//===----------------------------------------------------------------------===//

#include "Program.h"

#include "Places.h"
#include "Step.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Pipe/IR/Pipe.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Transforms/Buffers.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallSet.h"
#include <tuple>

using namespace mlir;
using namespace plait;
using namespace plait::proof;
using pipe::ActionKind;
using pipe::PortKind;

namespace {

/// What a function gave for a microbatch. What crosses a boundary of stages is
/// called after the function that makes it.
struct Thing {
  PortKind kind;
  /// `index` is the port's number among those of its kind.
  int32_t index, stage, microbatch;

  bool operator==(const Thing &) const = default;
  std::string print() const {
    return (pipe::stringifyPortKind(kind) + " " + Twine(index) + " of stage " +
            Twine(stage) + ", microbatch " + Twine(microbatch))
        .str();
  }
};

/// A buffer of a rank, by number, and an offset in it, in bytes.
struct Address {
  unsigned buffer;
  int64_t offset;
};

/// One of the sums over microbatches to which a function adds, and how it
/// treats what is there.
struct Adding {
  unsigned sum; // by number
  plan::Accumulate mode;
  SlotOpInterface op;
};

/// What a function takes or gives, and where: `slot` is -1 if it lies in none.
struct Bound {
  pipe::PortAttr port;
  int slot = -1;
  int64_t offset = 0;
  bool isOverwritten = false; // once the function has read it (checkPlaces)
};

/// What calls of a function do, read once.
struct Callee {
  func::FuncOp function;
  pipe::FunctionAttr own;
  SmallVector<Bound> takes, gives;
  SmallVector<Adding> addings; // in the order in which they are computed
  SmallVector<int64_t> slotBytes;
  unsigned number = 0;
};

/// A buffer, and what lies in it now, by offset.
struct Buffer {
  plan::BufferOp op;
  int64_t first, last;
  SmallVector<std::pair<int64_t, Thing>, 1> holds;

  /// Only what begins exactly there: a thing at another offset is another
  /// tensor.
  const Thing *find(int64_t offset) const {
    for (auto &[at, thing] : holds)
      if (at == offset)
        return &thing;
    return nullptr;
  }
  void put(int64_t offset, Thing thing) {
    for (auto &[at, known] : holds)
      if (at == offset) {
        known = thing;
        return;
      }
    holds.push_back({offset, thing});
  }
};

/// One rank on its way through its program.
struct Rank {
  plan::ProgramOp program;
  std::vector<plan::ActionOp> actions;
  /// The number of the action that is next, in which lifetimes of buffers are
  /// given.
  size_t next = 0;
  std::vector<Buffer> buffers;
  llvm::DenseMap<StringAttr, unsigned> numbers; // of buffers
  std::vector<llvm::BitVector> called; // microbatches, by the callee's number
  llvm::BitVector begun;               // sums
  llvm::SmallSet<ActionKind, 2> ended;
};

/// All ranks of a step, and the messages between them.
class Programs {
public:
  Programs(ModuleOp module, int64_t microbatches, Report &report)
      : module(module), report(report), microbatches(microbatches) {}
  LogicalResult run();

private:
  /// Sender, receiver, stage, backward, microbatch, tensor: by such a name the
  /// ends of a message find one another.
  using Name = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>;
  static Name getName(plan::ActionOp action, int64_t sender, int64_t receiver) {
    return {sender,
            receiver,
            action.getStage().value_or(0),
            action.getBackward(),
            action.getMicrobatch().value_or(0),
            action.getTensor().value_or(0)};
  }
  void readFunctions();
  void readPrograms();
  SmallVector<Adding> findAddings(func::FuncOp function);
  /// Sets `moved` if the rank does at least one action.
  LogicalResult advance(Rank &rank, bool &moved);
  LogicalResult transfer(Rank &rank, plan::ActionOp action, bool &waits);
  LogicalResult call(Rank &rank, plan::ActionOp action);
  LogicalResult endStep(Rank &rank, plan::ActionOp action);
  FailureOr<unsigned> use(Rank &rank, plan::ActionOp action, Attribute name);
  FailureOr<Address> locate(Rank &rank, plan::ActionOp action,
                            const Bound &bound);
  LogicalResult take(Rank &rank, plan::ActionOp action, const Callee &callee,
                     const Bound &bound);
  LogicalResult tellWaiting();
  LogicalResult bind(Rank &rank, plan::ActionOp action, const Callee &callee);
  LogicalResult checkSlots(Rank &rank, plan::ActionOp action,
                           const Callee &callee);
  LogicalResult add(Rank &rank, plan::ActionOp action, const Callee &callee,
                    bool first);
  LogicalResult checkAllCalled(Rank &rank);

  ModuleOp module;
  Report &report;
  int64_t microbatches;
  llvm::MapVector<StringAttr, Callee> callees; // by name
  llvm::DenseMap<std::pair<StringAttr, int64_t>, unsigned> sums;
  std::vector<Rank> ranks;
  struct Message {
    Thing thing;
    plan::ActionOp send;
  };
  llvm::MapVector<Name, SmallVector<Message, 1>> messages; // in the order sent
};

} // namespace

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// What passes have placed in "slot N" of a function.
///
/// Arguments in named buffers, as parameters have, are no matter of a call:
/// their slot is -1.
static Bound getBound(pipe::PortAttr port, plan::PlaceAttr place) {
  Bound bound{port};
  StringRef text = place ? place.getBuffer().getValue() : StringRef();
  if (text.consume_front("slot ") && !text.getAsInteger(10, bound.slot))
    bound.offset = place.getOffset();
  return bound;
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
SmallVector<Adding> Programs::findAddings(func::FuncOp function) {
  SmallVector<std::pair<Operation *, Adding>> found;
  for (auto op : function.getOps<nn::AccumulateOp>())
    if (auto result = dyn_cast<OpResult>(op.getTensor())) {
      std::pair key(op.getSymbolAttr().getAttr(), int64_t(op.getSlot()));
      unsigned sum = sums.try_emplace(key, sums.size()).first->second;
      found.push_back({result.getOwner(), {sum, getMode(result), op}});
    }
  llvm::stable_sort(found, [](const auto &a, const auto &b) {
    return a.first != b.first && a.first->isBeforeInBlock(b.first);
  });
  return llvm::map_to_vector(found, [](const auto &own) { return own.second; });
}

/// Step 1. Results are bound to where the values lie that the function returns.
void Programs::readFunctions() {
  for (auto function : module.getOps<func::FuncOp>()) {
    auto own = function->getAttrOfType<pipe::FunctionAttr>(pipe::kFunctionAttr);
    if (!own)
      continue;
    unsigned number = callees.size();
    Callee &callee = callees[function.getSymNameAttr()];
    callee.function = function;
    callee.own = own;
    callee.number = number;
    auto portOf = [](DictionaryAttr attrs) {
      return attrs ? attrs.getAs<pipe::PortAttr>(pipe::kPortAttr)
                   : pipe::PortAttr();
    };
    for (auto [index, argument] : llvm::enumerate(function.getArguments()))
      callee.takes.push_back(getBound(portOf(function.getArgAttrDict(index)),
                                      getPlace(function, argument)));
    Operation *end = function.getBody().front().getTerminator();
    for (auto [index, value] : llvm::enumerate(end->getOperands()))
      callee.gives.push_back(getBound(portOf(function.getResultAttrDict(index)),
                                      getPlace(function, value)));
    llvm::BitVector overwritten = findOverwritten(function);
    for (auto [index, bound] : llvm::enumerate(callee.takes))
      bound.isOverwritten = overwritten[index];
    callee.addings = findAddings(function);
    if (auto bytes = function->getAttrOfType<DenseI64ArrayAttr>(kSlotBytesAttr))
      llvm::append_range(callee.slotBytes, bytes.asArrayRef());
  }
}

/// After readFunctions(), which counts callees and sums.
void Programs::readPrograms() {
  for (auto program : module.getOps<plan::ProgramOp>()) {
    Rank &rank = ranks.emplace_back();
    rank.program = program;
    rank.called.assign(callees.size(), llvm::BitVector(microbatches));
    rank.begun.resize(sums.size());
    for (Operation &op : program.getBody().front())
      if (auto buffer = dyn_cast<plan::BufferOp>(op)) {
        rank.numbers[buffer.getSymNameAttr()] = rank.buffers.size();
        rank.buffers.push_back({buffer,
                                int64_t(buffer.getFirst()),
                                int64_t(buffer.getLast()),
                                {}});
      } else {
        rank.actions.push_back(cast<plan::ActionOp>(op));
      }
  }
}

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

/// A buffer is only itself while it lives; others have its bytes before and
/// after.
FailureOr<unsigned> Programs::use(Rank &rank, plan::ActionOp action,
                                  Attribute symbol) {
  StringAttr name = cast<FlatSymbolRefAttr>(symbol).getAttr();
  auto known = rank.numbers.find(name);
  int64_t at = rank.next;
  if (known != rank.numbers.end() && rank.buffers[known->second].first <= at &&
      at <= rank.buffers[known->second].last)
    return known->second;
  report.wrong(action) << "action " << at << " uses buffer \""
                       << name.getValue() << "\", which does not live then";
  return failure();
}

/// What `port` of a function of `stage` is called.
static Thing getThing(pipe::PortAttr port, int64_t stage, int64_t microbatch) {
  auto [kind, source] = findMaker(port.getKind(), stage);
  return {kind, int32_t(port.getIndex()), int32_t(source), int32_t(microbatch)};
}

/// Where that is while `action` runs.
///
/// Fails for a port that lies in no slot: a call could not hand it over.
FailureOr<Address> Programs::locate(Rank &rank, plan::ActionOp action,
                                    const Bound &bound) {
  if (bound.slot < 0 || bound.slot >= int(action.getBuffers().size())) {
    report.wrong(action) << bound.port.getText()
                         << " lies in no slot of the function";
    return failure();
  }
  FailureOr<unsigned> buffer =
      use(rank, action, action.getBuffers()[bound.slot]);
  if (failed(buffer))
    return failure();
  return Address{*buffer, bound.offset};
}

/// A call needs a buffer for each slot, no smaller than what the function puts
/// there.
LogicalResult Programs::checkSlots(Rank &rank, plan::ActionOp action,
                                   const Callee &callee) {
  ArrayRef<Attribute> given = action.getBuffers().getValue();
  if (given.size() != callee.slotBytes.size())
    return report.wrong(action)
           << "binds " << given.size() << " buffers to the "
           << callee.slotBytes.size() << " slots of @" << *action.getCallee();
  SmallPtrSet<Attribute, 32> seen;
  for (auto [symbol, bytes] : llvm::zip_equal(given, callee.slotBytes)) {
    if (!seen.insert(symbol).second)
      return report.wrong(action) << "binds " << symbol << " to two slots";
    if (bytes == 0)
      continue;
    FailureOr<unsigned> buffer = use(rank, action, symbol);
    if (failed(buffer))
      return failure();
    // Of the inputs a call gets the rows of its microbatch.
    if (int64_t(rank.buffers[*buffer].op.getBytes()) < bytes)
      return report.wrong(action) << "binds " << symbol << " of "
                                  << rank.buffers[*buffer].op.getBytes()
                                  << " bytes to a slot of " << bytes;
  }
  return success();
}

/// That the argument's place holds the thing that it stands for. Inputs of the
/// model are not followed: their buffers hold all microbatches, and the call
/// selects its rows.
LogicalResult Programs::take(Rank &rank, plan::ActionOp action,
                             const Callee &callee, const Bound &bound) {
  FailureOr<Address> at = locate(rank, action, bound);
  if (failed(at))
    return failure();
  Buffer &buffer = rank.buffers[at->buffer];
  StringRef name = buffer.op.getSymName();
  if (bound.port.isModelInput()) {
    // The rows of the action's microbatch, of those of all.
    if (name == pipe::stringifyPortKind(bound.port.getKind()))
      return success();
    return report.wrong(action)
           << "gives \"" << name << "\" for the " << bound.port.getText();
  }
  Thing expected =
      getThing(bound.port, *action.getStage(), *action.getMicrobatch());
  const Thing *held = buffer.find(at->offset);
  if (held && *held == expected)
    return success();
  InFlightDiagnostic diag = report.wrong(action);
  diag << "takes " << expected.print() << " from buffer \"" << name
       << "\", which holds " << (held ? held->print() : "nothing");
  diag.attachNote(callee.function->getLoc())
      << "the function looks for " << bound.port.getText() << " in its slot "
      << bound.slot;
  return diag;
}

/// All arguments are checked before any result is put: a result may lie where
/// an argument was. What the function writes over is nobody's any more.
LogicalResult Programs::bind(Rank &rank, plan::ActionOp action,
                             const Callee &callee) {
  if (failed(checkSlots(rank, action, callee)))
    return failure();
  for (const Bound &bound : callee.takes)
    if (failed(take(rank, action, callee, bound)))
      return failure();
  for (const Bound &bound : callee.takes)
    if (bound.isOverwritten)
      llvm::erase_if(
          rank.buffers[locate(rank, action, bound)->buffer].holds,
          [&](const auto &held) { return held.first == bound.offset; });
  for (const Bound &bound : callee.gives) {
    FailureOr<Address> at = locate(rank, action, bound);
    if (failed(at))
      return failure();
    rank.buffers[at->buffer].put(
        at->offset,
        getThing(bound.port, *action.getStage(), *action.getMicrobatch()));
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Actions
//===----------------------------------------------------------------------===//

/// The first contribution of a step replaces what the last step left.
///
/// `first`: it is the first call of this function, which is what the flag of a
/// kernel says at run time. A sum has to be begun by replacing, and only then:
/// two functions that add to one sum cannot both begin it.
LogicalResult Programs::add(Rank &rank, plan::ActionOp action,
                            const Callee &callee, bool first) {
  for (Adding adding : callee.addings) {
    bool replaces = adding.mode == plan::Accumulate::Overwrite ||
                    (adding.mode == plan::Accumulate::AddUnlessFirst && first);
    bool isFirst = !rank.begun.test(adding.sum);
    rank.begun.set(adding.sum);
    if (replaces == isFirst)
      continue;
    return report.wrong(adding.op)
           << (replaces ? "replaces what was added to @"
                        : "adds to what the last step left in @")
           << adding.op.getSymbol() << " "
           << nn::stringifySlot(adding.op.getSlot()) << " in action "
           << rank.next << ", microbatch " << *action.getMicrobatch();
  }
  return success();
}

/// Each of the two actions once, in order, and after all microbatches.
LogicalResult Programs::endStep(Rank &rank, plan::ActionOp action) {
  if (!rank.ended.insert(action.getKind()).second)
    return report.wrong(action)
           << "does " << pipe::stringifyActionKind(action.getKind())
           << " twice";
  if (action.getKind() == ActionKind::Reduce &&
      rank.ended.count(ActionKind::Optimizer))
    return report.wrong(action) << "reduces gradients after they were used";
  return checkAllCalled(rank);
}

/// Reduce and optimizer functions belong to a rank, all others to a stage,
/// hence `index`.
LogicalResult Programs::call(Rank &rank, plan::ActionOp action) {
  auto known = callees.find(action.getCalleeAttr().getAttr());
  int64_t index = action.getStage() ? int64_t(*action.getStage())
                                    : int64_t(rank.program.getRank());
  if (known == callees.end() ||
      known->second.own.getAction() != action.getKind() ||
      known->second.own.getIndex() != index)
    return report.wrong(action)
           << "does " << pipe::stringifyActionKind(action.getKind()) << " of "
           << index << " by calling @" << *action.getCallee();
  Callee &callee = known->second;
  if (callee.own.endsStep())
    return failed(checkSlots(rank, action, callee)) ? failure()
                                                    : endStep(rank, action);
  if (!rank.ended.empty())
    return report.wrong(action) << "comes after the end of the step";
  int64_t microbatch = *action.getMicrobatch();
  if (microbatch >= microbatches)
    return report.wrong(action)
           << "there are " << microbatches << " microbatches";
  llvm::BitVector &called = rank.called[callee.number];
  bool first = called.none();
  if (called.test(microbatch))
    return report.wrong(action)
           << "calls @" << *action.getCallee() << " for microbatch "
           << microbatch << " a second time";
  called.set(microbatch);
  if (failed(bind(rank, action, callee)))
    return failure();
  return add(rank, action, callee, first);
}

/// Messages of one name arrive in the order in which they were sent. What is
/// received is what was sent, whatever the receiver calls it, so a mistake
/// shows where it is taken.
LogicalResult Programs::transfer(Rank &rank, plan::ActionOp action,
                                 bool &waits) {
  FailureOr<unsigned> number = use(rank, action, action.getBuffers()[0]);
  if (failed(number))
    return failure();
  Buffer &buffer = rank.buffers[*number];
  int64_t own = rank.program.getRank(), peer = *action.getPeer();
  if (action.getKind() == ActionKind::Send) {
    const Thing *held = buffer.find(0);
    if (!held)
      return report.wrong(action) << "sends buffer \"" << buffer.op.getSymName()
                                  << "\", which holds nothing";
    messages[getName(action, own, peer)].push_back({*held, action});
  } else if (action.getKind() == ActionKind::Recv) {
    auto queue = messages.find(getName(action, peer, own));
    waits = queue == messages.end() || queue->second.empty();
    if (waits)
      return success();
    buffer.put(0, queue->second.front().thing);
    queue->second.erase(queue->second.begin());
  }
  return success();
}

/// Sends are buffered here: that programs do not wait for one another is the
/// plan checker's matter.
LogicalResult Programs::advance(Rank &rank, bool &moved) {
  for (; rank.next < rank.actions.size(); ++rank.next) {
    plan::ActionOp action = rank.actions[rank.next];
    bool waits = false;
    if (failed(action.isTransfer() ? transfer(rank, action, waits)
                                   : call(rank, action)))
      return failure();
    if (waits)
      return success();
    moved = true;
  }
  return success();
}

/// Every function of the rank's stages has been called for every microbatch.
LogicalResult Programs::checkAllCalled(Rank &rank) {
  auto placement =
      module->getAttrOfType<pipe::PlacementAttr>(pipe::kPlacementAttr);
  for (auto &[name, callee] : callees) {
    if (callee.own.endsStep())
      continue;
    int64_t stage = callee.own.getIndex();
    int64_t holder = placement ? placement.getRank(stage) : stage;
    int missing = rank.called[callee.number].find_first_unset();
    if (holder == int64_t(rank.program.getRank()) && missing >= 0)
      return report.wrong(rank.program)
             << "@" << name.getValue() << " is not called for microbatch "
             << missing;
  }
  return success();
}

/// That no rank waits; else who waits, and what is sent to nobody.
LogicalResult Programs::tellWaiting() {
  SmallVector<plan::ActionOp> waiting;
  for (Rank &rank : ranks)
    if (rank.next < rank.actions.size())
      waiting.push_back(rank.actions[rank.next]);
  if (waiting.empty())
    return success();
  InFlightDiagnostic diag = report.wrong(waiting[0]);
  diag << "waits for a message that nobody sends";
  for (plan::ActionOp other : ArrayRef(waiting).drop_front())
    diag.attachNote(other.getLoc()) << "so does this action of another rank";
  for (auto &[name, queue] : messages)
    if (!queue.empty())
      diag.attachNote(queue[0].send.getLoc())
          << "this sends " << queue[0].thing.print() << " to nobody";
  return diag;
}

LogicalResult Programs::run() {
  for (auto schedule : module.getOps<pipe::ScheduleOp>())
    if (int64_t(schedule.getMicrobatches()) != microbatches)
      return report.wrong(schedule)
             << "has " << schedule.getMicrobatches()
             << " microbatches, but the batch is " << microbatches;
  readFunctions();
  readPrograms();
  // 2. and 3. Each round advances some rank or is the last.
  bool moved = true;
  while (moved) {
    moved = false;
    for (Rank &rank : ranks)
      if (failed(advance(rank, moved)))
        return failure();
  }
  if (failed(tellWaiting()))
    return failure();
  for (Rank &rank : ranks)
    for (ActionKind kind : {ActionKind::Reduce, ActionKind::Optimizer})
      if (!rank.ended.count(kind))
        return report.wrong(rank.program)
               << "never does " << pipe::stringifyActionKind(kind);
  return success();
}

LogicalResult plait::proof::checkPrograms(ModuleOp module, int64_t microbatches,
                                          Report &report) {
  return Programs(module, microbatches, report).run();
}
