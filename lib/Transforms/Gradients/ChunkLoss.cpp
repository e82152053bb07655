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
// and leads to the loss. All ops of it are repeated for each chunk
// (ChunkedOps.h). Nothing is changed before all of this is known to hold.
//
//===----------------------------------------------------------------------===//

#include "../Remarks.h"
#include "ChunkedOps.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Support/LossChunks.h"
#include "plait/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace plait {
#define GEN_PASS_DEF_CHUNKLOSSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {

/// The head that begins with one matmul.
class Head {
public:
  explicit Head(ContractionOpInterface matmul)
      : matmul(matmul), shape(matmul.getResultType().getShape()) {}

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
  std::optional<std::string> findRows(Operation *op) {
    return head.findRows(op, rowDim,
                         [&](Value value) { return isWide(value); });
  }
  void addRowOps(const OpSet &others);

  ContractionOpInterface matmul;
  SmallVector<int64_t> shape; // of logits
  int64_t rowDim = 0;         // of them
  OpSet reached;
  ChunkedOps head;
};

} // namespace

/// Ops that treat rows alike, or say that they do not. A sum over ranks is one
/// of elements.
static bool isTransparent(Operation *op) {
  return isa<FusableOpInterface, dist::AllReduceOp>(op);
}

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
  Value input = matmul->getOperand(!matmul.getLhsLetters().contains(row));
  if (cast<RankedTensorType>(input.getType()).getNumElements() >=
      matmul.getResultType().getNumElements())
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
    auto isOwn = [&](Operation *user) { return head.ops.contains(user); };
    if (reached.contains(&op)
            ? touchesWide(&op) ||
                  (isTransparent(&op) && llvm::any_of(op.getUsers(), isOwn))
            : makesWide(&op) && !op.use_empty() &&
                  llvm::all_of(op.getUsers(), isOwn))
      head.ops.insert(&op);
  }
  head.sort();
}

/// Takes in what makes numbers of rows out of numbers of rows, such as the loss
/// of each: one number a row leaves the head, not several.
void Head::addRowOps(const OpSet &others) {
  auto isKnown = [&](Value value) { return head.rows.contains(value); };
  auto isOutside = [&](Value value) {
    return !value.getDefiningOp() || !reached.contains(value.getDefiningOp());
  };
  for (Operation &op : *matmul->getBlock()) {
    if (!reached.contains(&op) || head.ops.contains(&op) ||
        others.contains(&op) || !isa<FusableOpInterface>(op) ||
        !isa<ShardableOpInterface>(op) ||
        !llvm::any_of(op.getOperands(), isKnown) ||
        !llvm::all_of(op.getOperands(), [&](Value operand) {
          return isKnown(operand) ? head.rows.lookup(operand) >= 0
                                  : isOutside(operand);
        }))
      continue;
    Value result = op.getResult(0);
    if (!findRows(&op) && head.rows.lookup(result) >= 0) {
      head.ops.insert(&op);
      continue;
    }
    head.rows.erase(result);
    for (OpOperand &operand : op.getOpOperands())
      head.inputs.erase(&operand);
  }
  head.sort();
}

/// 1. The ops, and their rows.
/// 2. Results, and what leads to them and from them.
std::optional<std::string> Head::analyze(const OpSet &others) {
  // 1.
  findOps();
  for (Operation *op : head.ops) {
    if (others.contains(op))
      return "other logits lead to the same";
    if (auto problem = findRows(op))
      return problem;
  }
  addRowOps(others);
  // 2.
  return head.findResults([&](Value result) -> std::optional<std::string> {
    if (isWide(result))
      return "all of a tensor as large as the logits is needed elsewhere";
    return std::nullopt;
  });
}

void Head::split(int64_t asked) {
  int64_t parts = countLossChunks(shape[rowDim], asked);
  remark::passed(matmul.getLoc(), about(matmul, "loss", "nn-chunk-loss"))
      << remark::add("logits are computed in {0} chunks of rows", parts);
  if (parts > 1)
    head.split(parts);
}

namespace {
struct ChunkLossPass : plait::impl::ChunkLossPassBase<ChunkLossPass> {
  using ChunkLossPassBase::ChunkLossPassBase;

  /// Finds the heads of one function, each of which begins with a matmul.
  std::vector<Head> findHeads(func::FuncOp function) {
    std::vector<Head> found, heads;
    for (auto op : function.getBody().front().getOps<ContractionOpInterface>())
      if (Head head(op); op.contractsOnly() && head.isFound())
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

  /// Experts first: what they are made of is no head.
  void runOnOperation() override {
    if (failed(chunkExperts(getOperation())))
      return signalPassFailure();
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
