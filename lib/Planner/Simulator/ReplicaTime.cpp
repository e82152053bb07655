//===- ReplicaTime.cpp - Time of what replicas exchange -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The sum of gradients and the exchange of parameters over the ranks that hold
// the same parameters, and what of that has work beside it: of the rank that
// holds the most, since the others are done sooner and wait. What frameworks do
// differently (what overlaps, when gradients are reduced, who shares state) is
// in Framework, not here.
//
//===----------------------------------------------------------------------===//

#include "GatherBatch.h"
#include "Packs.h"
#include "PartTime.h"
#include "Replicated.h"
#include "plait/Configuration/CompressionFacts.h"

#include <algorithm>
#include <limits>

using namespace plait;
using namespace plait::planner;

namespace {

/// Communication that runs beside `window` seconds of work.
struct Overlap {
  double exposed = 0;
  double slowdown = 0; // of the work
};

} // namespace

/// What is exchanged parameter by parameter is needed, or made, by one part of
/// a layer, and has the work of its neighbours beside it, which is uneven: of
/// all of the work so much counts. From the replay of plans whose communication
/// takes as long as their work, Llama 3 70B on 512 and 1,024 H100 with ZeRO 2
/// and 3: they are predicted 0.97 to 1.08 of it, others 1.01 to 1.03. Llama 3
/// 8B on 512, which gathers a layer in one launch, 0.92 to 0.93.
constexpr double kNeighbours = 0.75;

/// Parts of what is exchanged parameter by parameter: nothing is beside the
/// first one or the last one.
constexpr double kParts = 16;

/// Returns the part of a second's work that a second of communication costs it.
static double getComputeLoss(const Context &context) {
  Group group = context.replicaGroup(/*experts=*/false);
  const Fabric &fabric = group.perNode == group.ranks ? context.cluster.intra
                                                      : context.cluster.inter;
  return fabric.computeLoss;
}

/// The last part, of `alone` seconds, is always exposed, because no work is
/// left then.
static Overlap overlap(double seconds, double window, const Context &context,
                       double alone) {
  double most = seconds - std::min(seconds, alone);
  double hidden = std::min(most, window);
  return {seconds - hidden, hidden * getComputeLoss(context)};
}

double planner::gatherState(double bytes, bool experts, double times,
                            Moment moment, const Context &context) {
  Replicated gather =
      getReplicated(CollectiveKind::AllGather, bytes, experts, context);
  gather.note(moment, times, gather.getSeconds(), context);
  return times * gather.getSeconds();
}

/// Of gradients that are reduced in fewer bytes: rounded before, and widened
/// again where they are needed. It happens where the sums do, beside the
/// backward pass.
static double roundingSeconds(const Elements &parameters,
                              const Context &context) {
  double gradient = context.gradientBytes(), reduced = context.reducedBytes();
  if (reduced >= gradient)
    return 0;
  double elements = parameters.all() + context.getShare(parameters, 1);
  return memoryCost(elements * (gradient + reduced), context.cluster.device)
      .seconds;
}

/// A copy of a tied table lives on the rank of the first and on that of the
/// last stage; their gradients are added up between the two.
static double getTiedSeconds(const StepLoad &load, const Context &context) {
  if (load.tied == 0)
    return 0;
  Group pair = context.group(2, context.configuration.mesh.stride(Axis::PP));
  if (context.stagesCrossNodes())
    pair.perNode = 1;
  // Where ranks divide it, each sums its part; what is compressed is whole.
  bool sumsParts =
      context.zero(/*experts=*/false) >= 1 && !context.training.compress.isOn();
  double parts = sumsParts ? context.divisions(/*experts=*/false) : 1;
  double bytes = load.tied * context.reducedBytes() / parts;
  double seconds = collectiveSeconds(CollectiveKind::AllReduce, bytes, pair,
                                     context.cluster);
  context.note(
      {Axis::PP, Carrier::AllReduce, Moment::Reduce, 2, 1, bytes, seconds});
  return seconds;
}

namespace {

/// What ZeRO 2 and 3 divide, and how long it takes to gather all of it, what
/// the backward pass reads, and to reduce it.
struct Divided {
  Elements elements;
  Replicated gather, gatherBackward, reduce;
  double reduceSeconds = 0; // of all of it, once
  Replicated rest;          // parameter by parameter
};

/// How often a rank has a parameter, or as many that are alike, and how often
/// it exchanges it: gathered for passes over a microbatch (by ZeRO 2 for the
/// first one of a step alone), and reduced.
struct Uses {
  int held = 0, forward = 0, backward = 0, reduced = 0;
  const StageBlocks::Entry *block = nullptr; // null: a table that is shared
};

} // namespace

/// Calls `visit(group, uses)` for each parameter that ZeRO 2 and 3 divide, 2 of
/// those that are trained. Of others nothing is held that a step exchanges. A
/// backward pass gathers what it reads, for what it computes again, too. A tied
/// table is held once. Each virtual stage that reads it reduces its gradient:
/// with ZeRO 2 the sum of its blocks'; with ZeRO 3, where it gathers the table
/// for itself, once for all of its blocks, each block's.
template <typename Visitor>
static void forEachDivided(const StepLoad &load, const Context &context,
                           Visitor visit) {
  const ParameterGroup *table = nullptr;
  Uses shared;
  for (const StageBlocks *stage : load.stages) {
    bool readsForward = false, readsBackward = false; // the table
    for (const StageBlocks::Entry &entry : stage->entries)
      for (const ParameterGroup &group :
           context.block(entry.block, entry.recompute).parameters) {
        if (!context.dividesByStage(group) ||
            (group.frozen && context.zero(group.experts) < 3))
          continue;
        bool isRead = entry.recompute == Recompute::Full ? group.readAgain
                                                         : group.readBackward;
        int count = entry.count, trained = group.frozen ? 0 : count;
        if (!group.tied) {
          visit(group,
                Uses{trained, count, isRead ? count : 0, trained, &entry});
          continue;
        }
        if (!table || group.elements > table->elements)
          table = &group;
        readsForward = true;
        readsBackward |= isRead;
        shared.reduced += trained;
      }
    shared.forward += readsForward;
    shared.backward += readsBackward;
  }
  if (!table)
    return;
  shared.held = table->frozen ? 0 : 1;
  visit(*table, context.zero(table->experts) >= 3
                    ? shared
                    : Uses{1, 1, 0, shared.forward});
}

/// Many short collectives take longer than one: each has its latency, but for
/// gathers that are launched together. What is not known one by one is gathered
/// for no backward pass, for no more than that is certain.
static Divided getDivided(const StepLoad &load, const Context &context) {
  double element = elementBytes(context.training.precision);
  Divided divided;
  bool isFlat = !context.framework().dividesParameters;
  bool isKnown = !isFlat && !load.stages.empty();
  bool joins = isKnown && !context.cluster.device.isProcessor;
  GatherBatch forward, backward;
  ExchangesAlone alone(context);
  auto add = [&](const ParameterGroup &group, const Uses &uses) {
    double elements = group.elements;
    divided.elements.add(group, uses.held);
    double bytes = elements * element;
    const auto &[gather, reduce] = alone.get(group);
    auto gatherBeside = [&](GatherBatch &batch, Replicated &sum, int times) {
      if (times > 0)
        sum.add(joins ? batch.add(gather, bytes, group, uses.block, context)
                      : gather,
                times);
    };
    gatherBeside(forward, divided.gather, uses.forward);
    gatherBeside(backward, divided.gatherBackward, uses.backward);
    if (context.training.compress.isOn()) {
      divided.rest.add(getCompressed(elements, {group.partial}, context),
                       uses.held);
      return;
    }
    divided.reduce.add(reduce, uses.reduced);
    divided.rest.add(getRest(elements * context.reducedBytes() /
                                 context.divisions(group.experts),
                             {group.partial, group.experts}, context),
                     uses.held);
  };
  if (isKnown)
    forEachDivided(load, context, add);
  else
    for (bool experts : {false, true})
      if (ParameterGroup all = {Elements(load.parameters).of(experts)};
          all.elements > 0 && context.zero(experts) >= 2) {
        all.experts = experts;
        add(all, {1, 1, isFlat, 1});
      }
  if (context.training.compress.isOn())
    divided.rest.rounding = compressingSeconds(divided.elements.all(), context);
  else
    divided.reduce.rounding = roundingSeconds(divided.elements, context);
  // What comes last in a chain of a parameter's collectives may be beside the
  // next one's first; what is gathered is waited for.
  divided.reduceSeconds = overlapsParts(context)
                              ? divided.reduce.getSecondsBeside(context)
                              : divided.reduce.getSeconds();
  return divided;
}

/// What is exchanged parameter by parameter, where these are not known.
static Overlap overlapParts(double seconds, double window,
                            const Context &context) {
  // No more is certain.
  if (context.framework().dividesParameters)
    return overlap(seconds, window, context, 0);
  return overlap(seconds, kNeighbours * window, context, seconds / kParts);
}

/// How often gradients of ZeRO 3 are reduced in a step.
static double countReductions(const StepLoad &load, const Context &context) {
  return context.framework().reduceEveryMicrobatch ? double(load.microbatches)
                                                   : 1;
}

namespace {

/// Times what ZeRO 3 exchanges parameter by parameter for a microbatch, in the
/// seconds that no work hides.
struct PartSeconds {
  double forward = 0;  // gathered
  double backward = 0; // gathered
  double reduced = 0;
  double slowdown = 0; // of the work beside

  double getSeconds() const { return forward + backward + reduced + slowdown; }
};

} // namespace

/// ZeRO 3: parameters are gathered for each pass over a microbatch, one block
/// ahead of the work. They are needed by the first half of a backward pass that
/// is split, and gradients end in the second one.
static PartSeconds overlapSharded(const Divided &divided, const StepLoad &load,
                                  const Context &context) {
  double ahead = divided.gather.getSeconds();
  double gather = divided.gatherBackward.getSeconds();
  double share = countReductions(load, context) / double(load.microbatches);
  double reduce = share * divided.reduceSeconds;
  if (!overlapsParts(context))
    return {ahead, gather, reduce};
  if (load.waits) {
    // Each kind of collective waits for its share of what is waited for.
    const PassWaits &waits = *load.waits;
    double both = gather + (load.splits ? 0 : reduce);
    double gathered = gather / std::max(both, 1e-30) * waits.backward;
    double hidden = ahead + gather + reduce - waits.getSeconds();
    return {waits.forward, gathered, waits.backward - gathered + waits.weights,
            std::max(0.0, hidden) * getComputeLoss(context)};
  }
  Overlap forward = overlapParts(ahead, load.forward, context);
  double input = load.backward - load.gradients;
  if (input > 0) {
    Overlap first = overlapParts(gather, input, context);
    Overlap second = overlapParts(reduce, load.gradients, context);
    return {forward.exposed, first.exposed, second.exposed,
            forward.slowdown + first.slowdown + second.slowdown};
  }
  Overlap both = overlapParts(gather + reduce, load.gradients, context);
  double exposed = both.exposed / std::max(gather + reduce, 1e-30);
  return {forward.exposed, exposed * gather, exposed * reduce,
          forward.slowdown + both.slowdown};
}

static double getShardedSeconds(const Divided &divided, const StepLoad &load,
                                const Context &context) {
  PartSeconds parts = overlapSharded(divided, load, context);
  double m = double(load.microbatches);
  double reductions = countReductions(load, context);
  divided.gather.note(Moment::Forward, m, parts.forward, context);
  divided.gatherBackward.note(Moment::Backward, m, parts.backward, context);
  divided.reduce.note(Moment::Backward, reductions,
                      parts.reduced * m / reductions, context);
  return load.waited ? *load.waited + m * parts.slowdown
                     : m * parts.getSeconds();
}

/// Whether parameters of ZeRO 1 and 2 are gathered beside the forward pass.
static bool overlapsGather(const Context &context) {
  const Framework &framework = context.framework();
  bool isCopy = context.training.precision != Precision::FP32 &&
                !offloadsOptimizer(context.configuration.offload);
  return framework.overlapParameters && context.hasHost() &&
         (isCopy || !framework.overlapsCopies);
}

/// Parameters of ZeRO 1 and 2 are gathered once a step, for the first
/// microbatch, which waits for `alone` seconds of it.
static double getGatherSeconds(const Replicated &gather, double alone,
                               const StepLoad &load, const Context &context) {
  Overlap forward{gather.getSeconds(), 0};
  bool isAhead = overlapsGather(context);
  // The first layer's attention waits in the same stream.
  bool queues = context.framework().exchangesOneByOne &&
                context.configuration.mesh[Axis::CP] > 1;
  if (isAhead)
    forward =
        overlap(gather.getSeconds(), queues ? 0 : load.forward, context, alone);
  else
    // What is updated goes back to the host while the others gather it.
    forward.exposed =
        std::max(0.0, forward.exposed - getMovedSeconds(load, context));
  gather.note(isAhead ? Moment::Gather : Moment::Optimizer, 1, forward.exposed,
              context);
  return forward.exposed + forward.slowdown;
}

/// ZeRO 2. Parts that are added up are reduced after each microbatch, not once.
/// A gradient is added up where the next one's reduction begins (addUpLater()
/// in SpreadReplicas.cpp).
static double getReducedSeconds(const Divided &divided, const StepLoad &load,
                                const Context &context) {
  const Framework &framework = context.framework();
  double reduce = divided.reduceSeconds;
  Overlap backward{reduce, 0};
  if (load.waits) {
    backward.exposed = load.waits->getSeconds();
    backward.slowdown =
        std::max(0.0, reduce - backward.exposed) * getComputeLoss(context);
  } else if (overlapsParts(context)) {
    backward = overlapParts(reduce, load.gradients, context);
  }
  double times = framework.addsUpParts ? double(load.microbatches) : 1;
  divided.reduce.note(Moment::Backward, times, backward.exposed, context);
  double waited = load.waited.value_or(times * backward.exposed);
  return waited + times * backward.slowdown +
         getGatherSeconds(divided.gather, divided.gather.getSeconds() / kParts,
                          load, context);
}

namespace {

/// Buckets that are reduced or gathered, and of them what is by itself: of each
/// pack the bucket that has the first layer's parameters.
struct Buckets {
  Replicated all;
  double alone = 0;     // seconds
  Replicated back = {}; // what is sent of sums again
};

} // namespace

/// Whether gradients are rounded or compressed before they are summed.
static bool sendsLess(const Context &context) {
  return context.reducedBytes() < context.gradientBytes() ||
         context.training.compress.isOn();
}

/// Packs are cut where that lets a part begin while others are computed, and by
/// nobody else. Of what is not known one by one no more is certain than that
/// there is a bucket.
template <typename Make>
static Buckets getBuckets(const Packs &packs, bool isKnown,
                          const Context &context, Make make) {
  double least = getLeastBucket(context);
  Buckets buckets;
  for (const auto &[elements, summed] : packs) {
    if (elements == 0)
      continue;
    bool isCut = isKnown && context.framework().overlapGradients;
    double count = isCut ? countBuckets(elements, context) : 1;
    Replicated one = make(elements / count, summed);
    buckets.all.add(one, count);
    // Processors cut what they sum over replicas alone, and sum over others
    // what is cut only where a rank has its part of that, or less is sent.
    if (context.cluster.device.isProcessor &&
        context.zero(summed.isExperts) == 0 && !sendsLess(context))
      for (const AxisFacts &facts : kAxes)
        if (!facts.splitsReplicas())
          buckets.all.count[facts.axis] -= (count - 1) * one.count[facts.axis];
    if (!isKnown)
      one = make(std::min(elements, least), summed);
    buckets.alone += one.getSeconds();
  }
  return buckets;
}

/// Sums of a step in buckets, beside the last backward pass.
static double getReduceSeconds(const Buckets &buckets, const StepLoad &load,
                               const Context &context) {
  double forth = buckets.all.getSeconds(), back = buckets.back.getSeconds();
  Overlap backward{forth + back, 0};
  if (context.framework().overlapGradients)
    backward = overlap(forth + back, load.gradients, context, buckets.alone);
  double share = backward.exposed / std::max(forth + back, 1e-30);
  buckets.all.note(Moment::Reduce, 1, share * forth, context);
  buckets.back.note(Moment::Reduce, 1, share * back, context);
  return backward.exposed + backward.slowdown;
}

/// Whether ranks of tp have parts of sums.
static bool hasPartial(const StepLoad &load, const Context &context) {
  bool found = false;
  if (context.configuration.mesh[Axis::TP] > 1)
    forEachGroup(
        context.work, load.stages,
        [&](const ParameterGroup &group, int) { found |= group.partial; });
  return found;
}

/// Returns the seconds of the last backward pass that sums over the other
/// replicas have beside them: all of those in which others are waited for.
/// Where ranks of tp have parts of sums, which come first, their stream has
/// been in use up to the end. What is not known one by one may all be hidden;
/// elsewhere it goes one behind the other.
static double getRestWindow(const Divided &divided, const StepLoad &load,
                            const Context &context) {
  bool isOneByOne = context.framework().dividesParameters;
  if (!load.waits && isOneByOne && overlapsParts(context))
    return std::numeric_limits<double>::max();
  if (!load.waits) {
    bool gathers = context.zero(/*experts=*/false) >= 3;
    double taken = divided.reduceSeconds +
                   (gathers ? divided.gatherBackward.getSeconds() : 0);
    return std::max(0.0, load.gradients - taken);
  }
  if (hasPartial(load, context))
    return 0;
  return load.gradients + load.waits->weights +
         (load.splits ? 0 : load.waits->backward);
}

/// Sums over the other replicas, once a step, of what ZeRO 2 and 3 have
/// scattered after each microbatch: by ZeRO 2, of which parameters lie
/// elsewhere than their gradients, one by one. And so what replicas compress.
static double getRestSeconds(const Divided &divided, const StepLoad &load,
                             const Context &context) {
  bool isCompressed = context.training.compress.isOn();
  if (context.divisions(/*experts=*/false) == context.replicas() &&
      !hasPartial(load, context) && !isCompressed)
    return 0;
  if (context.zero(/*experts=*/false) == 2 || isCompressed)
    return getReduceSeconds({divided.rest, divided.rest.getSeconds() / kParts},
                            load, context);
  Packs packs = getPacks(/*areDivided=*/true, divided.elements, load, context);
  double each = context.reducedBytes();
  Buckets buckets =
      getBuckets(packs, !load.stages.empty(), context,
                 [&](double elements, Summed summed) {
                   return getRest(elements * each, summed, context);
                 });
  return getReduceSeconds(buckets, load, context);
}

/// ZeRO 0 and 1: once a step, and in buckets.
static double getBucketSeconds(const Elements &parameters, const StepLoad &load,
                               const Context &context) {
  bool isKnown = !load.stages.empty();
  Packs packs = getPacks(/*areDivided=*/false, parameters, load, context);
  const Compression &compress = context.training.compress;
  bool isCompressed = compress.isOn() && !sendsFactors(compress);
  auto reduce = [&](double elements, Summed summed) {
    // Matrix by matrix, where they are known.
    if (summed.hasFactors || (sendsFactors(compress) && !isKnown))
      return Replicated();
    if (isCompressed) {
      Replicated made = getCompressed(elements, summed, context);
      made.rounding = compressingSeconds(elements, context);
      return made;
    }
    double bytes = elements * context.reducedBytes();
    bool experts = summed.isExperts, divides = context.zero(experts) >= 1;
    Replicated made = getReplicated(divides ? CollectiveKind::ReduceScatter
                                            : CollectiveKind::AllReduce,
                                    bytes, experts, context);
    made.add(getRest(divides ? bytes / context.divisions(experts) : bytes,
                     summed, context));
    made.rounding = roundingSeconds(
        experts ? Elements{0, elements} : Elements{elements, 0}, context);
    return made;
  };
  Buckets buckets = getBuckets(packs, isKnown, context, reduce);
  if (compress.both) {
    Buckets back =
        getBuckets(packs, isKnown, context, [&](double elements, Summed) {
          return getMessages(CollectiveKind::AllGather,
                             elements / double(compress.block), context);
        });
    buckets.back = back.all;
    buckets.alone += back.alone;
  }
  double seconds = getReduceSeconds(buckets, load, context) +
                   getFactorSeconds(load, context);
  if (context.zero(/*experts=*/false) == 0)
    return seconds;
  double element = elementBytes(context.training.precision);
  auto collect = [&](double elements, Summed summed) {
    return context.zero(summed.isExperts) == 0
               ? Replicated()
               : getReplicated(CollectiveKind::AllGather, elements * element,
                               summed.isExperts, context);
  };
  Buckets gather = getBuckets(packs, isKnown, context, collect);
  return seconds + getGatherSeconds(gather.all, gather.alone, load, context);
}

/// By ZeRO stage: 0 sums gradients; 1 and 2 reduce them into parts and gather
/// parameters after the optimizer; 3 gathers for each pass. What is hidden
/// stands beside one microbatch: gradients are whole in the last one's backward
/// pass, or the half of it that computes them, and parameters are needed from
/// the first one's forward pass on. What 2 and 3 cannot divide is left to 1.
double planner::getDataSeconds(const StepLoad &load, const Context &context) {
  double seconds = getTiedSeconds(load, context);
  const Compression &compress = context.training.compress;
  // A replica that is alone has what it would send.
  if (context.replicas() == 1 && !hasPartial(load, context))
    return compress.isOn() && !sendsFactors(compress)
               ? seconds + compressingSeconds(load.parameters.all(), context)
               : seconds;
  int zero = context.zero(/*experts=*/false);
  StepLoad rest = load;
  if (zero >= 2) {
    Divided divided = getDivided(load, context);
    seconds += zero >= 3 ? getShardedSeconds(divided, load, context)
                         : getReducedSeconds(divided, load, context);
    rest.parameters.dense -= divided.elements.dense;
    rest.parameters.experts -= divided.elements.experts;
    rest.gradients = getRestWindow(divided, load, context);
    seconds += getRestSeconds(divided, rest, context);
    // What they cannot divide goes over the same axes: behind what passes
    // reduce, and before what they gather.
    if (load.waits && divided.elements.all() > 0) {
      rest.gradients = 0;
      rest.forward = zero >= 3 ? 0 : rest.forward;
    }
  }
  if (rest.parameters.all() > 0)
    seconds += getBucketSeconds(rest.parameters, rest, context);
  return seconds;
}
