//===- BlockTimer.h - Sums of a block's operations --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SIMULATOR_BLOCKTIMER_H
#define PLAIT_LIB_PLANNER_SIMULATOR_BLOCKTIMER_H

#include "BlockTime.h"

#include "plait/Support/PieceOrder.h"

#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace plait::planner {

/// Adds up one pass of a block.
struct PassTime {
  Cost device;           // busy with operations
  double collective = 0; // busy with communication over tp that nothing hides
  double context = 0;    // the same over cp
  double experts = 0;    // and over ep
  double gathered = 0;   // of that: what every backward pass gathers anew
  double forWeights = 0; // of `collective`: what gradients of weights wait for
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
  PassTime &operator+=(const PassTime &other) {
    device += other.device;
    attention += other.attention;
    for (auto part :
         {&PassTime::collective, &PassTime::context, &PassTime::experts,
          &PassTime::gathered, &PassTime::forWeights, &PassTime::contention})
      this->*part += other.*part;
    kernels += other.kernels;
    return *this;
  }
};

/// A collective over tp with the matmul that is cut along with it.
struct Cut {
  int pieces = 1;
  double seconds = 0; // of all pieces of the collective
  double exposed = 0; // of them, without anything else beside it
  double lost = 0;    // by the matmul in waves that are not full
  Cost more;          // that the matmul takes in pieces
};

/// Collectives of a forward pass that are cut with all that is around them, and
/// how the pass differs from one where each is cut by itself, but for these.
struct Chains {
  std::map<const Operation *, Cut> cuts;
  PassTime gained;
  double seconds = 0; // of the pass, where attention is not cut
  bool isRun = false; // the pass has nothing but chains and attentions
};

/// Finds how long a backward pass waits for what comes from another place, one
/// tensor behind the other. What an operation reads first is on its way once
/// the operation is reached that reads what comes before it, and those in front
/// of that have ended which leave memory behind. What goes to another place
/// does so as soon as it is made, in a stream of its own.
class Fetches {
public:
  /// Has an operation at `clock` read what takes `copying` seconds to come;
  /// memory was left last at `left`.
  void add(double copying, double clock, double left) {
    all.push_back({copying, clock, left});
  }
  /// Has an operation leave at `clock` what takes `copying` seconds to go.
  void leave(double copying, double clock) {
    all.push_back({copying, clock, 0, /*leaves=*/true});
    leaving += copying;
  }
  /// Returns all waits of a block that ends at `clock`, behind a layer like it
  /// if it is one; sets `behind` to how long what it leaves goes on then.
  double end(double clock, bool isLayer, double &behind) const;
  /// Returns the seconds in which all goes that it leaves.
  double getLeaving() const { return leaving; }

private:
  struct Fetch {
    double copying, clock, left;
    bool leaves = false;
  };
  double leaving = 0;
  std::vector<Fetch> all;
};

inline Moment getMoment(const Operation &op) {
  return op.pass == Pass::Forward ? Moment::Forward : Moment::Backward;
}

/// Whether only gradients of weights read what `op` gathers.
bool isForWeights(const Operation &op);

/// The matmul that comes first, before another collective; null: none.
const Operation *findReader(std::span<const Operation> behind);

/// Walks a block's operations once, in their order. Three sums, one a pass,
/// because schedules run the passes apart.
class BlockTimer {
public:
  BlockTimer(const Block &block, const Context &context, bool split,
             bool isLayer, Recompute kind)
      : block(block), context(context), split(split), isLayer(isLayer),
        kind(kind), options(context.costOptions(split)), marker(block, split) {
    if (context.blockTimes)
      costs = context.blockTimes->getCosts(block, context, split, [&] {
        std::vector<Cost> made;
        for (const Operation &op : block.operations)
          made.push_back(makeCost(op));
        return made;
      });
  }

  BlockTime run();
  /// Seconds of weights' gradients that the block leaves beside no collective.
  /// What layers like it leave, which come before it in a backward pass, is
  /// beside its own first ones.
  double getLeft();
  void take(double left) { delayed = left; }

private:
  void recompute(BlockTime &time) const;
  void hideForWeights();
  void addInputTime(BlockTime &time) const;
  Cost makeCost(const Operation &op) const;
  /// Returns the same of one of the block's operations, kept if it is.
  Cost getCost(const Operation &op) const {
    return costs ? (*costs)[size_t(&op - block.operations.data())]
                 : makeCost(op);
  }
  double bytesOf(const Operation &op) const;
  double getBatched(const Operation &op) const;
  double collectiveSecondsOf(const Operation &op, int pieces = 1) const;
  double contextSeconds(const Operation &op);
  double gatherSeconds(const Operation &op);
  double getProjectionSeconds(const Operation &op) const;
  double getReaderSeconds(const Operation &op) const;
  const Operation *getEnd() const {
    return block.operations.data() + block.operations.size();
  }
  double reorderSeconds(const Operation &op) const;
  /// Sets `before` to what a backward pass waits for in front of the attention.
  double exchangeSeconds(const Operation &op, double &before);
  double ringSeconds(const Operation &op);
  bool joinsGathers(double bytes) const;
  double addContext(const Operation &op, CollectiveKind kind, double bytes,
                    double beside = 0);
  void note(const Exchange &exchange);
  PassTime &getPass(const Operation &op);
  int64_t getRounds() const;
  int64_t getBlocks() const;
  bool isDealt(const Operation &op) const;
  Operation getGather(const Operation &op) const;
  void addAll();
  void addNext(const Operation &op);
  double add(const Operation &op);
  Cut chooseCut(const Operation &op, const Operation *matmul,
                double beside) const;
  Exchange makeExchange(const Operation &op, const Cut &cut,
                        double exposed) const;
  void addCut(PassTime &pass, const Operation &op, const Cut &cut,
              double exposed, double times) const;
  double addCollective(const Operation &op, const Operation *matmul,
                       double beside);
  bool isLink(const Operation &op) const;
  Cost getPieceCost(const Operation &op, int pieces) const;
  std::vector<ChainLink> makeLinks(std::span<const Operation *const> chain,
                                   int pieces) const;
  ChainWay chooseWay(std::span<const Operation *const> chain) const;
  ChainWay chooseRun(std::span<const Operation *const> layer,
                     double limit) const;
  void take(std::span<const Operation *const> chain, const ChainWay &way,
            Chains &chains) const;
  std::vector<const Operation *> listForward() const;
  Chains findChains() const;
  Chains findRun(const Chains &apart) const;
  void takeChains();
  const Cut *findChained(const Operation &op) const;
  void fetch(const Operation &op, double beside, double left);
  void leave(const Operation &op);
  /// Returns the seconds with which the pass computes the block again.
  double getAgain() const {
    return kind != Recompute::Full              ? 0
           : context.framework().recomputesRead ? read.busy()
                                                : forward.busy();
  }
  double getClock(bool isWeight) const {
    return split ? (isWeight ? weight : input).busy()
                 : input.busy() + weight.busy();
  }
  /// Seconds of the pass so far, without what ranks of cp wait for and without
  /// gradients of weights.
  double getWorked(bool isForward) const {
    const PassTime &pass = isForward ? forward : input;
    return pass.busy() - pass.context;
  }
  double getBeside(const Operation &op,
                   std::span<const Operation> behind) const;
  bool overlaps(const Operation &op) const;
  bool isThere(const Operation &op) const;
  bool canCut(const Operation &op, const Operation *matmul) const;
  const Operation *findCut(const Operation &op) const;
  Cut cut(const Operation &op, const Operation &matmul, int pieces) const;
  double getFactor(const Operation &matmul, int pieces) const;

  const Block &block;
  const Context &context;
  bool split, isLayer;
  Recompute kind;
  CostOptions options;
  BlockTimes::Costs costs; // null: not kept
  PassTime forward, input, weight;
  PartMarker marker;
  PassTime anew; // of the forward pass, what every backward pass does itself
  PassTime read; // of `forward`, what comes before its last matmul
  PassTime untilMade; // of `input`, up to the gradients of attention
  std::shared_ptr<const Chains> chains; // null: the block has none
  /// Differs from that of `chains` by what collectives take; what is computed
  /// again gains nothing.
  PassTime gained;
  Fetches fetches[2]; // of a backward pass, or of either half
  double delayed = 0; // weights' gradients so far that are beside no collective
  double contextBehind = 0;  // what the last attention exchanges behind it
  double untilAttention = 0; // what a forward pass computes before one
  /// Clocks until which operations so far leave memory behind; the second is of
  /// half a pass that has gradients of weights.
  double left[2] = {0, 0};
  double computed = 0; // what the backward pass computes since the last one
  double passed = 0;   // the same, and the last one itself
  /// Exchanges of the forward pass, where they are noted, and how many of them
  /// come before that matmul.
  std::vector<Exchange> exchanged;
  size_t exchangedRead = 0;
};

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SIMULATOR_BLOCKTIMER_H
