//===- NNAttention.cpp - Attention ----------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All that nn.attention and nn.attention_grad know of themselves: their score
// as text, constraints, factors and costs, the gradient, which libraries
// compute them in one step, and the matmuls and kernels that do otherwise.
//
//===----------------------------------------------------------------------===//

#include "Constraints.h"
#include "plait/Dialect/NN/IR/NNBuilder.h"
#include "plait/Dialect/NN/IR/Score.h"
#include "plait/Plan/Attention.h"

#include <cmath>

using namespace mlir;
using namespace plait;
using namespace plait::nn;

using Values = SmallVector<Value>;

//===----------------------------------------------------------------------===//
// ScoreAttr
//===----------------------------------------------------------------------===//

LogicalResult ScoreAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                FloatAttr scale, IntegerAttr, bool,
                                FloatAttr softCap) {
  // (C1)
  if (!scale.getType().isF32() || (softCap && !softCap.getType().isF32()))
    return emitError() << "score has numbers that are not f32";
  if (softCap && !(softCap.getValueAsDouble() > 0 &&
                   std::isfinite(softCap.getValueAsDouble())))
    return emitError() << "score has soft cap " << softCap.getValueAsDouble()
                       << ", expected a positive number";
  return success();
}

/// `scale 5.0e-01 window 4 bidirectional soft_cap 5.0e+01`, of which all but
/// the first may be left out.
ParseResult nn::parseScore(OpAsmParser &parser, ScoreAttr &score) {
  Builder &builder = parser.getBuilder();
  SMLoc loc = parser.getCurrentLocation();
  FloatAttr scale, softCap;
  IntegerAttr window;
  if (parser.parseKeyword("scale") ||
      parser.parseAttribute(scale, builder.getF32Type()))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("window")) &&
      parser.parseAttribute(window, builder.getI64Type()))
    return failure();
  bool both = succeeded(parser.parseOptionalKeyword("bidirectional"));
  if (succeeded(parser.parseOptionalKeyword("soft_cap")) &&
      parser.parseAttribute(softCap, builder.getF32Type()))
    return failure();
  score = parser.getChecked<ScoreAttr>(loc, parser.getContext(), scale, window,
                                       both, softCap);
  return success(bool(score));
}

void nn::printScore(OpAsmPrinter &printer, Operation *, ScoreAttr score) {
  printer << "scale ";
  printer.printAttributeWithoutType(score.getScale());
  if (IntegerAttr window = score.getWindow())
    printer << " window " << window.getInt();
  if (score.getBidirectional())
    printer << " bidirectional";
  if (FloatAttr softCap = score.getSoftCap()) {
    printer << " soft_cap ";
    printer.printAttributeWithoutType(softCap);
  }
}

ScoreAttr nn::simplify(ScoreAttr score, int64_t keys) {
  IntegerAttr window = score.getWindow();
  if (!window || window.getInt() < keys)
    return score;
  return ScoreAttr::get(score.getContext(), score.getScale(), IntegerAttr(),
                        score.getBidirectional(), score.getSoftCap());
}

//===----------------------------------------------------------------------===//
// Constraints
//===----------------------------------------------------------------------===//

LogicalResult nn::verifyWindow(Operation *op, std::optional<int64_t> window) {
  if (window && *window < 1)
    return op->emitOpError("has window ") << *window << ", less than 1";
  return success();
}

/// (C4)
static LogicalResult verifyQueries(Operation *op, int64_t queries, int64_t keys,
                                   BeginAttr begin) {
  if (begin && begin.isReordered() && begin.getExtent() != keys)
    return op->emitOpError("has ")
           << keys << " keys and queries in an order of " << begin.getExtent();
  // A rank with a block of the queries has the keys of all of them.
  if (begin ? queries <= keys : queries == keys)
    return success();
  return op->emitOpError("has ")
         << queries << " queries and " << keys << " keys, expected as many"
         << (begin ? " or more" : ", or begin");
}

/// Queries are [batch, position, group, head of the group, size], keys and
/// values [batch, position, group, size], and lse, the logarithm of the sum of
/// exponentials, [batch, group, head, query]. With one head a group this is
/// plain multi-head attention.
template <typename OpTy> static LogicalResult verifyAttention(OpTy op) {
  // (C1)
  ArrayRef<int64_t> q = shapeOf(op.getQuery()), k = shapeOf(op.getKey());
  if (q.size() != 5)
    return op.emitOpError("has query ")
           << op.getQuery().getType() << ", expected five dimensions";
  // Keys without four dimensions fail the shape check below, which names what
  // was expected.
  int64_t keys = k.size() == 4 ? k[1] : q[1];
  int64_t keyShape[] = {q[0], keys, q[2], q[4]};
  int64_t lseShape[] = {q[0], q[2], q[3], q[1]};
  if (failed(verifyShape(op, "key", op.getKey(), keyShape)) ||
      failed(verifyShape(op, "value", op.getValue(), keyShape)) ||
      failed(verifyShape(op, "output", op.getOut(), q)) ||
      failed(verifyShape(op, "lse", op.getLse(), lseShape)))
    return failure();
  // (C2) of #nn.score
  if (IntegerAttr window = op.getScore().getWindow();
      window && failed(verifyWindow(op, window.getInt())))
    return failure();
  // (C2), (C5), (C6)
  if (failed(verifyShape(op, "sinks", op.getSinks(), q.slice(2, 2))) ||
      failed(verifyShape(op, "starts", op.getStarts(), q.take_front(2))) ||
      failed(verifyDropout(op, op.getDropoutKeys(), q[0],
                           op.getProbabilityAttr(), op.getSiteAttr())))
    return failure();
  if (failed(verifyInOrder(op, op.getGroupBeginAttr())))
    return failure();
  // (C7)
  if (op.getScore().getBidirectional() && op.getStarts())
    return op.emitOpError("is bidirectional and has starts of documents, which "
                          "only causal attention has");
  return verifyQueries(op, q[1], keys, op.getBeginAttr());
}

LogicalResult AttentionOp::verify() { return verifyAttention(*this); }

/// Gradients have their primals' shapes; the rest is the forward op's.
LogicalResult AttentionGradOp::verify() {
  const std::tuple<const char *, Value, Value> pairs[] = {
      {"gradient", getGradient(), getQuery()},
      {"query gradient", getQueryGradient(), getQuery()},
      {"key gradient", getKeyGradient(), getKey()},
      {"value gradient", getValueGradient(), getValue()}};
  for (auto [name, gradient, primal] : pairs)
    if (failed(verifyShape(*this, name, gradient, shapeOf(primal))))
      return failure();
  // (C2)
  if (bool(getSinks()) != bool(getSinksGradient()))
    return emitOpError("has ")
           << (getSinks() ? "sinks without a gradient"
                          : "a gradient of sinks without sinks");
  if (getSinks() &&
      (failed(verifyShape(*this, "sinks gradient", getSinksGradient(),
                          shapeOf(getSinks()))) ||
       failed(verifySum(*this, getSinks(), getSinksGradient()))))
    return failure();
  return verifyAttention(*this);
}

/// The op stays, without the operands of its mask.
void AttentionOp::removeDropout() {
  getDropoutKeysMutable().clear();
  removeProbabilityAttr();
  removeSiteAttr();
}

//===----------------------------------------------------------------------===//
// Sharding, costs
//===----------------------------------------------------------------------===//

/// The factors of attention. Backward, every block of queries adds to the
/// gradients of all keys and values.
template <typename OpTy>
static FactorRule attentionRule(OpTy op, bool backward) {
  // Every query looks at all keys, or all before it: keys stay whole, and a
  // rank that has some of the queries gathers them. Groups come before heads of
  // a group, so that whoever takes the first factor that fits splits groups.
  ArrayRef<int64_t> query = shapeOf(op.getQuery());
  int64_t keys = shapeOf(op.getKey())[1];
  FactorRule rule;
  FactorKind summed = backward ? FactorKind::Sum : FactorKind::Parallel;
  // Sinks belong to heads, and sequences add to their gradient.
  int b = rule.add("batch", op.getSinks() ? summed : FactorKind::Parallel,
                   query[0]);
  int s = rule.add("query", summed, query[1]);
  rule.factors[s].isBalanced = false; // later queries may see more keys
  rule.factors[s].isCounted = true;
  int t = rule.add("key", FactorKind::Whole, keys);
  int g = rule.add("key/value heads", FactorKind::Parallel, query[2],
                   /*mustDivide=*/true);
  // Where there are too few groups, every rank has some heads of each of them,
  // and keys and values whole; not with dropout, whose masks go by groups.
  bool isWhole = bool(op.getDropoutKeys());
  int r = rule.add("query heads of each", isWhole ? FactorKind::Whole : summed,
                   query[3], /*mustDivide=*/true);
  rule.factors[g].inOrder = rule.factors[g].isCounted = isWhole; // by masks
  int d = rule.add("head size", FactorKind::Whole, query[4]);
  // Keys and values lack the query heads: split over those, they are whole on
  // each rank, and their gradients are partial sums.
  FactorRule::DimFactors q{b, s, g, r, d}, k{b, t, g, d}, lse{b, g, r, s};
  if (backward) {
    rule.operands = {q, k, k, q, lse, q};
    rule.results = {q, k, k};
  } else {
    rule.operands = {q, k, k};
    rule.results = {q, lse};
  }
  // In the order in which the op has its optional operands.
  if (op.getStarts())
    rule.operands.push_back({b, s});
  if (op.getSinks()) {
    rule.operands.push_back({g, r});
    if (backward)
      rule.results.push_back({g, r});
  }
  if (op.getDropoutKeys())
    rule.operands.push_back({b});
  return rule;
}

FactorRule AttentionOp::getFactorRule() {
  return attentionRule(*this, /*backward=*/false);
}

FactorRule AttentionGradOp::getFactorRule() {
  return attentionRule(*this, /*backward=*/true);
}

/// Which positions, and which groups.
template <typename OpTy>
static void localizeAttention(OpTy op, int factor, ArrayRef<RankTerm> begin,
                              int64_t limit) {
  localizePositions(op, factor, begin, limit);
  if (op.getDropoutKeys() && op.getFactorRule().operands[0][2] == factor)
    op.setGroupBeginAttr(BeginAttr::get(op.getContext(), begin, limit));
}

void AttentionOp::localizeFactor(int factor, ArrayRef<RankTerm> begin,
                                 int64_t limit) {
  localizeAttention(*this, factor, begin, limit);
}

void AttentionGradOp::localizeFactor(int factor, ArrayRef<RankTerm> begin,
                                     int64_t limit) {
  localizeAttention(*this, factor, begin, limit);
}

void AttentionOp::orderFactor(int factor, ChunkOrder order) {
  orderPositions(*this, factor, order);
}

void AttentionGradOp::orderFactor(int factor, ChunkOrder order) {
  orderPositions(*this, factor, order);
}

/// One of the two matmuls of attention: under a causal mask half of the keys
/// are hidden, but an unblocked implementation computes them.
static int64_t scoreFlops(ArrayRef<int64_t> q, ArrayRef<int64_t> k) {
  return 2 * q[0] * q[1] * k[1] * q[2] * q[3] * q[4];
}

int64_t AttentionOp::getFlops() {
  return 2 * scoreFlops(shapeOf(getQuery()), shapeOf(getKey()));
}

/// Five matmuls: the scores again, and the gradients of probabilities, queries,
/// keys and values.
int64_t AttentionGradOp::getFlops() {
  return 5 * scoreFlops(shapeOf(getQuery()), shapeOf(getKey()));
}

/// Returns what cost models tell efficiency by, beside the number of
/// operations.
template <typename OpTy> static WorkShape attentionShape(OpTy op) {
  ArrayRef<int64_t> q = shapeOf(op.getQuery()), k = shapeOf(op.getKey());
  WorkShape shape;
  shape.kind = WorkShape::Attention;
  shape.causal = !op.getScore().getBidirectional();
  shape.batch = q[0];
  shape.queries = q[1];
  shape.keys = k[1];
  shape.keyValueHeads = q[2];
  shape.heads = q[2] * q[3];
  shape.headSize = q[4];
  return shape;
}

WorkShape AttentionOp::getWorkShape() { return attentionShape(*this); }

WorkShape AttentionGradOp::getWorkShape() { return attentionShape(*this); }

//===----------------------------------------------------------------------===//
// Gradient
//===----------------------------------------------------------------------===//

/// Builds one op, so that a library can compute it in one step. Reads the
/// output and lse, and nothing of the size of the scores.
Values AttentionOp::buildVJP(OpBuilder &builder, ArrayRef<Value> cotangents) {
  RankedTensorType sinksType;
  if (Value sinks = getSinks())
    sinksType =
        dist::plainType(sinks.getType()).clone(getGradientElementType(sinks));
  auto grad = AttentionGradOp::create(
      builder, getLoc(), dist::plainType(getQuery().getType()),
      dist::plainType(getKey().getType()),
      dist::plainType(getValue().getType()), sinksType, getQuery(), getKey(),
      getValue(), getOut(), getLse(), cotangents[0], getStarts(), getSinks(),
      getDropoutKeys(), getScoreAttr(), getBeginAttr(), getProbabilityAttr(),
      getSiteAttr(), getGroupBeginAttr());
  // Integers have none.
  Values gradients(getNumOperands());
  gradients[0] = grad.getQueryGradient();
  gradients[1] = grad.getKeyGradient();
  gradients[2] = grad.getValueGradient();
  if (getSinks())
    gradients[getSinksMutable().begin()->getOperandNumber()] =
        grad.getSinksGradient();
  return gradients;
}

//===----------------------------------------------------------------------===//
// Libraries
//===----------------------------------------------------------------------===//

/// Finds what has to be the library's. Sinks need not be: where it does not
/// compute them, kernels behind its step do.
template <typename OpTy> static AttentionTraits getTraits(OpTy op) {
  ScoreAttr score = op.getScore();
  return AttentionTraits()
      .add(AttentionTrait::Dropout, bool(op.getDropoutKeys()))
      .add(AttentionTrait::Documents, bool(op.getStarts()))
      .add(AttentionTrait::WindowOnBothSides,
           score.getBidirectional() && score.getWindow())
      .add(AttentionTrait::SoftCap, bool(score.getSoftCap()));
}

/// Asked by who has to choose how attention is computed before the passes do.
AttentionTraits nn::findAttentionTraits(Operation *root) {
  AttentionTraits traits;
  root->walk([&](AttentionOp op) { traits.add(getTraits(op)); });
  return traits;
}

static FusedBy getLibrary(int architecture) {
  return architecture == 0 ? FusedBy::Processors : FusedBy::Cudnn;
}

template <typename OpTy>
static Status checkAttentionStep(OpTy op, int architecture) {
  FusedBy library = getLibrary(architecture);
  PLAIT_RETURN_IF_ERROR(checkAttentionTraits(getTraits(op), library));
  if (library == FusedBy::Processors)
    return Status::success();
  RankedTensorType query = op.getQuery().getType();
  int64_t queries = query.getDimSize(1);
  // Under a causal mask two pieces of a sequence are two calls.
  if (BeginAttr begin = op.getBeginAttr();
      begin && begin.isReordered() && !op.getScore().getBidirectional()) {
    ArrayRef<int64_t> shape = query.getShape();
    PLAIT_RETURN_IF_ERROR(plan::checkGpuChunks(begin.getOrder(), queries,
                                               shape[0] * shape[2] * shape[3]));
    queries /= 2;
  }
  auto dtype = query.getElementType().isBF16() ? plan::fb::DType::BF16
                                               : plan::fb::DType::F32;
  return plan::checkGpuAttention(dtype, queries, query.getShape().back(),
                                 architecture);
}

/// Answers that there is no step where the library computes the rest alone,
/// which the op then decomposes into.
std::optional<Status> AttentionOp::checkLibraryStep(int architecture) {
  Status rest = checkAttentionStep(*this, architecture);
  auto sinks = AttentionTraits().add(AttentionTrait::Sinks, bool(getSinks()));
  if (rest.ok() && findUncomputed(sinks, getLibrary(architecture)))
    return std::nullopt;
  return rest;
}

std::optional<Status> AttentionGradOp::checkLibraryStep(int architecture) {
  return checkAttentionStep(*this, architecture);
}

bool AttentionOp::isLibraryStepByDefault(int architecture) {
  return isFusedByDefault(getLibrary(architecture),
                          getKey().getType().getDimSize(1));
}

bool AttentionGradOp::isLibraryStepByDefault(int architecture) {
  return isFusedByDefault(getLibrary(architecture),
                          getKey().getType().getDimSize(1));
}

//===----------------------------------------------------------------------===//
// Decompositions
//===----------------------------------------------------------------------===//

namespace {
/// The scores of all queries and keys, [b, g, r, s, t].
struct QueryScores {
  Value masked;
  Value capped; // without the mask; null where there is no soft cap
};
} // namespace

/// c tanh(x / c).
static Value softCap(NNBuilder &nn, Value x, double cap) {
  return nn.scale(nn.unary<TanhOp>(nn.scale(x, 1 / cap)), cap);
}

/// Scaled, capped, and masked but where each query sees all keys.
template <typename OpTy>
static QueryScores buildScores(NNBuilder &nn, OpTy op) {
  ScoreAttr score = op.getScore();
  QueryScores scores;
  Value matmul =
      nn.widen(nn.matmul(op.getQuery(), op.getKey(), "bsgrd,btgd->bgrst"));
  scores.masked = nn.scale(matmul, score.getScale().getValueAsDouble());
  if (FloatAttr cap = score.getSoftCap())
    scores.masked = scores.capped =
        softCap(nn, scores.masked, cap.getValueAsDouble());
  if (score.getBidirectional() && !score.getWindow())
    return scores;
  Value starts = op.getStarts();
  // Starts are per query, [b, s]: the same for all heads.
  if (starts)
    starts = nn.broadcast(starts, shapeOf(scores.masked).drop_back(), {0, 3});
  scores.masked = nn.unary<CausalMaskOp>(
      scores.masked, starts, score.getWindow(),
      score.getBidirectional() ? nn.builder.getUnitAttr() : UnitAttr(),
      op.getBeginAttr());
  return scores;
}

/// `x`, of the shape of the scores, after the dropout of the softmax, if `op`
/// has one.
template <typename OpTy>
static Value dropScores(NNBuilder &nn, OpTy op, Value x) {
  if (!op.getDropoutKeys())
    return x;
  ArrayAttr begins;
  if (op.getGroupBeginAttr() || op.getBeginAttr()) {
    auto orWhole = [&](BeginAttr begin) {
      return begin ? Attribute(begin) : nn.builder.getUnitAttr();
    };
    Attribute whole = nn.builder.getUnitAttr();
    begins =
        nn.builder.getArrayAttr({whole, orWhole(op.getGroupBeginAttr()), whole,
                                 orWhole(op.getBeginAttr()), whole});
  }
  return nn.unary<DropoutOp>(x, op.getDropoutKeys(), op.getProbabilityAttr(),
                             op.getSiteAttr(), begins);
}

/// The larger of the two.
static Value largerOf(NNBuilder &nn, Value a, Value b) {
  Value low = nn.neg(a), high = nn.neg(b);
  return nn.neg(nn.binary<MinOp>(low, high));
}

/// A step takes sinks in f32.
bool AttentionOp::addsToLibraryStep() {
  return getSinks() && !getElementTypeOrSelf(getSinks()).isF32();
}

/// Splits off f32 sinks. With l the logarithm of the other terms' sum, a sink s
/// makes it l' = log(exp l + exp s), of which exp(l - l') are those terms: the
/// share that is left of the output. The larger of l and s is taken off before
/// the exponentials, which keeps them from overflowing. In bf16 the output is
/// rounded once more than by a library that computes sinks.
static Values addSinks(NNBuilder &nn, AttentionOp op) {
  auto rest = cast<AttentionOp>(nn.builder.clone(*op));
  rest.getSinksMutable().clear();
  Value own = rest.getLse();
  Value sinks = nn.broadcast(op.getSinks(), shapeOf(own), {1, 2});
  Value top = largerOf(nn, own, sinks);
  Value others = nn.exp(nn.sub(own, top));
  Value sink = nn.exp(nn.sub(sinks, top));
  Value sum = nn.add(others, sink);
  Value lse = nn.add(top, nn.unary<LogOp>(sum));
  // A number [b, g, r, s] for each row [b, s, g, r], which kernels find where
  // rows have more than one element.
  Value share = nn.div(others, sum), wide = nn.widen(rest.getOut()), out;
  if (shapeOf(wide).back() == 1) {
    out = nn.matmul(share, wide, "bgrs,bsgrd->bsgrd");
  } else {
    Value each = nn.broadcast(share, shapeOf(wide), {0, 2, 3, 1});
    out = nn.mul(wide, each);
  }
  return {nn.castLike(out, op.getOut()), lse};
}

/// softmax(q kᵀ) v with the maximum of each row taken off before the
/// exponential, which keeps it from overflowing. lse is what the backward pass
/// needs to have the softmax again without maximum and sum.
Values AttentionOp::decompose(OpBuilder &builder) {
  NNBuilder nn(builder, getLoc());
  if (addsToLibraryStep()) {
    Value wide = nn.widen(getSinks());
    auto same = cast<AttentionOp>(builder.clone(*getOperation()));
    same.getSinksMutable().assign(wide);
    return Values(same->getResults());
  }
  if (getSinks())
    return addSinks(nn, *this);
  Value scores = buildScores(nn, *this).masked;
  Value top = nn.reduce(scores, {4}, ReduceKind::Max);
  Value weights = nn.exp(nn.sub(scores, nn.broadcastRows(top, scores)));
  Value sum = nn.sumRows(weights);
  Value softmax = nn.div(weights, nn.broadcastRows(sum, weights));
  Value lse = nn.add(top, nn.unary<LogOp>(sum));
  // The matmul takes both operands in one type.
  Value weighed = nn.castLike(dropScores(nn, *this, softmax), getValue());
  Value out = nn.matmul(weighed, getValue(), "bgrst,btgd->bsgrd");
  return {out, lse};
}

/// lse has the sinks already, and out is of the weights that are left beside
/// them: the other gradients are the same without.
bool AttentionGradOp::addsToLibraryStep() { return bool(getSinks()); }

/// Splits off the gradient of the sinks: a sink is a key whose value is zero,
/// so that ds = p (0 - Σ p dp), and Σ p dp = do · out.
static Values splitSinks(NNBuilder &nn, AttentionGradOp op) {
  auto rest = AttentionGradOp::create(
      nn.builder, op.getLoc(), op.getQueryGradient().getType(),
      op.getKeyGradient().getType(), op.getValueGradient().getType(), Type(),
      op.getQuery(), op.getKey(), op.getValue(), op.getOut(), op.getLse(),
      op.getGradient(), op.getStarts(), Value(), op.getDropoutKeys(),
      op.getScoreAttr(), op.getBeginAttr(), op.getProbabilityAttr(),
      op.getSiteAttr(), op.getGroupBeginAttr());
  Value wide = nn.widen(op.getSinks());
  Value sinks = nn.broadcast(wide, shapeOf(op.getLse()), {1, 2});
  Value weights = nn.neg(nn.exp(nn.sub(sinks, op.getLse())));
  Value gradient = nn.widen(op.getGradient()), out = nn.widen(op.getOut());
  Value mean = nn.sumRows(nn.mul(gradient, out));
  Value sum = nn.matmul(weights, mean, "bgrs,bsgr->gr");
  return {rest.getQueryGradient(), rest.getKeyGradient(),
          rest.getValueGradient(), nn.castLike(sum, op.getSinksGradient())};
}

/// Computes, with p = softmax: dv = pᵀ do, dp = do vᵀ, ds = p (dp - Σ p dp),
/// dq = scale · ds k, dk = scale · dsᵀ q. What matmuls take is rounded to their
/// operands' type, and used further as rounded: it need not be stored twice.
/// With dropout, v has met drop(p), so that dv = drop(p)ᵀ do and
/// dp = drop(do vᵀ). With a soft cap c, a score s is of slope 1 - (s / c)².
Values AttentionGradOp::decompose(OpBuilder &builder) {
  NNBuilder nn(builder, getLoc());
  if (getSinks())
    return splitSinks(nn, *this);
  double scale = getScore().getScale().getValueAsDouble();
  QueryScores scores = buildScores(nn, *this);
  // exp(score - lse) is the softmax itself.
  Value exact =
      nn.exp(nn.sub(scores.masked, nn.broadcastRows(getLse(), scores.masked)));
  Value weights = nn.castLike(exact, getGradient());
  Value weighed = getDropoutKeys()
                      ? nn.castLike(dropScores(nn, *this, exact), getGradient())
                      : weights;
  Value dv = nn.matmul(weighed, getGradient(), "bgrst,bsgrd->btgd");
  Value softmax = nn.widen(weights);
  Value matmul =
      nn.widen(nn.matmul(getGradient(), getValue(), "bsgrd,btgd->bgrst"));
  Value dp = dropScores(nn, *this, matmul);
  Value mean = nn.sumRows(nn.mul(softmax, dp));
  Value inner = nn.sub(dp, nn.broadcastRows(mean, dp));
  Value slope = nn.mul(softmax, inner);
  if (scores.capped) {
    Value share =
        nn.scale(scores.capped, 1 / getScore().getSoftCap().getValueAsDouble());
    Value flat = nn.shift(nn.neg(nn.mul(share, share)), 1.0);
    slope = nn.mul(slope, flat);
  }
  Value ds = nn.castLike(nn.scale(slope, scale), getKey());
  Value dq = nn.matmul(ds, getKey(), "bgrst,btgd->bsgrd");
  Value dk = nn.matmul(ds, getQuery(), "bgrst,bsgrd->btgd");
  return {dq, dk, dv};
}
