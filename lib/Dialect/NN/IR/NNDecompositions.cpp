//===- NNDecompositions.cpp - Decomposition of named ops ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Formulas in nn ops, one for each op that people know by name. Sums,
// exponentials and statistics are computed in f32 whatever the inputs are, and
// a result has the type that the op says. Types are plain, or those of one
// rank's block: shardings are given to the loss after it is decomposed, and all
// else is decomposed when no shardings are left.
//
// Each new value is bound to a name before it is an argument beside another new
// one, so that the order of the ops does not depend on the C++ compiler.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/CrossEntropy.h"

#include <cmath>

using namespace mlir;
using namespace plait;
using namespace plait::nn;

using Values = SmallVector<Value>;

//===----------------------------------------------------------------------===//
// Loss
//===----------------------------------------------------------------------===//

// When the vocabulary is split, maximum and sum need an exchange between the
// parts, which only ops of their own can have.
bool SoftmaxCrossEntropyOp::decomposesEarly() { return true; }

/// -log softmax(x)[t] = log Σ exp(x - m) + m - x[t], with m = max x as a
/// constant shift: its gradient cancels exactly.
CrossEntropies nn::buildCrossEntropies(NNBuilder &nn,
                                       SoftmaxCrossEntropyOp entropy) {
  Value x = nn.widen(entropy.getLogits());
  int64_t last = entropy.getLogits().getType().getRank() - 1;
  Value top = nn.reduce(x, {last}, ReduceKind::Max);
  Value shift = nn.unary<StopGradientOp>(top);
  Value centred = nn.sub(x, nn.broadcastRows(shift, x));
  Value normaliser = nn.sumRows(nn.exp(centred));
  // One element of each row and zeros: a rank that has another part of the
  // vocabulary adds nothing, and the sum over ranks is the picked one.
  Value picked = PickOp::create(nn.builder, nn.loc, x.getType(), centred,
                                entropy.getTargets(), BeginAttr());
  Value target = nn.sumRows(picked);
  Value losses = nn.sub(nn.unary<LogOp>(normaliser), target);
  Value valid = ValidOp::create(nn.builder, nn.loc, losses.getType(),
                                entropy.getTargets(), entropy.getIgnoreAttr());
  return {losses, valid};
}

/// Ignored targets count neither in the loss nor in the number that it is
/// divided by.
Values SoftmaxCrossEntropyOp::decompose(OpBuilder &builder) {
  NNBuilder nn(builder, getLoc());
  auto [losses, valid] = buildCrossEntropies(nn, *this);
  Value loss = nn.sumAll(nn.mul(losses, valid));
  Value count = nn.sumAll(valid);
  return {loss, count};
}

//===----------------------------------------------------------------------===//
// Normalisation
//===----------------------------------------------------------------------===//

/// (x - mean) · rstd · w + b over the last dimension, with the variance of the
/// row as it is (divided by n). The variance is that of the centred row: a
/// difference of mean squares would cancel.
Values LayerNormOp::decompose(OpBuilder &builder) {
  NNBuilder nn(builder, getLoc());
  Value x = nn.widen(getInput());
  double inverse = 1.0 / getInput().getType().getShape().back();
  Value mean = nn.scale(nn.sumRows(x), inverse);
  Value centred = nn.sub(x, nn.broadcastRows(mean, x));
  Value variance = nn.scale(nn.sumRows(nn.mul(centred, centred)), inverse);
  Value rstd =
      nn.unary<RsqrtOp>(nn.shift(variance, getEpsilon().convertToDouble()));
  Value normal = nn.mul(centred, nn.broadcastRows(rstd, x));
  Value weight = nn.widen(nn.broadcastColumns(getWeight(), x));
  Value weighted = nn.mul(normal, weight);
  Value bias = nn.widen(nn.broadcastColumns(getBias(), x));
  Value out = nn.add(weighted, bias);
  return {nn.castLike(out, getOut()), mean, rstd};
}

/// x · rstd · w with the mean of the squares (Zhang and Sennrich 2019).
Values RMSNormOp::decompose(OpBuilder &builder) {
  NNBuilder nn(builder, getLoc());
  Value x = nn.widen(getInput());
  double inverse = 1.0 / getInput().getType().getShape().back();
  Value mean = nn.scale(nn.sumRows(nn.mul(x, x)), inverse);
  Value rstd =
      nn.unary<RsqrtOp>(nn.shift(mean, getEpsilon().convertToDouble()));
  Value normal = nn.mul(x, nn.broadcastRows(rstd, x));
  Value weight = nn.widen(nn.broadcastColumns(getWeight(), x));
  return {nn.castLike(nn.mul(normal, weight), getOut()), rstd};
}

//===----------------------------------------------------------------------===//
// Rotary embedding
//===----------------------------------------------------------------------===//

std::vector<double> nn::computeRopeFrequencies(double theta,
                                               RopeScalingAttr scaling,
                                               YarnAttr yarn, int64_t size) {
  std::vector<double> frequencies;
  for (int64_t pair = 0; pair < size / 2; ++pair) {
    double frequency = std::pow(theta, -2.0 * pair / size);
    // As #nn.rope_scaling has it: what turns often within the original context
    // is kept, what turns seldom is slowed down by `factor`, and between the
    // two it is interpolated.
    if (scaling) {
      double factor = scaling.getFactor().getValueAsDouble();
      double low = scaling.getLow().getValueAsDouble();
      double high = scaling.getHigh().getValueAsDouble();
      double turns = scaling.getOriginal() * frequency / (2.0 * M_PI);
      double keep = std::clamp((turns - low) / (high - low), 0.0, 1.0);
      frequency *= keep + (1.0 - keep) / factor;
    }
    if (yarn) {
      double first = yarn.getFirst().getValueAsDouble();
      double last = yarn.getLast().getValueAsDouble();
      double keep = 1.0 - std::clamp((pair - first) / (last - first), 0.0, 1.0);
      frequency *= keep + (1.0 - keep) / yarn.getFactor().getValueAsDouble();
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

SmallVector<RankTerm> RopeTableOp::getRankBegin() {
  return getBegin() ? SmallVector<RankTerm>(getBegin()->getTerms())
                    : SmallVector<RankTerm>();
}

/// Angles in double: an angle of 10⁵ radians in f32 is off by up to 0.004.
/// Pairs that do not turn come first, at an angle of 0.
std::vector<float> RopeTableOp::getData(int64_t rows) {
  int64_t size = getResult().getType().getDimSize(1), half = size / 2;
  auto rotated = static_cast<int64_t>(getRotated().value_or(size));
  int64_t still = half - rotated / 2;
  std::vector<double> frequencies = computeRopeFrequencies(
      getTheta().convertToDouble(), getScalingAttr(), getYarnAttr(), rotated);
  double amplitude =
      getYarn() ? getYarn()->getAmplitude().getValueAsDouble() : 1.0;
  std::vector<float> data;
  data.reserve(rows * size);
  ChunkOrder order = getBegin() ? getBegin()->getOrder() : ChunkOrder();
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t j = 0; j < size; ++j) {
      int64_t pair = j % half - still;
      if (pair < 0) {
        data.push_back(getSine() ? 0.0f : 1.0f);
        continue;
      }
      double angle = order.getPosition(row) * frequencies[pair];
      data.push_back(amplitude *
                     (getSine() ? std::sin(angle) : std::cos(angle)));
    }
  return data;
}

/// x cos + rotate_half(x) sin (Su et al. 2021), with halves and not neighbours
/// as pairs, as Hugging Face's weights want it. Backward the angle is negative.
Values RopeOp::decompose(OpBuilder &builder) {
  NNBuilder nn(builder, getLoc());
  auto type = getInput().getType();
  int64_t last = type.getRank() - 1;
  auto tableType = RankedTensorType::get(
      {type.getDimSize(1), type.getDimSize(last)}, builder.getF32Type());
  // Tables of constants, which are computed when the plan is written.
  auto table = [&](bool sine) {
    return nn.broadcast(
        RopeTableOp::create(builder, getLoc(), tableType, getThetaAttr(),
                            getScalingAttr(), getYarnAttr(), getRotatedAttr(),
                            sine ? builder.getUnitAttr() : UnitAttr(),
                            getBeginAttr()),
        type.getShape(), {1, last});
  };
  Value cosine = table(false), sine = table(true);
  Value kept = nn.mul(nn.widen(getInput()), cosine);
  // Turned as it is stored: a kernel cannot read its own results elsewhere.
  Value half = nn.widen(nn.unary<RotateHalfOp>(getInput()));
  Value turned = nn.mul(half, sine);
  Value result = getInverse() ? nn.sub(kept, turned) : nn.add(kept, turned);
  return {nn.castLike(result, getResult())};
}

//===----------------------------------------------------------------------===//
// Activations
//===----------------------------------------------------------------------===//

/// x Φ(x), or its approximation by tanh (Hendrycks and Gimpel 2016).
Values GeluOp::decompose(OpBuilder &builder) {
  NNBuilder nn(builder, getLoc());
  Value x = nn.widen(getInput());
  Value bend;
  if (getApproximate()) {
    Value polynomial = nn.shift(nn.scale(nn.mul(x, x), 0.044715), 1.0);
    Value u = nn.scale(nn.mul(x, polynomial), std::sqrt(2.0 / M_PI));
    bend = nn.unary<TanhOp>(u);
  } else {
    bend = nn.unary<ErfOp>(nn.scale(x, M_SQRT1_2));
  }
  Value result = nn.mul(x, nn.shift(nn.scale(bend, 0.5), 0.5));
  return {nn.castLike(result, getResult())};
}

Values GeluGradOp::decompose(OpBuilder &builder) {
  NNBuilder nn(builder, getLoc());
  // From the input alone: what the forward pass made of it need not be kept.
  Value x = nn.widen(getInput());
  Value slope;
  Value square = nn.mul(x, x);
  if (getApproximate()) {
    // t = tanh(u), u = c (x + a x³):
    // y' = (1 + t) / 2 + x (1 - t²) c (1 + 3 a x²) / 2.
    const double c = std::sqrt(2.0 / M_PI), a = 0.044715;
    Value polynomial = nn.shift(nn.scale(square, a), 1.0);
    Value u = nn.scale(nn.mul(x, polynomial), c);
    Value t = nn.unary<TanhOp>(u);
    Value half = nn.shift(nn.scale(t, 0.5), 0.5);
    Value sech2 = nn.shift(nn.neg(nn.mul(t, t)), 1.0);
    Value du = nn.shift(nn.scale(square, 3 * a * c / 2), c / 2);
    Value bend = nn.mul(nn.mul(x, sech2), du);
    slope = nn.add(half, bend);
  } else {
    // y' = Φ(x) + x φ(x).
    Value erf = nn.unary<ErfOp>(nn.scale(x, M_SQRT1_2));
    Value cdf = nn.shift(nn.scale(erf, 0.5), 0.5);
    Value bell = nn.exp(nn.scale(square, -0.5));
    Value pdf = nn.scale(bell, 1.0 / std::sqrt(2.0 * M_PI));
    slope = nn.add(cdf, nn.mul(x, pdf));
  }
  Value result = nn.mul(nn.widen(getGradient()), slope);
  return {nn.castLike(result, getResult())};
}

/// x σ(x).
Values SiluOp::decompose(OpBuilder &builder) {
  NNBuilder nn(builder, getLoc());
  Value x = nn.widen(getInput());
  Value result = nn.mul(x, nn.unary<SigmoidOp>(x));
  return {nn.castLike(result, getResult())};
}
