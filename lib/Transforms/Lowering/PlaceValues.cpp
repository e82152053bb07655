//===- PlaceValues.cpp - Addresses of the values of a function ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fixed are the addresses of what a caller, a parameter or a sum prescribes;
// what is computed in place takes those of its operand; PackMemory.cpp packs
// the rest into the function's workspace. Slots.cpp says what the slots of a
// function are, PlaceBuffers.cpp in which order functions are placed.
//
// A value's address is decided by who is bound to it: a return, a store or a
// read says in which slot or buffer it lies, and its producer writes there, so
// that nothing is copied at a function's border. All else is free to lie
// anywhere in the workspace, and where residuals were that nobody needs any
// more: a backward pass makes room for its own gradients. Time is the position
// of an op in the body; what is live at the same position does not share bytes,
// unless one is written over the other.
//
//===----------------------------------------------------------------------===//

#include "PlaceValues.h"

#include "Neighbours.h"
#include "PreparePlacing.h"

#include "plait/Analysis/ClusterStructure.h"
#include "plait/Configuration/Optimizers.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"

#include <map>

using namespace mlir;
using namespace plait;

namespace {

/// The bytes that values may lie in, counted from 0: those of slots with what
/// is released, one slot behind the other, then the workspace.
struct Room {
  struct Begin {
    int64_t at;
    unsigned slot;
  };
  SmallVector<Begin> slots; // the workspace last
  SmallVector<PlacedBuffer> taken;
  int64_t bytes = 0; // of all but the workspace

  SlotPlace locate(int64_t offset) const {
    const Begin &begin = *std::prev(llvm::partition_point(
        slots, [&](const Begin &begin) { return begin.at <= offset; }));
    return {begin.slot, offset - begin.at};
  }
};

/// Places the values of one function.
class Placer {
public:
  Placer(func::FuncOp function, const Surroundings &surroundings);

  /// Gives every result an address. `begun` names the buffers that functions
  /// which run earlier in the step add to.
  void run(const llvm::StringSet<> &begun);
  Workspace findWorkspace();

private:
  void keepSummed(Workspace &workspace);
  void keepMoved(Workspace &workspace);
  void keepGathered(Workspace &workspace);
  void keepSent(Workspace &workspace);
  void keepExchanged(Workspace &workspace);
  void keep(Workspace &workspace, Value value, Operation *last);
  plan::PlaceAttr place(StringRef buffer, int64_t offset = 0) {
    MLIRContext *context = builder.getContext();
    return plan::PlaceAttr::get(
        context, /*slot=*/-1, FlatSymbolRefAttr::get(context, buffer), offset);
  }
  plan::PlaceAttr place(StringRef symbol, nn::Slot slot) {
    auto [buffer, offset] = packs.locate(symbol, slot);
    return place(buffer, offset);
  }
  plan::PlaceAttr place(SlotPlace at) {
    return plan::PlaceAttr::get(builder.getContext(), at.slot,
                                FlatSymbolRefAttr(), at.offset);
  }
  unsigned workspaceSlot() const { return slots.slots.size(); }
  plan::PlaceAttr fixedPlace(Value value);
  plan::PlaceAttr place(const nn::StepMemory &memory);
  plan::PlaceAttr ownPlace(Operation *op);
  void setAccumulate(Operation *producer, OpResult result, bool first);
  void setAccumulates(const llvm::StringSet<> &begun);
  bool isAlone(Value value, Operation *user);
  void placeInResult(Value result, Value operand);
  void workInPlace();
  ArrayRef<Overwrite> getOverwrites(plan::ClusterOp cluster);
  Room findRoom(const Workspace &workspace);
  int64_t packWorkspace();
  void describeSlots(int64_t workspace);

  func::FuncOp function;
  Block &body;
  Builder builder;
  const ParameterPacks &packs;
  const FunctionSlots &slots;
  Unmoved &unmoved;
  /// The values that have an address; before the workspace is packed, only
  /// those that are fixed.
  llvm::MapVector<Value, plan::PlaceAttr> places;
  /// The index of an op in the body: the time that lifetimes are in.
  llvm::DenseMap<Operation *, int64_t> position;
  /// Results that overwrite an operand, with that operand.
  llvm::DenseMap<Value, Value> inPlaceOf;
  /// The distance, from the beginning of the whole, of what is joined in the
  /// workspace.
  llvm::DenseMap<Value, int64_t> joined;
};

} // namespace

plan::PlaceAttr Placer::place(const nn::StepMemory &memory) {
  switch (memory.kind) {
  case nn::StepMemory::InSlot:
    return place(memory.name, memory.slot);
  case nn::StepMemory::Scalar:
    return place(kScalarsBuffer, sizeof(float) * findStepScalar(memory.name));
  case nn::StepMemory::Metric:
    return place(
        kMetricsBuffer,
        sizeof(float) *
            findMetric(function->getParentOfType<ModuleOp>(), memory.name));
  }
  llvm_unreachable("no other memory");
}

/// The memory that `op` stands for, or null.
plan::PlaceAttr Placer::ownPlace(Operation *op) {
  if (auto own = dyn_cast<MemoryOpInterface>(op))
    return place(own.getMemory());
  if (isa<ConstantDataOpInterface>(op))
    return place(constantName(op));
  return {};
}

/// How far from the beginning of what it joins a concatenation has an operand.
static int64_t getOffset(OpOperand &use) {
  return use.getOperandNumber() * plan::getStoredBytes(use.get());
}

static plan::PlaceAttr advance(plan::PlaceAttr place, int64_t bytes) {
  return plan::PlaceAttr::get(place.getContext(), place.getSlot(),
                              place.getBuffer(), place.getOffset() + bytes);
}

static bool isJoined(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    return user->hasTrait<JoinsOperands>();
  });
}

/// Returns where a value must lie because of who makes or takes it; null:
/// anywhere.
plan::PlaceAttr Placer::fixedPlace(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return place(slots.arguments[argument.getArgNumber()]);
  if (plan::PlaceAttr source = ownPlace(value.getDefiningOp()))
    return source;
  // A value with two such users has been copied for one of them
  // (prepareFusion()).
  for (OpOperand &use : value.getUses()) {
    Operation *user = use.getOwner();
    if (isa<func::ReturnOp>(user))
      return place(slots.results[use.getOperandNumber()]);
    // What is joined lies in its part of the whole.
    if (user->hasTrait<JoinsOperands>())
      if (plan::PlaceAttr whole = fixedPlace(user->getResult(0)))
        return advance(whole, getOffset(use));
    if (plan::PlaceAttr target = ownPlace(user))
      return target;
  }
  return {};
}

/// Has `producer` add `result` to what lies at its address. If `first`, it
/// writes over that in the first microbatch, which saves setting it to zero.
void Placer::setAccumulate(Operation *producer, OpResult result, bool first) {
  auto mode = static_cast<int32_t>(first ? plan::Accumulate::AddUnlessFirst
                                         : plan::Accumulate::Add);
  auto cluster = dyn_cast<plan::ClusterOp>(producer);
  if (!cluster) {
    producer->setAttr(kAccumulateAttr, builder.getI32IntegerAttr(mode));
    return;
  }
  // A kernel may add some of its results and overwrite with others.
  SmallVector<int32_t> modes(cluster.getNumResults(), 0);
  if (auto old = cluster.getAccumulate())
    modes.assign(old->begin(), old->end());
  modes[result.getResultNumber()] = mode;
  cluster.setAccumulate(modes);
}

/// Says of every contribution to a sum whether it begins the sum. This follows
/// the order in which the contributions are computed, not that of the ops which
/// add them: the addition is done by the producer's own kernel.
void Placer::setAccumulates(const llvm::StringSet<> &begun) {
  llvm::StringSet<> seen = begun;
  SmallVector<std::pair<SlotOpInterface, int64_t>> accumulates;
  // In the order in which the contributions are computed.
  for (auto op : nn::findAccesses(function, nn::SlotAccess::Add))
    accumulates.push_back({op, position[op.getTensor().getDefiningOp()]});
  llvm::stable_sort(accumulates, llvm::less_second());
  for (auto [op, at] : accumulates) {
    // An accumulator that two ops of the function add to is begun by the one
    // and added to by the other.
    // What an earlier step has left in a state is added to.
    auto result = cast<OpResult>(op.getTensor());
    bool first = !op.getSlot().isState() &&
                 seen.insert(bufferName(op.getSymbol(), op.getSlot())).second;
    setAccumulate(result.getOwner(), result, first);
  }
}

/// Whether nobody but `user` reads the value, which may lie anywhere.
bool Placer::isAlone(Value value, Operation *user) {
  return value.getDefiningOp() && !places.contains(value) &&
         llvm::all_of(value.getUsers(),
                      [&](Operation *own) { return own == user; });
}

/// Has `operand`, which is alone, lie where `result` is to be: in the workspace
/// or in what the function returns. Buffers of parameters and sums are read by
/// others until they are written.
void Placer::placeInResult(Value result, Value operand) {
  if (!places.contains(result)) {
    inPlaceOf[result] = operand;
    return;
  }
  auto returned = llvm::find_if(result.getUses(), [](OpOperand &use) {
    return isa<func::ReturnOp>(use.getOwner());
  });
  if (returned == result.getUses().end() ||
      places[result] != place(slots.results[returned->getOperandNumber()]))
    return;
  // What has been made in the place of others takes them along, and a whole its
  // parts.
  plan::PlaceAttr taken = places[result];
  for (Value value = operand; value; value = inPlaceOf.lookup(value)) {
    places[value] = taken;
    if (Operation *op = value.getDefiningOp();
        op && op->hasTrait<JoinsOperands>())
      for (OpOperand &part : op->getOpOperands())
        places[part.get()] = advance(taken, getOffset(part));
  }
}

/// Results of findOverwrites(), once for the clusters of all layers.
ArrayRef<Overwrite> Placer::getOverwrites(plan::ClusterOp cluster) {
  auto [own, isFirst] = unmoved.ofCluster.try_emplace(cluster);
  if (!isFirst)
    return own->second;
  auto [known, isNew] =
      unmoved.overwrites.try_emplace(describeStructure(cluster));
  if (isNew)
    known->second = findOverwrites(cluster);
  return own->second = known->second;
}

/// Has results overwrite operands that nobody else reads:
/// 1. an all-reduce its input, in the workspace only;
/// 2. a matmul with an addend the addend;
/// 3. a cluster the operands that its loops read where they write.
/// What is joined lies in the whole from the beginning.
void Placer::workInPlace() {
  // In program order: a chain of ops in place is found link by link, each
  // pointing to the one before.
  for (Operation &op : body) {
    // 1.
    if (op.hasTrait<JoinsOperands>() && !places.contains(op.getResult(0)))
      for (OpOperand &operand : op.getOpOperands()) {
        inPlaceOf[operand.get()] = op.getResult(0);
        joined[operand.get()] = getOffset(operand);
      }
    if (auto reduce = dyn_cast<dist::AllReduceOp>(op))
      if (isAlone(reduce.getInput(), reduce) && !places.contains(reduce) &&
          !isJoined(reduce))
        inPlaceOf[reduce] = reduce.getInput();
    // 2.
    if (auto matmul = dyn_cast<ContractionOpInterface>(op);
        matmul && matmul.getAddend() && isAlone(matmul.getAddend(), matmul))
      placeInResult(matmul->getResult(0), matmul.getAddend());
    // 3. Each operand gives its memory to one result only, and rows have to lie
    // equally far apart in both. An operand that is passed twice is also read
    // by the other argument.
    auto cluster = dyn_cast<plan::ClusterOp>(op);
    if (!cluster)
      continue;
    llvm::SmallDenseSet<unsigned> results, operands;
    for (const Overwrite &pair : getOverwrites(cluster)) {
      Value operand = cluster.getOperand(pair.operand);
      if (results.contains(pair.result) || operands.contains(pair.operand) ||
          !isAlone(operand, cluster) ||
          isJoined(cluster.getResult(pair.result)) ||
          plan::getRowPitch(operand) !=
              plan::getRowPitch(cluster.getResult(pair.result)) ||
          llvm::count(cluster.getOperands(), operand) != 1)
        continue;
      placeInResult(cluster.getResult(pair.result), operand);
      results.insert(pair.result);
      operands.insert(pair.operand);
    }
  }
}

/// Whether the op copies from the arena to another place.
static bool isMoveAway(Operation *op) {
  auto move = dyn_cast<plan::MoveOp>(op);
  return move && leavesArena(move.getKind());
}

/// The lifetimes of what has no fixed address, in positions of ops, both ends
/// included. What is computed in place shares the lifetime of the root whose
/// memory it takes over.
Workspace Placer::findWorkspace() {
  Workspace workspace{{}, {}, inPlaceOf};
  // A root comes before what takes its memory over, so that its lifetime exists
  // by then and has only to be extended.
  for (Operation &op : body)
    for (Value result : op.getResults()) {
      if (places.contains(result))
        continue;
      int64_t last = position[&op];
      for (Operation *user : result.getUsers())
        last = std::max(last, position[user]);
      Lifetime own{plan::getStoredBytes(result), position[&op], last};
      auto [it, isNew] =
          workspace.lifetimes.insert({workspace.findRoot(result), own});
      // The whole that parts are joined to is larger than the first of them.
      it->second.bytes = std::max(it->second.bytes, own.bytes);
      it->second.last = std::max(it->second.last, last);
    }
  keepSummed(workspace);
  keepMoved(workspace);
  keepGathered(workspace);
  TargetAttr target = getTarget(function->getParentOfType<ModuleOp>());
  if (target && target.isGPU())
    keepSent(workspace);
  for (BlockArgument argument : slots.released) {
    Lifetime read{plan::getStoredBytes(argument), 0, 0};
    for (Operation *user : argument.getUsers())
      read.last = std::max(read.last, position[user]);
    workspace.released.insert({argument, read});
  }
  if (getConfiguration(function->getParentOfType<ModuleOp>()).tensorOverlap > 1)
    keepExchanged(workspace);
  return workspace;
}

/// Data that replicas sum up is read beside what follows: up to the next such
/// sum.
void Placer::keepSummed(Workspace &workspace) {
  // Backwards, with the position of the next sum at hand. A sum over replicas
  // runs on a stream of its own: bytes that it reads must not be given to an op
  // behind it, which would have to wait for the sum.
  Operation *next = &body.back();
  for (Operation &op : llvm::reverse(body))
    if (isReplicaSum(&op))
      keep(workspace, op.getOperand(0), std::exchange(next, &op));
}

/// Copies to another place, too, run beside what follows, and may be late: what
/// they read stays up to the second next copy that has work in front of it. In
/// an optimizer, whose copies all wait for each other, it is the next one.
void Placer::keepMoved(Workspace &workspace) {
  bool isOptimizer = doesAction(function, pipe::ActionKind::Optimizer);
  Operation *next = &body.back(), *afterNext = next;
  Operation *first = nullptr; // of those one behind the other
  for (Operation &op : llvm::reverse(body)) {
    if (isMoveAway(&op)) {
      Operation *last = isOptimizer ? (first ? first : next) : afterNext;
      keep(workspace, op.getOperand(0), last);
      first = &op;
    } else if (first) {
      afterNext = std::exchange(next, std::exchange(first, nullptr));
    }
  }
}

/// Keeps what ranks exchange until its result is needed, so that nobody between
/// the two waits, on GPUs.
void Placer::keepSent(Workspace &workspace) {
  for (Operation &op : body) {
    auto collective = dyn_cast<dist::CollectiveOpInterface>(op);
    Operation *first = nullptr;
    if (collective)
      for (Operation *user : op.getUsers())
        if (!first || position[user] < position[first])
          first = user;
    if (first)
      keep(workspace, collective.getInput(), first);
  }
}

/// Parameters that are gathered over one axis and then over the next lie, in
/// between, in another place than those that are gathered behind them: their
/// first gather is beside the other's second one.
void Placer::keepGathered(Workspace &workspace) {
  Operation *next = nullptr; // behind, of what has been gathered before
  for (Operation &op : llvm::reverse(body)) {
    if (!isParameterGather(&op)) {
      if (nn::getSlotAccess(&op) != nn::SlotAccess::Read)
        next = nullptr;
      continue;
    }
    if (!isParameterGather(op.getOperand(0).getDefiningOp()))
      continue;
    if (next)
      keep(workspace, op.getOperand(0), next);
    next = &op;
  }
}

/// Has what `value` lies in stay until `last` is done.
void Placer::keep(Workspace &workspace, Value value, Operation *last) {
  auto extend = [&](auto found, auto end) {
    if (found != end)
      found->second.last = std::max(found->second.last, position[last]);
  };
  extend(workspace.lifetimes.find(workspace.findRoot(value)),
         workspace.lifetimes.end());
  if (auto argument = dyn_cast<BlockArgument>(value))
    extend(workspace.released.find(argument), workspace.released.end());
}

/// A sum over tp may begin before the matmul in front of it has read all of its
/// operands, and a gather may still read when the first matmul behind it writes
/// (plan-split-collectives); in a forward pass of a GPU when all up to the next
/// collective do.
void Placer::keepExchanged(Workspace &workspace) {
  auto isMatmul = [](Operation *op) { return isa<ContractionOpInterface>(op); };
  TargetAttr target = getTarget(function->getParentOfType<ModuleOp>());
  bool hasChains = target && target.isGPU() &&
                   doesAction(function, pipe::ActionKind::Forward);
  Operation *next = nullptr; // over tp
  for (Operation &op : llvm::reverse(body)) {
    auto collective = dyn_cast<dist::CollectiveOpInterface>(op);
    if (!collective || collective.getAxis() != kTensorAxis)
      continue;
    Operation *source = collective.getInput().getDefiningOp();
    if (source && isMatmul(source))
      for (Value operand : source->getOperands())
        keep(workspace, operand, &op);
    Operation *first = nullptr;
    for (Operation *user : op.getUsers())
      if (isMatmul(user) && (!first || position[user] < position[first]))
        first = user;
    if (first && collective.getKind() == CollectiveKind::AllGather)
      keep(workspace, collective.getInput(), hasChains && next ? next : first);
    next = &op;
  }
}

Room Placer::findRoom(const Workspace &workspace) {
  Room room;
  int64_t end = position[&body.back()];
  std::map<unsigned, int64_t> begins;
  for (auto &[argument, read] : workspace.released) {
    auto [slot, offset] = slots.arguments[argument.getArgNumber()];
    auto [begin, isNew] = begins.insert({slot, room.bytes});
    if (isNew) {
      room.slots.push_back({room.bytes, slot});
      room.bytes += llvm::alignTo(slots.slots[slot].bytes, plan::kAlignment);
      // Nothing lies in two slots.
      room.taken.push_back({{plan::kAlignment, 0, end}, room.bytes});
      room.bytes += plan::kAlignment;
    }
    room.taken.push_back({read, begin->second + offset});
  }
  room.slots.push_back({room.bytes, workspaceSlot()});
  return room;
}

/// Places in the workspace, or in released slots, all that is not fixed;
/// returns the bytes of the workspace.
int64_t Placer::packWorkspace() {
  Workspace workspace = findWorkspace();
  Room room = findRoom(workspace);
  TargetAttr target = getTarget(function->getParentOfType<ModuleOp>());
  SmallVector<Neighbours> neighbours;
  if (target && target.isGPU())
    neighbours = findNeighbours(function, places, workspace);
  int64_t total = 0;
  SmallVector<int64_t> offsets =
      packNeighbours(workspace, neighbours, total, room.taken);
  llvm::DenseMap<Value, SlotPlace> placeOf;
  for (auto [entry, offset] : llvm::zip_equal(workspace.lifetimes, offsets))
    placeOf[entry.first] = room.locate(offset);
  for (Operation &op : body)
    for (Value result : op.getResults())
      if (!places.contains(result))
        places[result] = advance(place(placeOf.at(workspace.findRoot(result))),
                                 joined.lookup(result));
  return total - room.bytes;
}

/// Finds the fixed addresses and what is computed in place; writes nothing into
/// the function, so that a workspace can be asked for before ops are moved.
Placer::Placer(func::FuncOp function, const Surroundings &surroundings)
    : function(function), body(function.getBody().front()),
      builder(function.getContext()), packs(surroundings.packs),
      slots(surroundings.slots), unmoved(surroundings.unmoved) {
  for (auto [index, op] : llvm::enumerate(body)) {
    position[&op] = index;
    for (Value result : op.getResults()) {
      auto [fixed, isNew] = unmoved.fixed.try_emplace(result);
      if (isNew)
        fixed->second = fixedPlace(result);
      if (fixed->second)
        places[result] = fixed->second;
    }
  }
  workInPlace();
}

void Placer::run(const llvm::StringSet<> &begun) {
  setAccumulates(begun);
  int64_t workspace = packWorkspace();
  for (Operation &op : body) {
    SmallVector<Attribute> attributes;
    for (Value result : op.getResults())
      attributes.push_back(places[result]);
    if (!attributes.empty())
      op.setAttr(plan::kPlacesAttr, builder.getArrayAttr(attributes));
  }
  describeSlots(workspace);
}

/// Tells the file, and people who read it, what the slots are.
void Placer::describeSlots(int64_t workspace) {
  SmallVector<int64_t> bytes;
  SmallVector<Attribute> names;
  for (const Slot &slot : slots.slots) {
    bytes.push_back(slot.bytes);
    names.push_back(builder.getStringAttr(slot.getText()));
  }
  bytes.push_back(workspace);
  names.push_back(builder.getStringAttr("workspace"));
  function->setAttr(kSlotBytesAttr, builder.getDenseI64ArrayAttr(bytes));
  function->setAttr(kSlotNamesAttr, builder.getArrayAttr(names));
  // At once: each one that is set makes a list of those of all arguments anew.
  SmallVector<DictionaryAttr> arguments;
  for (BlockArgument argument : body.getArguments()) {
    NamedAttrList own(function.getArgAttrDict(argument.getArgNumber()));
    own.set(kPlaceAttr, fixedPlace(argument));
    arguments.push_back(own.getDictionary(builder.getContext()));
  }
  function.setAllArgAttrs(arguments);
}

/// Asks a placer that is thrown away: nothing of the function is changed.
Workspace plait::findWorkspace(func::FuncOp function,
                               const Surroundings &surroundings) {
  return Placer(function, surroundings).findWorkspace();
}

void plait::placeValues(func::FuncOp function, const Surroundings &surroundings,
                        const llvm::StringSet<> &begun) {
  Placer(function, surroundings).run(begun);
}
