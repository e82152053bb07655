//===- StateMemory.cpp - Memory of what a rank holds ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bytes of parameters, gradients and the optimizer's state, as ZeRO divides
// them.
//
//===----------------------------------------------------------------------===//

#include "Communicators.h"
#include "RankMemory.h"

#include "plait/Configuration/CompressionFacts.h"

#include <utility>

using namespace plait;
using namespace plait::planner;

/// Counts what a rank has of `elements`, of which ranks divide all but `whole`
/// from ZeRO stage `level` on.
static double countShare(Elements elements, Elements whole, int level,
                         const Context &context) {
  double share = 0;
  for (bool experts : {false, true}) {
    double kept = context.zero(experts) >= level ? whole.of(experts)
                                                 : elements.of(experts);
    share += kept + (elements.of(experts) - kept) / context.divisions(experts);
  }
  return share;
}

/// Counts by what each ZeRO stage divides: the optimizer's state from 1 on,
/// gradients from 2 on, parameters from 3 on (Rajbhandari et al. 2020). What
/// cannot be divided by itself is treated as by ZeRO 1.
StageMemory planner::getMemory(const Holdings &holdings,
                               const Context &context) {
  const Configuration &configuration = context.configuration;
  const Training &training = context.training;
  double element = elementBytes(training.precision);
  auto countHeld = [&](int level) {
    return countShare(holdings.parameters,
                      level > 1 ? holdings.whole : Elements(), level, context);
  };
  StageMemory memory;
  memory.parameters = countHeld(3) * element;
  memory.parameters +=
      countShare(holdings.frozen, holdings.frozenWhole, 3, context) * element;
  // A master of 4 bytes stands beside a shorter copy of what is saved.
  if (training.precision != Precision::FP32)
    memory.parameters +=
        countShare(holdings.mastered, holdings.masteredWhole, 3, context) * 4;
  memory.gradients = countHeld(2) * context.gradientBytes();
  for (bool experts : {false, true})
    if (context.addsToErrors(experts))
      memory.gradients -=
          Elements(holdings.alone).of(experts) * context.gradientBytes();
  // A program that reduces into another buffer holds its part twice.
  if (context.framework().separateReduction)
    for (bool experts : {false, true}) {
      Elements reduced =
          context.zero(experts) == 1 ? holdings.parameters : holdings.whole;
      if (context.zero(experts) >= 1)
        memory.gradients += reduced.of(experts) * context.gradientBytes() /
                            context.divisions(experts);
    }
  // And a 4-byte copy of parameters that are shorter.
  memory.optimizer =
      countHeld(1) *
      (training.stateBytes + (training.precision != Precision::FP32 ? 4 : 0));
  // Each rank has all of what it has not sent, and the factors it goes on with.
  memory.parameters += holdings.factors * double(sizeof(float));
  if (!getCompressionStates(training.compress).empty()) {
    double sent = holdings.parameters.all();
    sent -= sendsFactors(training.compress) ? holdings.unfactored : 0;
    memory.optimizer += (sent - countHeld(1)) * double(sizeof(float));
    if (keepsSumError(training.compress))
      memory.optimizer +=
          sent / double(configuration.mesh[Axis::DP]) * double(sizeof(float));
  }
  // Like the parameters that they are about, of which ranks divide masters
  // only.
  memory.optimizer +=
      training.outer.getStateBytes() * (training.precision == Precision::FP32
                                            ? holdings.parameters.all()
                                            : countHeld(1));
  // All of them, or none, are divided: what is not is rare and small.
  memory.optimizer += context.getShare(holdings.otherState, 1);
  if (MemoryPlace place = configuration.offload.optimizer;
      context.isApart(place))
    std::swap(memory.optimizer, memory.offloaded[place]);
  memory.workspace = holdings.temporary +
                     (context.zero(/*experts=*/true) >= 3 ? holdings.gathered
                      : configuration.zero >= 3 ? holdings.gatheredDense
                                                : 0);
  memory.reserved = context.cluster.device.reservedBytes;
  memory.communicators = getUnreservedBytes(context);
  return memory;
}
