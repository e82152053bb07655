//===- Measure.cpp - The work of lowered functions ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a compiled block does, as a list of operations with sizes, and what it
// keeps, in elements. The functions are those of the lowered phase, where every
// op is a kernel, a library call, a collective, or an access to memory that one
// of these does. Sizes are read off types; costs are not computed here.
//
//===----------------------------------------------------------------------===//

#include "Measure.h"

#include "Companions.h"

#include "plait/Analysis/KernelShape.h"
#include "plait/Analysis/KernelTraffic.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plait/IR/ExpertChunks.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"
#include "plait/Transforms/BatchedMatmuls.h"
#include "plait/Transforms/StageFunctions.h"
#include "plait/Transforms/WeightGradients.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace plait;
using planner::OperationKind;
using planner::Saved;

double plait::countElements(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor ? tensor.getNumElements() : 0;
}

namespace {
/// Measures functions whose activations are of one type.
class Measurer {
public:
  explicit Measurer(Type activation) : activation(activation) {}

  planner::Block measure(func::FuncOp forward, func::FuncOp backward) const;
  void addTo(Saved &saved, Value value) const;

private:
  bool isActivation(Type type) const {
    return getElementTypeOrSelf(type) == activation;
  }
  double getBytes(const Saved &saved) const {
    return saved.elements * (activation.getIntOrFloatBitWidth() / 8) +
           saved.fourByte * 4;
  }
  planner::Operation makeKernel(plan::ClusterOp cluster) const;
  /// The whole tensor's elements, which is what collectives are counted by.
  planner::Operation makeCollective(dist::CollectiveOpInterface op) const;
  std::optional<planner::Operation> makeOperation(Operation *op) const;
  Saved findWorkspace(func::FuncOp function) const;

  Type activation;
};
} // namespace

/// Elements that are not of an activation count four bytes each: statistics,
/// indices, losses, and gradients in fp32.
void Measurer::addTo(Saved &saved, Value value) const {
  bool four = !isActivation(value.getType());
  (four ? saved.fourByte : saved.elements) += countElements(value.getType());
  ++saved.values;
}

/// Names an op, and where in the model it comes from.
static std::string nameOf(Operation *op) {
  std::string name = op->getName().getStringRef().str();
  if (StringAttr origin = findOrigin(op->getLoc()))
    name += " " + origin.str();
  return name;
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

/// Whether `op` is the second step of a sum over rows (SplitColumnSums.cpp).
static bool sumsSequences(Operation *op) {
  return isReduction(op) &&
         cast<FusableOpInterface>(op).getDims() == ArrayRef<int64_t>{0} &&
         cast<ShapedType>(op->getOperand(0).getType()).getRank() > 1;
}

/// Traffic is that of the cluster as a whole, one access for each of its inputs
/// and outputs: what only passes from op to op inside of it never reaches
/// memory.
planner::Operation Measurer::makeKernel(plan::ClusterOp cluster) const {
  planner::Operation kernel;
  kernel.kind = OperationKind::Kernel;
  for (const Access &access : getKernelAccesses(cluster))
    (isActivation(access.type) ? kernel.elementsPerSequence
                               : kernel.fourBytePerSequence) += access.elements;
  kernel.flopsPerSequence = getKernelFlops(cluster);
  kernel.sumsSequences =
      llvm::all_of(cluster.getBody().front().without_terminator(),
                   [](Operation &op) { return sumsSequences(&op); });
  kernel.name = nameOf(&cluster.getBody().front().front());
  return kernel;
}

/// Whether the value is read from where it stands for the whole step.
static bool isStored(Value value) {
  return nn::getSlotAccess(value.getDefiningOp()).has_value();
}

/// Returns how far apart its rows lie, as padRows will have it: parameters are
/// as they are.
static int64_t getPitch(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getRank() == 0)
    return 1;
  int64_t extent = type.getShape().back();
  return isStored(value)
             ? extent
             : plan::choosePitch(extent, type.getElementTypeBitWidth() / 8);
}

/// All bits of the three pitches together: the lowest one that is set is the
/// largest power of two that divides them all.
static int64_t getRowAlignment(Operation *op) {
  uint64_t bits = getPitch(op->getResult(0));
  for (Value operand : op->getOperands().take_front(2))
    bits |= getPitch(operand);
  return int64_t(bits & (~bits + 1));
}

/// Returns what a matmul adds to, in its place; null: nothing.
static Value getAddend(Operation *op) {
  auto contraction = dyn_cast<ContractionOpInterface>(op);
  return contraction ? contraction.getAddend() : Value();
}

/// Shapes are those of the op's interface, for the microbatch at hand. Which
/// sizes grow with it follows from comparing two profiles.
static planner::Operation makeShaped(CostedOpInterface op,
                                     const WorkShape &shape) {
  planner::Operation result;
  result.name = nameOf(op);
  if (shape.kind == WorkShape::Contraction) {
    result.kind = OperationKind::Matmul;
    result.batch = shape.batch;
    result.m = shape.m;
    result.n = shape.n;
    result.k = shape.k;
    result.rowAlignment = getRowAlignment(op);
    result.adds = getAddend(op) != nullptr;
    return result;
  }
  result.kind = OperationKind::Attention;
  result.heads = shape.heads;
  result.keyValueHeads = shape.keyValueHeads;
  result.headSize = shape.headSize;
  result.queries = shape.queries;
  result.keys = shape.keys;
  result.causal = shape.causal;
  return result;
}

planner::Operation
Measurer::makeCollective(dist::CollectiveOpInterface op) const {
  planner::Operation result;
  result.kind = OperationKind::Collective;
  result.name = nameOf(op);
  result.collective = op.getKind();
  if (const AxisFacts *facts = findAxis(op.getAxis()))
    result.axis = facts->axis;
  // In elements of activations, whose bytes they will be multiplied with.
  Type element = getElementTypeOrSelf(op->getResult(0).getType());
  double share = double(element.getIntOrFloatBitWidth()) /
                 activation.getIntOrFloatBitWidth();
  // Of some rows those that even routing moves.
  if (std::optional<dist::RowSelection> rows = op.getSelection()) {
    int64_t input = ::plait::detail::countElements(op.getInput());
    int64_t output = ::plait::detail::countElements(op->getResult(0));
    share *=
        getRowShare(std::max(input / output, output / input), rows->choices);
    result.movesRows = true;
  }
  result.collectivePerSequence = share * double(op.countElements());
  return result;
}

/// The operation that `op` is, or none: reads and stores are part of others.
std::optional<planner::Operation> Measurer::makeOperation(Operation *op) const {
  return llvm::TypeSwitch<Operation *, std::optional<planner::Operation>>(op)
      .Case([&](plan::ClusterOp cluster) { return makeKernel(cluster); })
      .Case([&](dist::CollectiveOpInterface op) { return makeCollective(op); })
      .Case([](CostedOpInterface costed) -> std::optional<planner::Operation> {
        WorkShape shape = costed.getWorkShape();
        // Not fused into a kernel and bound by memory: an access to memory,
        // whose traffic the kernels that use it count.
        if (shape.kind == WorkShape::Memory)
          return std::nullopt;
        return makeShaped(costed, shape);
      })
      .Default(std::nullopt);
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// Whether the forward pass has left `value` to its backward function.
static bool isLeft(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument)
    return false;
  auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
  return getPort(function, argument.getArgNumber()).getKind() !=
         pipe::PortKind::OutputGradient;
}

namespace {
/// Finds what a backward function has from before, op by op as it is read for
/// the first time, by the whole function and by either half of it where
/// gradients of weights, `delayed`, run apart; and what ops leave to these.
/// Parameters and constants are left out.
class FirstReads {
public:
  FirstReads(const Measurer &measurer, func::FuncOp backward,
             const llvm::SetVector<Operation *> &delayed)
      : measurer(measurer), backward(backward), delayed(delayed) {}

  void visit(Operation *op);
  /// Adds what `op`, of the forward pass, makes of what is read late.
  void addLeft(Operation *op, Saved &left);
  /// Has `operation` take what was visited since the last one of its half did.
  void give(planner::Operation &operation, bool isDelayed) {
    operation.taken = std::exchange(taken, {});
    operation.takenApart = std::exchange(takenApart[isDelayed], {});
    if (!isDelayed)
      operation.leftApart = std::exchange(leftApart, {});
  }

private:
  bool isReadLate(Value value) const {
    return llvm::any_of(value.getUsers(), [&](Operation *user) {
      return delayed.contains(user);
    });
  }

  const Measurer &measurer;
  func::FuncOp backward;
  const llvm::SetVector<Operation *> &delayed;
  llvm::SmallDenseSet<Value> seen, seenApart[2]; // by whether it is delayed
  Saved taken, takenApart[2], leftApart;
};
} // namespace

void FirstReads::addLeft(Operation *op, Saved &left) {
  auto forward = op->getParentOfType<func::FuncOp>();
  for (OpOperand &use : op->getUses()) {
    if (!isa<func::ReturnOp>(use.getOwner()))
      continue;
    pipe::PortAttr port = getResultPort(forward, use.getOperandNumber());
    for (BlockArgument argument : backward.getArguments())
      if (getPort(backward, argument.getArgNumber()) == port &&
          isReadLate(argument))
        measurer.addTo(left, use.get());
  }
}

void FirstReads::visit(Operation *op) {
  bool isDelayed = delayed.contains(op);
  for (Value operand : op->getOperands()) {
    if (isLeft(operand) && seen.insert(operand).second)
      measurer.addTo(taken, operand);
    Operation *source = operand.getDefiningOp();
    // What several delayed ops read is kept once.
    bool crosses = isDelayed ? !source || (!delayed.contains(source) &&
                                           source->getNumOperands() != 0)
                             : isLeft(operand);
    if (!crosses || !seenApart[isDelayed].insert(operand).second)
      continue;
    measurer.addTo(takenApart[isDelayed], operand);
  }
  for (Value result : op->getResults())
    if (!isDelayed && op->getNumOperands() != 0 && isReadLate(result))
      measurer.addTo(leftApart, result);
}

/// The operands in whose place results of the op are written, if nobody reads
/// them afterwards.
static llvm::SmallDenseSet<Value> findOverwritten(Operation *op) {
  llvm::SmallDenseSet<Value> operands;
  llvm::SmallDenseSet<unsigned> results;
  if (Value addend = getAddend(op))
    operands.insert(addend);
  auto cluster = dyn_cast<plan::ClusterOp>(op);
  if (!cluster)
    return operands;
  for (const Overwrite &pair : findOverwrites(cluster)) {
    Value operand = cluster.getOperand(pair.operand);
    // An argument may be read again outside of the function; and one result
    // takes the memory of one operand only.
    if (operand.getDefiningOp() && operand.hasOneUse() &&
        !operands.contains(operand) && results.insert(pair.result).second)
      operands.insert(operand);
  }
  return operands;
}

/// The most that temporary values of the function take at once.
Saved Measurer::findWorkspace(func::FuncOp function) const {
  Block &body = function.getBody().front();
  // Arguments are left out: they are residuals or inputs, and counted as kept.
  llvm::DenseMap<Value, Operation *> lastUse;
  for (Operation &op : body)
    for (Value operand : op.getOperands())
      if (operand.getDefiningOp())
        lastUse[operand] = &op;
  Operation *terminator = body.getTerminator();
  Saved live, most;
  auto release = [&](const llvm::SmallDenseSet<Value> &values, Operation *op) {
    Saved dead;
    for (Value value : values)
      if (auto it = lastUse.find(value); it != lastUse.end() &&
                                         it->second == op && op != terminator &&
                                         !isStored(value))
        addTo(dead, value);
    live.elements -= dead.elements;
    live.fourByte -= dead.fourByte;
    live.values -= dead.values;
  };
  // In the order of the ops, as buffers will be placed: an op first frees the
  // memory that it overwrites, then its results exist beside what it reads,
  // then its operands without a later reader are freed. Results that the
  // function returns lie in the caller's memory.
  for (Operation &op : body) {
    llvm::SmallDenseSet<Value> overwritten = findOverwritten(&op);
    llvm::SmallDenseSet<Value> read(op.operand_begin(), op.operand_end());
    for (Value operand : overwritten)
      read.erase(operand);
    release(overwritten, &op);
    if (nn::getSlotAccess(&op) != nn::SlotAccess::Read)
      for (Value result : op.getResults())
        if (auto it = lastUse.find(result);
            it != lastUse.end() && it->second != terminator)
          addTo(live, result);
    if (getBytes(live) > getBytes(most))
      most = live;
    release(read, &op);
  }
  return most;
}

/// The residuals that are made by the last matmul or attention, or behind it:
/// what computes then takes no time beside copies.
static SmallVector<Value> findLastResiduals(func::FuncOp forward) {
  Block &body = forward.getBody().front();
  Operation *last = nullptr;
  for (Operation &op : body)
    if (auto costed = dyn_cast<CostedOpInterface>(op))
      if (costed.getWorkShape().kind != WorkShape::Memory)
        last = &op;
  SmallVector<Value> values;
  for (auto [value, port] : llvm::zip_equal(body.getTerminator()->getOperands(),
                                            getResultPorts(forward))) {
    Operation *maker = value.getDefiningOp();
    if (last && maker && port.getKind() == pipe::PortKind::Residual &&
        !maker->isBeforeInBlock(last))
      values.push_back(value);
  }
  return values;
}

static bool takesInput(func::FuncOp forward, plan::ClusterOp cluster) {
  return llvm::any_of(cluster->getOperands(), [&](Value operand) {
    auto argument = dyn_cast<BlockArgument>(operand);
    return argument && getPort(forward, argument.getArgNumber()).getKind() ==
                           pipe::PortKind::Input;
  });
}

/// Returns the last kernel of a block that begins with one of its input and
/// ends with one that makes nothing but its output: where blocks like it follow
/// each other in a stage, each one's last is one with the next one's first.
/// Null: it is no such block.
static plan::ClusterOp findJoined(func::FuncOp forward) {
  Block &body = forward.getBody().front();
  SmallVector<Operation *> work;
  for (Operation &op : body.without_terminator())
    if (isa<plan::ClusterOp, ContractionOpInterface,
            dist::CollectiveOpInterface>(op))
      work.push_back(&op);
  if (work.size() < 2)
    return {};
  auto first = dyn_cast<plan::ClusterOp>(work.front());
  auto last = dyn_cast<plan::ClusterOp>(work.back());
  auto isPassed = [&](OpOperand &use) {
    return use.getOwner() == body.getTerminator() &&
           getResultPort(forward, use.getOperandNumber()).getKind() ==
               pipe::PortKind::Output;
  };
  if (!first || !last || !takesInput(forward, first) ||
      last->getNumResults() != 1 || !llvm::all_of(last->getUses(), isPassed))
    return {};
  return last;
}

/// Adds to the kernel that a block begins with what the one before it, of a
/// block like this, does in it: what the first reads need not be read.
static void join(planner::Operation &first, const planner::Operation &last,
                 Value passed) {
  first.elementsPerSequence +=
      last.elementsPerSequence - countElements(passed.getType());
  first.fourBytePerSequence += last.fourBytePerSequence;
  first.flopsPerSequence += last.flopsPerSequence;
}

/// Finds what backward passes have operations of their own for: experts in
/// chunks, and what is made of their rows, as far as nothing else is computed
/// of that (Checkpoint.cpp).
static llvm::SmallDenseSet<Operation *> findMadeAnew(func::FuncOp forward) {
  llvm::SmallDenseSet<Operation *> found;
  if (getExpertChunks(forward->getParentOfType<ModuleOp>()) == 1)
    return found;
  for (Operation &op : forward.getBody().front()) {
    bool isExpert = isa<GroupedOpInterface>(op);
    bool takesRows = llvm::any_of(op.getOperands(), [&](Value operand) {
      return found.contains(operand.getDefiningOp());
    });
    if (takesRows && !isExpert && isa<ContractionOpInterface>(op))
      break;
    if (isExpert || takesRows)
      found.insert(&op);
  }
  return found;
}

/// Numbers parameters as packs have them: in the module's order, those that
/// decay and those that do not apart.
static llvm::DenseMap<Attribute, int64_t> numberParameters(ModuleOp module) {
  llvm::DenseMap<Attribute, int64_t> numbers;
  int64_t next[] = {0, int64_t(1) << 32}; // far apart
  for (auto parameter : module.getOps<nn::ParameterOp>())
    numbers[FlatSymbolRefAttr::get(parameter.getSymNameAttr())] =
        next[parameter.getDecay()]++;
  return numbers;
}

/// Pairs the number of a gradient with the matmul that makes it.
using NumberedMatmul = std::pair<int64_t, Operation *>;

/// Notes that `run`, of two matmuls or more, is one call: the number of matmuls
/// for the last in the function's order, 0 for the others.
static void join(ArrayRef<NumberedMatmul> run,
                 llvm::DenseMap<Operation *, int64_t> &joined) {
  Operation *last = run.front().second;
  for (auto [number, op] : run) {
    joined[op] = 0;
    if (last->isBeforeInBlock(op))
      last = op;
  }
  joined[last] = int64_t(run.size());
}

/// Finds matmuls of `delayed` that share an operand and have results of one
/// size that lie side by side in a pack of gradients, as BatchMatmuls.cpp joins
/// them: for each the matmuls that its call makes, as join() says.
static llvm::DenseMap<Operation *, int64_t>
findJoinedGradients(ArrayRef<Operation *> delayed) {
  using Shape = std::tuple<int64_t, int64_t, int64_t, int64_t>;
  using Common = std::tuple<Value, unsigned, Shape>;
  llvm::MapVector<Common, SmallVector<NumberedMatmul>> found;
  llvm::DenseMap<Attribute, int64_t> numbers;
  for (Operation *op : delayed) {
    auto matmul = dyn_cast<ContractionOpInterface>(op);
    if (!matmul || !matmul.contractsOnly() || !matmul->hasOneUse())
      continue;
    auto sum = dyn_cast<SlotOpInterface>(*matmul->user_begin());
    WorkShape shape = cast<CostedOpInterface>(op).getWorkShape();
    if (!sum || sum.getAccess() != nn::SlotAccess::Add ||
        !isWorthBatching(matmul.getResultType().getNumElements()))
      continue;
    if (numbers.empty())
      numbers = numberParameters(op->getParentOfType<ModuleOp>());
    auto number = numbers.find(sum.getSymbolAttr());
    if (number != numbers.end())
      for (unsigned shared : {0, 1})
        found[{op->getOperand(shared),
               shared,
               {shape.batch, shape.m, shape.n, shape.k}}]
            .emplace_back(number->second, op);
  }
  llvm::DenseMap<Operation *, int64_t> joined;
  for (auto &[common, members] : found) {
    llvm::sort(members);
    for (ArrayRef rest = members; !rest.empty();) {
      size_t count = 1;
      while (count < rest.size() &&
             rest[count].first == rest[count - 1].first + 1)
        ++count;
      if (count > 1)
        join(rest.take_front(count), joined);
      rest = rest.drop_front(count);
    }
  }
  return joined;
}

/// Whether a comparison has made it, which is kept whatever is computed again:
/// a copy might compare otherwise (Checkpoint.cpp).
static bool isComparison(Value value) {
  Operation *op = value.getDefiningOp();
  if (auto cluster = dyn_cast_or_null<plan::ClusterOp>(op))
    op = cluster.getBody()
             .front()
             .getTerminator()
             ->getOperand(cast<OpResult>(value).getResultNumber())
             .getDefiningOp();
  return op && op->hasTrait<ComparesFloats>();
}

/// Forward operations, then those of the backward pass, of which the ones that
/// only weights' gradients need are a list of their own (findWeightGradients):
/// a schedule may run these later. What is kept is what the backward function
/// takes beside the gradient of its output.
planner::Block Measurer::measure(func::FuncOp forward,
                                 func::FuncOp backward) const {
  planner::Block block;
  SmallVector<Operation *> found = findWeightGradients(backward);
  llvm::SetVector<Operation *> delayed(found.begin(), found.end());
  FirstReads reads(*this, backward, delayed);
  llvm::SmallDenseSet<Operation *> madeAnew = findMadeAnew(forward);
  plan::ClusterOp passedOn = findJoined(forward);
  for (Operation &op : forward.getBody().front())
    if (auto operation = makeOperation(&op)) {
      operation->again = madeAnew.contains(&op);
      reads.addLeft(&op, operation->leftApart);
      if (&op == passedOn.getOperation())
        join(block.operations.front(), *operation, passedOn->getResult(0));
      else
        block.operations.push_back(*operation);
      if (auto companion = makeCompanion(&op, *operation))
        block.operations.push_back(std::move(*companion));
    }
  llvm::DenseMap<Operation *, int64_t> joined = findJoinedGradients(found);
  for (Operation &op : backward.getBody().front()) {
    reads.visit(&op);
    if (auto operation = makeOperation(&op)) {
      if (auto count = joined.find(&op); count != joined.end())
        operation->joined = count->second;
      if (operation->joined == 0)
        continue;
      operation->pass = delayed.contains(&op) ? planner::Pass::BackwardWeight
                                              : planner::Pass::BackwardInput;
      // What has a gradient is of the forward pass.
      operation->again = operation->kind == OperationKind::Attention &&
                         isa<DifferentiableOpInterface>(op);
      reads.give(*operation, delayed.contains(&op));
      std::optional<planner::Operation> companion =
          makeCompanion(&op, *operation);
      block.operations.push_back(std::move(*operation));
      if (companion)
        block.operations.push_back(std::move(*companion));
    }
  }
  // With full recomputation a block keeps nothing but these.
  for (BlockArgument argument : forward.getArguments())
    addTo(block.input, argument);
  Operation *end = forward.getBody().front().getTerminator();
  for (auto [value, port] :
       llvm::zip_equal(end->getOperands(), getResultPorts(forward)))
    if (port.getKind() == pipe::PortKind::Residual && isComparison(value))
      addTo(block.input, value);
  for (auto [argument, port] :
       llvm::zip_equal(backward.getArguments(), getPorts(backward)))
    if (port.getKind() != pipe::PortKind::OutputGradient)
      addTo(block.kept, argument);
  for (auto [type, port] :
       llvm::zip_equal(forward.getResultTypes(), getResultPorts(forward)))
    if (port.getKind() == pipe::PortKind::Output)
      block.output.elements += countElements(type);
  for (Value value : findLastResiduals(forward))
    addTo(block.lastKept, value);
  // The two never run at the same time.
  Saved first = findWorkspace(forward), second = findWorkspace(backward);
  block.workspace = getBytes(first) > getBytes(second) ? first : second;
  return block;
}

planner::Block plait::measureBlock(func::FuncOp forward, func::FuncOp backward,
                                   Type activation) {
  return Measurer(activation).measure(forward, backward);
}
