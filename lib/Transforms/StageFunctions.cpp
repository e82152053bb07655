//===- StageFunctions.cpp - The functions of pipeline stages --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How passes say and read, in attributes, what a function does in the pipeline:
// its action, its virtual stage or rank, and the ports that its arguments and
// results are. Which ports a stage has is decided by OutlineStages.cpp and the
// passes over its functions.
//
//===----------------------------------------------------------------------===//

#include "plait/Transforms/StageFunctions.h"

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Schedule/Generators.h"
#include "plait/Schedule/Rendezvous.h"
#include "plait/Support/ActionKinds.h"

#include <set>

using namespace mlir;
using namespace plait;
using pipe::ActionKind;
using pipe::FunctionAttr;
using pipe::PlacementAttr;
using pipe::PortAttr;

/// Before stages are assigned, there is one virtual stage for each rank of the
/// pipeline axis; without a mesh, a single one.
PlacementAttr plait::getPlacement(ModuleOp module) {
  if (auto given = module->getAttrOfType<PlacementAttr>(pipe::kPlacementAttr))
    return given;
  dist::MeshOp mesh = dist::MeshOp::find(module);
  int64_t ranks = mesh ? mesh.getAxisSize(Axis::PP) : 1;
  return PlacementAttr::get(module.getContext(), pipe::Arrangement::Looped,
                            ranks, /*chunks=*/1);
}

std::string plait::getFunctionName(ActionKind action, int64_t index) {
  return (stringifyActionKind(action) + "_" + Twine(index)).str();
}

/// The rank of the pipeline axis that runs `function`. What happens once a step
/// is made for each rank, so that its index is the rank; all else has the index
/// of a virtual stage, which the placement maps to its rank.
std::optional<int64_t> plait::getRank(func::FuncOp function) {
  FunctionAttr own = getStageFunction(function);
  if (!own)
    return std::nullopt;
  return own.isOfRank() ? own.getIndex()
                        : getPlacement(function->getParentOfType<ModuleOp>())
                              .getRank(own.getIndex());
}

FunctionAttr plait::getCallee(MLIRContext *context,
                              const schedule::Problem &problem, int64_t rank,
                              const schedule::Action &action) {
  auto kind = static_cast<ActionKind>(action.kind);
  return FunctionAttr::get(
      context, kind,
      pipe::isOfRank(kind) ? rank : problem.stageOf(rank, action.chunk));
}

/// Finds what functions do once a step where not every step does it, as the
/// gather, and the ranks that they do it for: functions of values or, once they
/// are lowered, of steps.
static std::set<std::pair<ActionKind, int64_t>> findOptional(ModuleOp module) {
  std::set<std::pair<ActionKind, int64_t>> found;
  auto note = [&](FunctionAttr own) {
    if (own && own.isOfRank() && !getActionFacts(own.getAction()).isAlways)
      found.insert({own.getAction(), own.getIndex()});
  };
  for (auto function : module.getOps<func::FuncOp>())
    note(getStageFunction(function));
  for (auto function : module.getOps<plan::FunctionOp>())
    note(function.getDoesAttr());
  return found;
}

/// Adds what is done once a step where it belongs: at the beginning, or behind
/// what comes before it at the end.
static void insertOnce(ActionKind kind,
                       std::vector<schedule::Action> &actions) {
  schedule::Action action{static_cast<schedule::ActionKind>(kind)};
  if (llvm::is_contained(actions, action))
    return;
  auto at = actions.begin();
  if (getActionFacts(kind).time == ActionTime::End)
    at = llvm::find_if(actions, [&](const schedule::Action &other) {
      return getActionFacts(other.kind).time == ActionTime::End &&
             other.kind > action.kind;
    });
  actions.insert(at, action);
}

/// Says of what is sent, by its direction and the virtual stage, whether it is
/// several tensors: results of that kind of the functions that there are.
static std::function<bool(schedule::Direction, uint32_t)>
findSeveral(ModuleOp module) {
  llvm::DenseSet<std::pair<int, int64_t>> several;
  for (auto function : module.getOps<func::FuncOp>()) {
    FunctionAttr own = getStageFunction(function);
    if (!own || own.isOfRank())
      continue;
    SmallVector<PortAttr> ports = getResultPorts(function);
    for (auto [direction, kind] :
         {std::pair(schedule::Direction::Forward, pipe::PortKind::Output),
          {schedule::Direction::Backward, pipe::PortKind::InputGradient}})
      if (llvm::count_if(ports, [kind = kind](PortAttr port) {
            return port && port.getKind() == kind;
          }) > 1)
        several.insert({int(direction), own.getIndex()});
  }
  return [several](schedule::Direction direction, uint32_t stage) {
    return several.contains({int(direction), int64_t(stage)});
  };
}

/// Lists that come with their transfers have them where they say.
schedule::Schedule plait::completeSchedule(ModuleOp module,
                                           const schedule::Schedule &order) {
  schedule::Schedule complete = schedule::insertTransfers(order);
  // Elsewhere a message is buffered, and who receives it too early waits.
  TargetAttr target = getTarget(module);
  if (target && target.isGPU() && order.isComputeOnly())
    complete = schedule::postReceives(complete, findSeveral(module));
  for (auto [kind, rank] : findOptional(module))
    if (size_t(rank) < complete.ranks.size())
      insertOnce(kind, complete.ranks[rank]);
  return complete;
}

int64_t plait::getSender(const schedule::Problem &problem, int64_t rank,
                         const schedule::Action &transfer) {
  int64_t stage = problem.stageOf(rank, transfer.chunk);
  if (transfer.kind != schedule::ActionKind::Recv)
    return stage;
  return transfer.direction == schedule::Direction::Backward ? stage + 1
                                                             : stage - 1;
}

/// Says in the attribute, which passes go by, what `function` does; the name is
/// for readers.
static void mark(func::FuncOp function, ActionKind action, int64_t index) {
  function->setAttr(pipe::kFunctionAttr,
                    FunctionAttr::get(function.getContext(), action, index));
}

/// The stage stays: a joint function of stage 3 becomes the forward one of
/// stage 3.
void plait::setAction(func::FuncOp function, ActionKind action) {
  int64_t stage = getStageFunction(function).getIndex();
  mark(function, action, stage);
  function.setName(getFunctionName(action, stage));
}

/// With an entry block, into which the caller builds; ports and types are set
/// once the body is complete (setPorts()).
func::FuncOp plait::createStageFunction(OpBuilder &builder, Location loc,
                                        ActionKind action, int64_t index) {
  auto function =
      func::FuncOp::create(builder, loc, getFunctionName(action, index),
                           builder.getFunctionType({}, {}));
  mark(function, action, index);
  function.addEntryBlock();
  return function;
}

/// The attribute dictionaries of arguments or results with these ports.
static SmallVector<DictionaryAttr> describe(MLIRContext *context,
                                            ArrayRef<PortAttr> ports) {
  auto name = StringAttr::get(context, pipe::kPortAttr);
  return llvm::map_to_vector(ports, [&](PortAttr port) {
    return DictionaryAttr::get(context, NamedAttribute(name, port));
  });
}

void plait::setPorts(func::FuncOp function, ArrayRef<PortAttr> arguments,
                     ArrayRef<PortAttr> results) {
  MLIRContext *context = function.getContext();
  Block &body = function.getBody().front();
  // The body has been built; the type follows it. It has to be set before the
  // attributes, of which there is one dictionary for each argument and result.
  function.setFunctionType(
      FunctionType::get(context, body.getArgumentTypes(),
                        body.getTerminator()->getOperandTypes()));
  function.setAllArgAttrs(describe(context, arguments));
  function.setAllResultAttrs(describe(context, results));
}

/// A snapshot: passes change it beside the arguments, and write it back by
/// setPorts().
SmallVector<PortAttr> plait::getPorts(func::FuncOp function) {
  SmallVector<PortAttr> ports;
  for (unsigned index = 0; index < function.getNumArguments(); ++index)
    ports.push_back(getPort(function, index));
  return ports;
}

SmallVector<PortAttr> plait::getResultPorts(func::FuncOp function) {
  SmallVector<PortAttr> ports;
  for (unsigned index = 0; index < function.getNumResults(); ++index)
    ports.push_back(getResultPort(function, index));
  return ports;
}

/// Linear in the results: asked once for each gradient that stages exchange.
std::optional<unsigned> plait::findResult(func::FuncOp function,
                                          pipe::PortKind kind, int64_t index) {
  auto wanted = PortAttr::get(function.getContext(), kind, index);
  for (unsigned result = 0; result < function.getNumResults(); ++result)
    if (getResultPort(function, result) == wanted)
      return result;
  return std::nullopt;
}
