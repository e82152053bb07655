//===- ShardingProblem.cpp - Sharding along one axis ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Builds the network that ShardingProblem.h describes, has it solved and reads
// the answer. All costs are computed from factor rules, CostedOpInterface and
// the cluster's rates; no op is known by name.
//
// Layers which are alike have variables in common, and their costs add up: ops
// of one kind that lie in the same way are counted, so that neither variables
// nor tables grow with depth. That all costs are seconds, or bytes turned into
// the seconds of sending them, makes communication, work and memory comparable
// without weights that would have to be tuned for each model.
//
//===----------------------------------------------------------------------===//

#include "ShardingProblem.h"

#include "../Remarks.h"
#include "plait/Dialect/NN/IR/Layers.h"
#include "plait/Dialect/NN/IR/Parameters.h"

#include "llvm/ADT/Sequence.h"
#include "llvm/Support/FormatVariadic.h"

#include <map>
#include <vector>

using namespace mlir;
using namespace plait;

namespace {
/// An all-gather and a reduce-scatter move the bytes of one all-reduce, but
/// measured slower (Korthikanti et al. 2022, section 6.2).
constexpr double kHalfCollectivePenalty = 1.25;
/// What it is worth not to hold a byte, as bytes that might be sent for it. A
/// parameter is four times its own: itself, gradient, two moments. An
/// activation is held for a part of a step.
constexpr double kParameterMemory = 4.0;
constexpr double kActivationMemory = 0.02;
/// Of what ops would move through memory one by one, forward and backward, what
/// splitting them saves: a residual, its bias and the norm behind it are one
/// kernel, broadcasts and the backward pass of a sum move nothing, and what is
/// whole afterwards is read once more.
constexpr double kFusedTraffic = 0.125;
/// The backward pass of a matmul is two of its size.
constexpr double kWithBackward = 3.0;
} // namespace

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

//===----------------------------------------------------------------------===//
// What may be split
//===----------------------------------------------------------------------===//

InFlightDiagnostic plait::reportIndivisible(ShardableOpInterface op,
                                            StringRef axis, int64_t blocks,
                                            ArrayRef<Factor> factors) {
  // The divisors of any one of the factors are listed: to divide one of them is
  // enough.
  InFlightDiagnostic diag = op.emitError()
                            << axis << "=" << blocks << " does not divide the ";
  SmallVector<int64_t> divisors;
  llvm::interleave(
      factors,
      [&](const Factor &factor) {
        diag << factor.size << " " << factor.name;
        for (int64_t d = 1; d <= factor.size; ++d)
          if (factor.size % d == 0)
            divisors.push_back(d);
      },
      [&] { diag << " or "; });
  diag << " of " << op->getName() << "; possible are ";
  llvm::sort(divisors);
  divisors.erase(llvm::unique(divisors), divisors.end());
  llvm::interleaveComma(divisors, diag);
  return diag;
}

/// Heads are only split evenly, and a model with tp=8 and 4 heads is a mistake
/// of the user's: said here, with what is possible, rather than answered by a
/// plan that repeats attention on all ranks. Collects the classes of such
/// factors on the way, for canSplit().
LogicalResult ShardingProblem::checkDivisibility() {
  WalkResult walk = function.walk([&](ShardableOpInterface op) {
    FactorRule rule = op.getFactorRule();
    SmallVector<Factor> even;
    for (auto [index, factor] : llvm::enumerate(rule.factors)) {
      if (!factor.mustDivide)
        continue;
      evenClasses.insert(classes.findFactor(op, rule, index));
      // Along one there is nothing to divide.
      if (even.empty() || factor.size > 1)
        even.push_back(factor);
    }
    bool possible = llvm::any_of(
        even, [&](const Factor &factor) { return factor.size % blocks == 0; });
    if (even.empty() || possible)
      return WalkResult::advance();
    reportIndivisible(op, axis.getValue(), blocks, even);
    return WalkResult::interrupt();
  });
  return failure(walk.wasInterrupted());
}

/// What the axes that classes are given leave of an extent on a rank.
int64_t ShardingProblem::extentIn(int root, int64_t extent) const {
  auto part = parts.find(root);
  return part == parts.end() ? extent : extent / part->second.blocks;
}

/// Uneven blocks are allowed unless an op needs equal ones, but no fewer
/// elements than there are ranks.
bool ShardingProblem::canSplit(int root, int64_t extent) const {
  extent = extentIn(root, extent);
  bool even = evenClasses.contains(root);
  return extent >= blocks && !dataClasses.contains(root) &&
         (!even || extent % blocks == 0);
}

/// Values that have a gradient to be moved back: floats that depend on a
/// parameter. One walk in the order of the ops, which defines operands before
/// users.
void ShardingProblem::findDifferentiable() {
  function.walk([&](Operation *op) {
    bool depends = nn::getSlotAccess(op) == nn::SlotAccess::Read;
    if (isa<DifferentiableOpInterface>(op))
      depends = llvm::any_of(op->getOperands(), [&](Value operand) {
        return differentiable.contains(operand);
      });
    if (depends)
      for (Value result : op->getResults())
        if (isa<FloatType>(typeOf(result).getElementType()))
          differentiable.insert(result);
  });
}

//===----------------------------------------------------------------------===//
// Variables
//===----------------------------------------------------------------------===//

/// A variable for each op and each value of the layers that stand for others.
/// `kNone` is the first choice of all, and the solver keeps the first among
/// equals: what gains nothing by being split is not.
void ShardingProblem::addVariables() {
  auto declare = [&](Variable &variable) {
    variable.id = network.addVariable(variable.choices.size());
  };
  auto declareValue = [&](Value value) {
    Variable &variable = valueVariables[value];
    variable.choices = {kNone};
    // What a model is given is whole but for its batch and sequence.
    if (isa<FloatType>(typeOf(value).getElementType()) &&
        !isa<BlockArgument>(value))
      for (int64_t dim = 0; dim < typeOf(value).getRank(); ++dim)
        if (canSplit(classes.find(value, dim), typeOf(value).getDimSize(dim)))
          variable.choices.push_back(dim);
    if (differentiable.contains(value))
      variable.choices.push_back(kPartial);
    declare(variable);
  };
  for (Value argument : function.getArguments())
    declareValue(argument);
  function.walk([&](Operation *op) {
    if (layers.representative(op) != op)
      return;
    if (auto read = dyn_cast<SlotOpInterface>(op)) {
      // All reads of a parameter find it in one place.
      auto [it, isNew] = firstRead.try_emplace(read.getSymbolAttr().getAttr(),
                                               read.getTensor());
      if (isNew)
        declareValue(read.getTensor());
      return;
    }
    if (auto shardable = dyn_cast<ShardableOpInterface>(op)) {
      Variable &variable = opVariables[op];
      variable.choices = {kNone};
      FactorRule rule = shardable.getFactorRule();
      for (auto [index, factor] : llvm::enumerate(rule.factors))
        if (factor.kind != FactorKind::Whole && factor.isBalanced &&
            canSplit(classes.findFactor(shardable, rule, index), factor.size))
          variable.choices.push_back(index);
      declare(variable);
    }
    for (Value result : op->getResults())
      declareValue(result);
  });
}

// The representative's: ops of layers that are alike share variables.
const ShardingProblem::Variable &
ShardingProblem::variableOf(Operation *op) const {
  return opVariables.find(layers.representative(op))->second;
}

const ShardingProblem::Variable &
ShardingProblem::variableOf(Value value) const {
  if (Operation *op = value.getDefiningOp()) {
    Operation *first = layers.representative(op);
    if (auto read = dyn_cast<SlotOpInterface>(first))
      value = firstRead.find(read.getSymbolAttr().getAttr())->second;
    else
      value = first->getResult(cast<OpResult>(value).getResultNumber());
  }
  return valueVariables.find(value)->second;
}

//===----------------------------------------------------------------------===//
// Costs
//===----------------------------------------------------------------------===//

/// Counts the ops that the one stands for.
double ShardingProblem::countAlike(Operation *op) const {
  auto layer = nn::getLayer(op);
  return layer && !layerCounts.empty() ? double(layerCounts[*layer]) : 1;
}

void ShardingProblem::addCost(const Variable &variable,
                              llvm::function_ref<double(int)> cost) {
  network.addCost(variable.id, [&](int x) { return times * cost(x); });
}

void ShardingProblem::addCost(const Variable &a, const Variable &b,
                              llvm::function_ref<double(int, int)> cost) {
  network.addCost(a.id, b.id, [&](int x, int y) { return times * cost(x, y); });
}

/// Returns the part that a rank has of something with dimensions of these
/// classes. An axis splits one dimension of a class once, also where there are
/// two of it.
double ShardingProblem::getShare(ArrayRef<int> dims) const {
  double share = 1;
  for (const auto &[root, part] : parts)
    if (llvm::is_contained(dims, root))
      share *= part.share;
  return share;
}

/// Bytes on one rank, before this axis splits anything.
double ShardingProblem::bytesOf(Value value) const {
  RankedTensorType type = typeOf(value);
  SmallVector<int> dims;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    dims.push_back(classes.find(value, dim));
  return getShare(dims) * type.getNumElements() *
         type.getElementTypeBitWidth() / 8.0;
}

/// Seconds to bring `value`, or its gradient, from one state along the axis to
/// another, by the collective that dist-partition would use for it. To a
/// partial sum nothing is ever converted but another one.
double ShardingProblem::conversionCost(Value value, int from, int to) const {
  if (from == to)
    return 0;
  // Gathering or scattering blocks of unequal length is not worth having.
  auto isUneven = [&](int dim) {
    return dim >= 0 &&
           extentIn(classes.find(value, dim), typeOf(value).getDimSize(dim)) %
               blocks;
  };
  // Cutting out an uneven block takes no message: what lies beyond it is
  // padding.
  if (isUneven(from) || (from != kNone && isUneven(to)))
    return kImpossible;
  if (from == kNone) // everybody has it: cut out a block
    return rates.getMemorySeconds(kFusedTraffic * bytesOf(value));
  bool isParameter =
      nn::getSlotAccess(value.getDefiningOp()) == nn::SlotAccess::Read;
  auto dims = llvm::seq<int64_t>(0, typeOf(value).getRank());
  bool hasTokens = llvm::any_of(dims, [&](int64_t dim) {
    return dataClasses.contains(classes.find(value, dim));
  });
  // Keeping small parameters in parts, and other small values that no tokens
  // are along, is never worth gathering them each time.
  bool isFree = savesMemory && !isParameter && (hasTokens || from == kPartial);
  auto getSeconds = [&](CollectiveKind kind, double factor) {
    double bytes = factor * bytesOf(value) * getSentShare(kind, blocks);
    return isFree ? link.getWireSeconds(bytes) : link.getSeconds(bytes);
  };
  if (from == kPartial && to == kNone)
    return getSeconds(CollectiveKind::AllReduce, 1);
  double penalty = savesMemory ? 1 : kHalfCollectivePenalty;
  if (from == kPartial)
    return getSeconds(CollectiveKind::ReduceScatter, penalty);
  // A gather, or an exchange between dimensions. An exchange sends a share of
  // what a gather does, in messages that much smaller. Priced by bytes alone it
  // made layers gather their weights and exchange heads, at 2.8 times
  // Megatron's communication by the planner's measured curves (Llama-3 70B on
  // tp=4); priced as a gather it stands where shardings are given that need it.
  return getSeconds(CollectiveKind::AllGather, penalty);
}

/// How an op that splits `factor` leaves a result: split along the dimension
/// that moves with it, a partial sum where it was summed over, whole where the
/// result knows nothing of it and every rank has computed the same.
int ShardingProblem::nativeState(const FactorRule &rule, unsigned result,
                                 int factor) const {
  if (factor == kNone)
    return kNone;
  for (auto [dim, along] : llvm::enumerate(rule.results[result]))
    if (along == factor)
      return dim;
  return rule.factors[factor].kind == FactorKind::Parallel ? kNone : kPartial;
}

/// What it is worth to hold only a block of a parameter. Counted once a
/// parameter, however many read it. A sharding that the user gives is a rule
/// and not a preference: all other choices are impossible.
LogicalResult ShardingProblem::addReadCosts(SlotOpInterface read) {
  const Variable &state = variableOf(read.getTensor());
  nn::ParameterOp parameter = nn::findParameter(read, tables);
  dist::ShardingAttr pinned = nn::getSharding(parameter);
  if (pinned && !llvm::is_contained(state.choices, pinned.findDim(axis)))
    return parameter.emitOpError("cannot be split along dimension ")
           << pinned.findDim(axis) << " over " << axis.getValue() << "="
           << blocks << ", as its sharding says";
  double bytes = bytesOf(read.getTensor());
  addCost(state, [&](int x) {
    int dim = foundAt(state.choices[x]);
    if (pinned && pinned.findDim(axis) != dim)
      return kImpossible;
    return link.getWireSeconds(kParameterMemory * bytes /
                               (dim == kNone ? 1 : blocks));
  });
  return success();
}

/// Seconds of the forward pass on one rank, before this axis splits anything.
/// What an op reads or makes that no tokens are along, as parameters, is whole.
double ShardingProblem::getWork(ShardableOpInterface op,
                                const FactorRule &rule) const {
  auto costed = dyn_cast<CostedOpInterface>(op.getOperation());
  if (!costed)
    return 0;
  SmallVector<int> dims;
  for (size_t index = 0; index < rule.factors.size(); ++index)
    dims.push_back(classes.findFactor(op, rule, index));
  double share = getShare(dims), whole = 0;
  auto hasTokens = [&](Value value) {
    return llvm::any_of(
        llvm::seq<int64_t>(0, typeOf(value).getRank()),
        [&](int64_t dim) { return parts.contains(classes.find(value, dim)); });
  };
  for (ValueRange values :
       {ValueRange(op->getOperands()), ValueRange(op->getResults())})
    for (Value value : values)
      if (!hasTokens(value))
        whole += bytesOf(value);
  double bytes = double(costed.getBytes());
  whole = std::min(whole, bytes);
  bytes = whole + share * (bytes - whole);
  return rates.getGemmSeconds(share * double(costed.getFlops())) +
         rates.getMemorySeconds(kFusedTraffic * bytes);
}

/// Describes what else the costs of an op follow from than its attributes and
/// types, which it has in common with all ops of its variable: which variables
/// its values have, how many users, whether they have gradients, and which of
/// all dimensions a rank has parts of. It takes a fraction of what the costs
/// take, so that those are found once for all layers that are alike.
ShardingProblem::CostKey
ShardingProblem::describeCosts(ShardableOpInterface op) const {
  CostKey key{variableOf(op.getOperation()).id};
  auto describeClass = [&](int root) {
    key.push_back(parts.contains(root) ? root : kNone);
  };
  auto describeValue = [&](Value value) {
    key.push_back(variableOf(value).id);
    key.push_back(differentiable.contains(value));
    for (int64_t dim = 0, rank = typeOf(value).getRank(); dim < rank; ++dim)
      describeClass(classes.find(value, dim));
  };
  for (Value operand : op->getOperands()) {
    describeValue(operand);
    key.push_back(llvm::range_size(operand.getUses()));
    key.push_back(nn::getSlotAccess(operand.getDefiningOp()) ==
                  nn::SlotAccess::Read);
  }
  for (Value result : op->getResults())
    describeValue(result);
  FactorRule rule = op.getFactorRule();
  for (size_t index = 0; index < rule.factors.size(); ++index)
    describeClass(classes.findFactor(op, rule, index));
  return key;
}

/// What computing the op takes. Not split, every rank does all of it: repeated
/// work has its price in seconds like all else, so that small ops stay whole
/// where communication for them would take longer.
void ShardingProblem::addOpCosts(ShardableOpInterface op) {
  const Variable &choice = variableOf(op.getOperation());
  FactorRule rule = op.getFactorRule();
  double work = getWork(op, rule);
  if (llvm::any_of(op->getResults(), [&](Value result) {
        return differentiable.contains(result);
      }))
    work *= kWithBackward;
  addCost(choice, [&](int x) {
    return choice.choices[x] == kNone ? work : work / blocks;
  });
  addResultCosts(op, choice, rule);
  addOperandCosts(op, choice, rule);
}

/// From what the op makes to what its users find, and gradients back.
void ShardingProblem::addResultCosts(Operation *op, const Variable &choice,
                                     const FactorRule &rule) {
  for (auto [index, result] : llvm::enumerate(op->getResults())) {
    const Variable &state = variableOf(result);
    addCost(choice, state, [&](int x, int y) {
      int native = nativeState(rule, index, choice.choices[x]);
      // Users find the value whole where their gradients arrive as partial
      // sums: then only the gradient is combined, once, in front of this op.
      int gradient = state.choices[y], found = foundAt(gradient);
      double cost = conversionCost(result, native, found) +
                    link.getWireSeconds(kActivationMemory * bytesOf(result) /
                                        (found == kNone ? 1 : blocks));
      // The gradient goes the other way. An op that makes a partial sum takes
      // its gradient whole: each rank's part of the sum has the same one.
      if (differentiable.contains(result))
        cost += conversionCost(result, gradient,
                               native == kPartial ? kNone : native);
      return cost;
    });
  }
}

/// From what the op finds to what it needs, and gradients back. Users of one
/// value add up their gradients before they are converted.
void ShardingProblem::addOperandCosts(Operation *op, const Variable &choice,
                                      const FactorRule &rule) {
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    const Variable &state = variableOf(operand);
    const FactorRule::DimFactors &dims = rule.operands[index];
    // The sum over all users is converted once; each bears its share.
    double users = std::distance(operand.use_begin(), operand.use_end());
    addCost(choice, state, [&](int x, int y) {
      // Native to the op is what the factor's dimension says; an operand
      // without it is needed whole, and its gradient is a partial sum, since
      // each rank has seen only its part of the factor.
      int factor = choice.choices[x];
      int wanted = state.choices[y], found = foundAt(wanted);
      int needed = kNone, gradient = factor == kNone ? kNone : kPartial;
      for (auto [dim, along] : llvm::enumerate(dims))
        if (factor != kNone && along == factor)
          needed = gradient = dim;
      double cost = conversionCost(operand, found, needed);
      if (differentiable.contains(operand))
        // A partial sum and a whole gradient do not add up.
        cost += wanted == kPartial && gradient != kPartial
                    ? kImpossible
                    : conversionCost(operand, gradient, wanted) / users;
      return cost;
    });
  }
}

/// 1. Refuses what no choice can make right.
/// 2. Declares the variables.
/// 3. Adds the costs of all ops and of each parameter.
/// 4. Eliminates, which is exact or fails, and keeps the answer.
LogicalResult ShardingProblem::solve() {
  // 1. and 2. Choices depend on which classes must divide, and on which values
  //    have gradients.
  if (failed(checkDivisibility()))
    return failure();
  findDifferentiable();
  addVariables();
  // 3.
  llvm::DenseSet<Attribute> counted;
  std::vector<std::pair<ShardableOpInterface, double>> costing; // and how often
  std::map<CostKey, size_t> numbers;
  WalkResult walk = function.walk([&](Operation *op) {
    times = countAlike(op);
    if (auto read = dyn_cast<SlotOpInterface>(op)) {
      if (counted.insert(read.getSymbolAttr()).second &&
          failed(addReadCosts(read)))
        return WalkResult::interrupt();
    } else if (auto shardable = dyn_cast<ShardableOpInterface>(op)) {
      auto [known, isNew] =
          numbers.try_emplace(describeCosts(shardable), costing.size());
      if (isNew)
        costing.push_back({shardable, 0});
      costing[known->second].second += times;
    }
    return WalkResult::advance();
  });
  if (walk.wasInterrupted())
    return failure();
  for (auto [op, count] : costing) {
    times = count;
    addOpCosts(op);
  }
  // 4.
  std::optional<SmallVector<int>> best = network.solve(seconds);
  if (!best)
    return function.emitError("the ops of the loss are too entangled to "
                              "choose shardings exactly");
  // All choices but those of given shardings have a possible one: kNone costs
  // no conversion that could be uneven. So it is those that contradict.
  if (seconds >= kImpossible)
    return function.emitError("the shardings given for parameters cannot be "
                              "met on axis \"")
           << axis.getValue() << "\"";
  solution = std::move(*best);
  if (hasRemarks(function.getContext()))
    explain();
  return success();
}

/// Layers that are alike share variables: the first is told of.
void ShardingProblem::explain() {
  llvm::SmallDenseSet<int> told;
  // For each other choice, the best plan that has it: a solve for each, which
  // is why nobody pays for it but who asks for remarks.
  function.walk([&](ShardableOpInterface op) {
    const Variable &own = variableOf(op.getOperation());
    if (own.choices.size() == 1 || !told.insert(own.id).second)
      return;
    FactorRule rule = op.getFactorRule();
    std::string others;
    for (auto [value, choice] : llvm::enumerate(own.choices)) {
      if (int(value) == solution[own.id])
        continue;
      double more = network.findCost(own.id, value) - seconds;
      others += others.empty() ? ": " : ", ";
      others += describeFactor(rule, choice);
      others += more >= kImpossible / 2
                    ? " cannot be"
                    : llvm::formatv(" takes {0:F1} us more", 1e6 * more).str();
    }
    remark::analysis(op.getLoc(), about(op, "factor", "dist-assign-shardings"))
        << remark::add("{0} splits {1} of {2}{3}", axis.getValue(),
                       describeFactor(rule, getFactor(op)), op->getName(),
                       others);
  });
}

int ShardingProblem::getFactor(Operation *op) const {
  const Variable &variable = variableOf(op);
  return variable.choices[solution[variable.id]];
}

int ShardingProblem::getDim(Value value) const {
  const Variable &variable = variableOf(value);
  return foundAt(variable.choices[solution[variable.id]]);
}
