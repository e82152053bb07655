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

using namespace mlir;
using namespace plait;
using nn::NNBuilder;

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

// X(name, function): the rules, each of which is defined in a file of its own.
#define PLAIT_UPDATE_RULES(X)                                                  \
  X("adamw", createAdamW)                                                      \
  X("sgd", createSGD)                                                          \
  X("lion", createLion)                                                        \
  X("muon", createMuon)                                                        \
  X("muon-match-rms", createMuonMatchRMS)

namespace plait {
#define PLAIT_DECLARE(name, function)                                          \
  std::unique_ptr<UpdateRule> function(NNBuilder &nn, ScalarReader readScalar);
PLAIT_UPDATE_RULES(PLAIT_DECLARE)
#undef PLAIT_DECLARE
} // namespace plait

std::unique_ptr<UpdateRule> plait::createUpdateRule(StringRef optimizer,
                                                    NNBuilder &nn,
                                                    ScalarReader readScalar) {
#define PLAIT_CREATE(name, function)                                           \
  if (optimizer == name)                                                       \
    return function(nn, readScalar);
  PLAIT_UPDATE_RULES(PLAIT_CREATE)
#undef PLAIT_CREATE
  llvm_unreachable("the name has been checked by the caller");
}
