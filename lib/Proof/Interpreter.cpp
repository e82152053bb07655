//===- Interpreter.cpp - The interpretation of a step ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Step::interpret() goes through a step in the order of its data, not of a
// schedule:
// 1. It finds the functions, by what they do and for which stage.
// 2. It interprets what begins the step on each rank: a gather, if any.
// 3. It interprets the forward functions from the first stage to the last, and
//    the backward ones from the last to the first. Each is interpreted once,
//    with what the ports of its neighbours have given.
// 4. It interprets the end of the step on all ranks at once (StepEnd.cpp).
// It takes one rule for each op of the module.
//
//===----------------------------------------------------------------------===//

#include "Interpreter.h"

#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;
using pipe::ActionKind;
using pipe::PortKind;

//===----------------------------------------------------------------------===//
// One function
//===----------------------------------------------------------------------===//

/// The body of a cluster is isolated: its values have no other meaning.
///
/// Aliases cost no copies of contents, which have shared terms but dimensions
/// of their own.
LogicalResult Interpreter::runCluster(Operation *op) {
  auto cluster = cast<plan::ClusterOp>(op);
  Block &body = cluster.getBody().front();
  for (auto [argument, operand] :
       llvm::zip_equal(body.getArguments(), cluster.getInputs()))
    alias(argument, operand);
  for (Operation &inner : body.without_terminator())
    if (failed(run(&inner)))
      return failure();
  for (auto [result, value] : llvm::zip_equal(
           cluster.getOutputs(), body.getTerminator()->getOperands()))
    alias(result, value);
  return success();
}

/// Contributions are only collected: they count once the whole function has
/// been interpreted, for all microbatches together.
LogicalResult Interpreter::runAccess(SlotOpInterface access) {
  switch (access.getAccess()) {
  case nn::SlotAccess::Read: {
    FailureOr<Content> content = state.read(access);
    if (failed(content))
      return failure();
    bind(access.getTensor(), std::move(*content));
    return success();
  }
  case nn::SlotAccess::Replace:
    return state.write(access, get(access.getTensor()));
  case nn::SlotAccess::Add:
    contributions.push_back({access, get(access.getTensor())});
    return success();
  }
  llvm_unreachable("access of an unknown kind");
}

/// The only op that takes `value`, in a kernel or not; null: there are others,
/// or none.
///
/// A value that a cluster takes or yields is followed into it or out of it, so
/// a chain of sums that is divided among kernels is seen as one.
static Operation *findOnlyUser(Value value) {
  while (value.hasOneUse()) {
    OpOperand &use = *value.use_begin();
    Operation *user = use.getOwner();
    if (auto cluster = dyn_cast<plan::ClusterOp>(user))
      value = cluster.getBody().getArgument(use.getOperandNumber());
    else if (auto outer = dyn_cast<plan::ClusterOp>(user->getParentOp());
             outer && user->hasTrait<OpTrait::IsTerminator>())
      value = outer->getResult(use.getOperandNumber());
    else
      return user;
  }
  return nullptr;
}

/// The norm is a sum over all parameters, one after the other. The terms of all
/// the sums on the way would take the square of their number, so they are added
/// up at once, by the last of them.
///
/// 1. The list of one operand is continued, and not copied, so a chain of n
///    additions takes O(n).
/// 2. Other operands are appended, a list of their own by its elements.
/// 3. If only another sum takes the result, the list is handed on and the value
///    has no form.
/// 4. Else it is the last one, and all are added up.
LogicalResult Interpreter::runSum(nn::AddOp add) {
  // 1. Continue.
  std::shared_ptr<std::vector<Content>> summands;
  for (Value operand : add->getOperands())
    if (const Content &own = get(operand); !summands && own.summands)
      summands = own.summands; // nobody else takes them
  if (!summands)
    summands = std::make_shared<std::vector<Content>>();
  // 2. Append.
  for (Value operand : add->getOperands()) {
    const Content &own = get(operand);
    if (!own.summands)
      summands->push_back(own);
    else if (own.summands != summands)
      llvm::append_range(*summands, *own.summands);
  }
  auto type = cast<RankedTensorType>(add.getType());
  // 3. Hand on.
  if (isa_and_nonnull<nn::AddOp>(findOnlyUser(add.getResult()))) {
    bind(add.getResult(), Content{type, {}, nullptr, nullptr, summands});
    return success();
  }
  // 4. Add up.
  FailureOr<Content> total = rules.addUp(add, *summands, type);
  if (failed(total))
    return failure();
  bind(add.getResult(), std::move(*total));
  return success();
}

/// The content of a value that is known by one that lies alike, made when it is
/// asked for.
const Content &Interpreter::complete(Known &known) {
  if (known.content->form.term != known.term) {
    auto *own = new (kept.Allocate()) Content(*known.content);
    own->form.term = known.term;
    known.content = own;
  }
  return *known.content;
}

/// The rule is asked of each op once in a model of many layers (Repeat.h).
LogicalResult Interpreter::runRule(Operation *op) {
  SmallVector<Known *, 4> operands;
  for (Value operand : op->getOperands())
    operands.push_back(&contents.find(operand)->second);
  SmallVector<Known, 2> known;
  if (rules.repeats.repeat(op, operands, known)) {
    for (auto [value, own] : llvm::zip_equal(op->getResults(), known))
      contents[value] = own;
    return success();
  }
  SmallVector<const Content *, 4> whole;
  for (Known *operand : operands)
    whole.push_back(&complete(*operand));
  Contents results;
  rules.repeats.begin();
  rules.hasMixed = false;
  LogicalResult outcome = rules.evaluate(op, whole, results);
  rules.repeats.end(op, operands, results,
                    succeeded(outcome) && !rules.hasMixed);
  if (failed(outcome))
    return failure();
  for (auto [value, content] : llvm::zip_equal(op->getResults(), results))
    bind(value, std::move(content));
  return success();
}

/// Control and state are handled here; whatever computes goes to the rules.
/// Terms that appear on the way are noted as first computed by `op`.
LogicalResult Interpreter::run(Operation *op) {
  rules.terms.setOrigin(op);
  if (isa<plan::ClusterOp>(op))
    return runCluster(op);
  // Where it lies is for Places.cpp.
  if (auto move = dyn_cast<plan::MoveOp>(op)) {
    alias(move.getResult(), move.getInput());
    return success();
  }
  if (auto add = dyn_cast<nn::AddOp>(op);
      add && cast<RankedTensorType>(add.getType()).getRank() == 0)
    return runSum(add);
  if (auto access = dyn_cast<SlotOpInterface>(op))
    return runAccess(access);
  if (auto metric = dyn_cast<nn::MetricOp>(op)) {
    state.metrics[metric.getName().str()] = {get(metric.getInput()), {}, op};
    return success();
  }
  if (isa<func::ReturnOp>(op)) {
    for (Value operand : op->getOperands())
      returned.push_back(get(operand));
    return success();
  }
  return runRule(op);
}

//===----------------------------------------------------------------------===//
// All stages
//===----------------------------------------------------------------------===//

Step::Step(ModuleOp module, Rules &rules, RankedTensorType inputs)
    : module(module), rules(rules), symbols(module), inputs(inputs),
      placement(
          module->getAttrOfType<pipe::PlacementAttr>(pipe::kPlacementAttr)) {}

/// Two functions that do the same for one stage would be interpreted as one of
/// them, so that is an error. Without a placement the stages are in line, one
/// for each rank.
LogicalResult Step::findFunctions() {
  for (auto function : module.getOps<func::FuncOp>()) {
    auto own = function->getAttrOfType<pipe::FunctionAttr>(pipe::kFunctionAttr);
    if (!own)
      continue;
    if (!functions.try_emplace(own, function).second)
      return rules.report.wrong(function)
             << "another function does " << own << " as well";
    if (own.getAction() == ActionKind::Forward)
      stages = std::max(stages, own.getIndex() + 1);
  }
  if (stages == 0) {
    rules.report.unproven(module)
        << "it has no functions of stages, which phase checkpoint makes";
    return failure();
  }
  int64_t count = placement ? placement.getRanks() : stages;
  ranks.reserve(count);
  for (int64_t rank = 0; rank < count; ++rank)
    ranks.emplace_back(rules, symbols, rank);
  return success();
}

/// The port of an argument or a result.
static pipe::PortAttr getPort(DictionaryAttr attrs) {
  return attrs ? attrs.getAs<pipe::PortAttr>(pipe::kPortAttr)
               : pipe::PortAttr();
}

/// Residuals go from a stage's forward function to its own backward one.
std::pair<PortKind, int64_t> proof::findMaker(PortKind kind, int64_t stage) {
  if (kind == PortKind::Input)
    return {PortKind::Output, stage - 1};
  if (kind == PortKind::OutputGradient)
    return {PortKind::InputGradient, stage + 1};
  return {kind, stage};
}

/// Keys are one for each sequence, and so is context. A rank that takes all
/// positions is given them.
///
/// A leaf that is called as its port is, split over the axes that split tokens.
/// In the claim these axes have one rank, so the leaf is the whole. What a
/// float input has of each position is never split.
Content Step::makeInput(pipe::PortAttr port, RankedTensorType taken) {
  PortKind kind = port.getKind();
  SmallVector<SmallVector<StringAttr>> axes;
  axes.resize(kTokenDims);
  for (const AxisFacts &facts : kAxes)
    if (std::optional<unsigned> dim = facts.tokenDim())
      axes[*dim].push_back(StringAttr::get(module.getContext(), facts.name));
  bool isOfSequences = kind == PortKind::Keys || kind == PortKind::Context;
  size_t rank = isOfSequences ? 1 : axes.size();
  axes.truncate(rank);
  if (rank > 1 && taken.getRank() > 1 &&
      taken.getDimSize(1) == inputs.getDimSize(1))
    axes[1].clear();
  SmallVector<int64_t> shape(inputs.getShape().take_front(rank));
  if (!pipe::PortAttr::isSingle(kind) && size_t(taken.getRank()) > rank)
    llvm::append_range(shape, taken.getShape().drop_front(rank));
  axes.resize(shape.size());
  return rules.makeLeaf(port.getText(),
                        RankedTensorType::get(shape, taken.getElementType()),
                        axes);
}

/// Fails if no function that was interpreted before gives it: either none does,
/// or a stage depends on a later one.
FailureOr<Content> Step::findArgument(func::FuncOp function, unsigned index,
                                      int64_t stage) {
  pipe::PortAttr port = getPort(function.getArgAttrDict(index));
  PortKind kind = port.getKind();
  if (port.isModelInput())
    return makeInput(
        port, cast<RankedTensorType>(function.getArgument(index).getType()));
  auto [made, source] = findMaker(kind, stage);
  auto known = ports[made].find({source, port.getIndex()});
  if (known != ports[made].end())
    return known->second;
  rules.report.wrong(function)
      << port.getText() << " of stage " << stage << " is made by no function";
  return failure();
}

/// Whether the op writes what the step leaves behind, and not only adds to it.
static bool endsStep(Operation *op) {
  return isa<MemoryOpInterface>(op) && op->getNumResults() == 0 &&
         nn::getSlotAccess(op) != nn::SlotAccess::Add;
}

/// 1. Arguments are what ports have given, in the types that the function
///    declares.
/// 2. Ops are interpreted. None may end the step, and none may meet other
///    stages, which are not at this point.
/// 3. Results are given to ports, and contributions to the rank's state.
LogicalResult Step::call(func::FuncOp function) {
  auto own = function->getAttrOfType<pipe::FunctionAttr>(pipe::kFunctionAttr);
  int64_t stage = own.getIndex();
  RankState &state = ranks[placement ? placement.getRank(stage) : stage];
  Interpreter interpreter(rules, state);
  // 1. Arguments.
  for (BlockArgument argument : function.getArguments()) {
    FailureOr<Content> content =
        findArgument(function, argument.getArgNumber(), stage);
    if (failed(content))
      return failure();
    if (content->type != argument.getType())
      return rules.report.wrong(function)
             << "argument " << argument.getArgNumber() << " is "
             << argument.getType() << ", but a rank has " << content->type
             << " of it: " << print(*content);
    interpreter.bind(argument, std::move(*content));
  }
  // 2. Ops.
  for (Operation &op : function.getBody().front()) {
    if (endsStep(&op)) {
      rules.report.unproven(&op) << "the step is not at its end";
      return failure();
    }
    if (crossesPipeline(&op))
      return rules.report.wrong(&op)
             << "the other stages are not at this point of the step";
    if (failed(interpreter.run(&op)))
      return failure();
  }
  // 3. Results.
  for (auto [index, content] : llvm::enumerate(interpreter.returned)) {
    pipe::PortAttr port = getPort(function.getResultAttrDict(index));
    content.type = cast<RankedTensorType>(function.getResultTypes()[index]);
    ports[port.getKind()][{stage, port.getIndex()}] = content;
  }
  for (const Contribution &contribution : interpreter.contributions)
    if (failed(state.accumulate(contribution)))
      return failure();
  return success();
}

/// By itself on each rank: other stages are at no known point then.
LogicalResult Step::interpretBegin() {
  for (auto [index, state] : llvm::enumerate(ranks)) {
    auto function = functions.lookup(pipe::FunctionAttr::get(
        module.getContext(), ActionKind::Gather, index));
    if (!function)
      continue;
    Interpreter interpreter(rules, state);
    for (Operation &op : function.getBody().front().without_terminator()) {
      if (crossesPipeline(&op) || nn::getSlotAccess(&op) == nn::SlotAccess::Add)
        return rules.report.wrong(&op)
               << "the step is at its beginning, where copies are gathered";
      if (failed(interpreter.run(&op)))
        return failure();
    }
    if (failed(state.endGather()))
      return failure();
  }
  return success();
}

/// A schedule may split the backward pass into that of inputs and that of
/// weights, which comes after; a stage has the one function or the two.
LogicalResult Step::interpretStages() {
  auto callIfThere = [&](ActionKind action, int64_t stage) -> LogicalResult {
    auto function = functions.lookup(
        pipe::FunctionAttr::get(module.getContext(), action, stage));
    return function ? call(function) : success();
  };
  for (int64_t stage = 0; stage < stages; ++stage)
    if (failed(callIfThere(ActionKind::Forward, stage)))
      return failure();
  for (int64_t stage = stages; stage-- > 0;)
    for (ActionKind action : {ActionKind::Backward, ActionKind::BackwardInput,
                              ActionKind::BackwardWeight})
      if (failed(callIfThere(action, stage)))
        return failure();
  return success();
}

/// As in the file's description. Nothing is known of the state after a failure.
LogicalResult Step::interpret() {
  if (failed(findFunctions()) || failed(interpretBegin()) ||
      failed(interpretStages()))
    return failure();
  return interpretEnd();
}
