//===- ChunkLoss.cpp - Logits in chunks of rows ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// At the end of the forward pass a matmul makes logits, tokens by vocabulary,
// often the largest tensor of a step. A loss and a gradient follow from each of
// its rows alone, so that rows can be computed some at a time (Hsu et al. 2024,
// "Liger Kernel", and Wijmans et al. 2024, "Cut Your Losses", do that in
// kernels of their own).
//
//   rows -> matmul -> wide ops, and numbers of rows between them -> matmuls
//           \________________ the head ___________________________________/
//
// The head is found by its structure: the ops that have a tensor as wide as the
// logits, and those between them. It begins with one matmul, ends in others,
// and leads to the loss. Which dimension of which value are its rows follows
// from the ops' factors (FactorRule.h). All ops of it are repeated for each
// chunk; a result without rows is a sum over them, and the chunks' are added
// up. Nothing is changed before all of this is known to hold.
//
//===----------------------------------------------------------------------===//

#include "../Remarks.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Support/LossChunks.h"
#include "plait/Transforms/Names.h"
#include "plait/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace plait {
#define GEN_PASS_DEF_CHUNKLOSSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

using OpSet = llvm::SetVector<Operation *>;

namespace {

/// The head that begins with one matmul.
class Head {
public:
  explicit Head(nn::MatmulOp matmul)
      : matmul(matmul), shape(matmul.getType().getShape()) {}

  /// Whether the loss follows without another matmul, from a tensor larger than
  /// what it is made of.
  bool isFound();
  /// Returns what follows from the matmul without another one.
  const OpSet &getReached() const { return reached; }
  /// Finds ops, rows and results; else says what is in the way. What `others`
  /// have reached too is theirs as much as this one's.
  std::optional<std::string> analyze(const OpSet &others);
  /// Splits it into as many chunks, or the next smaller number that divides the
  /// rows.
  void split(int64_t asked);
  /// Says why it is not split.
  void tell(StringRef problem) {
    remark::missed(matmul.getLoc(), about(matmul, "loss", "nn-chunk-loss"))
        << remark::add("{0}", problem.str());
  }

private:
  /// The dimension of the rows of values of the head; -1: they are sums over
  /// rows.
  using RowDims = llvm::MapVector<Value, int64_t>;

  bool isWide(Value value) const {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return type && type.getShape() == ArrayRef(shape);
  }
  bool touchesWide(Operation *op) const {
    auto wide = [&](Value value) { return isWide(value); };
    return llvm::any_of(op->getOperands(), wide) ||
           llvm::any_of(op->getResults(), wide);
  }
  OpSet findReached() const;
  void findOps();
  void sortOps();
  std::optional<std::string> findRows(Operation *op);
  std::optional<std::string> checkResult(Value result);
  std::optional<std::string> checkInputs();
  void addRowOps(const OpSet &others);
  void moveUsers();
  IRMapping cloneChunk(OpBuilder &builder, int64_t part, int64_t parts);

  nn::MatmulOp matmul;
  SmallVector<int64_t> shape; // of logits
  int64_t rowDim = 0;         // of them
  OpSet reached;
  OpSet ops; // in the order of the function
  RowDims rows;
  /// The dimension of the rows of what the head takes; -1: it has none.
  llvm::MapVector<OpOperand *, int64_t> inputs;
  SmallVector<Value> results; // that others take
};

} // namespace

/// Ops that treat rows alike, or say that they do not. A sum over ranks is one
/// of elements.
static bool isTransparent(Operation *op) {
  return isa<FusableOpInterface, dist::AllReduceOp>(op);
}

static bool isMatmul(Operation *op) { return isa<nn::MatmulOp>(op); }

/// All that the matmul leads to without another one. Matmuls are among it, what
/// follows from them is not.
OpSet Head::findReached() const {
  OpSet found;
  found.insert(matmul);
  for (size_t index = 0; index < found.size(); ++index) {
    Operation *op = found[index];
    if (op == matmul || isTransparent(op))
      found.insert(op->user_begin(), op->user_end());
  }
  return found;
}

bool Head::isFound() {
  auto *first = llvm::find_if(shape, [](int64_t extent) { return extent > 1; });
  if (first == shape.end())
    return false;
  rowDim = first - shape.begin();
  char row = matmul.getResultLetters()[rowDim];
  Value input =
      matmul.getLhsLetters().contains(row) ? matmul.getLhs() : matmul.getRhs();
  if (cast<RankedTensorType>(input.getType()).getNumElements() >=
      matmul.getType().getNumElements())
    return false;
  reached = findReached();
  return llvm::any_of(reached, [](Operation *op) {
    auto access = dyn_cast<SlotOpInterface>(op);
    return access && access.getAccess() == nn::SlotAccess::Add &&
           access.getSymbol() == kLossSum;
  });
}

/// Finds, of what is reached, ops with a wide tensor and what leads to such an
/// op; of the rest what makes a wide operand for those: it is repeated as well.
void Head::findOps() {
  Block &body = *matmul->getBlock();
  auto makesWide = [&](Operation *op) {
    return isa<FusableOpInterface>(op) && isWide(op->getResult(0));
  };
  for (Operation &op : llvm::reverse(body.without_terminator())) {
    auto isOwn = [&](Operation *user) { return ops.contains(user); };
    if (reached.contains(&op)
            ? touchesWide(&op) ||
                  (isTransparent(&op) && llvm::any_of(op.getUsers(), isOwn))
            : makesWide(&op) && !op.use_empty() &&
                  llvm::all_of(op.getUsers(), isOwn))
      ops.insert(&op);
  }
  sortOps();
}

/// Brings the ops into the order of the function.
void Head::sortOps() {
  SmallVector<Operation *> sorted = ops.takeVector();
  llvm::sort(sorted,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  ops.insert(sorted.begin(), sorted.end());
}

/// Which dimensions of operands and results have the rows, by the factor that
/// those that are known run along.
std::optional<std::string> Head::findRows(Operation *op) {
  std::string name = op->getName().getStringRef().str();
  FactorRule rule;
  if (auto reduce = dyn_cast<dist::AllReduceOp>(op))
    rule = nn::elementwiseRule(reduce);
  else if (auto shardable = dyn_cast<ShardableOpInterface>(op))
    rule = shardable.getFactorRule();
  else
    return "'" + name + "' does not say how its dimensions go together";
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
    if (isWide(result))
      take(rule.results[index], rowDim);
  if (!agrees || factor == FactorRule::kNone)
    return "'" + name + "' mixes rows";
  const Factor &along = rule.factors[factor];
  if (along.kind == FactorKind::Whole || along.kind == FactorKind::Max ||
      along.inOrder || along.isCounted)
    return "'" + name + "' needs all rows, or counts them";
  auto find = [&](const FactorRule::DimFactors &dims) {
    auto *at = llvm::find(dims, factor);
    return at == dims.end() ? int64_t(-1) : int64_t(at - dims.begin());
  };
  for (OpOperand &operand : op->getOpOperands()) {
    if (rows.contains(operand.get()))
      continue;
    int64_t dim = find(rule.operands[operand.getOperandNumber()]);
    if (dim >= 0 && dim != rowDim)
      return "rows are another dimension of what '" + name + "' takes";
    inputs[&operand] = dim;
  }
  for (auto [index, result] : llvm::enumerate(op->getResults()))
    rows[result] = find(rule.results[index]);
  return std::nullopt;
}

/// Results of the head are put together where rows lie one behind the other, or
/// added up in f32.
std::optional<std::string> Head::checkResult(Value result) {
  if (isWide(result))
    return "all of a tensor as large as the logits is needed elsewhere";
  auto type = cast<RankedTensorType>(result.getType());
  int64_t dim = rows[result];
  if (dim < 0 && !type.getElementType().isF32())
    return "a sum over rows is not in f32";
  if (dim > 0 &&
      ShapedType::getNumElements(type.getShape().take_front(dim)) != 1)
    return "rows of a result are not one behind the other";
  return std::nullopt;
}

/// Refuses a head that takes what follows from what it gives.
std::optional<std::string> Head::checkInputs() {
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

/// Takes in what makes numbers of rows out of numbers of rows, such as the loss
/// of each: one number a row leaves the head, not several.
void Head::addRowOps(const OpSet &others) {
  auto isKnown = [&](Value value) { return rows.contains(value); };
  auto isOutside = [&](Value value) {
    return !value.getDefiningOp() || !reached.contains(value.getDefiningOp());
  };
  for (Operation &op : *matmul->getBlock()) {
    if (!reached.contains(&op) || ops.contains(&op) || others.contains(&op) ||
        !isa<FusableOpInterface>(op) || !isa<ShardableOpInterface>(op) ||
        !llvm::any_of(op.getOperands(), isKnown) ||
        !llvm::all_of(op.getOperands(), [&](Value operand) {
          return isKnown(operand) ? rows.lookup(operand) >= 0
                                  : isOutside(operand);
        }))
      continue;
    Value result = op.getResult(0);
    if (!findRows(&op) && rows.lookup(result) >= 0) {
      ops.insert(&op);
      continue;
    }
    rows.erase(result);
    for (OpOperand &operand : op.getOpOperands())
      inputs.erase(&operand);
  }
  sortOps();
}

/// 1. The ops, and their rows.
/// 2. Results, and what leads to them and from them.
std::optional<std::string> Head::analyze(const OpSet &others) {
  // 1.
  findOps();
  for (Operation *op : ops) {
    if (others.contains(op))
      return "other logits lead to the same";
    if (auto problem = findRows(op))
      return problem;
  }
  addRowOps(others);
  // 2.
  for (auto &[value, dim] : rows) {
    bool isTaken = llvm::any_of(
        value.getUsers(), [&](Operation *user) { return !ops.contains(user); });
    if (!isTaken)
      continue;
    if (auto problem = checkResult(value))
      return problem;
    results.push_back(value);
  }
  return checkInputs();
}

//===----------------------------------------------------------------------===//
// Splitting
//===----------------------------------------------------------------------===//

/// Moves what follows from the head, and stands between its ops, behind it.
void Head::moveUsers() {
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

/// Repeats the head for one chunk of rows.
IRMapping Head::cloneChunk(OpBuilder &builder, int64_t part, int64_t parts) {
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

/// 1. Users are moved behind the head.
/// 2. Each chunk is computed, and adds its sums.
/// 3. The results take the places of the whole ones, and these go.
void Head::split(int64_t asked) {
  int64_t parts = countLossChunks(shape[rowDim], asked);
  remark::passed(matmul.getLoc(), about(matmul, "loss", "nn-chunk-loss"))
      << remark::add("logits are computed in {0} chunks of rows", parts);
  if (parts == 1)
    return;
  // 1.
  moveUsers();
  OpBuilder builder(matmul->getContext());
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
  for (auto &[whole, own] : chunks) {
    if (rows[whole] < 0 && isAccumulated(whole)) {
      for (Operation *user : llvm::to_vector(whole.getUsers()))
        user->erase();
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
  for (Operation *op : llvm::reverse(ops))
    op->erase();
}

namespace {
struct ChunkLossPass : plait::impl::ChunkLossPassBase<ChunkLossPass> {
  using ChunkLossPassBase::ChunkLossPassBase;

  /// Finds the heads of one function, each of which begins with a matmul.
  std::vector<Head> findHeads(func::FuncOp function) {
    std::vector<Head> found, heads;
    for (auto matmul : function.getBody().front().getOps<nn::MatmulOp>())
      if (Head head(matmul); head.isFound())
        found.push_back(std::move(head));
    std::vector<std::optional<std::string>> problems;
    for (Head &head : found) {
      OpSet others;
      for (Head &other : found)
        if (&other != &head)
          others.insert_range(other.getReached());
      problems.push_back(head.analyze(others));
    }
    for (auto [head, problem] : llvm::zip_equal(found, problems))
      if (problem)
        head.tell(*problem);
      else
        heads.push_back(std::move(head));
    return heads;
  }

  void runOnOperation() override {
    int64_t asked = getConfiguration(getOperation()).lossChunks;
    if (asked == 1)
      return;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.getBody().empty())
        continue;
      // All are found before one is split: their ops are different ones.
      for (Head &head : findHeads(function))
        head.split(asked);
    }
  }
};
} // namespace
