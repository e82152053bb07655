//===- ChainTime.cpp - Time of layers in pieces of rows -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a forward pass computes row by row is cut between attentions along with
// what tensor parallelism exchanges (plait/Support/PieceOrder.h), as the
// compiler's pass does (SplitChains.cpp). A chain goes from a layer's attention
// into the next layer, which is one like it; pieces of whole sequences go
// through attention, too, and so from the first layer of a stage to the last.
//
//===----------------------------------------------------------------------===//

#include "BlockTimer.h"

#include "plait/Support/PieceOverlap.h"

#include <algorithm>

using namespace plait;
using namespace plait::planner;

/// Whether rows of it are pieces.
bool BlockTimer::isLink(const Operation &op) const {
  switch (op.kind) {
  case OperationKind::Matmul:
    return op.scaled == Operation::Scaled::M && op.batch == 1;
  case OperationKind::Kernel:
    return !op.sumsSequences;
  case OperationKind::Collective:
    return op.axis == Axis::TP && op.collective != CollectiveKind::AllToAll;
  case OperationKind::Attention:
    return false;
  }
  return false;
}

/// The sequences of a piece of attention are whole.
Cost BlockTimer::getPieceCost(const Operation &op, int pieces) const {
  if (op.kind == OperationKind::Collective)
    return {collectiveSecondsOf(op, pieces)};
  CostOptions part = options;
  if (op.kind == OperationKind::Attention)
    part.microBatch /= pieces;
  else
    part.pieces = pieces;
  return operationCost(op, context.cluster.device, part);
}

static bool exchanges(const Operation *op) {
  return op->kind == OperationKind::Collective;
}

std::vector<ChainLink>
BlockTimer::makeLinks(std::span<const Operation *const> chain,
                      int pieces) const {
  std::vector<ChainLink> links;
  for (const Operation *op : chain)
    links.push_back({exchanges(op), getPieceCost(*op, pieces).seconds,
                     getCost(*op).seconds});
  return links;
}

/// Seconds of either stream at least, where the chain is cut so or ends whole.
static double getLeast(const std::vector<ChainLink> &links, int pieces) {
  double least[2] = {0, 0};
  for (const ChainLink &link : links)
    least[link.exchanges] += link.exchanges
                                 ? pieces * link.seconds
                                 : std::min(pieces * link.seconds, link.whole);
  return std::max(least[0], least[1]);
}

/// Chooses the pieces that take the least time; one where that is not less than
/// with each collective cut by itself.
ChainWay BlockTimer::chooseWay(std::span<const Operation *const> chain) const {
  bool sums = false;
  double computed = 0, waited = 0, count = 0;
  for (const Operation *op : chain) {
    if (!exchanges(op)) {
      computed += getCost(*op).seconds;
      continue;
    }
    ++count;
    sums |= op->collective == CollectiveKind::AllReduce;
    Cut own = chooseCut(*op, findCut(*op), 0);
    waited += own.exposed + own.lost;
  }
  ChainWay best{1, 0, 0, computed + waited};
  int most = getMostPieces(context.training.tensorOverlap, sums);
  for (int pieces = 2; count > 0 && pieces <= most; ++pieces) {
    if (!sums && getBlocks() % pieces)
      continue;
    std::vector<ChainLink> links = makeLinks(chain, pieces);
    if (getLeast(links, pieces) < best.seconds)
      best = findFastestWay(links, pieces, best);
  }
  return best;
}

/// Layers of a run that are timed: one more takes as long as the last of them.
static constexpr int kMostRunLayers = 4;

/// Masks of dropout count sequences. Where layers are computed again whole, all
/// that the forward pass makes is in a workspace, of which pieces of one layer
/// would take what those of another still read.
int Context::getRunLayers(Recompute kind) const {
  const Mesh &mesh = configuration.mesh;
  if (configuration.microBatch == 1 || mesh[Axis::TP] == 1 ||
      mesh[Axis::CP] > 1 || kind == Recompute::Full ||
      zero(/*experts=*/false) >= 3 || !training.flashAttention ||
      training.dropout)
    return 1;
  int64_t stages = int64_t(mesh[Axis::PP]) * std::max(1, configuration.chunks);
  return int(std::clamp<int64_t>(work.layers() / stages, 1, kMostRunLayers));
}

/// Chooses how pieces of whole sequences go through layers like this one, and
/// returns the seconds of each; one piece where that is not less than `limit`.
/// The first piece has nothing beside it where it begins, nor the last where it
/// ends, which counts for short runs.
ChainWay BlockTimer::chooseRun(std::span<const Operation *const> layer,
                               double limit) const {
  int layers = context.getRunLayers(kind);
  ChainWay best{1, 0, 0, limit};
  for (int pieces = 2; layers > 1 && pieces <= context.training.tensorOverlap;
       ++pieces) {
    if (options.microBatch % pieces)
      continue;
    std::vector<ChainLink> links = makeLinks(layer, pieces), run, shorter;
    if (getLeast(links, pieces) >= best.seconds)
      continue;
    for (int i = 0; i < layers; ++i) {
      shorter = run;
      run.insert(run.end(), links.begin(), links.end());
    }
    for (ChainWay way : listWays(run, pieces, layers)) {
      if (way.links < run.size())
        continue;
      double seconds = way.seconds / layers;
      if (layers == kMostRunLayers) {
        ChainWay before{pieces, shorter.size(), way.lag * layers / (layers - 1),
                        0};
        seconds = std::max(way.seconds - getSeconds(shorter, before),
                           getLeast(links, pieces));
      }
      if (seconds < best.seconds)
        best = {pieces, links.size(), way.lag, seconds};
      break;
    }
  }
  return best;
}

/// Counts what a chain gains.
void BlockTimer::take(std::span<const Operation *const> chain,
                      const ChainWay &way, Chains &chains) const {
  if (way.pieces == 1)
    return;
  Cost more;
  double computed = 0, count = 0;
  for (const Operation *op : chain)
    if (exchanges(op))
      ++count;
    else
      computed += getCost(*op).seconds;
  for (const Operation *op : chain.first(way.links))
    if (!exchanges(op)) {
      more += way.pieces * getPieceCost(*op, way.pieces);
      more += -1 * getCost(*op);
      chains.gained.kernels += way.pieces - 1;
    }
  chains.gained.device += more;
  double exposed = (way.seconds - computed - more.seconds) / count;
  for (const Operation *op : chain)
    if (exchanges(op))
      chains.cuts[op] = {way.pieces,
                         way.pieces * collectiveSecondsOf(*op, way.pieces),
                         exposed,
                         0,
                         {}};
}

/// Takes none where copies to hosts come between what would be a chain. Those
/// between attentions are the same whatever the layers of a run.
void BlockTimer::takeChains() {
  const Configuration &configuration = context.configuration;
  if (!isLayer || configuration.mesh[Axis::TP] == 1 ||
      !context.training.cutsCollectives(context.cluster.device.isProcessor) ||
      offloadsActivations(configuration.offload))
    return;
  auto get = [&](int layers, const std::function<Chains()> &find) {
    return context.blockTimes
               ? context.blockTimes->getChains(block, context, layers, find)
               : std::make_shared<const Chains>(find());
  };
  chains = get(1, [&] { return findChains(); });
  if (int layers = context.getRunLayers(kind); layers > 1 && chains->isRun)
    chains = get(layers, [&] { return findRun(*chains); });
  gained = chains->gained;
}

const Cut *BlockTimer::findChained(const Operation &op) const {
  if (!chains)
    return nullptr;
  auto found = chains->cuts.find(&op);
  return found == chains->cuts.end() ? nullptr : &found->second;
}

/// Lists what a forward pass does, from the last attention on and around.
std::vector<const Operation *> BlockTimer::listForward() const {
  std::vector<const Operation *> ops;
  for (const Operation &op : block.operations)
    if (op.pass == Pass::Forward && !op.again)
      ops.push_back(&op);
  auto attention = std::find_if(ops.rbegin(), ops.rend(), [](auto *op) {
    return op->kind == OperationKind::Attention;
  });
  std::rotate(ops.begin(), attention.base(), ops.end());
  return ops;
}

/// Finds the chains between attentions. Parameters that are gathered when they
/// are needed come between two layers.
Chains BlockTimer::findChains() const {
  std::vector<const Operation *> ops = listForward();
  // The first of the next layer, in the order of the block.
  auto next = std::min_element(ops.begin(), ops.end());
  bool isApart = context.zero(/*experts=*/false) >= 3;
  Chains chains;
  chains.isRun = true;
  for (auto begin = ops.begin(); begin != ops.end();) {
    auto last = isApart && begin < next ? next : ops.end();
    auto end =
        std::find_if_not(begin, last, [&](auto *op) { return isLink(*op); });
    std::span<const Operation *const> chain(begin, end);
    ChainWay way = chooseWay(chain);
    take(chain, way, chains);
    chains.seconds += way.seconds;
    if (end != last) {
      chains.isRun &= (*end)->kind == OperationKind::Attention;
      chains.seconds += getCost(**end).seconds;
    }
    begin = end == last ? end : end + 1;
  }
  return chains;
}

/// Finds the chain through attentions; returns those that are `apart` where
/// they take no longer.
Chains BlockTimer::findRun(const Chains &apart) const {
  std::vector<const Operation *> ops = listForward();
  ChainWay run = chooseRun(ops, apart.seconds);
  if (run.pieces == 1)
    return apart;
  Chains chains;
  take(ops, run, chains);
  return chains;
}
