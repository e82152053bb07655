//===- StepEndTime.cpp - Costs of the end of a step -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a step takes beside its pipeline and what replicas exchange
// (ReplicaTime.cpp): the wait for the slowest replica, the optimizer. All of it
// is of the rank that holds the most parameters, since the others are done
// sooner and wait. What frameworks do differently is in Framework, not here.
//
//===----------------------------------------------------------------------===//

#include "Packs.h"

#include "Cost/Parts.h"
#include "RankMemory.h"
#include "plait/Configuration/CompressionFacts.h"

#include <algorithm>
#include <cmath>
#include <utility>

using namespace plait;
using namespace plait::planner;

/// The usual approximation of how many standard deviations the largest of many
/// normal samples is expected above the mean.
/// Sites are replicas here, too: they tell each other of their loss.
double planner::getWaitShare(const Configuration &configuration,
                             const Training &training) {
  double replicas = double(configuration.mesh.batchParts()) *
                    double(training.outer.countSites());
  return std::sqrt(2 * std::log(replicas)) * training.framework.spread;
}

namespace {

/// Pieces, each of some tensors, that come from another place, are updated and
/// go back, one behind the other in each of three streams. One goes into the
/// place of the one before the last, of which all tensors but the last have to
/// be back there by then. So a large one beside small ones waits for its own
/// copies.
struct OffloadedPieces {
  double tensors;
  double fetched = 0, updated = 0, back = 0; // until when
  double room = 0, next = 0; // for a piece and for the next one: from when on

  void add(double copying, double updating) {
    fetched = std::max(fetched, room) + copying;
    updated = std::max(fetched, updated) + updating;
    back = std::max(updated, back) + copying;
    room = std::exchange(next, back - copying / tensors);
  }
};

} // namespace

/// Seconds until all of what is offloaded is updated and back there, with
/// `moved` bytes of an element that are copied and `updated` that the update
/// reads and writes. Of what is not known one by one no more is certain than
/// that all is copied.
static double getCopySeconds(double moved, double updated, const StepLoad &load,
                             const Context &context) {
  const Device &device = context.cluster.device;
  double rate =
      device.places[context.configuration.offload.optimizer].bandwidth;
  if (load.stages.empty()) {
    return context.getShare(load.parameters, 1) * moved / rate;
  }
  // State and masters are tensors of their own.
  double launches = moved / sizeof(float) * device.launchSeconds;
  OffloadedPieces pieces{std::max(1.0, moved / sizeof(float))};
  forEachFetched(load, context, [&](double elements) {
    pieces.add(launches + elements * moved / rate,
               memoryCost(elements * updated, device).seconds);
  });
  return pieces.back;
}

/// Sums of squares of what is updated in parts along the same axes are one
/// number, which is summed over these. A pack is divided whatever its members'
/// sizes are, which matrices are not in. Where ep divides state, too, experts
/// are in parts along the same axes as all else that is divided.
static PerAxis<int> countNorms(const StepLoad &load, const Context &context) {
  bool known[2][2][2] = {}; // by whether ZeRO, tp and ep have made parts
  bool isJoined = context.framework().joinsReplicas;
  forEachGroup(context.work, load.stages,
               [&](const ParameterGroup &group, int) {
                 bool isWhole = group.isMatrix(context.training) &&
                                !context.isDivided(group);
                 bool isDivided = context.zero(false) >= 1 && !isWhole;
                 known[isDivided][!group.replicated]
                      [group.experts && (isJoined || !isDivided)] = true;
               });
  PerAxis<int> norms;
  norms[Axis::DP] = context.zero(false) >= 1 && load.stages.empty();
  for (bool byData : {false, true})
    for (bool byTensor : {false, true})
      for (bool byExperts : {false, true}) {
        bool isKnown = known[byData][byTensor][byExperts];
        norms[Axis::DP] += byData && isKnown;
        norms[Axis::TP] += byTensor && isKnown;
        norms[Axis::EP] += byExperts && isKnown;
      }
  for (const AxisFacts &facts : kAxes)
    if (facts.dividesState && !isJoined)
      norms[facts.axis] =
          norms[Axis::DP] + (facts.splitsExperts ? norms[facts.axis] : 0);
  norms[Axis::PP] = 1;
  return norms;
}

/// Seconds of all-reduces of one number: of the norm; of loss and tokens over
/// the axes that split tokens, where the loss is, and then over the pipeline.
/// Each waits for the one before.
static double getScalarSeconds(const StepLoad &load, const Context &context) {
  PerAxis<int> norms = countNorms(load, context);
  double seconds = 0;
  for (const AxisFacts &facts : kAxes) {
    int64_t members = context.configuration.mesh[facts.axis];
    if (members == 1)
      continue;
    bool isPipeline = facts.splits == Splits::Stages;
    bool splitsLoss = facts.axis == Axis::TP && context.work.splitsLoss;
    int told = isPipeline || facts.splitsTokens() || splitsLoss ? 2 : 0;
    double one = collectiveSeconds(CollectiveKind::AllReduce, 4,
                                   context.group(facts.axis), context.cluster);
    // Those that send momentum ask for the tokens before that.
    int before = told && sendsMomentum(context.training.compress) ? 1 : 0;
    seconds += (norms[facts.axis] + told + before) * one;
    // Others hear of them from the pipeline.
    bool hears = isPipeline || load.hasLoss;
    double count = norms[facts.axis] + (hears ? told : 0);
    context.note({facts.axis, Carrier::AllReduce, Moment::Optimizer, members,
                  count, 4 * count, count * one});
    if (hears && before)
      context.note(
          {facts.axis, Carrier::AllReduce, Moment::Reduce, members, 1, 4, one});
  }
  return seconds;
}

/// Counts what is done to matrices that are updated as a whole: every rank that
/// has a part of one gathers all of it, and does five Newton-Schulz iterations,
/// each of three products (lib/Transforms/Gradients/Optimizers/Muon.cpp).
static Cost getMatrixCost(const StepLoad &load, const Context &context) {
  Cost cost;
  const Device &device = context.cluster.device;
  constexpr double iterations = 5;
  forEachGroup(
      context.work, load.stages, [&](const ParameterGroup &group, int count) {
        int64_t least = std::min(group.rows, group.columns);
        int64_t most = std::max(group.rows, group.columns);
        if (!group.isMatrix(context.training))
          return;
        Cost one = matmulCost(1, least, least, most, device, Precision::FP32);
        one += matmulCost(1, least, least, least, device, Precision::FP32);
        one += matmulCost(1, least, most, least, device, Precision::FP32);
        cost += (count * iterations) * one;
        if (!group.replicated) {
          double bytes = 4 * double(least) * double(most);
          Group ranks = context.group(Axis::TP);
          double seconds =
              count * collectiveSeconds(CollectiveKind::AllGather, bytes, ranks,
                                        context.cluster);
          context.note({Axis::TP, Carrier::AllGather, Moment::Optimizer,
                        ranks.ranks, double(count), count * bytes, seconds});
          cost.seconds += seconds;
        }
        if (context.zero(group.experts) >= 1 && context.isDivided(group))
          cost.seconds += gatherState(4 * group.elements, group.experts, count,
                                      Moment::Optimizer, context);
      });
  return cost;
}

/// Returns the operations of an element: as kernels have, 13 of SGD with
/// momentum, 26 of AdamW, the norm's included. Lion's 25 count as 13.
static double getUpdateFlops(const Training &training) {
  double states = training.stateBytes / sizeof(float) -
                  (training.compress.feedback ? 1 : 0);
  return 13 * std::max(1.0, states);
}

/// Counts the bytes of an element that are on the host: state and masters come
/// and go at once.
static double countMovedBytes(const Training &training) {
  return training.stateBytes - (training.compress.feedback ? 4 : 0) +
         (training.precision == Precision::FP32 ? 0 : 4);
}

double planner::getMovedSeconds(const StepLoad &load, const Context &context) {
  MemoryPlace place = context.configuration.offload.optimizer;
  if (place == MemoryPlace::Arena)
    return 0;
  return context.getShare(load.parameters, 1) *
         countMovedBytes(context.training) /
         context.cluster.device.places[place].bandwidth;
}

/// Parameters that ZeRO 2 divides are in no pack: each has two kernels
/// of the norm and one of the update, of which one launch is counted with the
/// traffic.
static double getLaunchSeconds(const StepLoad &load, const Context &context) {
  if (!context.framework().dividesParameters)
    return 0;
  double kernels = 0;
  forEachGroup(
      context.work, load.stages, [&](const ParameterGroup &group, int count) {
        if (context.zero(group.experts) == 2 && context.dividesByStage(group))
          kernels += 3 * count;
      });
  return std::max(0.0, kernels - 1) * context.cluster.device.launchSeconds;
}

/// Mostly bound by memory: one pass over gradients, state and parameters,
/// divided where ZeRO divides them, and the norm's all-reduce of one number
/// over all ranks.
Cost planner::getOptimizerCost(const StepLoad &load, const Context &context) {
  const Training &training = context.training;
  double element = elementBytes(training.precision);
  double gradient = context.gradientBytes();
  // Gradients are read for the norm and for the update, and set to zero; the
  // state and parameters of 4 bytes are read and written; short parameters are
  // written anew.
  double bytes = 3 * gradient + 2 * (training.stateBytes + 4) -
                 (sendsMomentum(training.compress) ? 2 * sizeof(float) : 0) +
                 (training.precision == Precision::FP32 ? 0 : element) +
                 context.framework().optimizerExtraBytes;
  double share = context.getShare(load.parameters, 1);
  double norm = getScalarSeconds(load, context);
  const Device &device = context.cluster.device;
  Cost cost =
      kernelCost(share * bytes, share * getUpdateFlops(training), device);
  double launches = getLaunchSeconds(load, context);
  cost.seconds += launches;
  cost.launch += launches;
  MemoryPlace place = context.configuration.offload.optimizer;
  if (place != MemoryPlace::Arena) {
    // Beside the update; the norm has been found by then.
    double moved = countMovedBytes(training);
    double copies = getCopySeconds(moved, bytes - gradient, load, context);
    double copied = share * moved;
    double seconds = getMovedSeconds(load, context);
    double exposed = std::max(0.0, copies - cost.seconds) / 2;
    for (Carrier carrier : {Carrier::To, Carrier::From})
      context.note({std::nullopt, carrier, Moment::Optimizer, 1, 1, copied,
                    seconds, std::max(0.0, seconds - exposed), place});
    cost.seconds = std::max(cost.seconds, copies);
  }
  cost += getMatrixCost(load, context);
  cost.seconds += norm;
  cost.launch += norm; // of four bytes: nothing but latency
  return cost;
}

/// The part of all steps that has `count` exchanges of `bytes` each, of which
/// one takes `seconds`, beside so many of computing; a step has its share.
static double shareSites(Carrier carrier, double count, double bytes,
                         double seconds, const Context &context,
                         double beside = 0) {
  int64_t members = carrier == Carrier::Send ? 2 : context.training.outer.sites;
  double hidden = count * std::min(seconds, beside);
  context.note({std::nullopt, carrier, Moment::Agreement, members, count,
                count * bytes, count * seconds, hidden});
  return count * seconds - hidden;
}

/// Sums or exchanges of blocks by all sites, so many in a step.
static double getTogetherSeconds(CollectiveKind kind, double count,
                                 double bytes, const Context &context,
                                 double beside = 0) {
  int64_t sites = context.training.outer.sites;
  Group group = {int(sites), context.training.sitesOfNode};
  double seconds = context.cluster.sites
                       ? siteCollectiveSeconds(kind, bytes, sites,
                                               context.configuration.ranks(),
                                               context.cluster)
                       : collectiveSeconds(kind, bytes, group, context.cluster);
  return shareSites(getCarrier(kind), count, bytes, seconds, context, beside);
}

/// Messages to neighbours one by one, each behind its latency.
static double getGossipSeconds(double share, double bytes,
                               const Context &context) {
  const Training &training = context.training;
  bool sameNode = training.sitesOfNode >= training.outer.sites;
  double seconds =
      context.cluster.sites
          ? siteTransferSeconds(bytes, context.configuration.ranks(),
                                context.cluster)
          : transferSeconds(bytes, sameNode, context.cluster);
  return shareSites(Carrier::Send, share * training.siteMessages, bytes,
                    seconds, context);
}

/// Returns the bytes of a message of all weights: whole chunks of each
/// parameter, as far as these are known.
static double getCompressedBytes(const StepLoad &load, const Context &context) {
  SiteCompression compress = context.training.outer.getCompression();
  double chunks =
      load.stages.empty() ? load.parameters.all() / compress.chunk : 0;
  bool dividesMasters = context.training.precision != Precision::FP32;
  forEachGroup(
      context.work, load.stages, [&](const ParameterGroup &group, int count) {
        bool isDivided = dividesMasters && context.dividesByStage(group);
        double parts = isDivided ? context.divisions(group.experts) : 1;
        chunks += count *
                  double(compress.countChunks(int64_t(group.elements / parts)));
      });
  return chunks * double(compress.countChunkWords()) * sizeof(uint32_t);
}

/// A message of each site for all others, or the sum in the bytes of fp32.
static double getSumSeconds(double count, double bytes, double compressed,
                            const Context &context, double beside = 0) {
  const Outer &outer = context.training.outer;
  return outer.isCompressed()
             ? getTogetherSeconds(CollectiveKind::AllGather, count,
                                  compressed * double(outer.sites), context,
                                  beside)
             : getTogetherSeconds(CollectiveKind::AllReduce, count, bytes,
                                  context, beside);
}

/// Ranks of one node are threads, which do one thing at a time unless they are
/// told otherwise.
static double getAgreementSeconds(double bytes, double compressed, double step,
                                  const Context &context) {
  const Outer &outer = context.training.outer;
  double each = 1 / double(outer.every);
  if (outer.is(Agreement::Middle))
    return getTogetherSeconds(CollectiveKind::AllToAll, each, bytes, context) +
           getTogetherSeconds(CollectiveKind::AllGather, each, bytes, context);
  if (outer.is(Agreement::Streaming)) {
    double parts = double(outer.fragments) * outer.countParts();
    bool isBeside =
        outer.delay && (context.cluster.sites || context.cluster.nodes > 1);
    return getSumSeconds(each * parts, bytes / parts, compressed / parts,
                         context, isBeside ? step : 0);
  }
  bool isGossip = outer.is(Agreement::Gossip);
  double means = isGossip && outer.average ? each / outer.average : 0;
  if (!isGossip)
    means = each;
  double seconds = getSumSeconds(means, bytes, compressed, context);
  return isGossip ? seconds + getGossipSeconds(each - means, bytes, context)
                  : seconds;
}

/// One agreement's steps over all weights of a rank, in fp32: each waits for
/// the one before, so that none hides behind another's operations. A message is
/// made, and those of all sites are read.
static double getComputingSeconds(double parameters, double compressed,
                                  const Context &context) {
  const Outer &outer = context.training.outer;
  const Device &device = context.cluster.device;
  double bytes = parameters * sizeof(float);
  double passes = outer.keepsDifference()         ? 6
                  : outer.is(Agreement::Clipping) ? 8
                  : outer.keepsAnchor()           ? 5
                  : outer.getGraph().empty()      ? 2
                                                  : 6;
  double error = outer.getCompression().keepsError() ? 2 * bytes : 0;
  double kept = parameters * 2 * outer.getStateBytes() - error;
  double seconds = memoryCost(passes * bytes + kept, device).seconds;
  if (!outer.isCompressed())
    return seconds;
  double sites = double(outer.sites);
  bool isSparse = outer.getCompression().keep > 0;
  seconds += kernelCost(bytes + error + compressed,
                        parameters * getEncodeFlops(isSparse), device)
                 .seconds;
  seconds += kernelCost(bytes + sites * compressed,
                        parameters * sites * getDecodeFlops(isSparse), device)
                 .seconds;
  return seconds;
}

/// The norm of what a site has moved by: one number, over each axis of a site.
static double getSiteNormSeconds(const Context &context) {
  const Outer &outer = context.training.outer;
  double seconds = 0, each = 1 / double(outer.every);
  if (!outer.is(Agreement::Clipping))
    return 0;
  for (const AxisFacts &facts : kAxes) {
    int64_t members = context.configuration.mesh[facts.axis];
    if (members == 1)
      continue;
    double one =
        each * collectiveSeconds(CollectiveKind::AllReduce, 4,
                                 context.group(facts.axis), context.cluster);
    context.note({facts.axis, Carrier::AllReduce, Moment::Agreement, members,
                  each, 4 * each, one});
    seconds += one;
  }
  return seconds;
}

/// A site counts as one of equal copies of the cluster. The ranks of a site
/// send at once.
double planner::getSitesSeconds(const StepLoad &load, double step,
                                const Context &context) {
  const Outer &outer = context.training.outer;
  if (!outer.isOn())
    return 0;
  double parameters = load.parameters.all(), bytes = parameters * sizeof(float);
  double compressed =
      outer.isCompressed() ? getCompressedBytes(load, context) : 0;
  // Each step, what it has come to and by what it is corrected.
  Cost correcting =
      memoryCost(outer.corrects() ? 3 * bytes : 0, context.cluster.device);
  return getTogetherSeconds(CollectiveKind::AllReduce, 1, 3 * sizeof(float),
                            context) +
         getSiteNormSeconds(context) +
         getAgreementSeconds(bytes, compressed, step, context) +
         getComputingSeconds(parameters, compressed, context) /
             double(outer.every) +
         correcting.seconds;
}

Cost planner::getAddingCost(const ParameterGroup &group,
                            const Context &context) {
  double bytes = context.reducedBytes() + 2 * context.gradientBytes();
  return memoryCost(group.elements / context.divisions(group.experts) * bytes,
                    context.cluster.device);
}

/// Adds up what is reduced parameter by parameter.
static Cost getPartsCost(const StageBlocks &stage, const Context &context) {
  Cost cost;
  if (!context.framework().addsUpParts)
    return cost;
  const StageBlocks *one[] = {&stage};
  forEachGroup(context.work, one, [&](const ParameterGroup &group, int count) {
    if (context.dividesByStage(group))
      cost += count * getAddingCost(group, context);
  });
  return cost;
}

/// Reads the gradient and the sum and writes the sum, for each microbatch.
Cost planner::getAccumulationCost(const StageBlocks &stage,
                                  const Context &context) {
  if (context.sendsGradients())
    return getPartsCost(stage, context);
  // Matmuls are charged for adding to the sum themselves.
  if (context.framework().fusedAccumulation)
    return {};
  double bytes =
      elementBytes(context.training.precision) + 2 * context.gradientBytes();
  const StageBlocks *one[] = {&stage};
  return memoryCost(countParameters(context.work, one).all() * bytes,
                    context.cluster.device);
}
