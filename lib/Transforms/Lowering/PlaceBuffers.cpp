//===- PlaceBuffers.cpp - The programs of a plan ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../ValueNames.h"
#include "PackMemory.h"
#include "PlaceValues.h"
#include "plait/Schedule/Schedule.h"
#include "plait/Transforms/Buffers.h"
#include "plait/Transforms/Passes.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

namespace plait {
#define GEN_PASS_DEF_PLACEBUFFERSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using plan::Category;
using schedule::ActionKind;
using schedule::Direction;

namespace {

/// What one action of the schedule becomes.
struct PlannedAction {
  std::string kind, callee;
  int64_t microbatch = 0;
  std::optional<int64_t> peer, tensor;
  bool backward = false;
  SmallVector<std::string> buffers;
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
    return module.lookupSymbol<func::FuncOp>(
        (phase + "_" + Twine(stage)).str());
  }
  void use(const std::string &name, Category category, int64_t bytes,
           int64_t first, int64_t last);
  void addCall(StringRef phase, const schedule::Action &action);
  void addTransfer(const schedule::Action &action);
  void addStanding();
  Category categoryOf(StringRef value);
  void emit();

  ModuleOp module;
  int64_t stage;
  const schedule::Schedule &schedule;
  OpBuilder builder;
  llvm::MapVector<std::string, Buffer, std::map<std::string, unsigned>> buffers;
  llvm::StringMap<int64_t> bytesOf; // of values that cross actions
  std::vector<PlannedAction> actions;
};

} // namespace

void ProgramBuilder::use(const std::string &name, Category category,
                         int64_t bytes, int64_t first, int64_t last) {
  auto [it, isNew] =
      buffers.insert({name, Buffer{category, {bytes, first, last}}});
  if (!isNew) {
    it->second.life.first = std::min(it->second.life.first, first);
    it->second.life.last = std::max(it->second.life.last, last);
  }
}

Category ProgramBuilder::categoryOf(StringRef value) {
  if (value == "tokens" || value == "targets")
    return Category::Inputs;
  return value.starts_with("res") ? Category::Activations : Category::Transfers;
}

static std::string ofMicrobatch(StringRef value, int64_t microbatch) {
  return (value + " of microbatch " + Twine(microbatch)).str();
}

void ProgramBuilder::addCall(StringRef phase, const schedule::Action &action) {
  func::FuncOp callee = function(phase);
  PlannedAction planned{phase.str(), callee.getSymName().str(),
                        action.microbatch, {}, {}, false, {}};
  int64_t at = actions.size();
  auto bind = [&](StringAttr name, Type type) {
    if (categoryOf(name.getValue()) == Category::Inputs) {
      planned.buffers.push_back(name.getValue().str());
      return;
    }
    std::string buffer = ofMicrobatch(name.getValue(), action.microbatch);
    use(buffer, categoryOf(name.getValue()), byteSize(type), at, at);
    planned.buffers.push_back(buffer);
  };
  for (auto [index, type] : llvm::enumerate(callee.getArgumentTypes()))
    bind(callee.getArgAttrOfType<StringAttr>(index, kValueAttr), type);
  for (auto [index, type] : llvm::enumerate(callee.getResultTypes()))
    bind(callee.getResultAttrOfType<StringAttr>(index, kValueAttr), type);
  // Every call has its own workspace, so that it fits between what is live.
  auto bytes = callee->getAttrOfType<DenseI64ArrayAttr>(kSlotBytesAttr);
  std::string workspace = "workspace of action " + std::to_string(at);
  use(workspace, Category::Workspace, bytes.asArrayRef().back(), at, at);
  planned.buffers.push_back(workspace);
  actions.push_back(std::move(planned));
}

/// One action for each tensor that crosses the boundary.
void ProgramBuilder::addTransfer(const schedule::Action &action) {
  bool receives = action.kind == ActionKind::Recv;
  bool backward = action.direction == Direction::Backward;
  StringRef prefix = backward ? (receives ? "dout" : "din")
                              : (receives ? "in" : "out");
  for (int64_t tensor = 0;; ++tensor) {
    std::string value = (prefix + Twine(tensor)).str();
    auto size = bytesOf.find(value);
    if (size == bytesOf.end())
      return;
    StringRef kind = receives ? "recv"
                     : action.kind == ActionKind::Send ? "send"
                                                       : "wait_send";
    PlannedAction planned{kind.str(), "", action.microbatch, action.peer,
                          tensor, backward, {}};
    std::string buffer = ofMicrobatch(value, action.microbatch);
    use(buffer, Category::Transfers, size->second, actions.size(),
        actions.size());
    planned.buffers.push_back(buffer);
    actions.push_back(std::move(planned));
  }
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
      auto access = [&](StringRef symbol, nn::Slot slot, Type type) {
        bool parameter = slot == nn::Slot::Value || slot == nn::Slot::Compute;
        Category category = parameter                    ? Category::Parameters
                            : slot == nn::Slot::Gradient ? Category::Gradients
                                                         : Category::Optimizer;
        if (nn::PackOp pack = packs.find(symbol))
          type = pack.getSlotType(slot);
        stand(packs.locate(symbol, slot).buffer, category, byteSize(type));
      };
      if (auto read = dyn_cast<nn::ReadOp>(op))
        access(read.getSymbol(), read.getSlot(), read.getType());
      else if (auto write = dyn_cast<nn::WriteOp>(op))
        access(write.getSymbol(), write.getSlot(), write.getInput().getType());
      else if (auto add = dyn_cast<nn::AccumulateOp>(op))
        access(add.getSymbol(), add.getSlot(), add.getInput().getType());
      else if (isa<ConstantDataOpInterface>(op))
        stand(constantName(op), Category::Constants,
              byteSize(op->getResult(0).getType()));
    });
  stand(kScalarsBuffer.str(), Category::Inputs, 64);
  stand(kMetricsBuffer.str(), Category::Inputs, 64);
  // Tokens and targets of all microbatches are written before the step starts.
  for (StringRef value : {"tokens", "targets"})
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
    SmallVector<Attribute> bound;
    for (const std::string &name : action.buffers)
      bound.push_back(FlatSymbolRefAttr::get(builder.getContext(), name));
    auto callee = action.callee.empty()
                      ? FlatSymbolRefAttr()
                      : FlatSymbolRefAttr::get(builder.getContext(),
                                               action.callee);
    plan::ActionOp::create(
        builder, module.getLoc(), builder.getStringAttr(action.kind),
        builder.getI64IntegerAttr(0),
        builder.getI64IntegerAttr(action.microbatch), callee,
        optional(action.peer),
        action.backward ? builder.getBoolAttr(true) : BoolAttr(),
        optional(action.tensor), builder.getArrayAttr(bound));
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
      addCall(action.kind == ActionKind::Forward    ? "forward"
              : action.kind == ActionKind::Backward ? "backward"
              : action.kind == ActionKind::Reduce   ? "reduce"
                                                    : "optimizer",
              action);
  }
  addStanding();
  emit();
}

namespace {
struct PlaceBuffersPass
    : plait::impl::PlaceBuffersPassBase<PlaceBuffersPass> {
  LogicalResult checkFunctions(uint32_t stages) {
    for (uint32_t stage = 0; stage < stages; ++stage)
      for (StringRef phase : {"forward", "backward", "reduce", "optimizer"}) {
        std::string name = (phase + "_" + Twine(stage)).str();
        auto function = getOperation().lookupSymbol<func::FuncOp>(name);
        if (!function)
          return getOperation().emitError("has no function @")
                 << name << " for its schedule";
        if (failed(checkValueNames(function)))
          return failure();
      }
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
    if (failed(checkFunctions(schedule->problem.stages)))
      return signalPassFailure();
    for (auto function : getOperation().getOps<func::FuncOp>())
      placeValues(function);
    for (uint32_t stage = 0; stage < schedule->problem.stages; ++stage)
      ProgramBuilder(getOperation(), stage, *schedule).build();
  }
};
} // namespace
