//===- ChunkExperts.cpp - Experts in chunks of tokens ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each of a token's k choices is a row of its own between the grouped matmuls
// of a layer, and ranks that split experts have the rows of all their tokens:
// that is ep · k times as much as one activation. What follows of a token does
// not depend on others, so that some tokens can be computed at a time, as Jin
// et al. 2025 ("Arctic Long Sequence Training") tile an MLP.
//
//   gather -> grouped matmuls and what lies between -> sum over choices ->
//   scatter
//
// From a grouped matmul on ops are taken in both directions, as long as values
// have a row for each choice, or are gathered. They are repeated for each chunk
// (ChunkedOps.h); gathers and scatters then are of one chunk, too. Backward
// functions have such a part as well, and what the forward pass has computed of
// rows is part of it, since it is computed again (Checkpoint.cpp).
//
//===----------------------------------------------------------------------===//

#include "../Remarks.h"
#include "ChunkedOps.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plait/IR/ExpertChunks.h"
#include "plait/Support/LossChunks.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace plait;

static ArrayRef<int64_t> shapeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

namespace {

/// Holds what belongs to one grouped matmul.
class Experts {
public:
  Experts(GroupedOpInterface matmul, bool isProfile)
      : matmul(matmul), isProfile(isProfile) {}

  bool contains(Operation *op) const { return experts.ops.contains(op); }
  /// Finds ops, rows and results; else says what is in the way.
  std::optional<std::string> analyze();
  /// Splits them into as many chunks, or the next smaller number that divides
  /// the tokens.
  void split(int64_t asked);

private:
  std::optional<std::string> findTokens();
  bool isWide(Value value) const;
  bool include(Operation *op, Value value, bool isResult);
  bool growFrom(Operation *op);

  GroupedOpInterface matmul;
  bool isProfile;
  /// The extents of a rank's own tokens, and of those that the experts take.
  SmallVector<int64_t> own, taken;
  int64_t rowDim = 0, tokens = 1; // that are cut, and how many
  /// The dimension of the tokens of all values that have some.
  llvm::DenseMap<Value, int64_t> dims;
  ChunkedOps experts;
};

} // namespace

/// Treats rows alike, or says that it does not. A gather or scatter of other
/// dimensions does.
static bool isTransparent(Operation *op) {
  return isa<FusableOpInterface, DecomposableOpInterface,
             dist::CollectiveOpInterface>(op) &&
         op->getNumResults() == 1;
}

/// Choices are the last dimension of ids, tokens the ones before. Those of all
/// ranks lie one behind the other along what is gathered, of which a chunk
/// would have some of each.
std::optional<std::string> Experts::findTokens() {
  Value ids = matmul.getIds();
  taken.assign(shapeOf(ids).drop_back().begin(),
               shapeOf(ids).drop_back().end());
  auto gather = ids.getDefiningOp<dist::AllGatherOp>();
  ArrayRef<int64_t> before =
      gather ? shapeOf(gather.getInput()).drop_back() : ArrayRef(taken);
  own.assign(before.begin(), before.end());
  auto *cut = llvm::find_if(own, [](int64_t extent) { return extent > 1; });
  if (isProfile && !own.empty())
    cut = own.end() - 1;
  if (cut == own.end())
    return std::nullopt;
  rowDim = cut - own.begin();
  tokens = *cut;
  if (*cut == taken[rowDim])
    return std::nullopt;
  return "ranks of \"" + gather.getAxis().str() + "\" gather " +
         std::to_string(tokens) +
         " sequences each, and tokens of one alone can be cut; expected "
         "`micro-batch` 1";
}

/// Whether a value has a row for each choice, or tokens of other ranks.
bool Experts::isWide(Value value) const {
  ArrayRef<int64_t> shape = shapeOf(value);
  if (shape.size() > taken.size() + 1)
    return true;
  return own != taken && shape.size() >= taken.size() &&
         shape.take_front(taken.size()) == ArrayRef(taken);
}

/// Takes an op in by the dimension of the tokens of one of its operands or
/// results; false: it has none of them.
bool Experts::include(Operation *op, Value value, bool isResult) {
  std::optional<FactorRule> rule = findFactorRule(op);
  if (!rule || (!isTransparent(op) && !isa<GroupedOpInterface>(op)))
    return false;
  int factor = FactorRule::kNone;
  auto find = [&](ValueRange values, ArrayRef<FactorRule::DimFactors> factors) {
    for (auto [other, along] : llvm::zip_equal(values, factors))
      if (other == value)
        factor = along[dims.lookup(value)];
  };
  isResult ? find(op->getResults(), rule->results)
           : find(op->getOperands(), rule->operands);
  if (factor == FactorRule::kNone)
    return false;
  auto note = [&](ValueRange values, ArrayRef<FactorRule::DimFactors> factors) {
    for (auto [other, along] : llvm::zip_equal(values, factors))
      if (int64_t dim = findDim(along, factor); dim >= 0)
        dims.try_emplace(other, dim);
  };
  note(op->getOperands(), rule->operands);
  note(op->getResults(), rule->results);
  return experts.ops.insert(op);
}

/// Takes in who uses what is wide, and what makes it for these ops alone.
bool Experts::growFrom(Operation *op) {
  bool hasGrown = false;
  for (Value result : op->getResults())
    if (dims.contains(result) && isWide(result))
      for (Operation *user : result.getUsers())
        hasGrown |= !contains(user) && include(user, result, false);
  for (Value operand : op->getOperands()) {
    Operation *maker = operand.getDefiningOp();
    if (!maker || contains(maker) || !dims.contains(operand) ||
        !isWide(operand))
      continue;
    bool isOwn = isa<GroupedOpInterface>(maker) ||
                 llvm::all_of(maker->getUsers(),
                              [&](Operation *user) { return contains(user); });
    hasGrown |= isOwn && include(maker, operand, true);
  }
  return hasGrown;
}

/// 1. The tokens.
/// 2. The ops: until none is found.
/// 3. Their rows and results.
std::optional<std::string> Experts::analyze() {
  // 1.
  if (auto problem = findTokens())
    return problem;
  // 2.
  dims[matmul.getIds()] = rowDim;
  include(matmul, matmul.getIds(), false);
  for (bool hasGrown = true; hasGrown;) {
    hasGrown = false;
    for (size_t index = 0; index < experts.ops.size(); ++index)
      hasGrown |= growFrom(experts.ops[index]);
  }
  experts.sort();
  // 3.
  for (Operation *op : experts.ops)
    if (auto problem = experts.findRows(
            op, rowDim, [&](Value value) { return dims.contains(value); })) {
      auto collective = dyn_cast<dist::CollectiveOpInterface>(op);
      return collective ? "ranks of \"" + collective.getAxis().str() +
                              "\" have parts of each sequence around them, as "
                              "with `sequence-parallel`"
                        : *problem;
    }
  return experts.findResults(
      [&](Value result) -> std::optional<std::string> {
        if (dims.contains(result) && isWide(result))
          return "rows of all tokens are kept for later, as where a `schedule` "
                 "splits the backward pass";
        return std::nullopt;
      },
      /*mayLieApart=*/isProfile);
}

void Experts::split(int64_t asked) {
  int64_t parts = countLossChunks(tokens, asked);
  remark::passed(matmul.getLoc(), about(matmul, "experts", "nn-chunk-loss"))
      << remark::add("{0} ops of experts are computed in {1} chunks of tokens",
                     experts.ops.size(), parts);
  if (parts > 1)
    experts.split(parts);
}

/// Finds the experts of one function, layer by layer.
static LogicalResult find(func::FuncOp function, int64_t asked,
                          std::vector<Experts> &found) {
  bool isProfile = plait::isProfile(function->getParentOfType<ModuleOp>());
  for (auto matmul : function.getBody().front().getOps<GroupedOpInterface>()) {
    if (llvm::any_of(found, [&](const Experts &experts) {
          return experts.contains(matmul);
        }))
      continue;
    found.emplace_back(matmul, isProfile);
    if (auto problem = found.back().analyze())
      return matmul.emitError("experts are asked for in ")
             << asked << " chunks (`expert-chunks`), but " << *problem;
  }
  return success();
}

LogicalResult plait::chunkExperts(ModuleOp module) {
  int64_t asked = getExpertChunks(module);
  if (asked == 1)
    return success();
  std::vector<Experts> found;
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.getBody().empty() && failed(find(function, asked, found)))
      return failure();
  if (found.empty() && !isProfile(module))
    return module.emitError("experts are asked for in ")
           << asked << " chunks (`expert-chunks`), but the model has none";
  for (Experts &experts : found)
    experts.split(asked);
  return success();
}
