//===- AdamW.cpp - The update of AdamW ------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Updates.h"

using namespace mlir;
using namespace plait;
using nn::NNBuilder;
using nn::Slot;

namespace {

/// Holds what all parameters have alike: ε, the step's size, and 1 - η λ.
struct Numbers {
  Value epsilon, rate, keep;
};

/// Returns the value that a parameter moves to along m / (root + ε), decayed
/// before.
Value moveWeight(NNBuilder &nn, const UpdatedParameter &parameter, Value m,
                 Value root, const Numbers &numbers) {
  Value denominator = nn.add(root, spread(nn, numbers.epsilon, parameter));
  Value w = parameter.read(Slot::Value);
  if (parameter.decays)
    w = times(nn, w, numbers.keep, parameter);
  Value direction = nn.div(m, denominator);
  Value delta = times(nn, direction, numbers.rate, parameter);
  return nn.sub(w, delta);
}

/// torch.optim.AdamW: m = β₁ m + (1 - β₁) g, v = β₂ v + (1 - β₂) g²,
/// w = (1 - η λ) w - η / (1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + ε).
class AdamW : public UpdateRule {
public:
  AdamW(NNBuilder &nn, ScalarReader readScalar) : nn(nn) {
    // The quotients and roots are taken once a step, not once an element.
    beta1 = readScalar("Beta1");
    beta2 = readScalar("Beta2");
    numbers.epsilon = readScalar("Epsilon");
    rest1 = complement(nn, beta1);
    rest2 = complement(nn, beta2);
    Value rate = readScalar("LearningRate");
    numbers.rate = nn.div(rate, readScalar("BiasCorrection1"));
    Value root = nn.unary<nn::SqrtOp>(readScalar("BiasCorrection2"));
    Value one = nn.fillLike(root, 1.0);
    inverseRoot2 = nn.div(one, root);
    numbers.keep = complement(nn, nn.mul(rate, readScalar("WeightDecay")));
  }

  /// Decay is decoupled (Loshchilov and Hutter 2019): it scales the value and
  /// does not enter the moments.
  Update apply(const UpdatedParameter &parameter) override {
    Value g = parameter.gradient;
    Value oldM =
        times(nn, parameter.read(Slot::getState("moment1")), beta1, parameter);
    Value newM = times(nn, g, rest1, parameter);
    Value m = nn.add(oldM, newM);
    Value oldV =
        times(nn, parameter.read(Slot::getState("moment2")), beta2, parameter);
    Value square = nn.mul(g, g);
    Value newV = times(nn, square, rest2, parameter);
    Value v = nn.add(oldV, newV);
    // √v / √(1 - β₂ᵗ) and not √(v / (1 - β₂ᵗ)), as PyTorch computes it.
    Value root = times(nn, nn.unary<nn::SqrtOp>(v), inverseRoot2, parameter);
    return {moveWeight(nn, parameter, m, root, numbers), {m, v}};
  }

private:
  NNBuilder &nn;
  Value beta1, rest1, beta2, rest2, inverseRoot2;
  Numbers numbers;
};

/// The compressed steps of 1-bit Adam (Tang et al. 2021, Algorithm 1): what
/// comes as gradient is the momentum m, v stays as it is, and
/// w = (1 - η λ) w - η · m / (√v + ε), without corrections of a bias. Where v
/// is 0 nothing has moved the weight so far; a sign has no zero, and would.
class FrozenAdamW : public UpdateRule {
public:
  FrozenAdamW(NNBuilder &nn, ScalarReader readScalar) : nn(nn) {
    numbers.epsilon = readScalar("Epsilon");
    numbers.rate = readScalar("LearningRate");
    numbers.keep =
        complement(nn, nn.mul(numbers.rate, readScalar("WeightDecay")));
  }

  Update apply(const UpdatedParameter &parameter) override {
    Value v = parameter.read(Slot::getState("moment2"));
    Value moves = complement(nn, nn.unary<nn::IsZeroOp>(v));
    Value m = nn.mul(parameter.gradient, moves);
    Value root = nn.unary<nn::SqrtOp>(v);
    return {moveWeight(nn, parameter, m, root, numbers), {m}};
  }

private:
  NNBuilder &nn;
  Numbers numbers;
};

} // namespace

std::unique_ptr<UpdateRule> plait::createFrozenAdamW(NNBuilder &nn,
                                                     ScalarReader readScalar) {
  return std::make_unique<FrozenAdamW>(nn, readScalar);
}

namespace plait {
std::unique_ptr<UpdateRule> createAdamW(NNBuilder &nn,
                                        ScalarReader readScalar) {
  return std::make_unique<AdamW>(nn, readScalar);
}
} // namespace plait
