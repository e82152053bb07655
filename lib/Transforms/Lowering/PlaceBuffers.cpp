//===- PlaceBuffers.cpp - The programs of a plan ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../ValueNames.h"
#include "DelayProducts.h"
#include "PackMemory.h"
#include "PlaceValues.h"
#include "plait/Schedule/Schedule.h"
#include "plait/Schedule/Verify.h"
#include "plait/Transforms/Buffers.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/StageFunctions.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace plait {
#define GEN_PASS_DEF_PLACEBUFFERSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using plan::Category;
using schedule::ActionKind;
using schedule::Direction;

/// The phase whose function an action calls; none for transfers, and for
/// actions that no stage has a function for.
static std::optional<StringRef> getPhase(ActionKind kind) {
  switch (kind) {
  case ActionKind::Forward:
    return "forward";
  case ActionKind::Backward:
    return "backward";
  case ActionKind::Reduce:
    return "reduce";
  case ActionKind::Optimizer:
    return "optimizer";
  case ActionKind::BackwardInput:
  case ActionKind::BackwardWeight:
  case ActionKind::Send:
  case ActionKind::Recv:
  case ActionKind::WaitSend:
    return std::nullopt;
  }
  llvm_unreachable("unknown action");
}

namespace {

/// What one action of the schedule becomes.
struct PlannedAction {
  StringAttr kind;
  FlatSymbolRefAttr callee; // null: a transfer
  int64_t microbatch = 0;
  std::optional<int64_t> peer, tensor;
  bool backward = false;
  ArrayAttr buffers; // their names
};

/// Builds the program of one stage.
class ProgramBuilder {
public:
  ProgramBuilder(ModuleOp module, int64_t stage,
                 const schedule::Schedule &schedule)
      : module(module), stage(stage), schedule(schedule), builder(module) {}

  void build();

private:
  struct Buffer {
    Category category;
    Lifetime life;
  };
  func::FuncOp function(StringRef phase) {
    func::FuncOp &found = functions[phase];
    if (!found)
      found = module.lookupSymbol<func::FuncOp>(getFunctionName(phase, stage));
    return found;
  }
  Attribute use(const Twine &name, Category category, int64_t bytes,
                int64_t first, int64_t last);
  /// The same for what the next action has of a value of its microbatch.
  Attribute use(StringRef value, const schedule::Action &action,
                Category category, int64_t bytes) {
    int64_t at = actions.size();
    return use(value + " of microbatch " + Twine(action.microbatch), category,
               bytes, at, at);
  }
  void addCall(StringRef phase, const schedule::Action &action);
  void addTransfer(const schedule::Action &action);
  void addStanding();
  Category categoryOf(StringRef value);
  void emit();

  ModuleOp module;
  int64_t stage;
  const schedule::Schedule &schedule;
  OpBuilder builder;
  llvm::MapVector<StringAttr, Buffer> buffers;
  llvm::StringMap<func::FuncOp> functions; // by phase
  llvm::StringMap<int64_t> bytesOf;        // of values that cross actions
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

Category ProgramBuilder::categoryOf(StringRef value) {
  if (llvm::is_contained(kModelInputs, value))
    return Category::Inputs;
  return value.starts_with("res") ? Category::Activations : Category::Transfers;
}

void ProgramBuilder::addCall(StringRef phase, const schedule::Action &action) {
  func::FuncOp callee = function(phase);
  SmallVector<Attribute> bound;
  auto bind = [&](StringAttr name, Type type) {
    Category category = categoryOf(name.getValue());
    bound.push_back(category == Category::Inputs
                        ? FlatSymbolRefAttr::get(name)
                        : use(name, action, category, byteSize(type)));
  };
  for (auto [index, type] : llvm::enumerate(callee.getArgumentTypes()))
    bind(callee.getArgAttrOfType<StringAttr>(index, kValueAttr), type);
  for (auto [index, type] : llvm::enumerate(callee.getResultTypes()))
    bind(callee.getResultAttrOfType<StringAttr>(index, kValueAttr), type);
  // Every call has its own workspace, so that it fits between what is live.
  auto bytes = callee->getAttrOfType<DenseI64ArrayAttr>(kSlotBytesAttr);
  int64_t at = actions.size();
  bound.push_back(use("workspace of action " + Twine(at), Category::Workspace,
                      bytes.asArrayRef().back(), at, at));
  actions.push_back({builder.getStringAttr(phase),
                     FlatSymbolRefAttr::get(callee.getSymNameAttr()),
                     action.microbatch,
                     {},
                     {},
                     false,
                     builder.getArrayAttr(bound)});
}

/// One action for each tensor that crosses the boundary.
void ProgramBuilder::addTransfer(const schedule::Action &action) {
  bool receives = action.kind == ActionKind::Recv;
  bool backward = action.direction == Direction::Backward;
  StringRef prefix =
      backward ? (receives ? "dout" : "din") : (receives ? "in" : "out");
  // Not all have a gradient, but all that have are among the names.
  for (int64_t tensor = 0, e = bytesOf.size(); tensor < e; ++tensor) {
    std::string value = (prefix + Twine(tensor)).str();
    auto size = bytesOf.find(value);
    if (size == bytesOf.end())
      continue;
    StringRef kind = receives                          ? "recv"
                     : action.kind == ActionKind::Send ? "send"
                                                       : "wait_send";
    Attribute buffer = use(value, action, Category::Transfers, size->second);
    actions.push_back({builder.getStringAttr(kind),
                       {},
                       action.microbatch,
                       action.peer,
                       tensor,
                       backward,
                       builder.getArrayAttr(buffer)});
  }
}

/// The parameters, with the bytes of a rank's part, that no function reads: what
/// was made of them turned out to be of no use. They are saved as they were, by
/// the first stage.
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
                      byteSize(mesh.getLocalType(dist::withSharding(
                          parameter.getType(), sharding)))});
  }
  return unread;
}

/// What stands in the arena for the whole step.
void ProgramBuilder::addStanding() {
  int64_t last = actions.size() - 1;
  auto stand = [&](const std::string &name, Category category, int64_t bytes) {
    use(name, category, bytes, 0, last);
  };
  ParameterPacks packs(module, stage);
  for (StringRef phase : {"forward", "backward", "reduce", "optimizer"})
    function(phase).walk([&](Operation *op) {
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
          access(read.getSymbol(), nn::Slot::Value,
                 read.getType().clone(builder.getF32Type()));
      } else if (auto write = dyn_cast<nn::WriteOp>(op))
        access(write.getSymbol(), write.getSlot(), write.getInput().getType());
      else if (auto add = dyn_cast<nn::AccumulateOp>(op))
        access(add.getSymbol(), add.getSlot(), add.getInput().getType());
      else if (isa<ConstantDataOpInterface>(op))
        stand(constantName(op), Category::Constants,
              byteSize(op->getResult(0).getType()));
    });
  if (stage == 0)
    for (auto &[name, bytes] : findUnreadParameters(module))
      stand(packs.locate(name, nn::Slot::Value).buffer, Category::Parameters,
            bytes);
  stand(kScalarsBuffer.str(), Category::Inputs, 64);
  stand(kMetricsBuffer.str(), Category::Inputs, 64);
  // Tokens and targets of all microbatches are written before the step starts.
  for (StringRef value : kModelInputs)
    if (auto size = bytesOf.find(value); size != bytesOf.end())
      stand(value.str(), Category::Inputs,
            schedule.problem.microbatches * size->second);
}

void ProgramBuilder::emit() {
  SmallVector<Lifetime> lives;
  for (auto &[name, buffer] : buffers)
    lives.push_back(buffer.life);
  int64_t total = 0;
  SmallVector<int64_t> offsets = packMemory(lives, total);
  builder.setInsertionPointToEnd(module.getBody());
  auto program = plan::ProgramOp::create(
      builder, module.getLoc(), ("stage" + Twine(stage)).str(), stage, total,
      schedule::peakInFlight(schedule, stage));
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
  for (const PlannedAction &action : actions) {
    plan::ActionOp::create(
        builder, module.getLoc(), action.kind, builder.getI64IntegerAttr(0),
        builder.getI64IntegerAttr(action.microbatch), action.callee,
        optional(action.peer),
        action.backward ? builder.getBoolAttr(true) : BoolAttr(),
        optional(action.tensor), action.buffers);
  }
}

void ProgramBuilder::build() {
  // The sizes of what crosses actions are known before the first transfer.
  for (StringRef phase : {"forward", "backward"}) {
    func::FuncOp callee = function(phase);
    for (auto [index, type] : llvm::enumerate(callee.getArgumentTypes()))
      bytesOf[callee.getArgAttrOfType<StringAttr>(index, kValueAttr)] =
          byteSize(type);
    for (auto [index, type] : llvm::enumerate(callee.getResultTypes()))
      bytesOf[callee.getResultAttrOfType<StringAttr>(index, kValueAttr)] =
          byteSize(type);
  }
  for (const schedule::Action &action : schedule.ranks[stage]) {
    if (action.isTransfer())
      addTransfer(action);
    else
      addCall(*getPhase(action.kind), action); // see checkActions
  }
  addStanding();
  emit();
}

namespace {
struct PlaceBuffersPass : plait::impl::PlaceBuffersPassBase<PlaceBuffersPass> {
  LogicalResult checkFunctions(uint32_t stages) {
    for (uint32_t stage = 0; stage < stages; ++stage)
      for (StringRef phase : {"forward", "backward", "reduce", "optimizer"}) {
        std::string name = getFunctionName(phase, stage);
        auto function = getOperation().lookupSymbol<func::FuncOp>(name);
        if (!function)
          return getOperation().emitError("has no function @")
                 << name << " for its schedule";
        if (failed(checkValueNames(function)))
          return failure();
      }
    return success();
  }

  LogicalResult checkActions(pipe::ScheduleOp op,
                             const schedule::Schedule &schedule) {
    for (const auto &[stage, actions] : llvm::enumerate(schedule.ranks))
      for (const schedule::Action &action : actions)
        if (!action.isTransfer() && !getPhase(action.kind))
          return op.emitError("has action ")
                 << schedule::print(action) << " on stage " << stage
                 << ", which no function computes: stages have functions for "
                    "F, B, REDUCE and OPTIMIZER";
    return success();
  }

  void runOnOperation() override {
    auto schedules = getOperation().getOps<pipe::ScheduleOp>();
    if (schedules.empty()) {
      getOperation().emitError("has no pipe.schedule");
      return signalPassFailure();
    }
    Result<schedule::Schedule> schedule =
        pipe::parseSchedule(*schedules.begin());
    if (!schedule.ok()) {
      getOperation().emitError(schedule.status().message());
      return signalPassFailure();
    }
    // A schedule that was edited may still be called as before.
    if (Status status = schedule::checkNamedBound(*schedule); !status.ok())
      (*schedules.begin()).emitWarning(status.message());
    if (failed(checkActions(*schedules.begin(), *schedule)) ||
        failed(checkFunctions(schedule->problem.stages)))
      return signalPassFailure();
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      delayProducts(function);
      placeValues(function);
    }
    for (uint32_t stage = 0; stage < schedule->problem.stages; ++stage)
      ProgramBuilder(getOperation(), stage, *schedule).build();
  }
};
} // namespace
