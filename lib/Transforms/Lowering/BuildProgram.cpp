//===- BuildProgram.cpp - The program of one rank ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rank's program is its list of the schedule, with a function for every
// action and a buffer for everything that lives longer than one. What a stage
// gives is named after the stage boundary that it crosses, so that it is one
// buffer for all who touch it: the function that makes it, the transfer, the
// function that reads it, and the neighbouring stage where the same rank has
// that too, which then needs no transfer.
//
// Three steps: lists the functions that the rank calls and how large what they
// exchange is; walks the schedule, which makes actions and gives each buffer
// its first and last one; adds what lives as long as the step, packs it all
// into the arena and writes the op. Ranks that differ only along dp, cp or tp
// share the program.
//
//===----------------------------------------------------------------------===//

#include "BuildProgram.h"

#include "PackMemory.h"
#include "plait/Configuration/Optimizers.h"
#include "plait/Dialect/NN/IR/Adapters.h"
#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

using namespace mlir;
using namespace plait;
using pipe::ActionKind;
using pipe::PortAttr;
using pipe::PortKind;
using plan::Category;
using schedule::Action;
using schedule::Direction;

namespace {

/// The result of one action of the schedule.
struct PlannedAction {
  ActionKind kind = ActionKind::Forward;
  std::optional<int64_t> stage, microbatch;
  FlatSymbolRefAttr callee; // null: a transfer
  std::optional<int64_t> peer, tensor;
  bool backward = false;
  ArrayAttr buffers; // their names
};

/// Builds the program of one rank.
class ProgramBuilder {
public:
  ProgramBuilder(ModuleOp module, int64_t rank, const Calls &calls,
                 const ParameterPacks &packs)
      : module(module), rank(rank), calls(calls), schedule(calls.schedule),
        packs(packs), builder(module) {}

  void build();

private:
  struct Buffer {
    FlatSymbolRefAttr name;
    Category category;
    Lifetime life;
    MemoryPlace place = MemoryPlace::Arena;
  };
  enum Content : int { kActivation, kGradient, kResiduals };
  /// The key of what a buffer holds: of what, the number of the tensor or set,
  /// the stage, the microbatch. Names are only made of those that are new.
  using Key = std::tuple<int, int64_t, int64_t, int64_t>;

  Attribute use(unsigned index);
  Attribute add(const Twine &name, Category category, int64_t bytes,
                int64_t first, int64_t last,
                MemoryPlace place = MemoryPlace::Arena);
  Attribute use(PortAttr port, int64_t stage, int64_t microbatch,
                int64_t bytes);
  Attribute use(const Slot &slot, int64_t stage, int64_t microbatch);
  void findFunctions();
  int64_t findBegin(ActionKind kind);
  void extendGather();
  void addCall(const Action &action);
  void addTransfer(const Action &action);
  void stand(StringRef name, Category category, int64_t bytes,
             std::optional<MemoryPlace> place = MemoryPlace::Arena);
  RankedTensorType getMasterType(SlotOpInterface access);
  void addAccessed(Operation *op);
  void addStanding();
  size_t countScalars();
  SmallVector<int64_t> pack(MemoryPlace place, int64_t &total);
  void emit();

  ModuleOp module;
  int64_t rank;
  const Calls &calls;
  const schedule::Schedule &schedule;
  const ParameterPacks &packs;
  OpBuilder builder;
  SymbolTableCollection tables;
  std::vector<Buffer> buffers;
  llvm::DenseMap<Key, unsigned> ofMicrobatch; // in `buffers`
  llvm::StringMap<std::pair<unsigned, std::optional<MemoryPlace>>> standing;
  llvm::SetVector<func::FuncOp> functions;
  /// Bytes of what crosses borders, by virtual stage and port. In order.
  std::map<int64_t, llvm::MapVector<PortAttr, int64_t>> bytesOf;
  std::vector<PlannedAction> actions;
  std::optional<unsigned> gatherWorkspace; // in `buffers`
  IntegerAttr sorted;                      // what is sorted behind tokens
};

} // namespace

/// Extends the life of a buffer to the next action.
Attribute ProgramBuilder::use(unsigned index) {
  Buffer &buffer = buffers[index];
  buffer.life.last = actions.size();
  return buffer.name;
}

/// A new buffer, live from action `first` to action `last`, both included.
Attribute ProgramBuilder::add(const Twine &name, Category category,
                              int64_t bytes, int64_t first, int64_t last,
                              MemoryPlace place) {
  auto symbol = FlatSymbolRefAttr::get(builder.getStringAttr(name));
  buffers.push_back({symbol, category, {bytes, first, last}, place});
  return symbol;
}

/// Returns what the next action has of a port that is no residual's.
Attribute ProgramBuilder::use(PortAttr port, int64_t stage, int64_t microbatch,
                              int64_t bytes) {
  // The rows of all microbatches lie in one buffer, which is called as the
  // port.
  if (port.isModelInput())
    return FlatSymbolRefAttr::get(builder.getStringAttr(port.getText()));
  // The boundary that a stage's inputs cross is the one behind the stage
  // before.
  PortKind kind = port.getKind();
  if (kind == PortKind::Input || kind == PortKind::InputGradient)
    --stage;
  bool isActivation = kind == PortKind::Input || kind == PortKind::Output;
  Key key(isActivation ? kActivation : kGradient, port.getIndex(), stage,
          microbatch);
  // Names are text that takes longer to make than to look a key up; a deep
  // pipeline has hundreds of thousands of such buffers.
  auto [it, isNew] = ofMicrobatch.insert({key, buffers.size()});
  if (!isNew)
    return use(it->second);
  return add(Twine(isActivation ? "activation " : "gradient ") +
                 Twine(port.getIndex()) + " after stage " + Twine(stage) +
                 ", microbatch " + Twine(microbatch),
             Category::Transfers, bytes, actions.size(), actions.size());
}

/// Returns what the next action binds to a slot.
Attribute ProgramBuilder::use(const Slot &slot, int64_t stage,
                              int64_t microbatch) {
  if (!slot.residuals)
    return use(slot.port, stage, microbatch, slot.bytes);
  Key key(kResiduals, *slot.residuals, stage, microbatch);
  auto [it, isNew] = ofMicrobatch.insert({key, buffers.size()});
  if (!isNew)
    return use(it->second);
  return add("residuals " + Twine(*slot.residuals) + " of stage " +
                 Twine(stage) + ", microbatch " + Twine(microbatch),
             Category::Activations, slot.bytes, actions.size(), actions.size(),
             slot.place);
}

/// The functions that the rank calls, in the order of their first calls, and
/// the bytes of their ports.
void ProgramBuilder::findFunctions() {
  for (const Action &action : schedule.ranks[rank]) {
    if (action.isTransfer())
      continue;
    pipe::FunctionAttr callee =
        getCallee(module.getContext(), schedule.problem, rank, action);
    func::FuncOp function = calls.functions.lookup(callee);
    if (!functions.insert(function))
      continue;
    // Those of a rank have no ports, so that its index and a stage's do not
    // mix here.
    auto &bytes = bytesOf[callee.getIndex()];
    for (const Slot &slot : calls.slots.at(function).slots)
      if (slot.port)
        bytes[slot.port] = slot.bytes;
    for (unsigned index = 0; index < function.getNumArguments(); ++index)
      if (auto own =
              function.getArgAttrOfType<IntegerAttr>(index, plan::kSortedAttr))
        sorted = own;
  }
}

/// The action from which on the next one's workspace may be used: itself, but
/// on GPUs a reduction goes on beside the last backward pass before it, whose
/// memory it would wait for.
int64_t ProgramBuilder::findBegin(ActionKind kind) {
  int64_t at = actions.size();
  TargetAttr target = getTarget(module);
  if (kind != ActionKind::Reduce || !target || !target.isGPU())
    return at;
  for (int64_t before = at; before-- > 0;)
    if (actions[before].callee)
      return before;
  return at;
}

/// Parameters are gathered beside the first forward pass of each stage, which
/// would wait for it if it had any of its workspace.
void ProgramBuilder::extendGather() {
  if (!gatherWorkspace)
    return;
  llvm::SmallDenseSet<int64_t> begun; // stages
  for (auto [index, action] : llvm::enumerate(actions))
    if (action.kind == ActionKind::Forward &&
        begun.insert(*action.stage).second)
      buffers[*gatherWorkspace].life.last = index;
}

/// One action; its number is that of the actions so far, which is what
/// lifetimes count.
void ProgramBuilder::addCall(const Action &action) {
  pipe::FunctionAttr own =
      getCallee(module.getContext(), schedule.problem, rank, action);
  func::FuncOp callee = calls.functions.lookup(own);
  PlannedAction planned;
  planned.kind = own.getAction();
  if (!own.isOfRank()) {
    planned.stage = own.getIndex();
    planned.microbatch = action.microbatch;
  }
  planned.callee = FlatSymbolRefAttr::get(callee.getSymNameAttr());
  SmallVector<Attribute> bound;
  for (const Slot &slot : calls.slots.at(callee).slots)
    bound.push_back(use(slot, own.getIndex(), action.microbatch));
  // Every call has its own workspace, so that it fits between what is live.
  auto bytes = callee->getAttrOfType<DenseI64ArrayAttr>(kSlotBytesAttr);
  int64_t at = actions.size();
  bound.push_back(add("workspace of action " + Twine(at), Category::Workspace,
                      bytes.asArrayRef().back(), findBegin(planned.kind), at));
  if (planned.kind == ActionKind::Gather)
    gatherWorkspace = buffers.size() - 1;
  planned.buffers = builder.getArrayAttr(bound);
  actions.push_back(planned);
}

/// One action for each tensor that crosses the boundary.
void ProgramBuilder::addTransfer(const Action &action) {
  bool receives = action.kind == schedule::ActionKind::Recv;
  bool backward = action.direction == Direction::Backward;
  PortKind kind =
      backward ? (receives ? PortKind::OutputGradient : PortKind::InputGradient)
               : (receives ? PortKind::Input : PortKind::Output);
  int64_t stage = schedule.problem.stageOf(rank, action.chunk);
  SmallVector<std::pair<PortAttr, int64_t>> crossing;
  for (auto [port, bytes] : bytesOf[stage])
    if (port.getKind() == kind)
      crossing.push_back({port, bytes});
  // Both ends have the same order.
  llvm::sort(crossing, [](const auto &a, const auto &b) {
    return a.first.getIndex() < b.first.getIndex();
  });
  for (auto [port, bytes] : crossing) {
    // What is sent has been made by a function before, whose buffer it is; what
    // is received is new here.
    Attribute buffer = use(port, stage, action.microbatch, bytes);
    actions.push_back({static_cast<ActionKind>(action.kind),
                       getSender(schedule.problem, rank, action),
                       action.microbatch,
                       {},
                       action.peer,
                       port.getIndex(),
                       backward,
                       builder.getArrayAttr(buffer)});
  }
}

/// The parameters, with the bytes of a rank's part, that no function reads:
/// what was made of them turned out to be of no use. They are saved as they
/// were, by the first rank.
static SmallVector<std::pair<StringRef, int64_t>>
findUnreadParameters(ModuleOp module) {
  llvm::StringSet<> read;
  for (auto op : nn::findAccesses(module, nn::SlotAccess::Read))
    read.insert(op.getSymbol());
  SmallVector<std::pair<StringRef, int64_t>> unread;
  dist::MeshOp mesh = dist::MeshOp::find(module);
  for (auto parameter : module.getOps<nn::ParameterOp>()) {
    auto sharding =
        dyn_cast_or_null<dist::ShardingAttr>(parameter.getShardingAttr());
    if (!sharding || read.contains(parameter.getSymName()))
      continue;
    unread.push_back({parameter.getSymName(),
                      byteSize(mesh.getLocalType(
                          dist::withSharding(parameter.getType(), sharding)))});
  }
  return unread;
}

/// Returns the type of what a rank has of the value that `access` has a copy
/// of.
RankedTensorType ProgramBuilder::getMasterType(SlotOpInterface access) {
  nn::ParameterOp parameter = nn::findParameter(access, tables);
  if (!parameter || !parameter.getStateAttr())
    return access.getTensor().getType().clone(
        Float32Type::get(access.getContext()));
  return dist::MeshOp::find(access).getLocalType(dist::withSharding(
      parameter.getType(), nn::getSharding(parameter, nn::Slot::Gradient)));
}

/// A buffer of that name that stands for the whole step: in the place to which
/// all who use it move it. Who only needs it to be there has no say.
void ProgramBuilder::stand(StringRef name, Category category, int64_t bytes,
                           std::optional<MemoryPlace> place) {
  auto [it, isNew] = standing.try_emplace(name, buffers.size(), std::nullopt);
  auto &[index, known] = it->second;
  if (isNew)
    add(name, category, bytes, 0, actions.size() - 1);
  if (place)
    known = joinPlaces(known, *place);
  buffers[index].place = known.value_or(MemoryPlace::Arena);
}

/// Adds what `op` reads or writes of what stands in the arena.
void ProgramBuilder::addAccessed(Operation *op) {
  // By the buffer and not by the parameter: of a pack, all members lie in one,
  // which stands once with the pack's own size.
  auto access = [&](StringRef symbol, nn::Slot slot, Type accessed,
                    std::optional<MemoryPlace> place) {
    auto type = cast<RankedTensorType>(accessed);
    bool parameter = slot == nn::Slot::Value || slot == nn::Slot::Compute;
    bool gradient = slot == nn::Slot::Gradient || slot == nn::Slot::Reduced;
    Category category = parameter  ? Category::Parameters
                        : gradient ? Category::Gradients
                                   : Category::Optimizer;
    if (nn::PackOp pack = packs.find(symbol))
      type = pack.getSlotType(slot);
    stand(packs.locate(symbol, slot).buffer, category, byteSize(type), place);
  };
  if (auto own = dyn_cast<SlotOpInterface>(op)) {
    access(own.getSymbol(), own.getSlot(), own.getTensor().getType(),
           plan::getMemoryPlace(own.getTensor()));
    // What is saved is the value, also where nothing updates it.
    nn::ParameterOp parameter = nn::findParameter(own, tables);
    if (own.getSlot() == nn::Slot::Compute &&
        !(parameter && nn::lacksMaster(parameter)))
      access(own.getSymbol(), nn::Slot::Value, getMasterType(own),
             std::nullopt);
  } else if (isa<ConstantDataOpInterface>(op))
    stand(constantName(op), Category::Constants,
          byteSize(op->getResult(0).getType()));
}

/// Buffers that live as long as the step. Comes last: that they end with the
/// last action needs the number of actions.
void ProgramBuilder::addStanding() {
  for (func::FuncOp function : functions)
    function.walk([&](Operation *op) { addAccessed(op); });
  if (rank == 0)
    for (auto &[name, bytes] : findUnreadParameters(module)) {
      nn::PackOp pack = packs.find(name);
      stand(packs.locate(name, nn::Slot::Value).buffer, Category::Parameters,
            pack ? byteSize(pack.getSlotType(nn::Slot::Value)) : bytes);
    }
  // Lines of room for the numbers that a step is given and those that it tells.
  stand(kScalarsBuffer, Category::Inputs,
        llvm::alignTo(countScalars() * sizeof(float), 64));
  stand(kMetricsBuffer, Category::Inputs, 64);
  // The inputs of all microbatches are written before the step starts.
  for (auto &[stage, ports] : bytesOf)
    for (auto [port, bytes] : ports)
      if (port.isModelInput())
        stand(port.getText(), Category::Inputs,
              schedule.problem.microbatches * bytes);
}

/// Counts the numbers that a step is given, to the last that a run may set.
size_t ProgramBuilder::countScalars() {
  int last = findStepScalar(kStepNumber);
  for (const TrainingOption &option : nn::getTrainingOptions(
           module, **findOptimizer(getConfiguration(module).optimizer)))
    last = std::max({last, findStepScalar(option.scalar),
                     findStepScalar(option.correction)});
  return last + 1;
}

/// Packs the buffers of a place by their lifetimes; the others are not there.
SmallVector<int64_t> ProgramBuilder::pack(MemoryPlace place, int64_t &total) {
  auto lives = llvm::map_to_vector(buffers, [&](const Buffer &buffer) {
    Lifetime life = buffer.life;
    life.bytes = buffer.place == place ? life.bytes : 0;
    return life;
  });
  return packMemory(lives, total);
}

/// Packs all buffers, each into its place, and creates the program.
void ProgramBuilder::emit() {
  PerPlace<SmallVector<int64_t>> offsets;
  SmallVector<int64_t> totals(memoryPlaceCount);
  for (const MemoryPlaceFacts &facts : memoryPlaces)
    offsets[facts.place] = pack(facts.place, totals[size_t(facts.place)]);
  while (totals.size() > 1 && totals.back() == 0)
    totals.pop_back();
  builder.setInsertionPointToEnd(module.getBody());
  auto program = plan::ProgramOp::create(
      builder, module.getLoc(), ("rank" + Twine(rank)).str(), rank,
      totals.front(), ArrayRef(totals).drop_front());
  builder.createBlock(&program.getBody());
  StringRef tokens = pipe::stringifyPortKind(PortKind::Tokens);
  // Microbatches repeat them: to have the context find one takes far longer. No
  // DenseMap, in which multiples of a large power of two meet.
  std::unordered_map<int64_t, IntegerAttr> numbers;
  auto number = [&](int64_t value) {
    IntegerAttr &own = numbers[value];
    return own ? own : own = builder.getI64IntegerAttr(value);
  };
  llvm::SmallDenseMap<int, plan::CategoryAttr> categories;
  for (auto [index, buffer] : llvm::enumerate(buffers)) {
    plan::CategoryAttr &category = categories[int(buffer.category)];
    if (!category)
      category = plan::CategoryAttr::get(builder.getContext(), buffer.category);
    auto op = plan::BufferOp::create(
        builder, module.getLoc(), buffer.name.getAttr(), category,
        number(offsets[buffer.place][index]), number(buffer.life.bytes),
        number(buffer.life.first), number(buffer.life.last),
        number(int64_t(buffer.place)));
    if (sorted && op.getSymName() == tokens)
      op->setAttr(plan::kSortedAttr, sorted);
  }
  auto optional = [&](std::optional<int64_t> value) {
    return value ? number(*value) : IntegerAttr();
  };
  for (const PlannedAction &action : actions)
    plan::ActionOp::create(
        builder, module.getLoc(), action.kind, optional(action.stage),
        optional(action.microbatch), action.callee, optional(action.peer),
        action.backward, optional(action.tensor), action.buffers);
}

/// Takes time for the actions of the schedule and the buffers that they bind;
/// what is found per function is found once.
void ProgramBuilder::build() {
  // The sizes of what crosses actions are known before the first transfer.
  findFunctions();
  for (const Action &action : schedule.ranks[rank]) {
    if (action.isTransfer())
      addTransfer(action);
    else
      addCall(action);
  }
  extendGather();
  addStanding();
  emit();
}

void plait::buildProgram(ModuleOp module, int64_t rank, const Calls &calls,
                         const ParameterPacks &packs) {
  ProgramBuilder(module, rank, calls, packs).build();
}
