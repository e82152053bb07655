//===- Lion.cpp - The update of Lion --------------------------------------===//
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
    Value old = parameter.read(Slot::getState("momentum"));
    Value c = mix(old, beta1, g, rest1, parameter);
    Value m = mix(old, beta2, g, rest2, parameter);
    Value w = parameter.read(Slot::Value);
    if (parameter.decays)
      w = times(nn, w, keep, parameter);
    Value delta = times(nn, sign(nn, c), rate, parameter);
    return {nn.sub(w, delta), {m}};
  }

private:
  Value mix(Value old, Value share, Value added, Value rest,
            const UpdatedParameter &parameter) {
    Value kept = times(nn, old, share, parameter);
    Value part = times(nn, added, rest, parameter);
    return nn.add(kept, part);
  }

  NNBuilder &nn;
  Value rate, beta1, rest1, beta2, rest2, keep;
};

} // namespace

namespace plait {
std::unique_ptr<UpdateRule> createLion(NNBuilder &nn, ScalarReader readScalar) {
  return std::make_unique<Lion>(nn, readScalar);
}
} // namespace plait
