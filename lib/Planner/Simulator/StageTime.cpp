//===- StageTime.cpp - Time of stages -------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a virtual stage takes for one microbatch, from the times of its blocks.
//
//===----------------------------------------------------------------------===//

#include "Estimator.h"

#include <algorithm>
#include <limits>
#include <ranges>
#include <tuple>

using namespace plait;
using namespace plait::planner;

/// Of one microbatch. All parts are sums over blocks, since a rank runs them
/// one after the other; that nothing overlaps across blocks is the model's
/// assumption.
StageTime Estimator::timeStage(const StageBlocks &stage) {
  StageTime sum;
  for (const StageBlocks::Entry &entry : stage.entries) {
    const StageTime &time = timeBlocks(entry.recompute)[entry.block];
    sum.forward += entry.count * time.forward;
    sum.backwardInput += entry.count * time.backwardInput;
    sum.backwardWeight += entry.count * time.backwardWeight;
    sum.recompute += entry.count * time.recompute;
    sum.tensorForward += entry.count * time.tensorForward;
    sum.tensorBackward += entry.count * time.tensorBackward;
    sum.contextForward += entry.count * time.contextForward;
    sum.contextBackward += entry.count * time.contextBackward;
    sum.expertsForward += entry.count * time.expertsForward;
    sum.expertsBackward += entry.count * time.expertsBackward;
    sum.drained += entry.count * time.drained;
    sum.fetchedInput += entry.count * time.fetchedInput;
    sum.fetchedWeight += entry.count * time.fetchedWeight;
    sum.memory += entry.count * time.memory;
    sum.launch += entry.count * time.launch;
  }
  moveInputTime(stage, sum);
  const StageBlocks::Entry &last = stage.entries.back();
  sum.early = timeBlocks(last.recompute)[last.block].early;
  addCopies(stage, sum);
  return sum;
}

/// Moves the gradient of what the first layer reads, for which nobody waits but
/// gradients of weights, behind these where they run apart.
void Estimator::moveInputTime(const StageBlocks &stage, StageTime &sum) {
  bool isFirst =
      work.before > 0 && stage.entries.front().block == work.order[0];
  if (!generator->splitsBackward || !isFirst)
    return;
  for (const StageBlocks::Entry &entry : stage.entries) {
    const BlockTime &time = timeBlocks(entry.recompute)[entry.block];
    sum.backwardInput -= time.ofInput;
    sum.backwardWeight += time.ofInput - time.ofInputHidden;
    sum.tensorBackward -= time.ofInputHidden;
    if (entry.block == work.order[work.before])
      return;
  }
}

/// Returns what passes of `stage` wait for of ZeRO's exchanges. Of what the
/// stages of a cut exchange a bound knows nothing.
PassWaits Estimator::getWaits(const StageBlocks &stage) const {
  if (!waitsForParts(context))
    return {};
  if (context.boundsCuts) {
    constexpr double any = std::numeric_limits<double>::infinity();
    return {any, any, any};
  }
  std::vector<const BlockTime *> times;
  for (const StageBlocks::Entry &entry : stage.entries)
    times.push_back(&(*blockTimes[size_t(entry.recompute)])[entry.block]);
  return getPassWaits(stage, times, generator->splitsBackward, context);
}

/// Returns for how long what the first half of a backward pass leaves to the
/// second is on its way when it ends, block behind block in one stream. What a
/// block passes on is left by it, but for messages.
double Estimator::getLeavingBehind(const StageBlocks &stage) {
  double behind = 0;
  for (const StageBlocks::Entry &entry : std::views::reverse(stage.entries)) {
    const BlockTime &time = timeBlocks(entry.recompute)[entry.block];
    double lasts = time.backwardInput + time.fetchedInput;
    double passes =
        toCopies(getHalves(entry, context).passed, context).getSeconds(context);
    for (int i = 0; i < entry.count; ++i) {
      double passed = &entry == &stage.entries.back() && i == 0 ? 0 : passes;
      behind =
          std::max(time.leavingBehind, behind + passed + time.leaving - lasts);
    }
  }
  return behind;
}

/// What is kept goes to its place beside the forward pass and comes back beside
/// the backward ones, of which each takes what it needs, and the first also
/// sends what the second needs of it. There is a stream for each way. Nothing
/// is computed beside the copy of what is made last, nor while it comes back,
/// first of all. Copies go on while a pass waits for what ZeRO exchanges.
void Estimator::addCopies(const StageBlocks &stage, StageTime &time) {
  if (!offloadsActivations(configuration.offload))
    return;
  PassWaits waits = getWaits(stage);
  OffloadCopies copies = getCopies(stage, context);
  double all = copies.saved.getSeconds(context),
         last = copies.last.getSeconds(context);
  time.copiedForward = std::max(last, all - time.forward - waits.forward);
  time.forward += time.copiedForward;
  // Two passes, or the two parts of one.
  bool splits = generator->splitsBackward;
  double beside = time.backwardInput + (splits ? 0 : time.backwardWeight);
  double back = (splits ? copies.inputs : copies.saved).getSeconds(context);
  // The whole model on one stage bounds cuts where some of it is a message.
  bool isKnown = !context.boundsCuts;
  time.copiedInput =
      std::max({last, back - beside, isKnown ? time.fetchedInput : 0});
  if (splits) {
    time.copiedInput =
        std::max({time.copiedInput, copies.made.getSeconds(context) - beside,
                  isKnown ? time.fetchedInput + getLeavingBehind(stage) : 0});
    time.copiedWeight =
        std::max(isKnown ? time.fetchedWeight : 0,
                 copies.weights.getSeconds(context) - time.backwardWeight);
  }
  // Reductions end in the second half, or behind what is fetched of a layer.
  if (configuration.zero >= 3)
    time.copiedInput = std::max(0.0, time.copiedInput - waits.backward);
  time.copiedWeight = std::max(0.0, time.copiedWeight - waits.weights);
  time.backwardInput += time.copiedInput;
  time.backwardWeight += time.copiedWeight;
}

/// Kernels on the stream that computes, in front of both passes and behind the
/// gradients.
void Estimator::addPacking(double parameters, StageTime &time) const {
  const Framework &framework = context.framework();
  if (configuration.zero < 3)
    return;
  auto add = [&](double &pass, double bytes) {
    Cost cost = memoryCost(parameters * bytes, context.cluster.device);
    pass += cost.seconds;
    time.memory += cost.memory;
    time.launch += cost.launch;
  };
  if (framework.unpackedBytes > 0) {
    add(time.forward, framework.unpackedBytes);
    add(time.backwardInput, framework.unpackedBytes);
  }
  if (framework.packedBytes > 0)
    add(time.backwardWeight, framework.packedBytes);
}

/// Whether two stages run the same blocks.
static bool isAlike(const StageBlocks &a, const StageBlocks &b) {
  auto key = [](const StageBlocks::Entry &entry) {
    return std::tuple(entry.block, entry.count, entry.recompute);
  };
  return std::ranges::equal(a.entries, b.entries, {}, key, key);
}

/// Finds the first stage that runs the same blocks, which may be that itself.
size_t Estimator::findAlike(size_t stage) const {
  return size_t(std::ranges::find_if(stages,
                                     [&](const StageBlocks &known) {
                                       return isAlike(stages[stage], known);
                                     }) -
                stages.begin());
}

/// With several microbatches each one's gradients are added to a sum, which
/// counts as part of the gradient of weights. One microbatch writes them
/// without adding. Most stages run what one in front of them does.
void Estimator::timeStages() {
  bool accumulates = configuration.microbatches(context.training) > 1;
  result.stages.clear();
  result.stages.reserve(stages.size());
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageBlocks &stage = stages[i];
    if (size_t alike = findAlike(i); alike < i) {
      StageTime time = result.stages[alike];
      result.stages.push_back(time);
      continue;
    }
    StageTime &sum = result.stages.emplace_back(timeStage(stage));
    const StageBlocks *one[] = {&stage};
    Elements parameters = countParameters(work, one);
    double divided = 0;
    for (bool experts : {false, true})
      divided += context.zero(experts) >= 3 ? parameters.of(experts) : 0;
    addPacking(divided, sum);
    if (!accumulates)
      continue;
    Cost adding = getAccumulationCost(stage, context);
    sum.backwardWeight += adding.seconds;
    sum.memory += adding.memory;
    sum.launch += adding.launch;
  }
}
