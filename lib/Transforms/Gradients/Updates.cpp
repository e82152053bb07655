//===- Updates.cpp - Update rules of optimizers ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the rules of optimizers share, and which of them is whose. The
// arithmetic of each is in a file of its own; BuildOptimizer.cpp decides what
// the parameters are and where state lies.
//
// A rule creates its factors once, for all parameters; apply() writes the ops
// of one parameter, which fuse into one kernel that reads each slot once. No
// argument list creates two ops: C++ leaves their order open, and plans have to
// be the same byte for byte.
//
//===----------------------------------------------------------------------===//

#include "Updates.h"

#include "plait/Dialect/NN/IR/Parameters.h"

using namespace mlir;
using namespace plait;
using nn::NNBuilder;

Value plait::clipFactor(NNBuilder &nn, Value norm, Value limit) {
  Value ratio = nn.div(limit, nn.shift(norm, 1e-6));
  Value one = nn.fillLike(norm, 1.0);
  Value factor = nn.binary<nn::MinOp>(ratio, one);
  // Both cases are computed and one is chosen by factors of 0 and 1: the limit
  // is known only when a step runs.
  Value off = nn.unary<nn::IsZeroOp>(limit);
  Value on = nn.sub(one, off);
  Value active = nn.mul(factor, on);
  return nn.add(active, off);
}

Value plait::complement(NNBuilder &nn, Value scalar) {
  return nn.shift(nn.neg(scalar), 1.0);
}

Value plait::spread(NNBuilder &nn, Value scalar,
                    const UpdatedParameter &parameter) {
  return nn.broadcast(scalar, parameter.shape, {});
}

Value plait::times(NNBuilder &nn, Value value, Value scalar,
                   const UpdatedParameter &parameter) {
  Value factor = spread(nn, scalar, parameter);
  return nn.mul(value, factor);
}

/// x / |x| is 1 or -1 exactly; of zero it is 0 / 1.
Value plait::sign(NNBuilder &nn, Value x) {
  Value negative = nn.neg(x);
  Value size = nn.neg(nn.binary<nn::MinOp>(x, negative));
  Value isZero = nn.unary<nn::IsZeroOp>(x);
  Value divisor = nn.add(size, isZero);
  return nn.div(x, divisor);
}

RuleKey::RuleKey(nn::ParameterOp parameter, const Optimizer &main)
    : optimizer(&nn::findOptimizer(parameter, main)),
      isBalance(parameter.getBalance().has_value()),
      number(isBalance ? parameter.getBalance()->convertToDouble()
                       : parameter.getRateFactor()) {}

namespace {
/// Takes `balance` times the sign of the gradient off, and writes none of the
/// optimizer's states. Of the counts of tokens that experts have
/// taken, less their mean, that is the rule of Wang et al. 2024,
/// "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts".
class Balance : public UpdateRule {
public:
  Balance(NNBuilder &nn, double balance) : nn(nn), balance(balance) {}

  Update apply(const UpdatedParameter &parameter) override {
    Value old = parameter.read(nn::Slot::Value);
    Value delta = nn.scale(sign(nn, parameter.gradient), balance);
    return {nn.sub(old, delta), {}};
  }

private:
  NNBuilder &nn;
  double balance;
};
} // namespace

namespace plait {
#define PLAIT_OPTIMIZER(rule, ...)                                             \
  std::unique_ptr<UpdateRule> create##rule(NNBuilder &nn,                      \
                                           ScalarReader readScalar);
#include "plait/Configuration/Optimizers.def"
} // namespace plait

/// The learning rate is the run's times what optimizer and parameter say.
std::unique_ptr<UpdateRule> plait::createUpdateRule(const Optimizer &main,
                                                    NNBuilder &nn,
                                                    ScalarReader readShared,
                                                    RuleKey key,
                                                    bool takesMomentum) {
  if (key.isBalance)
    return std::make_unique<Balance>(nn, key.number);
  const Optimizer &own = *key.optimizer;
  auto readScalar = [&](StringRef name) {
    if (name != "LearningRate")
      return readShared(getScalarName(own, main, name));
    Value value = readShared(name);
    if (key.number != 1)
      value = nn.scale(value, key.number);
    return &own == &main ? value
                         : nn.mul(value, readShared(getRateScalar(own)));
  };
  if (takesMomentum)
    return createFrozenAdamW(nn, readScalar);
#define PLAIT_OPTIMIZER(rule, title, ...)                                      \
  if (own.name == std::string_view(title))                                     \
    return create##rule(nn, readScalar);
#include "plait/Configuration/Optimizers.def"
  llvm_unreachable("the name has been checked by the caller");
}
