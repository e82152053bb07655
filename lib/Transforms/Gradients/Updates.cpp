//===- Updates.cpp - Update rules of optimizers ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The arithmetic of AdamW, SGD and Lion as ops on one parameter.
// BuildOptimizer.cpp decides what the parameters are and where state lies.
//
// A rule creates its factors once, for all parameters; apply() writes the ops
// of one parameter, which fuse into one kernel that reads each slot once. No
// argument list creates two ops: C++ leaves their order open, and plans have to
// be the same byte for byte.
//
//===----------------------------------------------------------------------===//

#include "Updates.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace plait;
using nn::NNBuilder;
using nn::Slot;

using ScalarReader = llvm::function_ref<Value(StringRef)>;

/// 1 - `scalar`.
static Value complement(NNBuilder &nn, Value scalar) {
  return nn.shift(nn.neg(scalar), 1.0);
}

/// `scalar` in the shape of the parameter.
static Value spread(NNBuilder &nn, Value scalar,
                    const UpdatedParameter &parameter) {
  return nn.broadcast(scalar, parameter.shape, {});
}

/// `value` times a number that all parameters share.
static Value times(NNBuilder &nn, Value value, Value scalar,
                   const UpdatedParameter &parameter) {
  Value factor = spread(nn, scalar, parameter);
  return nn.mul(value, factor);
}

namespace {

/// torch.optim.AdamW: m = β₁ m + (1 - β₁) g, v = β₂ v + (1 - β₂) g²,
/// w = (1 - η λ) w - η / (1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + ε).
class AdamW : public UpdateRule {
public:
  AdamW(NNBuilder &nn, ScalarReader readScalar) : nn(nn) {
    // The quotients and roots are taken once a step, not once an element.
    Value rate = readScalar("LearningRate");
    beta1 = readScalar("Beta1");
    beta2 = readScalar("Beta2");
    epsilon = readScalar("Epsilon");
    rest1 = complement(nn, beta1);
    rest2 = complement(nn, beta2);
    stepSize = nn.div(rate, readScalar("BiasCorrection1"));
    Value root = nn.unary<nn::SqrtOp>(readScalar("BiasCorrection2"));
    Value one = nn.fillLike(root, 1.0);
    inverseRoot2 = nn.div(one, root);
    keep = complement(nn, nn.mul(rate, readScalar("WeightDecay")));
  }

  /// Decay is decoupled (Loshchilov and Hutter 2019): it scales the value and
  /// does not enter the moments.
  Update apply(const UpdatedParameter &parameter) override {
    Value g = parameter.gradient;
    Value oldM = times(nn, parameter.read(Slot::Moment1), beta1, parameter);
    Value newM = times(nn, g, rest1, parameter);
    Value m = nn.add(oldM, newM);
    Value oldV = times(nn, parameter.read(Slot::Moment2), beta2, parameter);
    Value square = nn.mul(g, g);
    Value newV = times(nn, square, rest2, parameter);
    Value v = nn.add(oldV, newV);
    // √v / √(1 - β₂ᵗ) and not √(v / (1 - β₂ᵗ)), as PyTorch computes it.
    Value root = times(nn, nn.unary<nn::SqrtOp>(v), inverseRoot2, parameter);
    Value denominator = nn.add(root, spread(nn, epsilon, parameter));
    Value w = parameter.read(Slot::Value);
    if (parameter.decays)
      w = times(nn, w, keep, parameter);
    Value direction = nn.div(m, denominator);
    Value delta = times(nn, direction, stepSize, parameter);
    return {nn.sub(w, delta), {m, v}};
  }

private:
  NNBuilder &nn;
  Value beta1, rest1, beta2, rest2, epsilon, stepSize, inverseRoot2, keep;
};

/// torch.optim.SGD with momentum μ, which is Beta1, and neither dampening nor
/// Nesterov's step: m = μ m + g + λ w, w = w - η m. Decay is coupled: it is
/// part of the momentum.
class SGD : public UpdateRule {
public:
  SGD(NNBuilder &nn, ScalarReader readScalar) : nn(nn) {
    rate = readScalar("LearningRate");
    momentum = readScalar("Beta1");
    decay = readScalar("WeightDecay");
  }

  Update apply(const UpdatedParameter &parameter) override {
    Value g = parameter.gradient;
    Value w = parameter.read(Slot::Value);
    if (parameter.decays) {
      Value pull = times(nn, w, decay, parameter);
      g = nn.add(g, pull);
    }
    Value old = times(nn, parameter.read(Slot::Moment1), momentum, parameter);
    Value m = nn.add(old, g);
    Value delta = times(nn, m, rate, parameter);
    return {nn.sub(w, delta), {m}};
  }

private:
  NNBuilder &nn;
  Value rate, momentum, decay;
};

/// Lion (Chen et al. 2023, Algorithm 2): c = β₁ m + (1 - β₁) g,
/// w = (1 - η λ) w - η sign(c), m = β₂ m + (1 - β₂) g.
class Lion : public UpdateRule {
public:
  Lion(NNBuilder &nn, ScalarReader readScalar) : nn(nn) {
    rate = readScalar("LearningRate");
    beta1 = readScalar("Beta1");
    beta2 = readScalar("Beta2");
    rest1 = complement(nn, beta1);
    rest2 = complement(nn, beta2);
    keep = complement(nn, nn.mul(rate, readScalar("WeightDecay")));
  }

  /// The step follows the sign of one mixture, the momentum keeps another.
  Update apply(const UpdatedParameter &parameter) override {
    Value g = parameter.gradient;
    Value old = parameter.read(Slot::Moment1);
    Value c = mix(old, beta1, g, rest1, parameter);
    Value m = mix(old, beta2, g, rest2, parameter);
    Value w = parameter.read(Slot::Value);
    if (parameter.decays)
      w = times(nn, w, keep, parameter);
    Value delta = times(nn, sign(c), rate, parameter);
    return {nn.sub(w, delta), {m}};
  }

private:
  Value mix(Value old, Value share, Value added, Value rest,
            const UpdatedParameter &parameter) {
    Value kept = times(nn, old, share, parameter);
    Value part = times(nn, added, rest, parameter);
    return nn.add(kept, part);
  }

  /// x / |x| is 1 or -1 exactly; of zero it is 0 / 1.
  Value sign(Value x) {
    Value negative = nn.neg(x);
    Value size = nn.neg(nn.binary<nn::MinOp>(x, negative));
    Value isZero = nn.unary<nn::IsZeroOp>(x);
    Value divisor = nn.add(size, isZero);
    return nn.div(x, divisor);
  }

  NNBuilder &nn;
  Value rate, beta1, rest1, beta2, rest2, keep;
};

} // namespace

template <typename Rule>
static std::unique_ptr<UpdateRule> create(NNBuilder &nn,
                                          ScalarReader readScalar) {
  return std::make_unique<Rule>(nn, readScalar);
}

std::unique_ptr<UpdateRule> plait::createUpdateRule(StringRef optimizer,
                                                    NNBuilder &nn,
                                                    ScalarReader readScalar) {
  using Create = std::unique_ptr<UpdateRule> (*)(NNBuilder &, ScalarReader);
  Create chosen = llvm::StringSwitch<Create>(optimizer)
                      .Case("adamw", create<AdamW>)
                      .Case("sgd", create<SGD>)
                      .Case("lion", create<Lion>)
                      .Default(nullptr);
  // The names have been checked by the caller: there is no other.
  return chosen(nn, readScalar);
}
