//===- ChunkedOps.cpp - Ops repeated for chunks of rows -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which dimension of which value are rows follows from the ops' factors
// (FactorRule.h). A result without rows is a sum over them, and the chunks' are
// added up.
//
//===----------------------------------------------------------------------===//

#include "ChunkedOps.h"

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"

using namespace mlir;
using namespace plait;

/// Other dimensions stay as they are, whoever has the parts of one.
static FactorRule getMoveRule(Operation *op) {
  FactorRule rule;
  auto from = cast<RankedTensorType>(op->getOperand(0).getType());
  auto to = cast<RankedTensorType>(op->getResult(0).getType());
  FactorRule::DimFactors dims;
  for (auto [before, after] : llvm::zip_equal(from.getShape(), to.getShape()))
    dims.push_back(rule.add(
        "moved", before == after ? FactorKind::Parallel : FactorKind::Whole,
        before));
  rule.operands.push_back(dims);
  rule.results.push_back(dims);
  return rule;
}

std::optional<FactorRule> plait::findFactorRule(Operation *op) {
  if (isa<dist::CollectiveOpInterface>(op))
    return getMoveRule(op);
  if (auto shardable = dyn_cast<ShardableOpInterface>(op))
    return shardable.getFactorRule();
  return std::nullopt;
}

int64_t plait::findDim(const FactorRule::DimFactors &dims, int factor) {
  auto *at = llvm::find(dims, factor);
  return at == dims.end() ? -1 : at - dims.begin();
}

static bool areRowsJoined(Value value, int64_t dim) {
  auto shape = cast<RankedTensorType>(value.getType()).getShape();
  return ShapedType::getNumElements(shape.take_front(dim)) == 1;
}

void ChunkedOps::sort() {
  SmallVector<Operation *> sorted = ops.takeVector();
  llvm::sort(sorted,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  ops.insert(sorted.begin(), sorted.end());
}

std::optional<std::string>
ChunkedOps::findRows(Operation *op, int64_t rowDim,
                     llvm::function_ref<bool(Value)> hasRows) {
  std::string name = op->getName().getStringRef().str();
  std::optional<FactorRule> found = findFactorRule(op);
  if (!found)
    return "'" + name + "' does not say how its dimensions go together";
  const FactorRule &rule = *found;
  int factor = FactorRule::kNone;
  bool agrees = true;
  auto take = [&](const FactorRule::DimFactors &dims, int64_t dim) {
    int own = dim >= 0 ? dims[dim] : FactorRule::kNone;
    agrees &= own != FactorRule::kNone &&
              (factor == FactorRule::kNone || factor == own);
    factor = own;
  };
  for (auto [index, operand] : llvm::enumerate(op->getOperands()))
    if (auto known = rows.find(operand); known != rows.end())
      take(rule.operands[index], known->second);
  for (auto [index, result] : llvm::enumerate(op->getResults()))
    if (hasRows(result))
      take(rule.results[index], rowDim);
  if (!agrees || factor == FactorRule::kNone)
    return "'" + name + "' mixes rows";
  const Factor &along = rule.factors[factor];
  if (along.kind == FactorKind::Whole || along.kind == FactorKind::Max ||
      along.inOrder || along.isCounted)
    return "'" + name + "' needs all rows, or counts them";
  for (OpOperand &operand : op->getOpOperands()) {
    if (rows.contains(operand.get()))
      continue;
    int64_t dim = findDim(rule.operands[operand.getOperandNumber()], factor);
    if (dim >= 0 && dim != rowDim)
      return "rows are another dimension of what '" + name + "' takes";
    inputs[&operand] = dim;
  }
  for (auto [index, result] : llvm::enumerate(op->getResults()))
    rows[result] = findDim(rule.results[index], factor);
  return std::nullopt;
}

/// Results are put together where rows lie one behind the other, or added up in
/// f32.
static std::optional<std::string> checkResult(Value result, int64_t dim,
                                              bool mayLieApart) {
  if (dim >= 0)
    return mayLieApart || areRowsJoined(result, dim)
               ? std::nullopt
               : std::optional("rows of a result are not one behind the other");
  if (!getElementTypeOrSelf(result).isF32())
    return "a sum over rows is not in f32";
  return std::nullopt;
}

std::optional<std::string> ChunkedOps::findResults(
    llvm::function_ref<std::optional<std::string>(Value)> check,
    bool mayLieApart) {
  for (auto &[value, dim] : rows) {
    bool isTaken = llvm::any_of(
        value.getUsers(), [&](Operation *user) { return !ops.contains(user); });
    if (!isTaken)
      continue;
    if (auto problem = check(value))
      return problem;
    if (auto problem = checkResult(value, dim, mayLieApart))
      return problem;
    results.push_back(value);
  }
  return checkInputs();
}

/// Refuses ops that take what follows from what they give.
std::optional<std::string> ChunkedOps::checkInputs() {
  OpSet later;
  for (Value result : results)
    for (Operation *user : result.getUsers())
      if (!ops.contains(user))
        later.insert(user);
  for (size_t index = 0; index < later.size(); ++index)
    for (Operation *user : later[index]->getUsers()) {
      if (ops.contains(user))
        return "what follows from it leads back to it";
      later.insert(user);
    }
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Splitting
//===----------------------------------------------------------------------===//

/// Moves what follows from the ops, and stands between them, behind them.
void ChunkedOps::moveUsers() {
  OpSet later;
  Operation *end = ops.back();
  for (Operation *op = ops.front(); op != end; op = op->getNextNode())
    if (!ops.contains(op) &&
        llvm::any_of(op->getOperands(), [&](Value operand) {
          return rows.contains(operand) ||
                 later.contains(operand.getDefiningOp());
        }))
      later.insert(op);
  for (Operation *op : llvm::reverse(later))
    op->moveAfter(end);
}

/// The type of `parts` equal parts of a dimension.
static RankedTensorType divide(Type type, int64_t dim, int64_t parts) {
  auto whole = cast<RankedTensorType>(type);
  SmallVector<int64_t> shape(whole.getShape());
  shape[dim] /= parts;
  return whole.clone(shape);
}

/// Repeats the ops for one chunk of rows.
IRMapping ChunkedOps::cloneChunk(OpBuilder &builder, int64_t part,
                                 int64_t parts) {
  IRMapping mapping;
  // By the dimension too: of one value different ops may take different ones.
  llvm::DenseMap<std::pair<Value, int64_t>, Value> chunks;
  for (Operation *op : ops) {
    for (OpOperand &operand : op->getOpOperands()) {
      auto input = inputs.find(&operand);
      if (input == inputs.end() || input->second < 0)
        continue;
      Value &chunk = chunks[{operand.get(), input->second}];
      if (!chunk)
        chunk = nn::ChunkOp::create(
            builder, op->getLoc(),
            divide(operand.get().getType(), input->second, parts),
            operand.get(), input->second, part, parts);
    }
    Operation *own = builder.clone(*op, mapping);
    for (OpOperand &operand : op->getOpOperands())
      if (auto input = inputs.find(&operand);
          input != inputs.end() && input->second >= 0)
        own->setOperand(operand.getOperandNumber(),
                        chunks[{operand.get(), input->second}]);
    for (auto [whole, result] :
         llvm::zip_equal(op->getResults(), own->getResults()))
      if (rows[whole] >= 0)
        result.setType(divide(whole.getType(), rows[whole], parts));
  }
  return mapping;
}

/// Whether the value is only added to slots: each chunk then adds its own, so
/// that none has to be kept.
static bool isAccumulated(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    return nn::getSlotAccess(user) == nn::SlotAccess::Add;
  });
}

/// Adds what a chunk has of a sum over rows to slots, or to the chunks before.
static Value addUp(OpBuilder &builder, Value whole, Value chunk, Value before) {
  if (!isAccumulated(whole))
    return before ? nn::AddOp::create(builder, whole.getLoc(), whole.getType(),
                                      before, chunk)
                        .getResult()
                  : chunk;
  for (Operation *user : llvm::to_vector(whole.getUsers()))
    builder.clone(*user)->replaceUsesOfWith(whole, chunk);
  return chunk;
}

/// 1. Users are moved behind the ops.
/// 2. Each chunk is computed, and adds its sums.
/// 3. The results take the places of the whole ones, and these go.
void ChunkedOps::split(int64_t parts) {
  // 1.
  moveUsers();
  OpBuilder builder(ops.back()->getContext());
  builder.setInsertionPointAfter(ops.back());
  // 2.
  llvm::MapVector<Value, SmallVector<Value>> chunks;
  for (int64_t part = 0; part < parts; ++part) {
    IRMapping mapping = cloneChunk(builder, part, parts);
    for (Value whole : results) {
      SmallVector<Value> &own = chunks[whole];
      if (Value chunk = mapping.lookup(whole); rows[whole] >= 0)
        own.push_back(chunk);
      else
        own = {addUp(builder, whole, chunk, own.empty() ? Value() : own[0])};
    }
  }
  // 3.
  OpSet replaced(ops.begin(), ops.end());
  for (auto &[whole, own] : chunks) {
    if (rows[whole] < 0 && isAccumulated(whole)) {
      replaced.insert(whole.user_begin(), whole.user_end());
      continue;
    }
    Value result = rows[whole] < 0
                       ? own[0]
                       : nn::ConcatOp::create(builder, whole.getLoc(),
                                              whole.getType(), own, rows[whole])
                             .getResult();
    whole.replaceUsesWithIf(
        result, [&](OpOperand &use) { return !ops.contains(use.getOwner()); });
  }
  for (Operation *op : llvm::reverse(replaced))
    op->erase();
}
