//===- Program.cpp - Whether calls get what belongs to them ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Program.h"

#include "Step.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Pipe/IR/Pipe.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Transforms/Buffers.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <deque>
#include <map>
#include <set>
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
  int64_t index, stage, microbatch;

  auto operator<=>(const Thing &) const = default;
  std::string print() const {
    return (pipe::stringifyPortKind(kind) + " " + Twine(index) + " of stage " +
            Twine(stage) + ", microbatch " + Twine(microbatch))
        .str();
  }
};

/// A buffer and an offset in it, in bytes.
using Address = std::pair<StringRef, int64_t>;

/// A function's contributions to sums over microbatches, in the order in which
/// they are computed, and how each treats what is there.
struct Adding {
  StringRef symbol;
  nn::Slot slot;
  plan::Accumulate mode;
  Operation *op;
};

/// One rank on its way through its program.
struct Rank {
  plan::ProgramOp program;
  std::vector<plan::ActionOp> actions;
  size_t next = 0;
  llvm::StringMap<plan::BufferOp> buffers;
  std::map<Address, Thing> holds;
  std::set<std::pair<StringRef, int64_t>> called; // function, microbatch
  std::set<std::pair<StringRef, nn::Slot>> begun;
  std::set<ActionKind> ended;
};

class Programs {
public:
  Programs(ModuleOp module, Report &report) : module(module), report(report) {}
  LogicalResult run();

private:
  /// Sender, receiver, stage, backward, microbatch, tensor: by such a name the
  /// ends of a message find one another.
  using Name = std::tuple<int64_t, int64_t, int64_t, bool, int64_t, int64_t>;
  static Name getName(plan::ActionOp action, int64_t sender, int64_t receiver) {
    return {sender,
            receiver,
            action.getStage().value_or(0),
            action.getBackward(),
            action.getMicrobatch().value_or(0),
            action.getTensor().value_or(0)};
  }
  LogicalResult advance(Rank &rank, bool &moved);
  LogicalResult call(Rank &rank, plan::ActionOp action);
  LogicalResult endStep(Rank &rank, plan::ActionOp action);
  FailureOr<Address> locate(Rank &rank, plan::ActionOp action, Value value,
                            pipe::PortAttr port);
  LogicalResult take(Rank &rank, plan::ActionOp action, BlockArgument argument,
                     pipe::PortAttr port);
  LogicalResult bind(Rank &rank, plan::ActionOp action, func::FuncOp callee);
  LogicalResult add(Rank &rank, plan::ActionOp action, func::FuncOp callee,
                    bool first);
  LogicalResult use(Rank &rank, plan::ActionOp action, StringRef buffer);
  LogicalResult checkAllCalled(Rank &rank);
  const std::vector<Adding> &findAddings(func::FuncOp function);

  ModuleOp module;
  Report &report;
  int64_t microbatches = 0;
  std::vector<Rank> ranks;
  std::map<Name, std::deque<Thing>> messages;
  llvm::DenseMap<Operation *, std::vector<Adding>> addings;
};

} // namespace

static pipe::FunctionAttr getFunction(func::FuncOp function) {
  return function->getAttrOfType<pipe::FunctionAttr>(pipe::kFunctionAttr);
}

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

/// A buffer is only itself while it lives; others have its bytes before and
/// after.
LogicalResult Programs::use(Rank &rank, plan::ActionOp action, StringRef name) {
  plan::BufferOp buffer = rank.buffers.lookup(name);
  int64_t at = rank.next;
  if (buffer && int64_t(buffer.getFirst()) <= at &&
      at <= int64_t(buffer.getLast()))
    return success();
  return report.wrong(action) << "action " << at << " uses buffer \"" << name
                              << "\", which does not live then";
}

/// What `port` of a function of `stage` is called.
static Thing getThing(pipe::PortAttr port, int64_t stage, int64_t microbatch) {
  auto [kind, source] = findMaker(port.getKind(), stage);
  return {kind, port.getIndex(), source, microbatch};
}

/// Where passes have placed what a function takes or gives.
static plan::PlaceAttr getPlace(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return cast<func::FuncOp>(argument.getOwner()->getParentOp())
        .getArgAttrOfType<plan::PlaceAttr>(argument.getArgNumber(), kPlaceAttr);
  auto result = cast<OpResult>(value);
  auto places = result.getOwner()->getAttrOfType<ArrayAttr>(plan::kPlacesAttr);
  return places && result.getResultNumber() < places.size()
             ? dyn_cast<plan::PlaceAttr>(places[result.getResultNumber()])
             : plan::PlaceAttr();
}

/// Where that is while `action` runs.
FailureOr<Address> Programs::locate(Rank &rank, plan::ActionOp action,
                                    Value value, pipe::PortAttr port) {
  plan::PlaceAttr place = getPlace(value);
  StringRef text = place ? place.getBuffer().getValue() : StringRef();
  unsigned slot = 0;
  if (!text.consume_front("slot ") || text.getAsInteger(10, slot) ||
      slot >= action.getBuffers().size()) {
    report.wrong(action) << port.getText()
                         << " lies in no slot of the function";
    return failure();
  }
  StringRef buffer =
      cast<FlatSymbolRefAttr>(action.getBuffers()[slot]).getValue();
  if (failed(use(rank, action, buffer)))
    return failure();
  return Address(buffer, place.getOffset());
}

LogicalResult Programs::take(Rank &rank, plan::ActionOp action,
                             BlockArgument argument, pipe::PortAttr port) {
  FailureOr<Address> at = locate(rank, action, argument, port);
  if (failed(at))
    return failure();
  if (port.isModelInput()) {
    // The rows of the action's microbatch, of those of all.
    bool isTokens = port.getKind() == pipe::PortKind::Tokens;
    if (at->first == (isTokens ? kTokensBuffer : kTargetsBuffer))
      return success();
    return report.wrong(action)
           << "gives \"" << at->first << "\" for the " << port.getText();
  }
  Thing expected = getThing(port, *action.getStage(), *action.getMicrobatch());
  auto held = rank.holds.find(*at);
  if (held != rank.holds.end() && held->second == expected)
    return success();
  return report.wrong(action)
         << "takes " << expected.print() << " from buffer \"" << at->first
         << "\", which holds "
         << (held == rank.holds.end() ? "nothing" : held->second.print());
}

LogicalResult Programs::bind(Rank &rank, plan::ActionOp action,
                             func::FuncOp callee) {
  for (BlockArgument argument : callee.getArguments())
    if (failed(take(rank, action, argument,
                    callee.getArgAttrOfType<pipe::PortAttr>(
                        argument.getArgNumber(), pipe::kPortAttr))))
      return failure();
  Operation *end = callee.getBody().front().getTerminator();
  for (auto [index, value] : llvm::enumerate(end->getOperands())) {
    auto port =
        callee.getResultAttrOfType<pipe::PortAttr>(index, pipe::kPortAttr);
    FailureOr<Address> at = locate(rank, action, value, port);
    if (failed(at))
      return failure();
    rank.holds.insert_or_assign(
        *at, getThing(port, *action.getStage(), *action.getMicrobatch()));
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Sums over microbatches
//===----------------------------------------------------------------------===//

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

const std::vector<Adding> &Programs::findAddings(func::FuncOp function) {
  auto [it, isNew] = addings.try_emplace(function);
  if (!isNew)
    return it->second;
  llvm::DenseMap<Operation *, int64_t> position;
  for (auto [index, op] : llvm::enumerate(function.getBody().front()))
    position[&op] = index;
  std::vector<std::pair<int64_t, Adding>> found;
  for (auto op : function.getOps<nn::AccumulateOp>())
    if (auto result = dyn_cast<OpResult>(op.getInput()))
      found.push_back({position.lookup(result.getOwner()),
                       {op.getSymbol(), op.getSlot(), getMode(result), op}});
  llvm::stable_sort(found, llvm::less_first());
  for (auto &[at, adding] : found)
    it->second.push_back(adding);
  return it->second;
}

/// The first contribution of a step replaces what the last step left.
LogicalResult Programs::add(Rank &rank, plan::ActionOp action,
                            func::FuncOp callee, bool first) {
  for (const Adding &adding : findAddings(callee)) {
    bool replaces = adding.mode == plan::Accumulate::Overwrite ||
                    (adding.mode == plan::Accumulate::AddUnlessFirst && first);
    bool isFirst = rank.begun.insert({adding.symbol, adding.slot}).second;
    if (replaces == isFirst)
      continue;
    return report.wrong(adding.op)
           << (replaces ? "replaces what was added to @"
                        : "adds to what the last step left in @")
           << adding.symbol << " " << nn::stringifySlot(adding.slot)
           << " in action " << rank.next << ", microbatch "
           << *action.getMicrobatch();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Actions
//===----------------------------------------------------------------------===//

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

LogicalResult Programs::call(Rank &rank, plan::ActionOp action) {
  auto callee = module.lookupSymbol<func::FuncOp>(*action.getCallee());
  pipe::FunctionAttr own = callee ? getFunction(callee) : pipe::FunctionAttr();
  int64_t index = action.getStage() ? int64_t(*action.getStage())
                                    : int64_t(rank.program.getRank());
  if (!own || own.getAction() != action.getKind() || own.getIndex() != index)
    return report.wrong(action)
           << "does " << pipe::stringifyActionKind(action.getKind()) << " of "
           << index << " by calling @" << *action.getCallee();
  if (own.endsStep())
    return endStep(rank, action);
  if (!rank.ended.empty())
    return report.wrong(action) << "comes after the end of the step";
  int64_t microbatch = *action.getMicrobatch();
  if (microbatch >= microbatches)
    return report.wrong(action)
           << "there are " << microbatches << " microbatches";
  StringRef name = callee.getSymName();
  auto before = rank.called.lower_bound({name, -1});
  bool first = before == rank.called.end() || before->first != name;
  if (!rank.called.insert({name, microbatch}).second)
    return report.wrong(action) << "calls @" << name << " for microbatch "
                                << microbatch << " a second time";
  if (failed(bind(rank, action, callee)))
    return failure();
  return add(rank, action, callee, first);
}

/// Sends are buffered here: that programs do not wait for one another is the
/// plan checker's matter.
LogicalResult Programs::advance(Rank &rank, bool &moved) {
  for (; rank.next < rank.actions.size(); ++rank.next) {
    plan::ActionOp action = rank.actions[rank.next];
    if (!action.isTransfer()) {
      if (failed(call(rank, action)))
        return failure();
      moved = true;
      continue;
    }
    StringRef buffer =
        cast<FlatSymbolRefAttr>(action.getBuffers()[0]).getValue();
    int64_t own = rank.program.getRank(), peer = *action.getPeer();
    if (failed(use(rank, action, buffer)))
      return failure();
    if (action.getKind() == ActionKind::Send) {
      auto held = rank.holds.find({buffer, 0});
      if (held == rank.holds.end())
        return report.wrong(action)
               << "sends buffer \"" << buffer << "\", which holds nothing";
      messages[getName(action, own, peer)].push_back(held->second);
    } else if (action.getKind() == ActionKind::Recv) {
      auto &queue = messages[getName(action, peer, own)];
      if (queue.empty())
        return success();
      rank.holds.insert_or_assign(Address(buffer, 0), queue.front());
      queue.pop_front();
    }
    moved = true;
  }
  return success();
}

/// Every function of the rank's stages has been called for every microbatch.
LogicalResult Programs::checkAllCalled(Rank &rank) {
  auto placement =
      module->getAttrOfType<pipe::PlacementAttr>(pipe::kPlacementAttr);
  for (auto function : module.getOps<func::FuncOp>()) {
    pipe::FunctionAttr own = getFunction(function);
    if (!own || own.endsStep())
      continue;
    int64_t holder =
        placement ? placement.getRank(own.getIndex()) : own.getIndex();
    if (holder != int64_t(rank.program.getRank()))
      continue;
    for (int64_t i = 0; i < microbatches; ++i)
      if (!rank.called.count({function.getSymName(), i}))
        return report.wrong(rank.program)
               << "@" << function.getSymName()
               << " is not called for microbatch " << i;
  }
  return success();
}

LogicalResult Programs::run() {
  for (auto schedule : module.getOps<pipe::ScheduleOp>())
    microbatches = schedule.getMicrobatches();
  for (auto program : module.getOps<plan::ProgramOp>()) {
    Rank &rank = ranks.emplace_back();
    rank.program = program;
    for (auto buffer : program.getBody().getOps<plan::BufferOp>())
      rank.buffers[buffer.getSymName()] = buffer;
    llvm::append_range(rank.actions,
                       program.getBody().getOps<plan::ActionOp>());
  }
  bool moved = true;
  while (moved) {
    moved = false;
    for (Rank &rank : ranks)
      if (failed(advance(rank, moved)))
        return failure();
  }
  for (Rank &rank : ranks) {
    if (rank.next < rank.actions.size())
      return report.wrong(rank.actions[rank.next])
             << "waits for a message that nobody sends";
    for (ActionKind kind : {ActionKind::Reduce, ActionKind::Optimizer})
      if (!rank.ended.count(kind))
        return report.wrong(rank.program)
               << "never does " << pipe::stringifyActionKind(kind);
  }
  return success();
}

LogicalResult plait::proof::checkPrograms(ModuleOp module, Report &report) {
  return Programs(module, report).run();
}
