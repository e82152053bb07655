//===- SGD.cpp - The update of SGD ----------------------------------------===//
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
    Value old = times(nn, parameter.read(Slot::getState("momentum")), momentum,
                      parameter);
    Value m = nn.add(old, g);
    Value delta = times(nn, m, rate, parameter);
    return {nn.sub(w, delta), {m}};
  }

private:
  NNBuilder &nn;
  Value rate, momentum, decay;
};

} // namespace

namespace plait {
std::unique_ptr<UpdateRule> createSGD(NNBuilder &nn, ScalarReader readScalar) {
  return std::make_unique<SGD>(nn, readScalar);
}
} // namespace plait
