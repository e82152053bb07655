//===- BlockTime.cpp - Time of a block of layers --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Seconds of one block, operation by operation: the cost of each (Cost/),
// summed up by pass, with communication over tp hidden where the framework
// hides it and the host's time where that is the longer one. Blocks are timed
// alone; what overlaps across blocks, gradients over dp, is counted for the
// whole step in Step.cpp.
//
//===----------------------------------------------------------------------===//

#include "BlockTimer.h"
#include "PartLists.h"
#include "RankMemory.h"

#include "plait/Support/PieceOverlap.h"

#include <algorithm>

using namespace plait;
using namespace plait::planner;

/// What an operation's cost depends on beside its sizes: options of the
/// training, of the configuration and of the framework, and combinations of
/// these.
CostOptions Context::costOptions(bool split) const {
  CostOptions options;
  options.precision = training.precision;
  options.flashAttention = training.flashAttention;
  options.keepsScores = framework().keepsScores;
  options.dropout = training.dropout;
  options.microBatch = configuration.microBatch;
  options.sequenceParts = configuration.mesh[Axis::CP];
  // Unfused attention computes all scores: which of them a mask hides, and so
  // on which rank, changes nothing.
  options.balancedContext =
      !framework().gathersContext || (isReordered() && training.flashAttention);
  options.reorderedContext = isReordered();
  options.contextHeads = exchangesHeads();
  // Otherwise a kernel of its own adds (getAccumulationCost).
  options.weightGradientBytes = framework().fusedAccumulation
                                    ? 2 * gradientBytes()
                                    : elementBytes(training.precision);
  options.joinsGradients = joinsGradients(split);
  return options;
}

Group Context::group(int members, int64_t stride) const {
  return getGroup(members, stride, cluster);
}

/// What the hardware file says of a kernel, corrected by what the framework
/// runs in its place: slower attention, unfused chains of elementwise work.
Cost BlockTimer::makeCost(const Operation &op) const {
  Cost cost = operationCost(op, context.cluster.device, options);
  if (op.kind == OperationKind::Attention && options.flashAttention)
    return 1 /
           context.framework().getAttentionFraction(
               context.cluster.device.target) *
           cost;
  if (op.kind == OperationKind::Kernel && isLayer)
    return context.framework().kernelPasses * cost;
  return cost;
}

double BlockTimer::bytesOf(const Operation &op) const {
  return op.collectiveElements(context.sequences()) *
         elementBytes(options.precision);
}

/// Of one of `pieces`.
double BlockTimer::collectiveSecondsOf(const Operation &op, int pieces) const {
  auto seconds = [&](double bytes) {
    return (op.movesRows ? rowsSeconds : collectiveSeconds)(
        op.collective, bytes, context.group(op.axis), context.cluster);
  };
  double bytes = bytesOf(op), before = pieces == 1 ? getBatched(op) : 0;
  return before > 0 ? seconds(before + bytes) - seconds(before)
                    : seconds(bytes / pieces);
}

/// A pass that is computed again exchanges it again.
void BlockTimer::note(const Exchange &exchange) {
  context.note(exchange);
  if (context.notes && exchange.moment == Moment::Forward)
    exchanged.push_back(exchange);
}

PassTime &BlockTimer::getPass(const Operation &op) {
  if (op.pass == Pass::Forward)
    return op.again ? anew : forward;
  return op.pass == Pass::BackwardInput ? input : weight;
}

/// Only in the backward pass is there work that does not wait for the
/// collective: gradients of weights. Where a schedule runs these apart, what
/// they gather has those before it beside it.
bool BlockTimer::overlaps(const Operation &op) const {
  bool delays = context.framework().delaysWeights;
  // What experts exchange, as well, where it is not the processor that does.
  bool isMeant =
      op.axis == Axis::TP || (delays && getFacts(op.axis).splitsExperts &&
                              !context.cluster.device.isProcessor);
  if (!context.framework().overlapTensor || op.pass == Pass::Forward ||
      !isMeant)
    return false;
  if (split)
    return delays && isForWeights(op);
  // Everything else waits for what a gather of gradients brings, and nothing is
  // left from before.
  return delays || op.pass == Pass::BackwardWeight ||
         op.collective != CollectiveKind::AllGather;
}

/// A matmul grows by what its pieces lose to whole ones: waves that are not
/// full.
Cut BlockTimer::cut(const Operation &op, const Operation &matmul,
                    int pieces) const {
  CostOptions part = options;
  part.pieces = pieces;
  double exchange = collectiveSecondsOf(op, pieces);
  Cost cut = pieces * operationCost(matmul, context.cluster.device, part);
  Cost whole = getCost(matmul), more = cut;
  more += -1 * whole;
  return {pieces, pieces * exchange,
          getExposedSeconds(pieces, cut.seconds, exchange),
          whole.seconds * (getFactor(matmul, pieces) - 1), more};
}

/// Counts as the compiler does, which knows the largest tiles only.
double BlockTimer::getFactor(const Operation &matmul, int pieces) const {
  const Device &device = context.cluster.device;
  if (device.isProcessor || matmul.scaled != Operation::Scaled::M)
    return 1;
  int64_t parts = options.sequenceParts;
  int64_t rows = (matmul.m * options.microBatch + parts - 1) / parts;
  return getPiecesFactor(rows, matmul.n, pieces,
                         int64_t(device.multiprocessors));
}

/// Whether backward passes gather it by themselves, recomputed or not: what
/// experts take of other ranks' tokens.
static bool isGatheredAnew(const Operation &op) {
  return getFacts(op.axis).splitsExperts &&
         op.collective == CollectiveKind::AllGather;
}

/// Chooses in how many pieces a collective is exchanged, with `matmul`, which
/// makes or reads it (null: there is none), where `beside` seconds of other
/// matmuls hide it. As the compiler's pass does (SplitCollectives.cpp). There
/// is nothing to gain where all is hidden.
Cut BlockTimer::chooseCut(const Operation &op, const Operation *matmul,
                          double beside) const {
  double whole = collectiveSecondsOf(op);
  Cut best{1, whole, whole, 0, {}};
  bool sums = op.collective == CollectiveKind::AllReduce;
  int most = getMostPieces(context.training.tensorOverlap, sums);
  auto costOf = [&](const Cut &one) {
    return getPiecesCost(one.exposed, beside, one.lost);
  };
  bool gains = matmul && costOf(best) > 0;
  for (int pieces = 2; gains && pieces <= most; ++pieces) {
    if (!sums && getBlocks() % pieces)
      continue;
    Cut other = cut(op, *matmul, pieces);
    if (costOf(other) < costOf(best))
      best = other;
  }
  return best;
}

/// Describes the collective in pieces, all but `exposed` seconds of it hidden.
Exchange BlockTimer::makeExchange(const Operation &op, const Cut &cut,
                                  double exposed) const {
  return {op.axis,
          getCarrier(op.collective),
          getMoment(op),
          context.group(op.axis).ranks,
          double(cut.pieces),
          bytesOf(op),
          cut.seconds,
          cut.seconds - exposed};
}

/// Adds a collective that is cut so, of which `exposed` seconds are waited for.
void BlockTimer::addCut(PassTime &pass, const Operation &op, const Cut &cut,
                        double exposed, double times) const {
  const Group group = context.group(op.axis);
  const Fabric &fabric = group.perNode == group.ranks ? context.cluster.intra
                                                      : context.cluster.inter;
  (getFacts(op.axis).splitsExperts ? pass.experts : pass.collective) +=
      times * exposed;
  pass.device += times * cut.more;
  pass.kernels += int(times) * 2 * (cut.pieces - 1);
  pass.contention += times * (cut.seconds - exposed) * fabric.computeLoss;
}

/// Adds communication over tp, whose time is no kernel's. Returns what it needs
/// of `beside`. Collectives of a backward pass count to the input gradient,
/// which the next stage waits for; those of gradients of weights that are apart
/// to these.
double BlockTimer::addCollective(const Operation &op, const Operation *matmul,
                                 double beside) {
  PassTime &pass = op.pass == Pass::Forward || split ? getPass(op) : input;
  Cut best = chooseCut(op, matmul, beside);
  double hidden = std::min(best.exposed, beside);
  double exposed = best.exposed - hidden;
  addCut(pass, op, best, exposed, 1);
  if (isGatheredAnew(op))
    pass.gathered += exposed;
  if (op.axis == Axis::TP && isForWeights(op))
    pass.forWeights += exposed;
  Exchange exchange = makeExchange(op, best, exposed);
  if (const Cut *own = findChained(op)) {
    addCut(gained, op, best, exposed, -1);
    addCut(gained, op, *own, own->exposed, 1);
    context.note(makeExchange(op, *own, own->exposed));
    if (context.notes)
      exchanged.push_back(exchange);
  } else if (isGatheredAnew(op) || op.again) {
    context.note(exchange);
  } else {
    note(exchange);
  }
  return hidden;
}

/// The rounds in which ranks of tp deal out each sequence, if it can be
/// (AssignShardings.cpp): evenly, in its own order, and where no mask counts
/// positions.
int64_t BlockTimer::getRounds() const {
  const Configuration &configuration = context.configuration;
  int64_t rounds = (context.training.tensorOverlap + options.microBatch - 1) /
                   options.microBatch;
  bool isDealt =
      !options.dropout && !context.isReordered() &&
      context.training.sequence % (int64_t(configuration.mesh[Axis::CP]) *
                                   configuration.mesh[Axis::TP] * rounds) ==
          0;
  return isDealt ? rounds : 1;
}

/// Outer blocks of what is gathered or scattered: sequences, and rounds of
/// each.
int64_t BlockTimer::getBlocks() const {
  return options.microBatch * getRounds();
}

/// Counts a kernel, and its time to its pass; returns that, of a collective 0.
double BlockTimer::add(const Operation &op) {
  PassTime &pass = getPass(op);
  ++pass.kernels;
  if (op.kind == OperationKind::Collective)
    return 0;
  Cost cost = getCost(op);
  pass.device += cost;
  if (op.kind == OperationKind::Attention) {
    pass.attention += cost;
    pass.context += contextSeconds(op);
    if (!options.flashAttention) // two matmuls and what is between them
      pass.kernels += op.isForward() ? 3 : 6;
  }
  return cost.seconds;
}

/// The inside of attention alone, or the whole forward pass with its
/// communication.
void BlockTimer::recompute(BlockTime &time) const {
  // Scores that are kept otherwise are computed once more in front of the pass
  // that reads them; fused attention never kept any.
  if (kind == Recompute::Selective && !options.flashAttention &&
      options.keepsScores) {
    time.recompute = forward.attention.seconds;
    time.backwardInput += forward.attention.seconds;
    time.memory += forward.attention.memory;
    time.launch += forward.attention.launch;
  }
  if (kind != Recompute::Full)
    return;
  const Framework &framework = context.framework();
  PassTime again = framework.recomputesRead ? read : forward;
  // Its first collective over cp has beside it what the layer above has left.
  double left = !split && context.hasHost() && !context.queuesContext()
                    ? std::min(delayed, again.context / 2)
                    : 0;
  again.context -= left;
  double seconds = again.seconds(framework.hostSeconds) - again.gathered;
  double experts = again.experts - again.gathered;
  // Communication of the forward pass that runs again counts as communication
  // of the backward pass, not as recomputation.
  time.recompute = seconds - again.collective - again.context - experts;
  time.again = seconds - again.context;
  if (framework.recomputesRead && context.hasHost())
    time.early = seconds;
  // Attention that is computed again has waited for all gradients before it,
  // and no others are made before the layer's own.
  if (time.drained > 0)
    time.drained += again.device.seconds - untilAttention;
  time.tensorBackward += again.collective;
  time.expertsBackward += experts;
  time.contextBackward += again.context;
  time.backwardInput += seconds;
  time.memory += again.device.memory;
  time.launch += again.launch(framework.hostSeconds);
  for (size_t i = 0; context.notes && i < exchanged.size(); ++i) {
    Exchange exchange = exchanged[i];
    exchange.moment = Moment::Backward;
    if (exchange.axis == Axis::CP) {
      double hidden = std::min(left, exchange.seconds - exchange.hidden);
      exchange.hidden += hidden;
      left -= hidden;
    }
    if (i < exchangedRead || !framework.recomputesRead)
      context.note(exchange);
  }
}

const Operation *planner::findReader(std::span<const Operation> behind) {
  for (const Operation &op : behind) {
    if (op.kind == OperationKind::Matmul)
      return &op;
    if (op.kind == OperationKind::Collective)
      break;
  }
  return nullptr;
}

/// What makes a sum, right in front of it but for gradients of weights, which
/// come behind.
static const Operation *findProducer(std::span<const Operation> before) {
  for (auto op = before.rbegin(); op != before.rend(); ++op)
    if (op->pass != Pass::BackwardWeight)
      return op->kind == OperationKind::Matmul ? &*op : nullptr;
  return nullptr;
}

/// Whether `op` gathers for gradients of weights what computing a layer again
/// has gathered just before. Around experts it is gathered once more.
bool BlockTimer::isThere(const Operation &op) const {
  return kind == Recompute::Full && context.framework().recomputesRead &&
         op.kind == OperationKind::Collective &&
         op.collective == CollectiveKind::AllGather && !isGatheredAnew(op) &&
         op.pass == Pass::BackwardWeight;
}

/// Whether `op` exchanges a part of each row for whole rows that are dealt out
/// in rounds. The profile knows of none.
bool BlockTimer::isDealt(const Operation &op) const {
  return context.framework().cutsCollectives && op.axis == Axis::TP &&
         op.collective == CollectiveKind::AllToAll && getRounds() > 1;
}

/// Everything is gathered in its place (LowerReshard.cpp).
Operation BlockTimer::getGather(const Operation &op) const {
  Operation gather = op;
  int members = context.configuration.mesh[op.axis];
  gather.collective = CollectiveKind::AllGather;
  gather.collectivePerSequence *= members;
  gather.collectiveFixed *= members;
  return gather;
}

double Fetches::end(double clock, bool isLayer, double &behind) const {
  double waits = 0, before = 0; // so far, and when the last layer began
  double until = 0, room = 0;   // of the last copy, and for the next one
  for (int layer = 0; layer <= int(isLayer); ++layer) {
    double begin = clock * layer;
    double gone = 0; // until when what is left is on its way
    before = waits;
    for (const Fetch &fetch : all) {
      if (fetch.leaves) {
        gone = std::max(gone, begin + fetch.clock + waits) + fetch.copying;
        continue;
      }
      until = std::max(until, room) + fetch.copying;
      room = begin + fetch.left + waits;
      waits += std::max(0.0, until - (begin + fetch.clock + waits));
    }
    behind = std::max(0.0, gone - (begin + clock + waits));
  }
  return waits - before;
}

/// Recomputation has a block's inputs alone, at its beginning. `beside` are
/// seconds since the clock that the operation waits for other ranks, and `left`
/// until when those before it leave memory behind.
void BlockTimer::fetch(const Operation &op, double beside, double left) {
  bool isWeight = split && op.pass == Pass::BackwardWeight;
  if (op.pass == Pass::Forward || (kind == Recompute::Full && !isWeight) ||
      !offloadsActivations(context.configuration.offload))
    return;
  const Saved &taken = split ? op.takenApart : op.taken;
  if (taken.values > 0)
    fetches[isWeight].add(toCopies(taken, context).getSeconds(context),
                          getClock(isWeight) + beside, left);
}

/// Has what is computed again come first.
void BlockTimer::leave(const Operation &op) {
  bool isAgain = op.pass == Pass::Forward;
  if (!split || op.leftApart.values == 0 || op.pass == Pass::BackwardWeight ||
      (isAgain && kind != Recompute::Full) ||
      !offloadsActivations(context.configuration.offload))
    return;
  double clock = isAgain ? forward.busy() : getAgain() + getClock(false);
  fetches[0].leave(toCopies(op.leftApart, context).getSeconds(context), clock);
}

/// Finds the matmul that can be cut along with a collective; null: none.
const Operation *BlockTimer::findCut(const Operation &op) const {
  const Operation *begin = block.operations.data();
  std::span before(begin, &op), behind(&op + 1, getEnd());
  bool gathers = op.collective == CollectiveKind::AllGather;
  const Operation *matmul = gathers ? findReader(behind) : findProducer(before);
  return canCut(op, matmul) ? matmul : nullptr;
}

/// The collectives with the matmuls around them.
void BlockTimer::addAll() {
  for (const Operation &op : block.operations)
    if (!isThere(op)) {
      addNext(op);
      leave(op);
    }
}

void BlockTimer::addNext(const Operation &op) {
  bool isAttention = op.kind == OperationKind::Attention;
  bool isApart = split && op.pass == Pass::BackwardWeight;
  if (!isAttention)
    fetch(op, 0, left[isApart]);
  double leftBefore = left[isApart];
  bool isMatmul = op.kind == OperationKind::Matmul;
  if (isMatmul && op.pass == Pass::Forward) {
    read = forward;
    exchangedRead = exchanged.size();
  }
  if (isAttention && op.pass == Pass::Forward)
    untilAttention = forward.device.seconds;
  double begin = getWorked(op.pass == Pass::Forward);
  double seconds = add(op);
  marker.add(op, begin, begin + seconds);
  if (isAttention && op.pass != Pass::Forward)
    untilMade = input;
  if (isAttention)
    fetch(op, -contextBehind - seconds, leftBefore);
  // A gradient of a weight reads again what the one of its input has read.
  if (op.kind != OperationKind::Collective &&
      (split || !isMatmul || op.pass == Pass::BackwardWeight))
    left[isApart] = getClock(isApart);
  // What is sent to its owner is not moved (DelayMatmuls.cpp). Half of a
  // backward pass has its gathers from the start.
  if (isMatmul && op.pass == Pass::BackwardWeight &&
      (split || !context.sendsGradients()))
    delayed += seconds;
  if (op.kind != OperationKind::Collective) {
    computed += op.pass == Pass::Forward ? 0 : seconds;
    passed += op.pass == Pass::Forward ? 0 : seconds;
    return;
  }
  if (isDealt(op)) {
    addCollective(getGather(op), nullptr, 0);
    return;
  }
  std::span behind(&op + 1, getEnd());
  double hidden = addCollective(op, findCut(op), getBeside(op, behind));
  if (op.pass == Pass::BackwardInput)
    marker.addExchange(begin, getWorked(/*isForward=*/false));
  // What gradients of weights alone wait for has other work beside it, but
  // where these run apart.
  if (split || !isForWeights(op))
    delayed = std::max(0.0, delayed - hidden);
  computed = 0;
  passed = collectiveSecondsOf(op);
}

/// Seconds of matmuls that need not wait for `op`.
double BlockTimer::getBeside(const Operation &op,
                             std::span<const Operation> behind) const {
  if (!overlaps(op))
    return 0;
  if (!context.framework().delaysWeights) {
    const Operation *next = findReader(behind);
    return next ? getCost(*next).seconds : 0;
  }
  if (split || !isForWeights(op))
    return delayed;
  // What is gathered for gradients of weights alone is there from the start,
  // unless it has to come from the host.
  bool isThere = !offloadsActivations(context.configuration.offload);
  double seconds = isThere ? std::max(delayed, computed) : delayed;
  for (const Operation &other : behind) {
    if (other.kind == OperationKind::Collective ||
        (other.kind == OperationKind::Matmul &&
         other.pass == Pass::BackwardWeight))
      break;
    seconds += getCost(other).seconds;
  }
  return seconds;
}

/// Rows are what is cut: a contraction over them has none of them.
bool BlockTimer::canCut(const Operation &op, const Operation *matmul) const {
  return context.training.cutsCollectives(context.cluster.device.isProcessor) &&
         op.axis == Axis::TP && matmul &&
         matmul->kind == OperationKind::Matmul &&
         (matmul->scaled == Operation::Scaled::M ||
          matmul->scaled == Operation::Scaled::N) &&
         (matmul->pass == Pass::Forward) == (op.pass == Pass::Forward);
}

/// The passes' sums, each no shorter than the host takes to issue its kernels;
/// to the input gradient, which comes first, is added what is computed again.
BlockTime BlockTimer::run() {
  takeChains();
  addAll();
  hideForWeights();
  const Framework &framework = context.framework();
  BlockTime time;
  if (needsMarks(context))
    time.marks = marker.take();
  time.backwardInput = input.seconds(framework.backwardHostSeconds);
  time.backwardWeight = weight.seconds(framework.backwardHostSeconds);
  time.memory = input.device.memory + weight.device.memory;
  time.launch = input.launch(framework.backwardHostSeconds) +
                weight.launch(framework.backwardHostSeconds);
  time.tensorBackward = input.collective + weight.collective;
  time.expertsBackward = input.experts + weight.experts;
  time.contextBackward = input.context;
  time.forWeights = input.forWeights + weight.forWeights;
  double none = 0;
  time.fetchedInput =
      fetches[0].end(getAgain() + getClock(false), isLayer, time.leavingBehind);
  time.leaving = fetches[0].getLeaving();
  time.fetchedWeight = fetches[1].end(getClock(true), isLayer, none);
  if (context.configuration.mesh[Axis::CP] > 1 && context.queuesContext())
    time.drained = input.attention.seconds;
  addInputTime(time);
  recompute(time);
  forward += anew;
  forward += gained;
  time.forward = forward.seconds(framework.hostSeconds);
  time.memory += forward.device.memory;
  time.launch += forward.launch(framework.hostSeconds);
  time.tensorForward = forward.collective;
  time.expertsForward = forward.experts;
  time.contextForward = forward.context;
  return time;
}

double BlockTimer::getLeft() {
  addAll();
  return delayed;
}

/// Has the timer take over what another layer like it has left. What is
/// computed again in between has collectives of its own, and what ZeRO 2 and 3
/// send to its owner is sent at once; between gradients of weights that run
/// apart is neither.
static BlockTimer makeTimer(const Block &block, const Context &context,
                            bool split, bool isLayer, Recompute kind) {
  BlockTimer timer(block, context, split, isLayer, kind);
  bool isBetween =
      !split && (kind == Recompute::Full || context.sendsGradients());
  if (isBetween || !isLayer || context.configuration.mesh[Axis::TP] == 1 ||
      !context.framework().delaysWeights)
    return timer;
  Context silent = context;
  silent.notes = nullptr;
  timer.take(BlockTimer(block, silent, split, isLayer, kind).getLeft());
  return timer;
}

/// Where what is cheap is computed again, the block is the one profiled that
/// way; how much of its time that is, the difference to the plain block tells.
BlockTime planner::getBlockTime(int index, const Context &context, bool split,
                                bool isLayer, Recompute kind) {
  BlockTime time =
      makeTimer(context.block(index, kind), context, split, isLayer, kind)
          .run();
  if (!context.recomputesCheap(kind))
    return time;
  // What is cheap is part of the backward pass, where kernels that need it may
  // compute it. Nobody runs the plain block: nothing is noted of it.
  Context silent = context;
  silent.notes = nullptr;
  StageTime plain =
      makeTimer(context.work.blocks[index], silent, split, isLayer, kind).run();
  time.recompute +=
      std::max(0.0, time.backwardInput + time.backwardWeight -
                        plain.backwardInput - plain.backwardWeight);
  return time;
}
