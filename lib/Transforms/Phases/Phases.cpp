//===- Phases.cpp - Verification at the borders of phases -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The order of phases, and what each relies on of the one before. IR is edited
// by hand between phases: what an edit can break, and no operation's own
// verifier sees, is refused here, before a pass takes it for granted.
//
//===----------------------------------------------------------------------===//

#include "VerifyIds.h"

#include "plait/Analysis/ModelFlops.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Schedule/Generators.h"
#include "plait/Support/ActionKinds.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/StageFunctions.h"
#include "plait/Transforms/Steps.h"

namespace plait {
#define GEN_PASS_DEF_BEGINPHASEPASS
#define GEN_PASS_DEF_COUNTMODELFLOPSPASS
#define GEN_PASS_DEF_ENDPHASEPASS
#define GEN_PASS_DEF_VERIFYPHASEPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using pipe::ActionKind;

//===----------------------------------------------------------------------===//
// What a phase leaves
//===----------------------------------------------------------------------===//

/// The first value of `function` that `isSuch`, arguments first; null: there is
/// none.
static Value findValue(func::FuncOp function,
                       llvm::function_ref<bool(Value)> isSuch) {
  Value found;
  function.walk([&](Operation *op) {
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (BlockArgument argument : block.getArguments())
          if (!found && isSuch(argument))
            found = argument;
    for (Value result : op->getResults())
      if (!found && isSuch(result))
        found = result;
    return found ? WalkResult::interrupt() : WalkResult::advance();
  });
  return found;
}

/// The first tensor that has a sharding, or has none; null: there is none.
static Value findTensor(func::FuncOp function, bool hasSharding) {
  // Any encoding is a sharding: the dialects have no other.
  return findValue(function, [&](Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return type && bool(type.getEncoding()) == hasSharding;
  });
}

/// (P8)
/// Passes walk the bodies of all functions, those that nobody calls too, and
/// ask values for their shapes.
static LogicalResult verifyBodies(ModuleOp module) {
  auto isNoTensor = [](Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return !type || !type.hasStaticShape();
  };
  for (auto function : module.getOps<func::FuncOp>()) {
    if (!llvm::hasSingleElement(function.getBody()))
      return function.emitError("function @")
             << function.getSymName() << " has "
             << function.getBody().getBlocks().size()
             << " blocks, expected a body of one";
    if (Value value = findValue(function, isNoTensor))
      return emitError(value.getLoc(), "value of type ")
             << value.getType() << " in @" << function.getSymName()
             << ", expected tensors of static shape only";
  }
  return success();
}

/// (P1)
/// The types of @loss fix how many sequences a microbatch has over all
/// data-parallel ranks. A module that does not say how it is run may have any.
static LogicalResult verifyBatch(ModuleOp module, func::FuncOp loss) {
  if (!getConfigurationAttr(module))
    return success();
  TrainingConfiguration configuration = getConfiguration(module);
  dist::MeshOp mesh = dist::MeshOp::find(module);
  int64_t parts = mesh ? mesh.getKnownAxes().batchParts() : 1;
  int64_t batch = configuration.microBatch * parts;
  auto shape = cast<RankedTensorType>(loss.getArgumentTypes()[0]).getShape();
  if (shape[0] == batch && shape[1] == configuration.sequence)
    return success();
  return loss.emitError("@loss is for ")
         << shape[0] << " sequences of " << shape[1]
         << " tokens, but micro-batch " << configuration.microBatch << " times "
         << parts << (parts == 1 ? " replica" : " replicas") << " is " << batch
         << ", and seq is " << configuration.sequence;
}

/// (P1)
/// A configuration that no pass could carry out is refused here, with the
/// model, rather than by the pass that comes upon it some phases later.
static LogicalResult verifyModel(ModuleOp module) {
  if (Status status = checkExecutable(getConfiguration(module)); !status.ok())
    return module.emitError(status.message());
  auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunction);
  if (!loss || loss.isExternal() || loss.getNumResults() < 2)
    return module.emitOpError("has no function @")
           << nn::kLossFunction << " of a loss and a number of targets";
  auto model = module->getAttrOfType<DictionaryAttr>(nn::kModelAttr);
  auto vocab = model ? model.getAs<IntegerAttr>("vocab") : IntegerAttr();
  return failure(failed(nn::verifyLoss(loss, vocab ? vocab.getInt() : 0)) ||
                 failed(verifyBatch(module, loss)));
}

/// (P2)
/// Stages and gradients take shardings over from values, so that one value
/// without would leave others without.
static LogicalResult verifyShardings(ModuleOp module) {
  auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunction);
  if (!loss || loss.isExternal())
    return module.emitOpError("has no function @") << nn::kLossFunction;
  if (Value value = findTensor(loss, /*hasSharding=*/false))
    return emitError(value.getLoc(), "value of type ")
           << value.getType() << " has no sharding after phase shard";
  return success();
}

/// (P2)
/// What a rank holds of a parameter follows from its sharding alone.
static LogicalResult verifyParameters(ModuleOp module) {
  for (auto parameter : module.getOps<nn::ParameterOp>())
    if (!nn::getSharding(parameter))
      return parameter.emitOpError("has no sharding after phase ")
             << stringifyPhase(getPhase(module));
  return success();
}

/// (P3)
static LogicalResult verifyFunctions(ModuleOp module) {
  // By attribute, which passes go by; names are for readers and may be changed.
  llvm::DenseSet<pipe::FunctionAttr> there;
  for (auto function : module.getOps<func::FuncOp>())
    if (pipe::FunctionAttr own = getStageFunction(function))
      there.insert(own);
  auto has = [&](ActionKind action, int64_t index) {
    return there.contains(
        pipe::FunctionAttr::get(module.getContext(), action, index));
  };
  auto verify = [&](ActionKind action, int64_t index) -> LogicalResult {
    if (has(action, index))
      return success();
    return module.emitOpError("has no function ")
           << pipe::FunctionAttr::get(module.getContext(), action, index)
           << " after phase " << stringifyPhase(getPhase(module));
  };
  Phase reached = getPhase(module);
  pipe::PlacementAttr placement = getPlacement(module);
  for (int64_t stage = 0; stage < placement.getStages(); ++stage) {
    // Half of a split backward pass asks for the other half.
    bool isSplit = has(ActionKind::BackwardInput, stage);
    if (failed(verify(reached == Phase::Differentiate ? ActionKind::Joint
                                                      : ActionKind::Forward,
                      stage)) ||
        (reached >= Phase::Checkpoint &&
         failed(
             verify(isSplit ? ActionKind::BackwardWeight : ActionKind::Backward,
                    stage))))
      return failure();
  }
  if (reached >= Phase::Partition)
    for (int64_t rank = 0; rank < placement.getRanks(); ++rank)
      for (size_t kind = 0; kind < std::size(actionKinds); ++kind)
        if (const ActionFacts &facts = actionKinds[kind];
            facts.isOnceAStep() && facts.isAlways &&
            failed(verify(ActionKind(kind), rank)))
          return failure();
  return success();
}

/// (P4)
/// Later passes take a type for what lies in a rank's memory: an encoding that
/// is left would be a tensor of the mesh's size.
static LogicalResult verifyLocal(ModuleOp module) {
  for (auto function : module.getOps<func::FuncOp>())
    if (Value value = findTensor(function, /*hasSharding=*/true))
      return emitError(value.getLoc(), "value of type ")
             << value.getType() << " has a sharding after phase partition";
  return success();
}

/// (P5)
/// That the order itself is sound is the op's own verifier's business; here it
/// is held against the module around it.
static LogicalResult verifySchedule(ModuleOp module, dist::MeshOp mesh) {
  auto schedules = llvm::to_vector(module.getOps<pipe::ScheduleOp>());
  if (schedules.size() != 1)
    return module.emitOpError("has ")
           << schedules.size() << " schedules, expected one";
  pipe::ScheduleOp schedule = schedules.front();
  Result<int64_t> microbatches = countMicrobatches(
      getConfiguration(module), mesh.getKnownAxes().batchParts());
  if (!microbatches.ok())
    return module.emitError(microbatches.status().message());
  if (schedule.getPlacement() != getPlacement(module))
    return schedule.emitOpError("is for ")
           << schedule.getPlacement() << ", but the module has "
           << getPlacement(module);
  if (int64_t(schedule.getMicrobatches()) != *microbatches)
    return schedule.emitOpError("orders ")
           << schedule.getMicrobatches()
           << " microbatches, but mesh and configuration make "
           << *microbatches;
  return success();
}

namespace {
/// Holds programs against the schedule that they have been made from.
class ProgramVerifier {
public:
  ProgramVerifier(ModuleOp module, const schedule::Schedule &schedule)
      : schedule(schedule), symbols(module) {}

  LogicalResult verify(plan::ProgramOp program, int64_t rank);

private:
  bool isPartOf(plan::ActionOp op, int64_t rank,
                const schedule::Action &action) const;
  LogicalResult verifyCallee(plan::ActionOp op, int64_t rank,
                             const schedule::Action &action) const;

  const schedule::Schedule &schedule;
  SymbolTable symbols;
};
} // namespace

/// Whether `op` does `action` of `rank`, or of a transfer the part that is one
/// tensor.
bool ProgramVerifier::isPartOf(plan::ActionOp op, int64_t rank,
                               const schedule::Action &action) const {
  if (op.getKind() != static_cast<ActionKind>(action.kind))
    return false;
  if (action.isTransfer())
    return op.getStage() == getSender(schedule.problem, rank, action) &&
           op.getMicrobatch() == action.microbatch &&
           op.getPeer() == action.peer &&
           op.getBackward() ==
               (action.direction == schedule::Direction::Backward);
  // What happens once a step has neither.
  return !action.isCompute() ||
         (op.getStage() == schedule.problem.stageOf(rank, action.chunk) &&
          op.getMicrobatch() == action.microbatch);
}

/// By what functions say that they do, as everywhere: names may be changed.
LogicalResult
ProgramVerifier::verifyCallee(plan::ActionOp op, int64_t rank,
                              const schedule::Action &action) const {
  if (action.isTransfer())
    return success();
  pipe::FunctionAttr expected =
      getCallee(op.getContext(), schedule.problem, rank, action);
  Operation *callee = symbols.lookup(op.getCalleeAttr().getAttr());
  pipe::FunctionAttr found;
  if (auto steps = dyn_cast_or_null<plan::FunctionOp>(callee))
    found = steps.getDoesAttr();
  else if (auto values = dyn_cast_or_null<func::FuncOp>(callee))
    found = getStageFunction(values);
  if (found == expected)
    return success();
  return op.emitOpError("calls ")
         << op.getCalleeAttr() << ", which does not do " << expected;
}

/// All that the schedule orders is done, in its order, and nothing else.
LogicalResult ProgramVerifier::verify(plan::ProgramOp program, int64_t rank) {
  if (int64_t(program.getRank()) != rank)
    return program.emitOpError("is of rank ")
           << int64_t(program.getRank()) << ", expected " << rank
           << ": programs are in the order of ranks";
  ArrayRef<schedule::Action> left = schedule.ranks[rank];
  const schedule::Action *previous = nullptr;
  for (auto op : program.getBody().getOps<plan::ActionOp>()) {
    // Another tensor of the same message.
    if (previous && previous->isTransfer() && isPartOf(op, rank, *previous))
      continue;
    // Where no tensor crosses, nothing is sent.
    while (!left.empty() && left.front().isTransfer() &&
           !isPartOf(op, rank, left.front()))
      left = left.drop_front();
    if (left.empty() || !isPartOf(op, rank, left.front()))
      return op.emitOpError("is not what pipe.schedule has next for rank ")
             << rank << ": "
             << (left.empty() ? "nothing" : schedule::print(left.front()));
    if (failed(verifyCallee(op, rank, left.front())))
      return failure();
    previous = &left.front();
    left = left.drop_front();
  }
  left = left.drop_while(
      [](const schedule::Action &action) { return action.isTransfer(); });
  if (left.empty())
    return success();
  return program.emitOpError("ends before ")
         << schedule::print(left.front()) << ", which pipe.schedule has for it";
}

/// (P6)
/// One for each rank of the pipeline: ranks that differ along other axes run
/// the same.
static LogicalResult verifyPrograms(ModuleOp module) {
  int64_t count = llvm::range_size(module.getOps<plan::ProgramOp>());
  int64_t ranks = getPlacement(module).getRanks();
  if (count != ranks)
    return module.emitOpError("has ")
           << count << " programs, expected one for each of " << ranks
           << " ranks of " << kPipelineAxis;
  // That it is a schedule, and the only one, has been seen to.
  schedule::Schedule schedule =
      completeSchedule(module, *pipe::getSchedule(pipe::findSchedule(module)));
  ProgramVerifier verifier(module, schedule);
  for (auto [rank, program] : llvm::enumerate(module.getOps<plan::ProgramOp>()))
    if (failed(verifier.verify(program, rank)))
      return failure();
  return success();
}

/// A model of one rank needs no mesh.
static std::string getText(dist::MeshOp mesh) {
  return mesh ? mesh.getText() : "";
}

/// Whether `module` is what the phase that it has reached leaves.
static LogicalResult verifyPhase(ModuleOp module) {
  dist::MeshOp mesh = dist::MeshOp::find(module);
  if (Status status = checkRead(module, getText(mesh)); !status.ok())
    return module.emitError(status.message());
  Phase reached = getPhase(module);
  if (reached == Phase::Import)
    return failure(failed(verifyModel(module)) || failed(verifyBodies(module)));
  if (failed(verifyBodies(module)) || failed(verifyIds(module)))
    return failure();
  if (!mesh)
    return module.emitOpError("has no mesh after phase ")
           << stringifyPhase(reached);
  if (failed(verifyParameters(module)))
    return failure();
  if (reached == Phase::Shard)
    return verifyShardings(module);
  int64_t ranks = mesh.getAxisSize(Axis::PP);
  if (getPlacement(module).getRanks() != ranks)
    return module.emitOpError("has ") << getPlacement(module) << ", but "
                                      << ranks << " ranks on " << kPipelineAxis;
  // Functions of values are gone: (P3) and (P4) have nothing to look at.
  if (reached >= Phase::Steps)
    return failure(failed(verifySchedule(module, mesh)) ||
                   failed(verifyPrograms(module)) ||
                   failed(verifySteps(module)));
  if (failed(verifyFunctions(module)) ||
      (reached >= Phase::Partition && failed(verifyLocal(module))) ||
      (reached >= Phase::Schedule && failed(verifySchedule(module, mesh))) ||
      (reached >= Phase::Lower && failed(verifyPrograms(module))))
    return failure();
  return success();
}

namespace {
struct VerifyPhasePass : plait::impl::VerifyPhasePassBase<VerifyPhasePass> {
  void runOnOperation() override {
    if (failed(verifyPhase(getOperation())))
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// The order of phases
//===----------------------------------------------------------------------===//

/// The phase that the option of a pass names.
static FailureOr<Phase> findPhase(ModuleOp module, StringRef name) {
  if (std::optional<Phase> phase = symbolizePhase(name))
    return *phase;
  module.emitError("phase is \"") << name << "\", expected a name of a phase";
  return failure();
}

namespace {
/// Refuses a phase that is not the next: to run one twice, or to leave one out,
/// would go wrong in its passes at best.
struct BeginPhasePass : plait::impl::BeginPhasePassBase<BeginPhasePass> {
  using BeginPhasePassBase::BeginPhasePassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<Phase> begins = findPhase(module, phase);
    if (failed(begins))
      return signalPassFailure();
    // A model has been imported, whether by us or by hand.
    Phase expected =
        *begins == Phase::Import ? Phase::Import : Phase(int(*begins) - 1);
    if (getPhase(module) != expected) {
      module.emitOpError("is IR after phase ")
          << stringifyPhase(getPhase(module)) << ", but phase " << phase
          << " expects that after " << stringifyPhase(expected);
      return signalPassFailure();
    }
    if (failed(verifyPhase(module)))
      return signalPassFailure();
    // Last, so that an error leaves the module as it was.
    restoreOrigins(module);
  }
};

struct EndPhasePass : plait::impl::EndPhasePassBase<EndPhasePass> {
  using EndPhasePassBase::EndPhasePassBase;

  void runOnOperation() override {
    FailureOr<Phase> ends = findPhase(getOperation(), phase);
    if (failed(ends))
      return signalPassFailure();
    setPhase(getOperation(), *ends,
             getText(dist::MeshOp::find(getOperation())));
    if (keepOrigins)
      plait::keepOrigins(getOperation());
  }
};

/// Says nothing of a module without a loss: dist-assign-shardings, in the same
/// phase, refuses it.
struct CountModelFlopsPass
    : plait::impl::CountModelFlopsPassBase<CountModelFlopsPass> {
  void runOnOperation() override {
    if (auto loss =
            getOperation().lookupSymbol<func::FuncOp>(nn::kLossFunction))
      setModelFlops(getOperation(), countModelFlops(loss));
  }
};
} // namespace
