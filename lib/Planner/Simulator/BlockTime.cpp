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

#include "BlockTime.h"

#include "plait/Support/PieceOverlap.h"

#include <algorithm>
#include <span>

using namespace plait;
using namespace plait::planner;

/// What an operation's cost depends on beside its sizes: options of the
/// training, of the configuration and of the framework, and combinations of
/// these.
CostOptions Context::costOptions() const {
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
  return options;
}

Group Context::group(int members, int64_t stride) const {
  return getGroup(members, stride, cluster);
}

namespace {

/// Adds up one pass of a block.
struct PassTime {
  Cost device;           // busy with operations
  double collective = 0; // busy with communication over tp that nothing hides
  double context = 0;    // the same over cp
  double experts = 0;    // and over ep
  double gathered = 0;   // of that: what every backward pass gathers anew
  double contention = 0; // lost by operations that run beside communication
  Cost attention;        // of `device`: inside of attention
  int kernels = 0;

  double busy() const {
    return device.seconds + collective + context + experts + contention;
  }
  /// A device that is done before the host has issued the next kernel waits.
  double seconds(double hostSeconds) const {
    return std::max(busy(), kernels * hostSeconds);
  }
  double launch(double hostSeconds) const {
    return device.launch + seconds(hostSeconds) - busy();
  }
};

/// A collective over tp with the matmul that is cut along with it.
struct Cut {
  int pieces = 1;
  double seconds = 0; // of all pieces of the collective
  double exposed = 0; // of them, without anything else beside it
  Cost more;          // that the matmul takes in pieces
};

/// Walks a block's operations once, in their order. Three sums, one a pass,
/// because schedules run the passes apart.
class BlockTimer {
public:
  BlockTimer(const Block &block, const Context &context, bool split,
             bool isLayer, Recompute kind)
      : block(block), context(context), split(split), isLayer(isLayer),
        kind(kind), options(context.costOptions()) {}

  StageTime run();

private:
  void recompute(StageTime &time) const;
  Cost getCost(const Operation &op) const;
  double collectiveSecondsOf(const Operation &op, int pieces = 1) const;
  double contextSeconds(const Operation &op);
  double gatherSeconds(const Operation &op);
  double reorderSeconds(const Operation &op) const;
  double exchangeSeconds(const Operation &op);
  double ringSeconds(const Operation &op);
  double addContext(const Operation &op, CollectiveKind kind, double bytes,
                    double beside = 0);
  void note(const Exchange &exchange);
  int64_t getBlocks() const;
  void addAll();
  double add(const Operation &op);
  double addCollective(const Operation &op, const Operation *matmul,
                       double beside);
  double getBeside(const Operation &op, std::span<const Operation> behind,
                   double delayed) const;
  bool overlaps(const Operation &op) const;
  bool isThere(const Operation &op) const;
  bool canCut(const Operation &op, const Operation *matmul) const;
  Cut cut(const Operation &op, const Operation &matmul, int pieces) const;

  const Block &block;
  const Context &context;
  bool split, isLayer;
  Recompute kind;
  CostOptions options;
  PassTime forward, input, weight;
  PassTime read; // of `forward`, what comes before its last matmul
  /// Exchanges of the forward pass, where they are noted, and how many of them
  /// come before that matmul.
  std::vector<Exchange> exchanged;
  size_t exchangedRead = 0;
};

} // namespace

/// What the hardware file says of a kernel, corrected by what the framework
/// runs in its place: slower attention, unfused chains of elementwise work.
Cost BlockTimer::getCost(const Operation &op) const {
  Cost cost = operationCost(op, context.cluster.device, options);
  if (op.kind == OperationKind::Attention && options.flashAttention)
    return 1 / context.framework().attentionFraction * cost;
  if (op.kind == OperationKind::Kernel && isLayer)
    return context.framework().kernelPasses * cost;
  return cost;
}

/// Of one of `pieces`.
double BlockTimer::collectiveSecondsOf(const Operation &op, int pieces) const {
  double bytes = op.collectiveElements(context.sequences()) *
                 elementBytes(options.precision) / pieces;
  return collectiveSeconds(op.collective, bytes, context.group(op.axis),
                           context.cluster);
}

/// A pass that is computed again exchanges it again.
void BlockTimer::note(const Exchange &exchange) {
  context.note(exchange);
  if (context.notes && exchange.moment == Moment::Forward)
    exchanged.push_back(exchange);
}

static Moment getMoment(const Operation &op) {
  return op.pass == Pass::Forward ? Moment::Forward : Moment::Backward;
}

/// Two collectives of equal tensors over the ranks of cp: of keys and of
/// values, say, with `beside` seconds of work that need not wait for them.
/// Returns what is left to wait for.
double BlockTimer::addContext(const Operation &op, CollectiveKind kind,
                              double bytes, double beside) {
  double seconds = 2 * collectiveSeconds(kind, bytes, context.group(Axis::CP),
                                         context.cluster);
  double hidden = std::min(seconds, beside);
  note({Axis::CP, getCarrier(kind), getMoment(op), options.sequenceParts, 2,
        2 * bytes, seconds, hidden});
  return seconds - hidden;
}

/// What ranks of cp wait for before and after an attention.
double BlockTimer::contextSeconds(const Operation &op) {
  if (options.sequenceParts == 1)
    return 0;
  if (options.contextHeads)
    return exchangeSeconds(op);
  if (!context.framework().gathersContext)
    return ringSeconds(op);
  return gatherSeconds(op) + (context.isReordered() ? reorderSeconds(op) : 0);
}

/// Keys and values are brought into order once they are gathered, and their
/// gradients out of it: each is read and written. In the backward pass both
/// are.
double BlockTimer::reorderSeconds(const Operation &op) const {
  double bytes = double(op.keys) * op.keyValueHeads * op.headSize *
                 options.microBatch * elementBytes(options.precision);
  bool isBoth = op.pass != Pass::Forward && kind != Recompute::Full;
  double tensors = isBoth ? 4 : 2;
  return memoryCost(2 * tensors * bytes, context.cluster.device).seconds;
}

/// Keys and values are gathered for each pass, for the backward pass by what is
/// computed again if layers are; then their gradients are scattered. Those that
/// the forward pass has kept are gathered beside what a backward pass begins
/// with, on devices that have a stream for it.
double BlockTimer::gatherSeconds(const Operation &op) {
  double bytes = double(op.keys) * op.keyValueHeads * op.headSize *
                 options.microBatch * elementBytes(options.precision);
  bool forward = op.pass == Pass::Forward;
  bool repeated = !forward && kind == Recompute::Full;
  double seconds = 0, beside = 0;
  if (!forward && context.hasHost())
    beside = input.device.seconds + (split ? 0 : weight.device.seconds);
  if (!repeated)
    seconds += addContext(op, CollectiveKind::AllGather, bytes, beside);
  if (!forward)
    seconds += addContext(op, CollectiveKind::ReduceScatter, bytes);
  return seconds;
}

/// Positions are exchanged for heads: of queries, keys and values before
/// attention, of its result after it, and of as many gradients in the backward
/// pass, for which what attention reads is kept. Where there are too few
/// key/value heads, keys and values are gathered.
double BlockTimer::exchangeSeconds(const Operation &op) {
  double bytesOfHead = double(op.keys) / options.sequenceParts * op.headSize *
                       options.microBatch * elementBytes(options.precision);
  auto secondsOf = [&](int64_t heads) {
    return addContext(op, CollectiveKind::AllToAll, heads * bytesOfHead);
  };
  return secondsOf(op.heads) + (op.keyValueHeads % options.sequenceParts == 0
                                    ? secondsOf(op.keyValueHeads)
                                    : gatherSeconds(op));
}

/// Ring attention: each rank of cp passes its keys and values on while it works
/// on the ones it has (Liu et al. 2023); the backward pass moves their
/// gradients too. What is left is what the work of one step does not hide.
double BlockTimer::ringSeconds(const Operation &op) {
  int members = options.sequenceParts;
  double bytes = 2.0 * op.keys / members * op.keyValueHeads * op.headSize *
                 options.microBatch * elementBytes(options.precision);
  if (op.pass != Pass::Forward)
    bytes *= 2;
  Group group = context.group(Axis::CP);
  bool inside = group.perNode == group.ranks;
  double step = transferSeconds(bytes, inside, context.cluster);
  // The first of as many steps works on the rank's own keys and values, while
  // the next ones come.
  double work = getCost(op).seconds / members;
  double messages = members - 1;
  note({Axis::CP, Carrier::Send, getMoment(op), 2, messages, messages * bytes,
        messages * step, messages * std::min(step, work)});
  return messages * std::max(0.0, step - work);
}

/// Only in the backward pass is there work that does not wait for the
/// collective: gradients of weights, where a schedule has not moved them
/// elsewhere.
bool BlockTimer::overlaps(const Operation &op) const {
  if (!context.framework().overlapTensor || split || op.pass == Pass::Forward ||
      op.axis != Axis::TP)
    return false;
  // Everything else waits for what a gather of gradients brings.
  return op.pass == Pass::BackwardWeight ||
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
  Cost more = cut;
  more += -1 * getCost(matmul);
  return {pieces, pieces * exchange,
          getExposedSeconds(pieces, cut.seconds, exchange), more};
}

/// Whether backward passes gather it by themselves, recomputed or not: what
/// experts take of other ranks' tokens.
static bool isGatheredAnew(const Operation &op) {
  return getFacts(op.axis).splitsExperts &&
         op.collective == CollectiveKind::AllGather;
}

/// Of communication over tp its time is no kernel's. It may be hidden by
/// `beside` seconds of other matmuls; and be cut into pieces along with
/// `matmul`, which makes or reads it (null: there is none). Returns what it
/// needs of `beside`. Collectives of either backward pass count to the input
/// gradient, which the next stage waits for.
double BlockTimer::addCollective(const Operation &op, const Operation *matmul,
                                 double beside) {
  PassTime &pass = op.pass == Pass::Forward ? forward : input;
  double whole = collectiveSecondsOf(op);
  Cut best{1, whole, whole, {}};
  bool sums = op.collective == CollectiveKind::AllReduce;
  // As the compiler's pass chooses (SplitCollectives.cpp). There is nothing to
  // gain where all is hidden.
  int most = getMostPieces(context.training.tensorOverlap, sums);
  for (int pieces = 2; matmul && best.exposed > beside && pieces <= most;
       ++pieces) {
    if (!sums && getBlocks() % pieces)
      continue;
    Cut other = cut(op, *matmul, pieces);
    if (other.exposed < best.exposed)
      best = other;
  }
  double hidden = std::min(best.exposed, beside);
  double exposed = best.exposed - hidden;
  (getFacts(op.axis).splitsExperts ? pass.experts : pass.collective) += exposed;
  if (isGatheredAnew(op))
    pass.gathered += exposed;
  pass.device += best.more;
  pass.kernels += 2 * (best.pieces - 1);
  const Group group = context.group(op.axis);
  const Fabric &fabric = group.perNode == group.ranks ? context.cluster.intra
                                                      : context.cluster.inter;
  pass.contention += (best.seconds - exposed) * fabric.computeLoss;
  Exchange exchange{op.axis,
                    getCarrier(op.collective),
                    getMoment(op),
                    group.ranks,
                    double(best.pieces),
                    op.collectiveElements(context.sequences()) *
                        elementBytes(options.precision),
                    best.seconds,
                    best.seconds - exposed};
  if (isGatheredAnew(op))
    context.note(exchange);
  else
    note(exchange);
  return hidden;
}

/// Outer blocks of what is gathered or scattered: sequences, and the rounds in
/// which each is dealt out, if it can be (AssignShardings.cpp): evenly, in its
/// own order, and where no mask counts positions.
int64_t BlockTimer::getBlocks() const {
  const Configuration &configuration = context.configuration;
  int64_t rounds = (context.training.tensorOverlap + options.microBatch - 1) /
                   options.microBatch;
  bool isDealt =
      !options.dropout && !context.isReordered() &&
      context.training.sequence % (int64_t(configuration.mesh[Axis::CP]) *
                                   configuration.mesh[Axis::TP] * rounds) ==
          0;
  return options.microBatch * (isDealt ? rounds : 1);
}

/// Counts a kernel, and its time to its pass; returns that, of a collective 0.
double BlockTimer::add(const Operation &op) {
  PassTime &pass = op.pass == Pass::Forward         ? forward
                   : op.pass == Pass::BackwardInput ? input
                                                    : weight;
  ++pass.kernels;
  if (op.kind == OperationKind::Collective)
    return 0;
  Cost cost = getCost(op);
  pass.device += cost;
  if (op.kind == OperationKind::Attention) {
    pass.attention += cost;
    pass.context += contextSeconds(op);
    if (!options.flashAttention) // two matmuls and what is between them
      pass.kernels += op.pass == Pass::Forward ? 3 : 6;
  }
  return cost.seconds;
}

/// The inside of attention alone, or the whole forward pass with its
/// communication.
void BlockTimer::recompute(StageTime &time) const {
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
  const PassTime &again = framework.recomputesRead ? read : forward;
  double seconds = again.seconds(framework.hostSeconds) - again.gathered;
  double experts = again.experts - again.gathered;
  // Communication of the forward pass that runs again counts as communication
  // of the backward pass, not as recomputation.
  time.recompute = seconds - again.collective - again.context - experts;
  time.tensorBackward += again.collective;
  time.expertsBackward += experts;
  time.contextBackward += again.context;
  time.backwardInput += seconds;
  time.memory += again.device.memory;
  time.launch += again.launch(framework.hostSeconds);
  for (size_t i = 0; context.notes && i < exchanged.size(); ++i) {
    Exchange exchange = exchanged[i];
    exchange.moment = Moment::Backward;
    if (i < exchangedRead || !framework.recomputesRead)
      context.note(exchange);
  }
}

/// The matmul that comes first, before another collective.
static const Operation *findReader(std::span<const Operation> behind) {
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

/// The collectives with the matmuls around them.
void BlockTimer::addAll() {
  const std::vector<Operation> &ops = block.operations;
  // Of weight gradients so far, what is beside no collective yet.
  double delayed = 0;
  for (auto op = ops.begin(); op != ops.end(); ++op) {
    if (isThere(*op))
      continue;
    bool isMatmul = op->kind == OperationKind::Matmul;
    if (isMatmul && op->pass == Pass::Forward) {
      read = forward;
      exchangedRead = exchanged.size();
    }
    double seconds = add(*op);
    if (isMatmul && op->pass == Pass::BackwardWeight)
      delayed += seconds;
    if (op->kind != OperationKind::Collective)
      continue;
    std::span before(ops.begin(), op), behind(op + 1, ops.end());
    bool gathers = op->collective == CollectiveKind::AllGather;
    const Operation *matmul =
        gathers ? findReader(behind) : findProducer(before);
    double hidden = addCollective(*op, canCut(*op, matmul) ? matmul : nullptr,
                                  getBeside(*op, behind, delayed));
    delayed = std::max(0.0, delayed - hidden);
  }
}

/// Seconds of matmuls that need not wait for `op`.
double BlockTimer::getBeside(const Operation &op,
                             std::span<const Operation> behind,
                             double delayed) const {
  if (!overlaps(op))
    return 0;
  if (!context.framework().delaysWeights) {
    const Operation *next = findReader(behind);
    return next ? getCost(*next).seconds : 0;
  }
  // What is gathered for gradients of weights alone is gathered early.
  double seconds = delayed;
  for (const Operation &other : behind) {
    if (op.collective != CollectiveKind::AllGather ||
        other.kind == OperationKind::Collective ||
        (other.kind == OperationKind::Matmul &&
         other.pass == Pass::BackwardWeight))
      break;
    if (other.kind == OperationKind::Matmul)
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
/// then what is computed again is added to the input gradient, which comes
/// first.
StageTime BlockTimer::run() {
  addAll();
  const Framework &framework = context.framework();
  StageTime time;
  time.forward = forward.seconds(framework.hostSeconds);
  time.backwardInput = input.seconds(framework.backwardHostSeconds);
  time.backwardWeight = weight.seconds(framework.backwardHostSeconds);
  time.memory =
      forward.device.memory + input.device.memory + weight.device.memory;
  time.launch = forward.launch(framework.hostSeconds) +
                input.launch(framework.backwardHostSeconds) +
                weight.launch(framework.backwardHostSeconds);
  time.tensorForward = forward.collective;
  time.tensorBackward = input.collective;
  time.expertsForward = forward.experts;
  time.expertsBackward = input.experts;
  time.contextForward = forward.context;
  time.contextBackward = input.context;
  recompute(time);
  return time;
}

/// Where what is cheap is computed again, the block is the one profiled that
/// way; how much of its time that is, the difference to the plain block tells.
StageTime planner::getBlockTime(int index, const Context &context, bool split,
                                bool isLayer, Recompute kind) {
  StageTime time =
      BlockTimer(context.block(index, kind), context, split, isLayer, kind)
          .run();
  if (!context.recomputesCheap(kind))
    return time;
  // What is cheap is part of the backward pass, where kernels that need it may
  // compute it. Nobody runs the plain block: nothing is noted of it.
  Context silent = context;
  silent.notes = nullptr;
  StageTime plain =
      BlockTimer(context.work.blocks[index], silent, split, isLayer, kind)
          .run();
  time.recompute +=
      std::max(0.0, time.backwardInput + time.backwardWeight -
                        plain.backwardInput - plain.backwardWeight);
  return time;
}

std::vector<bool> planner::findLayers(const Work &work) {
  std::vector<bool> isLayer(work.blocks.size());
  for (size_t i = size_t(work.before); i + work.after < work.order.size(); ++i)
    isLayer[work.order[i]] = true;
  return isLayer;
}

/// Blocks before and after the layers have no recomputation, whatever the kind.
BlockTimes::Times BlockTimes::make(const Context &context, bool split,
                                   Recompute kind) {
  std::vector<bool> isLayer = findLayers(context.work);
  std::vector<StageTime> times;
  times.reserve(isLayer.size());
  for (int block = 0; block < int(isLayer.size()); ++block)
    times.push_back(getBlockTime(block, context, split, isLayer[block],
                                 isLayer[block] ? kind : Recompute::None));
  return std::make_shared<const std::vector<StageTime>>(std::move(times));
}

/// Made outside of the lock, which takes far less time. Two threads may make
/// the same ones; the first to be entered are used.
BlockTimes::Times BlockTimes::get(const Context &context, bool split,
                                  Recompute kind) {
  const Configuration &configuration = context.configuration;
  // All that getBlockTime() asks of a configuration.
  Key key(&context.work, configuration.mesh[Axis::CP],
          configuration.mesh[Axis::TP], configuration.contextParallel,
          configuration.microBatch, split, kind);
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (auto found = known.find(key); found != known.end())
      return found->second;
  }
  Times made = make(context, split, kind);
  std::lock_guard<std::mutex> lock(mutex);
  return known.try_emplace(key, std::move(made)).first->second;
}
