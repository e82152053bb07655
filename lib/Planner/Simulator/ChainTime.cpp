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
// into the next layer, which is one like it.
//
//===----------------------------------------------------------------------===//

#include "BlockTimer.h"

#include "plait/Support/PieceOrder.h"
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

Cost BlockTimer::getPieceCost(const Operation &op, int pieces) const {
  if (op.kind == OperationKind::Collective)
    return {collectiveSecondsOf(op, pieces)};
  CostOptions part = options;
  part.pieces = pieces;
  return operationCost(op, context.cluster.device, part);
}

/// Cuts a chain into the pieces that take the least time, where that is less
/// than with each collective cut by itself.
void BlockTimer::cutChain(std::span<const Operation *const> chain,
                          Chains &chains) const {
  auto exchanges = [](const Operation *op) {
    return op->kind == OperationKind::Collective;
  };
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
    std::vector<ChainLink> links;
    double least[2] = {0, 0}; // of either stream
    for (const Operation *op : chain) {
      ChainLink link{exchanges(op), getPieceCost(*op, pieces).seconds,
                     getCost(*op).seconds};
      least[link.exchanges] +=
          link.exchanges ? pieces * link.seconds
                         : std::min(pieces * link.seconds, link.whole);
      links.push_back(link);
    }
    if (std::max(least[0], least[1]) >= best.seconds)
      continue;
    if (ChainWay way = listWays(links, pieces).front();
        way.seconds < best.seconds)
      best = way;
  }
  if (best.pieces == 1)
    return;
  Cost more;
  for (const Operation *op : chain.first(best.links))
    if (!exchanges(op)) {
      more += best.pieces * getPieceCost(*op, best.pieces);
      more += -1 * getCost(*op);
      chains.gained.kernels += best.pieces - 1;
    }
  chains.gained.device += more;
  double exposed = (best.seconds - computed - more.seconds) / count;
  for (const Operation *op : chain)
    if (exchanges(op))
      chains.cuts[op] = {best.pieces,
                         best.pieces * collectiveSecondsOf(*op, best.pieces),
                         exposed,
                         0,
                         {}};
}

/// Takes none where copies to hosts come between what would be a chain.
void BlockTimer::takeChains() {
  const Configuration &configuration = context.configuration;
  if (!isLayer || configuration.mesh[Axis::TP] == 1 ||
      !context.training.cutsCollectives(context.cluster.device.isProcessor) ||
      offloadsActivations(configuration.offload))
    return;
  auto find = [&] { return findChains(); };
  chains = context.blockTimes
               ? context.blockTimes->getChains(block, context, find)
               : std::make_shared<const Chains>(find());
  gained = chains->gained;
}

const Cut *BlockTimer::findChained(const Operation &op) const {
  if (!chains)
    return nullptr;
  auto found = chains->cuts.find(&op);
  return found == chains->cuts.end() ? nullptr : &found->second;
}

/// Parameters that are gathered when they are needed come between two layers.
Chains BlockTimer::findChains() const {
  Chains chains;
  std::vector<const Operation *> ops;
  for (const Operation &op : block.operations)
    if (op.pass == Pass::Forward && !op.again)
      ops.push_back(&op);
  // From the last attention on, and around.
  auto attention = std::find_if(ops.rbegin(), ops.rend(), [](auto *op) {
    return op->kind == OperationKind::Attention;
  });
  auto next = std::rotate(ops.begin(), attention.base(), ops.end());
  bool isApart = context.zero(/*experts=*/false) >= 3;
  for (auto begin = ops.begin(); begin != ops.end();) {
    auto last = isApart && begin < next ? next : ops.end();
    auto end =
        std::find_if_not(begin, last, [&](auto *op) { return isLink(*op); });
    cutChain(std::span<const Operation *const>(begin, end), chains);
    begin = end == last ? end : end + 1;
  }
  return chains;
}
