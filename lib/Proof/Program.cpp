//===- Program.cpp - Check of programs' calls -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The programs of all ranks are executed symbolically, over things instead of
// tensors: a buffer holds "output 0 of stage 1, microbatch 2", and a call has
// to find in its slots exactly what its function's ports name.
// 1. What calls take, give, write over and add up is read from the functions,
//    once (Callees.h).
// 2. Ranks advance in turn, each until it waits for a message (advance).
// 3. When no rank moves, all have to be at the end of their program
//    (tellWaiting). A round of step 2 looks at every rank once, besides the
//    actions that it advances. Deadlocks are left to the plan checker.
//
// A thing is in its buffer until something is written over its bytes: by a call
// that was given the buffer for whatever purpose, or by a message. That buffers
// which live at the same time do not overlap is the verifier's matter
// (plan.program, C3). Buffers that functions use by name, as those of
// parameters, hold what no action says. No action may be given one, and they
// live as long as the step, which finds and leaves something there.
//
//===----------------------------------------------------------------------===//

#include "Program.h"

#include "Callees.h"
#include "Interpreter.h"
#include "ProgramBuffer.h"

#include "plait/Support/ActionKinds.h"

#include <map>
#include <set>
#include <tuple>

using namespace mlir;
using namespace plait;
using namespace plait::proof;
using pipe::ActionKind;

namespace {

/// One rank on its way through its program.
struct Rank {
  plan::ProgramOp program;
  std::vector<plan::ActionOp> actions;
  /// The number of the action that is next, in which lifetimes of buffers are
  /// given.
  size_t next = 0;
  std::vector<Buffer> buffers;
  llvm::DenseMap<StringAttr, unsigned> numbers; // of buffers
  /// What the slots of the next action are, as far as somebody has asked.
  SmallVector<Buffer *> slots;
  struct Called {
    StringAttr name; // null: of another rank's stage
    llvm::BitVector microbatches;
  };
  /// The functions that are called, by the callee's number, hence in the
  /// module's order. Those of its stages are there from the beginning.
  std::map<unsigned, Called> called;
  std::set<ActionKind> asked; // what its functions do once a step
  llvm::BitVector begun;      // sums
  std::set<ActionKind> ended; // what it has done of the end of the step
};

/// All ranks of a step, and the messages between them.
class Programs {
public:
  Programs(ModuleOp module, int64_t microbatches, Report &report)
      : module(module), report(report), microbatches(microbatches),
        callees(module) {}
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
  void readPrograms();
  /// Sets `moved` if the rank does at least one action.
  LogicalResult advance(Rank &rank, bool &moved);
  LogicalResult transfer(Rank &rank, plan::ActionOp action, bool &waits);
  LogicalResult call(Rank &rank, plan::ActionOp action);
  LogicalResult beginStep(Rank &rank, plan::ActionOp action);
  LogicalResult endStep(Rank &rank, plan::ActionOp action);
  FailureOr<Buffer *> use(Rank &rank, plan::ActionOp action, Attribute name);
  LogicalResult checkStanding(Rank &rank);
  FailureOr<Buffer *> locate(Rank &rank, plan::ActionOp action, int64_t slot,
                             pipe::PortAttr port);
  LogicalResult overwrite(Rank &rank, plan::ActionOp action, Buffer &buffer,
                          int64_t begin, int64_t end);
  LogicalResult overwrite(Rank &rank, plan::ActionOp action,
                          const Callee &callee);
  LogicalResult take(Rank &rank, plan::ActionOp action, const Callee &callee,
                     const Bound &bound, const Thing &expected);
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
  Callees callees;
  std::vector<Rank> ranks;
  struct Message {
    Thing thing;
    plan::ActionOp send;
  };
  llvm::MapVector<Name, SmallVector<Message, 1>> messages; // in the order sent
};

} // namespace

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

void Programs::readPrograms() {
  for (auto program : module.getOps<plan::ProgramOp>()) {
    Rank &rank = ranks.emplace_back();
    rank.program = program;
    rank.begun.resize(callees.countSums());
    for (Operation &op : program.getBody().front())
      if (auto buffer = dyn_cast<plan::BufferOp>(op)) {
        rank.numbers[buffer.getSymNameAttr()] = rank.buffers.size();
        rank.buffers.push_back(
            {buffer,
             int64_t(buffer.getFirst()),
             int64_t(buffer.getLast()),
             int64_t(buffer.getBytes()),
             pipe::PortAttr::namesModelInput(buffer.getSymName()),
             callees.isNamed(buffer.getSymNameAttr()),
             {},
             {}});
      } else {
        rank.actions.push_back(cast<plan::ActionOp>(op));
      }
  }
  llvm::DenseMap<int64_t, Rank *> byNumber;
  for (Rank &rank : ranks)
    byNumber[rank.program.getRank()] = &rank;
  auto placement =
      module->getAttrOfType<pipe::PlacementAttr>(pipe::kPlacementAttr);
  for (auto &[name, callee] : callees) {
    int64_t index = callee.own.getIndex();
    bool isOfStage = !callee.own.isOfRank();
    Rank *rank = byNumber.lookup(
        isOfStage && placement ? placement.getRank(index) : index);
    if (!rank)
      continue;
    if (isOfStage)
      rank->called[callee.number] = {name, llvm::BitVector(microbatches)};
    else
      rank->asked.insert(callee.own.getAction());
  }
}

/// A buffer that no action is given is used by name, in any call, and inputs
/// are there before the first: both live as long as the step. Comes last: a
/// buffer is left over where an action was given another one, which tells more.
LogicalResult Programs::checkStanding(Rank &rank) {
  llvm::DenseSet<StringAttr> given;
  for (plan::ActionOp action : rank.actions)
    for (auto symbol : action.getBuffers().getAsRange<FlatSymbolRefAttr>())
      given.insert(symbol.getAttr());
  int64_t last = rank.actions.size() - 1;
  for (Buffer &buffer : rank.buffers) {
    bool stands = buffer.isInput || !given.contains(buffer.op.getSymNameAttr());
    if (stands && (buffer.first != 0 || buffer.last != last))
      return report.wrong(buffer.op)
             << "lives over actions " << buffer.first << " to " << buffer.last
             << ", but is there for the whole step, 0 to " << last;
  }
  return success();
}

/// A buffer is only itself while it lives; others have its bytes before and
/// after.
FailureOr<Buffer *> Programs::use(Rank &rank, plan::ActionOp action,
                                  Attribute symbol) {
  StringAttr name = cast<FlatSymbolRefAttr>(symbol).getAttr();
  auto known = rank.numbers.find(name);
  int64_t at = rank.next;
  if (known != rank.numbers.end()) {
    Buffer &buffer = rank.buffers[known->second];
    if (buffer.first <= at && at <= buffer.last && !buffer.isNamed)
      return &buffer;
  }
  if (callees.isNamed(name)) {
    report.wrong(action) << "action " << at << " is given buffer \""
                         << name.getValue()
                         << "\", which functions use by its name";
    return failure();
  }
  report.wrong(action) << "action " << at << " uses buffer \""
                       << name.getValue() << "\", which does not live then";
  return failure();
}

/// Whoever writes there leaves nothing of what was there. Inputs are read until
/// the last microbatch, and what is sent until the send has been waited for.
LogicalResult Programs::overwrite(Rank &rank, plan::ActionOp action,
                                  Buffer &buffer, int64_t begin, int64_t end) {
  if (buffer.isInput)
    return report.wrong(action)
           << "action " << rank.next << " writes over the inputs in buffer "
           << buffer.op.getSymNameAttr();
  if (buffer.send) {
    InFlightDiagnostic diag = report.wrong(action);
    diag << "action " << rank.next << " writes over buffer "
         << buffer.op.getSymNameAttr() << ", which is being sent";
    diag.attachNote(buffer.send.getLoc()) << "by this action";
    return diag;
  }
  buffer.erase(begin, end);
  return success();
}

/// What `port` of a function of `stage` is called.
static Thing getThing(pipe::PortAttr port, int64_t stage, int64_t microbatch) {
  auto [kind, source] = findMaker(port.getKind(), stage);
  return {kind, int32_t(port.getIndex()), int32_t(source), int32_t(microbatch)};
}

/// The buffer in which what `port` stands for is while `action` runs; null: it
/// is something that the function writes.
///
/// Fails where that lies in no slot: a call could not hand it over. Expects
/// that checkSlots() has counted the slots.
FailureOr<Buffer *> Programs::locate(Rank &rank, plan::ActionOp action,
                                     int64_t slot, pipe::PortAttr port) {
  if (slot < 0 || slot >= int64_t(rank.slots.size())) {
    report.wrong(action) << (port ? port.getText() : "what it writes")
                         << " lies in no slot of the function";
    return failure();
  }
  if (!rank.slots[slot]) {
    auto used = use(rank, action, action.getBuffers()[slot]);
    if (failed(used))
      return failure();
    rank.slots[slot] = *used;
  }
  return rank.slots[slot];
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
  rank.slots.assign(given.size(), nullptr);
  SmallPtrSet<Attribute, 32> seen;
  for (auto [slot, symbol, bytes] : llvm::enumerate(given, callee.slotBytes)) {
    if (!seen.insert(symbol).second)
      return report.wrong(action) << "binds " << symbol << " to two slots";
    if (bytes == 0)
      continue;
    FailureOr<Buffer *> buffer = locate(rank, action, slot, {});
    if (failed(buffer))
      return failure();
    // Of the inputs a call gets the rows of its microbatch.
    if ((*buffer)->bytes < bytes)
      return report.wrong(action)
             << "binds " << symbol << " of " << (*buffer)->bytes
             << " bytes to a slot of " << bytes;
  }
  return success();
}

/// That the argument's place holds the thing that it stands for. Inputs of the
/// model are not followed: their buffers hold all microbatches, and the call
/// selects its rows.
LogicalResult Programs::take(Rank &rank, plan::ActionOp action,
                             const Callee &callee, const Bound &bound,
                             const Thing &expected) {
  FailureOr<Buffer *> buffer =
      locate(rank, action, bound.place.slot, bound.port);
  if (failed(buffer))
    return failure();
  if (bound.port.isModelInput()) {
    // The rows of the action's microbatch, of those of all.
    StringRef name = (*buffer)->op.getSymName();
    if (name == bound.port.getText())
      return success();
    return report.wrong(action)
           << "gives \"" << name << "\" for the " << bound.port.getText();
  }
  const Thing *held = (*buffer)->find(bound.place.begin);
  if (held && *held == expected)
    return success();
  InFlightDiagnostic diag = report.wrong(action);
  diag << "takes " << expected.print() << " from buffer \""
       << (*buffer)->op.getSymName() << "\", which holds "
       << (held ? held->print() : "nothing");
  diag.attachNote(callee.function->getLoc())
      << "the function looks for " << bound.port.getText() << " in its slot "
      << bound.place.slot;
  return diag;
}

/// In all of its slots, the workspace too, whatever was bound to them.
LogicalResult Programs::overwrite(Rank &rank, plan::ActionOp action,
                                  const Callee &callee) {
  for (const SlotBytes &written : callee.writes) {
    FailureOr<Buffer *> buffer = locate(rank, action, written.slot, {});
    if (failed(buffer) ||
        failed(overwrite(rank, action, **buffer, written.begin, written.end)))
      return failure();
  }
  return success();
}

/// All arguments are checked before any result is put: a result may lie where
/// an argument was.
LogicalResult Programs::bind(Rank &rank, plan::ActionOp action,
                             const Callee &callee) {
  int64_t stage = *action.getStage(), microbatch = *action.getMicrobatch();
  for (const Bound &bound : callee.takes)
    if (failed(take(rank, action, callee, bound,
                    getThing(bound.port, stage, microbatch))))
      return failure();
  if (failed(overwrite(rank, action, callee)))
    return failure();
  for (const Bound &bound : callee.gives) {
    FailureOr<Buffer *> buffer =
        locate(rank, action, bound.place.slot, bound.port);
    if (failed(buffer))
      return failure();
    (*buffer)->put(bound.place.begin, bound.place.end,
                   getThing(bound.port, stage, microbatch));
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Actions
//===----------------------------------------------------------------------===//

/// The first contribution of a step replaces what the last step left, but for
/// what is kept from step to step.
///
/// `first`: it is the first call of this function, which is what the flag of a
/// kernel says at run time. A sum has to be begun by replacing, and only then:
/// two functions that add to one sum cannot both begin it.
LogicalResult Programs::add(Rank &rank, plan::ActionOp action,
                            const Callee &callee, bool first) {
  for (const Adding &adding : callee.addings) {
    bool replaces = adding.mode == plan::Accumulate::Overwrite ||
                    (adding.mode == plan::Accumulate::AddUnlessFirst && first);
    bool isFirst = !adding.isState && !rank.begun.test(adding.sum);
    rank.begun.set(adding.sum);
    if (replaces == isFirst)
      continue;
    SlotOpInterface op = adding.op;
    return report.wrong(op)
           << (replaces ? "replaces what was added to @"
                        : "adds to what the last step left in @")
           << op.getSymbol() << " " << op.getSlot().getName() << " in action "
           << rank.next << ", microbatch " << *action.getMicrobatch();
  }
  return success();
}

/// Each action of the end once, in order, and after all microbatches.
LogicalResult Programs::endStep(Rank &rank, plan::ActionOp action) {
  ActionKind kind = action.getKind();
  if (!rank.ended.insert(kind).second)
    return report.wrong(action)
           << "does " << pipe::stringifyActionKind(kind) << " twice";
  if (kind == ActionKind::Reduce && rank.ended.count(ActionKind::Optimizer))
    return report.wrong(action) << "reduces gradients after they were used";
  if (ActionKind last = *rank.ended.rbegin(); last != kind)
    return report.wrong(action) << "does " << pipe::stringifyActionKind(kind)
                                << " after " << pipe::stringifyActionKind(last);
  return checkAllCalled(rank);
}

/// Before all that computes with what is gathered.
LogicalResult Programs::beginStep(Rank &rank, plan::ActionOp action) {
  if (rank.next == 0)
    return success();
  return report.wrong(action) << "gathers parameters after action 0 has begun "
                                 "to compute";
}

/// Gather, reduce and optimizer functions belong to a rank, all others to a
/// stage, hence `index`.
LogicalResult Programs::call(Rank &rank, plan::ActionOp action) {
  const Callee *known = callees.find(action.getCalleeAttr().getAttr());
  int64_t index = action.getStage() ? int64_t(*action.getStage())
                                    : int64_t(rank.program.getRank());
  if (!known || known->own.getAction() != action.getKind() ||
      known->own.getIndex() != index)
    return report.wrong(action)
           << "does " << pipe::stringifyActionKind(action.getKind()) << " of "
           << index << " by calling @" << *action.getCallee();
  const Callee &callee = *known;
  if (failed(checkSlots(rank, action, callee)))
    return failure();
  if (callee.own.isOfRank())
    return failure(
        failed(overwrite(rank, action, callee)) ||
        failed(getActionFacts(action.getKind()).time == ActionTime::Begin
                   ? beginStep(rank, action)
                   : endStep(rank, action)));
  if (!rank.ended.empty())
    return report.wrong(action) << "comes after the end of the step";
  int64_t microbatch = *action.getMicrobatch();
  if (microbatch >= microbatches)
    return report.wrong(action)
           << "there are " << microbatches << " microbatches";
  llvm::BitVector &called = rank.called[callee.number].microbatches;
  called.resize(microbatches);
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
  FailureOr<Buffer *> used = use(rank, action, action.getBuffers()[0]);
  if (failed(used))
    return failure();
  Buffer &buffer = **used;
  int64_t own = rank.program.getRank(), peer = *action.getPeer();
  if (action.getKind() == ActionKind::Send) {
    const Thing *held = buffer.find(0);
    if (!held)
      return report.wrong(action) << "sends buffer \"" << buffer.op.getSymName()
                                  << "\", which holds nothing";
    messages[getName(action, own, peer)].push_back({*held, action});
    buffer.send = action;
  } else if (action.getKind() == ActionKind::Recv) {
    auto queue = messages.find(getName(action, peer, own));
    waits = queue == messages.end() || queue->second.empty();
    if (waits)
      return success();
    if (failed(overwrite(rank, action, buffer, 0, buffer.bytes)))
      return failure();
    buffer.put(0, buffer.bytes, queue->second.front().thing);
    queue->second.erase(queue->second.begin());
  } else {
    if (!buffer.send ||
        getName(buffer.send, own, peer) != getName(action, own, peer))
      return report.wrong(action)
             << "waits for a message that is not sent from buffer "
             << buffer.op.getSymNameAttr();
    buffer.send = {};
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
  for (auto &[number, own] : rank.called)
    if (int missing = own.microbatches.find_first_unset();
        own.name && missing >= 0)
      return report.wrong(rank.program)
             << "@" << own.name.getValue() << " is not called for microbatch "
             << missing;
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
  for (Rank &rank : ranks) {
    for (size_t row = 0; row < std::size(actionKinds); ++row)
      if (ActionKind kind = ActionKind(row);
          actionKinds[row].time == ActionTime::End &&
          (actionKinds[row].isAlways || rank.asked.count(kind)) &&
          !rank.ended.count(kind))
        return report.wrong(rank.program)
               << "never does " << pipe::stringifyActionKind(kind);
    if (rank.asked.count(ActionKind::Gather) &&
        rank.actions.front().getKind() != ActionKind::Gather)
      return report.wrong(rank.program)
             << "never gathers the parameters that it computes with";
    if (failed(checkStanding(rank)))
      return failure();
  }
  return success();
}

LogicalResult plait::proof::checkPrograms(ModuleOp module, int64_t microbatches,
                                          Report &report) {
  return Programs(module, microbatches, report).run();
}
