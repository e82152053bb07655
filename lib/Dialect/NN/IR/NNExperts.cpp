//===- NNExperts.cpp - Mixtures of experts --------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Everything about the two ops of a mixture of experts (Shazeer et al. 2017,
// "Outrageously Large Neural Networks"): verifiers, factors, costs, gradients,
// and what routing decomposes into.
//
// No op orders tokens by expert: what an expert layer computes of a token does
// not depend on where others go. So its dimensions are those of the tokens, and
// split as they do; how a rank sorts its rows is the matter of who computes
// them (Runtime/CPU/GroupedGemm.h).
//
//===----------------------------------------------------------------------===//

#include "Constraints.h"
#include "LetterRule.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NNBuilder.h"
#include "plait/Plan/GroupedGemm.h"

#include "llvm/ADT/Sequence.h"

using namespace mlir;
using namespace plait;
using namespace plait::nn;

using Values = SmallVector<Value>;

//===----------------------------------------------------------------------===//
// GroupedMatmulOp
//===----------------------------------------------------------------------===//

/// The letter of experts is one of rhs or of the result.
bool GroupedMatmulOp::makesMatrices() {
  StringRef rhs = getRhsLetters();
  return !rhs.empty() && (getLhsLetters().contains(rhs.front()) ||
                          getResultLetters().contains(rhs.front()));
}

StringRef GroupedMatmulOp::getRowLetters() {
  return makesMatrices() ? getRhsLetters() : getResultLetters();
}

StringRef GroupedMatmulOp::getMatrixLetters() {
  return makesMatrices() ? getResultLetters() : getRhsLetters();
}

/// (C3)
static LogicalResult verifyMatrices(GroupedMatmulOp op) {
  StringRef matrices = op.getMatrixLetters(), rows = op.getRowLetters(),
            lhs = op.getLhsLetters();
  bool fits = matrices.size() == 3 && !rows.empty() && !lhs.empty();
  if (fits) {
    char inner = lhs.back(), outer = rows.back();
    bool isPlain = matrices[1] == inner && matrices[2] == outer;
    bool isTransposed = matrices[1] == outer && matrices[2] == inner;
    fits = !lhs.contains(matrices[0]) && !rows.contains(matrices[0]) &&
           (isPlain || isTransposed) && !rows.contains(inner) &&
           !lhs.contains(outer);
  }
  if (fits)
    return success();
  return op.emitOpError("spec \"")
         << op.getSpec() << "\" has no matrices of experts, expected three "
         << "letters in the second operand or in the result: one of its own, "
         << "the last one of the first operand and the last one of the rows";
}

/// (C4), (C5)
static LogicalResult verifyRows(GroupedMatmulOp op) {
  StringRef ids = op.getIdLetters(), lhs = op.getLhsLetters().drop_back();
  if (!ids.starts_with(lhs))
    return op.emitOpError("spec \"")
           << op.getSpec() << "\" has rows '" << lhs << "' in the first "
           << "operand, expected '" << ids << "' or some first ones of them";
  ArrayRef<int64_t> rows =
      shapeOf(op.makesMatrices() ? Value(op.getRhs()) : op.getResult());
  if (shapeOf(op.getIds()) != rows.drop_back())
    return op.emitOpError("has ids ")
           << op.getIds().getType() << " for rows of "
           << (op.makesMatrices() ? op.getRhs().getType()
                                  : op.getResult().getType());
  return success();
}

LogicalResult GroupedMatmulOp::verify() {
  // (C1), (C2)
  if (failed(verifyLetters(*this)) || failed(verifyMatrices(*this)) ||
      failed(verifyRows(*this)))
    return failure();
  // (C6)
  if (failed(verifySum(*this, getLhs(), getResult())))
    return failure();
  // (C7)
  return verifyRowLimit(*this, getBeginAttr(), getLimit());
}

/// A letter is a factor, as in a matmul. Where the matrices are multiplied
/// with, a rank that has some of the experts gives zeros for rows of others:
/// each row is whole on one rank, and the sum over ranks is the result. Which
/// experts have many rows is not known.
FactorRule GroupedMatmulOp::getFactorRule() {
  FactorRule rule =
      getLetterRule(*this, {getLhsLetters(), getRhsLetters(), getIdLetters()});
  StringRef experts = getMatrixLetters().take_front();
  Factor &factor = *llvm::find_if(
      rule.factors, [&](const Factor &own) { return own.name == experts; });
  factor.name = "expert";
  factor.inOrder = factor.isCounted = factor.ownsRows = true;
  factor.isBalanced = false;
  return rule;
}

/// Tells the op which experts the rank has.
void GroupedMatmulOp::localizeFactor(int factor, ArrayRef<RankTerm> begin,
                                     int64_t limit) {
  if (!getFactorRule().factors[factor].isCounted)
    return;
  setBeginAttr(BeginAttr::get(getContext(), begin));
  setLimit(limit);
}

/// Returns the experts of all ranks among whose ids the op finds its own.
static int64_t countAllExperts(GroupedMatmulOp op) {
  if (op.getLimit())
    return op.getLimit();
  int64_t all = op.countExperts();
  dist::MeshOp mesh = dist::MeshOp::find(op);
  if (std::optional<BeginAttr> begin = op.getBegin(); begin && mesh)
    for (RankTerm term : begin->getTerms())
      all *= mesh.getBlocks(ArrayAttr::get(op.getContext(), {term.axis}));
  return all;
}

/// Each row of the rank's experts meets one matrix.
int64_t GroupedMatmulOp::getFlops() {
  int64_t rows = cast<RankedTensorType>(getIds().getType()).getNumElements();
  return 2 * (rows * countExperts() / countAllExperts(*this)) * getDepth() *
         getWidth();
}

/// Counts as a matmul for each expert, of as many rows as if all had equally
/// many: efficiency depends on the rows of one, and all matrices are read.
WorkShape GroupedMatmulOp::getWorkShape() {
  int64_t rows = cast<RankedTensorType>(getIds().getType()).getNumElements();
  WorkShape shape;
  shape.kind = WorkShape::Contraction;
  shape.batch = countExperts();
  int64_t each = llvm::divideCeil(rows, countAllExperts(*this));
  shape.m = makesMatrices() ? getDepth() : each;
  shape.k = makesMatrices() ? each : getDepth();
  shape.n = getWidth();
  return shape;
}

uint64_t GroupedMatmulOp::getLibraryWorkspace(int, bool) {
  return plan::gpuGroupedWorkspace(getIds().getType().getNumElements(),
                                   countExperts());
}

/// The sum over what rows of `letters` have and those of `kept` lack.
static Value sumOver(NNBuilder &nn, Value rows, StringRef letters,
                     StringRef kept) {
  SmallVector<int64_t> dims;
  for (auto [dim, letter] : llvm::enumerate(letters))
    if (!kept.contains(letter))
      dims.push_back(dim);
  return dims.empty() ? rows : nn.reduce(nn.widen(rows), dims);
}

static Value buildGrouped(NNBuilder &nn, Value lhs, Value rhs, Value ids,
                          const Twine &spec, ArrayRef<int64_t> shape,
                          Type element) {
  return GroupedMatmulOp::create(
      nn.builder, nn.loc, RankedTensorType::get(shape, element), lhs, rhs, ids,
      nn.builder.getStringAttr(spec), BeginAttr());
}

/// Linear in lhs, rhs and the result's gradient, each of which is rows or
/// matrices: of rows the gradient is made of the other rows and the matrices,
/// of matrices it is made of both rows.
Values GroupedMatmulOp::buildVJP(OpBuilder &builder,
                                 ArrayRef<Value> cotangents) {
  NNBuilder nn(builder, getLoc());
  Value dy = cotangents[0];
  StringRef x = getLhsLetters(), w = getMatrixLetters(), y = getRowLetters();
  Value rows = makesMatrices() ? Value(getRhs()) : dy;
  Value matrices = makesMatrices() ? dy : Value(getRhs());
  // One row for each id, of which lhs has had some as one.
  std::string each = (getIdLetters() + Twine(x.back())).str();
  SmallVector<int64_t> shape(shapeOf(getIds()));
  shape.push_back(getDepth());
  Value dx =
      buildGrouped(nn, rows, matrices, getIds(), y + "," + w + "->" + each,
                   shape, getElementTypeOrSelf(rows));
  dx = sumOver(nn, dx, each, x);
  Value other;
  if (makesMatrices()) {
    // Rows again, from the gradient of the matrices.
    other = buildGrouped(nn, getLhs(), dy, getIds(), x + "," + w + "->" + y,
                         shapeOf(getRhs()), getElementTypeOrSelf(getLhs()));
  } else {
    other = buildGrouped(nn, getLhs(), dy, getIds(), x + "," + y + "->" + w,
                         shapeOf(getRhs()), getGradientElementType(getRhs()));
  }
  return {dx, other, Value()};
}

//===----------------------------------------------------------------------===//
// RouteOp
//===----------------------------------------------------------------------===//

/// (C5)
static LogicalResult verifyGroups(RouteOp op) {
  if (!op.getKept() && !op.getGroups())
    return success();
  if (!op.getKept() || !op.getGroups())
    return op.emitOpError("has one number of groups, expected two or none");
  auto groups = static_cast<int64_t>(*op.getGroups());
  auto kept = static_cast<int64_t>(*op.getKept());
  int64_t experts = shapeOf(op.getLogits()).back();
  if (groups < 1 || experts % groups || experts / groups < 2)
    return op.emitOpError("has ")
           << groups << " groups of " << experts
           << " experts, expected a divisor with two experts a group or more";
  if (kept < 1 || kept > groups)
    return op.emitOpError("keeps ") << kept << " of " << groups << " groups";
  auto choices = static_cast<int64_t>(op.getChoices());
  if (choices > kept * (experts / groups))
    return op.emitOpError("has ")
           << choices << " choices of the " << kept * (experts / groups)
           << " experts of " << kept << " groups";
  return success();
}

LogicalResult RouteOp::verify() {
  // (C1)
  ArrayRef<int64_t> logits = shapeOf(getLogits());
  if (logits.empty())
    return emitOpError("has logits of rank 0, expected at least 1");
  // (C2)
  auto choices = static_cast<int64_t>(getChoices());
  if (choices < 1 || choices > logits.back())
    return emitOpError("has ") << choices << " choices of " << logits.back()
                               << " experts, expected 1 to " << logits.back();
  SmallVector<int64_t> expected(logits.drop_back());
  expected.push_back(choices);
  for (Value result : getResults())
    if (shapeOf(result) != ArrayRef<int64_t>(expected))
      return emitOpError("has result ")
             << result.getType() << " for logits " << getLogits().getType()
             << " and " << choices << " choices";
  // (C3)
  if (getBias() && shapeOf(getBias()) != logits.take_back())
    return emitOpError("has bias ")
           << getBias().getType() << " for logits " << getLogits().getType();
  // (C4)
  std::optional<APFloat> scaled = getScaled();
  if (scaled &&
      (!scaled->isFinite() || scaled->isNegative() || scaled->isZero()))
    return emitOpError("has scaled ")
           << scaled->convertToDouble() << ", which is not positive";
  return verifyGroups(*this);
}

// The parts of a split dimension, of tokens or of experts, exchange by the ops
// that it is made of.
bool RouteOp::decomposesEarly() { return true; }

/// Keeps the logits of a router whose scores have a bias, and the bias, as
/// DeepSeek-V3 does.
bool RouteOp::takesWideOperands() { return bool(getBias()); }

/// Over the last dimension, with the maximum taken off first.
static Value softmax(NNBuilder &nn, Value x) {
  int64_t last = shapeOf(x).size() - 1;
  Value top = nn.reduce(x, {last}, ReduceKind::Max);
  Value shift = nn.unary<StopGradientOp>(top);
  Value power = nn.exp(nn.sub(x, nn.broadcastRows(shift, x)));
  Value sum = nn.sumRows(power);
  return nn.div(power, nn.broadcastRows(sum, power));
}

/// 0, 1, 2, … in f32.
static Value count(NNBuilder &nn, int64_t extent) {
  auto whole = RankedTensorType::get({extent}, nn.builder.getI32Type());
  Value numbers =
      IotaOp::create(nn.builder, nn.loc, whole, /*along=*/0, BeginAttr());
  return ConvertOp::create(nn.builder, nn.loc,
                           whole.clone(nn.builder.getF32Type()), numbers);
}

/// Repeats `x` along a new dimension of `extent` in front of its last one, or
/// behind it.
static Value repeat(NNBuilder &nn, Value x, int64_t extent, bool behind) {
  SmallVector<int64_t> shape(shapeOf(x)), dims;
  int64_t rank = shape.size(), added = behind ? rank : rank - 1;
  shape.insert(shape.begin() + added, extent);
  for (int64_t dim : llvm::seq(rank + 1))
    if (dim != added)
      dims.push_back(dim);
  return nn.broadcast(x, shape, dims);
}

/// Repeats the numbers of `x` along all dimensions of `like` but `dim`.
static Value spread(NNBuilder &nn, Value x, Value like, int64_t dim) {
  return nn.broadcast(x, shapeOf(like), {dim});
}

template <typename Op> static Value compare(NNBuilder &nn, Value a, Value b) {
  return Op::create(nn.builder, nn.loc, a.getType(), a, b);
}

/// `op` of each pair of the numbers `x` [n], [own, other], repeated along the
/// other dimensions of `like`.
template <typename Op>
static Value comparePairs(NNBuilder &nn, Value x, Value like) {
  int64_t extent = shapeOf(x)[0], last = shapeOf(like).size() - 1;
  Value own = repeat(nn, x, extent, /*behind=*/true);
  Value other = repeat(nn, x, extent, /*behind=*/false);
  return nn.broadcast(compare<Op>(nn, own, other), shapeOf(like),
                      {last - 1, last});
}

/// 1 for each pair [own, other] of experts whose other one comes first: it has
/// a higher score, or an equal one and the lower of `numbers`.
static Value findBefore(NNBuilder &nn, Value scores, Value numbers) {
  int64_t experts = shapeOf(scores).back();
  Value own = repeat(nn, scores, experts, /*behind=*/true);
  Value other = repeat(nn, scores, experts, /*behind=*/false);
  Value lower = comparePairs<GreaterOp>(nn, numbers, own);
  Value isAbove = compare<GreaterOp>(nn, other, own);
  Value isEqual = compare<EqualOp>(nn, other, own);
  return nn.add(isAbove, nn.mul(isEqual, lower));
}

/// 1 for the experts of the `kept` best of `groups`. No tensor has a dimension
/// of groups: what belongs to a group is repeated for each of its experts, and
/// the first one stands for all of them where groups are counted.
static Value keepGroups(NNBuilder &nn, Value scores, Value numbers,
                        int64_t kept, int64_t groups) {
  int64_t experts = shapeOf(scores).back(), size = experts / groups;
  // Half a number away from where rounding could tell.
  Value quotient = nn.scale(nn.shift(numbers, 0.5), 1.0 / size);
  auto whole = cast<RankedTensorType>(quotient.getType());
  Value group = ConvertOp::create(
      nn.builder, nn.loc, whole,
      ConvertOp::create(nn.builder, nn.loc,
                        whole.clone(nn.builder.getI32Type()), quotient));
  Value isFirst =
      compare<EqualOp>(nn, nn.scale(group, static_cast<double>(size)), numbers);
  // The sum of the two best of each group.
  Value before = findBefore(nn, scores, numbers);
  Value together = comparePairs<EqualOp>(nn, group, before);
  Value place = nn.sumRows(nn.mul(before, together));
  Value isBest = compare<GreaterOp>(nn, nn.fillLike(place, 2.0), place);
  Value best = nn.mul(scores, isBest);
  Value sum =
      nn.sumRows(nn.mul(repeat(nn, best, experts, /*behind=*/false), together));
  // How many groups come before each.
  Value first = findBefore(nn, sum, group);
  int64_t last = shapeOf(first).size() - 1;
  Value rank = nn.sumRows(nn.mul(first, spread(nn, isFirst, first, last)));
  return compare<GreaterOp>(nn, nn.fillLike(rank, static_cast<double>(kept)),
                            rank);
}

/// Below all scores, and far from what f32 cannot hold.
static constexpr double kLowest = -1e30;

/// The experts with the ranks 0 to `choices`: of each the sum over all experts
/// of the number of the one that has it.
static Value chooseExperts(NNBuilder &nn, RouteOp op, Value scores) {
  auto choices = static_cast<int64_t>(op.getChoices());
  Value numbers = count(nn, shapeOf(scores).back());
  if (op.getGroups()) {
    Value isKept =
        keepGroups(nn, scores, numbers, *op.getKept(), *op.getGroups());
    Value isOut = nn.shift(nn.neg(isKept), 1.0);
    scores = nn.add(nn.mul(scores, isKept), nn.scale(isOut, kLowest));
  }
  Value rank = nn.sumRows(findBefore(nn, scores, numbers));
  Value ranks = repeat(nn, rank, choices, /*behind=*/false);
  int64_t last = shapeOf(ranks).size() - 1;
  Value wanted = spread(nn, count(nn, choices), ranks, last - 1);
  Value isChosen = compare<EqualOp>(nn, ranks, wanted);
  Value chosen = nn.sumRows(nn.mul(isChosen, spread(nn, numbers, ranks, last)));
  auto type = cast<RankedTensorType>(chosen.getType());
  return ConvertOp::create(nn.builder, nn.loc,
                           type.clone(nn.builder.getI32Type()), chosen);
}

/// Keeps a sum of sigmoids from being zero, as DeepSeek-V3 has it.
static constexpr double kLeastSum = 1e-20;

/// Weights are selected by the ids, so that the gradient reads these alone.
Values RouteOp::decompose(OpBuilder &builder) {
  NNBuilder nn(builder, getLoc());
  Value scores = nn.widen(getLogits());
  if (getScores() == Scores::Softmax)
    scores = softmax(nn, scores);
  else if (getScores() == Scores::Sigmoid)
    scores = nn.unary<SigmoidOp>(scores);
  Value ranked = scores;
  if (getBias()) {
    Value bias = nn.widen(nn.broadcastColumns(getBias(), scores));
    ranked = nn.add(scores, bias);
  }
  Value ids = chooseExperts(nn, *this, ranked);
  Value all = repeat(nn, scores, getChoices(), /*behind=*/false);
  Value picked =
      PickOp::create(builder, getLoc(), all.getType(), all, ids, BeginAttr());
  Value weights = nn.sumRows(picked);
  if (getScores() == Scores::ChosenSoftmax)
    weights = softmax(nn, weights);
  if (getNormalized()) {
    Value sum = nn.sumRows(weights);
    if (getScores() == Scores::Sigmoid)
      sum = nn.shift(sum, kLeastSum);
    weights = nn.div(weights, nn.broadcastRows(sum, weights));
  }
  if (std::optional<APFloat> factor = getScaled())
    weights = nn.scale(weights, factor->convertToDouble());
  return {weights, ids};
}
