//===- PlaceBuffers.cpp - The programs of a plan ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
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
//===----------------------------------------------------------------------===//

#include "DelayProducts.h"
#include "PackMemory.h"
#include "PlaceValues.h"
#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Schedule/Generators.h"
#include "plait/Schedule/Verify.h"
#include "plait/Transforms/Buffers.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/StageFunctions.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

#include <map>

namespace plait {
#define GEN_PASS_DEF_PLACEBUFFERSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using pipe::ActionKind;
using pipe::PortAttr;
using pipe::PortKind;
using plan::Category;
using schedule::Action;
using schedule::Direction;

namespace {

/// The functions of all stages, by what they do.
using FunctionTable = llvm::DenseMap<Attribute, func::FuncOp>;

/// A schedule, and the functions that its actions call.
struct Calls {
  schedule::Schedule schedule;
  FunctionTable functions;

  int64_t getStage(int64_t rank, const Action &action) const {
    return schedule.problem.stageOf(rank, action.chunk);
  }
  /// What the function that `action`, no transfer, of `rank` calls has to do.
  pipe::FunctionAttr getCallee(MLIRContext *context, int64_t rank,
                               const Action &action) const {
    bool endsStep = action.kind == schedule::ActionKind::Reduce ||
                    action.kind == schedule::ActionKind::Optimizer;
    return pipe::FunctionAttr::get(context,
                                   static_cast<ActionKind>(action.kind),
                                   endsStep ? rank : getStage(rank, action));
  }
};

/// What one action of the schedule becomes.
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
  ProgramBuilder(ModuleOp module, int64_t rank, const Calls &calls)
      : module(module), rank(rank), calls(calls), schedule(calls.schedule),
        builder(module) {}

  void build();

private:
  struct Buffer {
    Category category;
    Lifetime life;
  };
  Attribute use(const Twine &name, Category category, int64_t bytes,
                int64_t first, int64_t last);
  Attribute use(PortAttr port, int64_t stage, int64_t microbatch,
                int64_t bytes);
  void findFunctions();
  void addCall(const Action &action);
  void addTransfer(const Action &action);
  void addStanding();
  void emit();

  ModuleOp module;
  int64_t rank;
  const Calls &calls;
  const schedule::Schedule &schedule;
  OpBuilder builder;
  llvm::MapVector<StringAttr, Buffer> buffers;
  llvm::SetVector<func::FuncOp> functions;
  /// Bytes of what crosses actions, by virtual stage and port. In order.
  std::map<int64_t, llvm::MapVector<PortAttr, int64_t>> bytesOf;
  std::vector<PlannedAction> actions;
};

} // namespace

/// Extends the life of a buffer to [first, last]; returns its symbol.
Attribute ProgramBuilder::use(const Twine &name, Category category,
                              int64_t bytes, int64_t first, int64_t last) {
  StringAttr key = builder.getStringAttr(name);
  auto [it, isNew] =
      buffers.insert({key, Buffer{category, {bytes, first, last}}});
  if (!isNew) {
    it->second.life.first = std::min(it->second.life.first, first);
    it->second.life.last = std::max(it->second.life.last, last);
  }
  return FlatSymbolRefAttr::get(key);
}

/// The same for what the next action has of a port.
Attribute ProgramBuilder::use(PortAttr port, int64_t stage, int64_t microbatch,
                              int64_t bytes) {
  // The boundary that a stage's inputs cross is the one behind the stage
  // before.
  bool incoming = port.getKind() == PortKind::Input ||
                  port.getKind() == PortKind::InputGradient;
  StringRef what, where = " after stage ";
  switch (port.getKind()) {
  case PortKind::Tokens:
    return FlatSymbolRefAttr::get(builder.getStringAttr(kTokensBuffer));
  case PortKind::Targets:
    return FlatSymbolRefAttr::get(builder.getStringAttr(kTargetsBuffer));
  case PortKind::Residual:
    what = "residual ", where = " of stage ";
    break;
  case PortKind::Input:
  case PortKind::Output:
    what = "activation ";
    break;
  case PortKind::InputGradient:
  case PortKind::OutputGradient:
    what = "gradient ";
    break;
  }
  int64_t at = actions.size();
  return use(what + Twine(port.getIndex()) + where +
                 Twine(incoming ? stage - 1 : stage) + ", microbatch " +
                 Twine(microbatch),
             port.getKind() == PortKind::Residual ? Category::Activations
                                                  : Category::Transfers,
             bytes, at, at);
}

void ProgramBuilder::findFunctions() {
  for (const Action &action : schedule.ranks[rank]) {
    if (action.isTransfer())
      continue;
    pipe::FunctionAttr callee =
        calls.getCallee(module.getContext(), rank, action);
    func::FuncOp function = calls.functions.lookup(callee);
    if (!functions.insert(function))
      continue;
    auto &bytes = bytesOf[callee.getIndex()];
    for (auto [port, type] :
         llvm::zip_equal(getPorts(function), function.getArgumentTypes()))
      bytes[port] = byteSize(type);
    for (auto [port, type] :
         llvm::zip_equal(getResultPorts(function), function.getResultTypes()))
      bytes[port] = byteSize(type);
  }
}

void ProgramBuilder::addCall(const Action &action) {
  pipe::FunctionAttr own = calls.getCallee(module.getContext(), rank, action);
  func::FuncOp callee = calls.functions.lookup(own);
  PlannedAction planned;
  planned.kind = own.getAction();
  if (!own.endsStep()) {
    planned.stage = own.getIndex();
    planned.microbatch = action.microbatch;
  }
  planned.callee = FlatSymbolRefAttr::get(callee.getSymNameAttr());
  SmallVector<Attribute> bound;
  auto bind = [&](ArrayRef<PortAttr> ports, TypeRange types) {
    for (auto [port, type] : llvm::zip_equal(ports, types))
      bound.push_back(
          use(port, own.getIndex(), action.microbatch, byteSize(type)));
  };
  bind(getPorts(callee), callee.getArgumentTypes());
  bind(getResultPorts(callee), callee.getResultTypes());
  // Every call has its own workspace, so that it fits between what is live.
  auto bytes = callee->getAttrOfType<DenseI64ArrayAttr>(kSlotBytesAttr);
  int64_t at = actions.size();
  bound.push_back(use("workspace of action " + Twine(at), Category::Workspace,
                      bytes.asArrayRef().back(), at, at));
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
  int64_t stage = calls.getStage(rank, action);
  int64_t sender = receives ? (backward ? stage + 1 : stage - 1) : stage;
  SmallVector<std::pair<PortAttr, int64_t>> crossing;
  for (auto [port, bytes] : bytesOf[stage])
    if (port.getKind() == kind)
      crossing.push_back({port, bytes});
  // Both ends have the same order.
  llvm::sort(crossing, [](const auto &a, const auto &b) {
    return a.first.getIndex() < b.first.getIndex();
  });
  for (auto [port, bytes] : crossing) {
    Attribute buffer = use(port, stage, action.microbatch, bytes);
    actions.push_back({static_cast<ActionKind>(action.kind),
                       sender,
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
  module.walk([&](nn::ReadOp op) { read.insert(op.getSymbol()); });
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

/// What a rank has of the value that `read` reads a copy of.
static RankedTensorType getMasterType(nn::ReadOp read) {
  SymbolTableCollection tables;
  nn::ParameterOp parameter = nn::findParameter(read, tables);
  if (!parameter || !parameter.getStateAttr())
    return read.getType().clone(Float32Type::get(read.getContext()));
  return dist::MeshOp::find(read).getLocalType(dist::withSharding(
      parameter.getType(), nn::getSharding(parameter, nn::Slot::Gradient)));
}

/// What stands in the arena for the whole step.
void ProgramBuilder::addStanding() {
  int64_t last = actions.size() - 1;
  auto stand = [&](const std::string &name, Category category, int64_t bytes) {
    use(name, category, bytes, 0, last);
  };
  ParameterPacks packs(module, rank);
  for (func::FuncOp function : functions)
    function.walk([&](Operation *op) {
      auto access = [&](StringRef symbol, nn::Slot slot, Type accessed) {
        auto type = cast<RankedTensorType>(accessed);
        bool parameter = slot == nn::Slot::Value || slot == nn::Slot::Compute;
        bool gradient = slot == nn::Slot::Gradient || slot == nn::Slot::Reduced;
        Category category = parameter  ? Category::Parameters
                            : gradient ? Category::Gradients
                                       : Category::Optimizer;
        if (nn::PackOp pack = packs.find(symbol))
          type = pack.getSlotType(slot);
        stand(packs.locate(symbol, slot).buffer, category, byteSize(type));
      };
      if (auto read = dyn_cast<nn::ReadOp>(op)) {
        access(read.getSymbol(), read.getSlot(), read.getType());
        // What is saved is the value, also where nothing updates it.
        if (read.getSlot() == nn::Slot::Compute)
          access(read.getSymbol(), nn::Slot::Value, getMasterType(read));
      } else if (auto write = dyn_cast<nn::WriteOp>(op))
        access(write.getSymbol(), write.getSlot(), write.getInput().getType());
      else if (auto add = dyn_cast<nn::AccumulateOp>(op))
        access(add.getSymbol(), add.getSlot(), add.getInput().getType());
      else if (isa<ConstantDataOpInterface>(op))
        stand(constantName(op), Category::Constants,
              byteSize(op->getResult(0).getType()));
    });
  if (rank == 0)
    for (auto &[name, bytes] : findUnreadParameters(module))
      stand(packs.locate(name, nn::Slot::Value).buffer, Category::Parameters,
            bytes);
  stand(kScalarsBuffer.str(), Category::Inputs, 64);
  stand(kMetricsBuffer.str(), Category::Inputs, 64);
  // Tokens and targets of all microbatches are written before the step starts.
  for (auto &[stage, ports] : bytesOf)
    for (auto [port, bytes] : ports)
      if (port.isModelInput())
        stand((port.getKind() == PortKind::Tokens ? kTokensBuffer
                                                  : kTargetsBuffer)
                  .str(),
              Category::Inputs, schedule.problem.microbatches * bytes);
}

void ProgramBuilder::emit() {
  SmallVector<Lifetime> lives;
  for (auto &[name, buffer] : buffers)
    lives.push_back(buffer.life);
  int64_t total = 0;
  SmallVector<int64_t> offsets = packMemory(lives, total);
  builder.setInsertionPointToEnd(module.getBody());
  auto program = plan::ProgramOp::create(
      builder, module.getLoc(), ("rank" + Twine(rank)).str(), rank, total,
      schedule::peakInFlight(schedule, rank));
  builder.createBlock(&program.getBody());
  for (auto [entry, offset] : llvm::zip_equal(buffers, offsets)) {
    const Buffer &buffer = entry.second;
    plan::BufferOp::create(builder, module.getLoc(), entry.first,
                           buffer.category, offset, buffer.life.bytes,
                           buffer.life.first, buffer.life.last);
  }
  auto optional = [&](std::optional<int64_t> value) {
    return value ? builder.getI64IntegerAttr(*value) : IntegerAttr();
  };
  for (const PlannedAction &action : actions)
    plan::ActionOp::create(
        builder, module.getLoc(), action.kind, optional(action.stage),
        optional(action.microbatch), action.callee, optional(action.peer),
        action.backward, optional(action.tensor), action.buffers);
}

void ProgramBuilder::build() {
  // The sizes of what crosses actions are known before the first transfer.
  findFunctions();
  for (const Action &action : schedule.ranks[rank]) {
    if (action.isTransfer())
      addTransfer(action);
    else
      addCall(action);
  }
  addStanding();
  emit();
}

namespace {
struct PlaceBuffersPass : plait::impl::PlaceBuffersPassBase<PlaceBuffersPass> {
  FailureOr<Calls> findCalls();
  LogicalResult findFunctions(FunctionTable &functions);
  LogicalResult checkCalls(pipe::ScheduleOp op, const Calls &calls);
  void placeFunctions(const Calls &calls);

  void runOnOperation() override {
    FailureOr<Calls> calls = findCalls();
    if (failed(calls))
      return signalPassFailure();
    placeFunctions(*calls);
    for (uint32_t rank = 0; rank < calls->schedule.problem.stages; ++rank)
      ProgramBuilder(getOperation(), rank, *calls).build();
  }
};
} // namespace

LogicalResult PlaceBuffersPass::findFunctions(FunctionTable &functions) {
  for (auto function : getOperation().getOps<func::FuncOp>()) {
    pipe::FunctionAttr own = getStageFunction(function);
    if (!own)
      continue;
    auto [known, isNew] = functions.try_emplace(own, function);
    if (!isNew) {
      InFlightDiagnostic diag = function.emitError("does ")
                                << own << ", as another function does";
      diag.attachNote(known->second.getLoc()) << "the other one";
      return diag;
    }
  }
  return success();
}

LogicalResult PlaceBuffersPass::checkCalls(pipe::ScheduleOp op,
                                           const Calls &calls) {
  for (const auto &[rank, actions] : llvm::enumerate(calls.schedule.ranks))
    for (const Action &action : actions) {
      if (action.isTransfer())
        continue;
      pipe::FunctionAttr callee = calls.getCallee(&getContext(), rank, action);
      if (!calls.functions.contains(callee))
        return op.emitError("has action ")
               << schedule::print(action) << " on rank " << rank
               << ", but no function does " << callee;
    }
  return success();
}

/// The module's schedule, with transfers, after a check that there is what it
/// relies on.
FailureOr<Calls> PlaceBuffersPass::findCalls() {
  auto schedules = getOperation().getOps<pipe::ScheduleOp>();
  if (schedules.empty())
    return getOperation().emitError("has no pipe.schedule");
  pipe::ScheduleOp op = *schedules.begin();
  pipe::PlacementAttr placement = getPlacement(getOperation());
  if (op.getPlacement() != placement)
    return op.emitError("orders stages on ")
           << op.getPlacement() << ", but they lie on " << placement;
  Result<schedule::Schedule> schedule = pipe::parseSchedule(op);
  if (!schedule.ok())
    return op.emitError(schedule.status().message());
  // A schedule that was edited may still be called as before.
  if (Status status = schedule::checkNamedBound(*schedule); !status.ok())
    op.emitWarning(status.message());
  Calls calls;
  calls.schedule = schedule::insertTransfers(*schedule);
  if (failed(findFunctions(calls.functions)) || failed(checkCalls(op, calls)))
    return failure();
  return calls;
}

/// What several functions of a rank add to begins with the one that is called
/// first.
void PlaceBuffersPass::placeFunctions(const Calls &calls) {
  for (auto function : getOperation().getOps<func::FuncOp>())
    delayProducts(function);
  llvm::DenseSet<Operation *> placed;
  for (const auto &[rank, actions] : llvm::enumerate(calls.schedule.ranks)) {
    llvm::StringSet<> begun;
    for (const Action &action : actions) {
      func::FuncOp function;
      if (!action.isTransfer())
        function = calls.functions.lookup(
            calls.getCallee(&getContext(), rank, action));
      if (!function || !placed.insert(function).second)
        continue;
      placeValues(function, begun);
      for (auto add : function.getOps<nn::AccumulateOp>())
        begun.insert(bufferName(add.getSymbol(), add.getSlot()));
    }
  }
  for (auto function : getOperation().getOps<func::FuncOp>())
    if (!placed.contains(function))
      placeValues(function, {});
}
