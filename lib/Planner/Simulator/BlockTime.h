//===- BlockTime.h - Time of a block of layers ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SIMULATOR_BLOCKTIME_H
#define PLAIT_LIB_PLANNER_SIMULATOR_BLOCKTIME_H

#include "PartMarks.h"
#include "plait/Planner/Cluster.h"
#include "plait/Planner/Configuration.h"
#include "plait/Planner/Cost.h"
#include "plait/Planner/Estimate.h"
#include "plait/Planner/Exchange.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

namespace plait::planner {

class BlockTimes;
struct Chains;
class PartLists;

/// The notes of an estimate on what is exchanged, made while it computes how
/// long that takes.
struct ExchangeNotes {
  ExchangeList list;
  double times = 1; // in a step, of what is looked at
};

/// Elements of parameters: of the experts that ep splits, and of all else,
/// which ZeRO divides over other ranks.
struct Elements {
  double dense = 0, experts = 0;

  double all() const { return dense + experts; }
  bool operator==(const Elements &) const = default;
  double &of(bool isExperts) { return isExperts ? experts : dense; }
  void add(const ParameterGroup &group, double count) {
    of(group.experts) += count * group.elements;
  }
};

/// What an estimate passes around. References: lives as long as one call.
struct Context {
  const Work &work;
  const Cluster &cluster;
  const Training &training;
  const Configuration &configuration;
  /// Null where nobody asks for it, as in a search.
  ExchangeNotes *notes = nullptr;
  /// Times that estimates of one search share; null where there is but one.
  BlockTimes *blockTimes = nullptr;
  PartLists *partLists = nullptr; // the same of what ZeRO exchanges
  /// Whether the whole model on one stage bounds that of any cut, which may
  /// have a message in place of a block's input.
  bool boundsCuts = false;
  /// Seconds from which on it does not matter how long an order takes: a search
  /// for one may end there.
  double cutoff = std::numeric_limits<double>::max();

  /// Notes what is exchanged once, or over an axis `exchange.count` times.
  void note(Exchange exchange) const {
    if (!notes)
      return;
    for (double *amount : {&exchange.count, &exchange.bytes, &exchange.seconds,
                           &exchange.hidden})
      *amount *= notes->times;
    notes->list.add(exchange);
  }

  /// Layers that follow on each other on a rank and through which pieces of
  /// whole sequences may go, at most kMostRunLayers (ChainTime.cpp); 1: each
  /// layer's attention is computed whole.
  int getRunLayers(Recompute kind) const;
  const Framework &framework() const { return training.framework; }
  CostOptions costOptions(bool split) const;
  double sequences() const { return configuration.sequences(); }
  /// Whether ranks of cp exchange positions for heads.
  bool exchangesHeads() const {
    return configuration.mesh[Axis::CP] > 1 &&
           configuration.contextParallel == ContextParallel::Heads;
  }
  /// Whether they have pieces of a sequence in zig-zag order.
  bool isReordered() const {
    return configuration.mesh[Axis::CP] > 1 &&
           configuration.contextParallel == ContextParallel::Zigzag;
  }
  /// Whether there is other memory than the device's own.
  bool hasHost() const { return !cluster.device.isProcessor; }
  /// Whether what lies in a place takes nothing of the device's memory.
  bool isApart(MemoryPlace place) const {
    return getFacts(place).isApart(cluster.device.isProcessor);
  }
  double gradientBytes() const {
    return training.fp32Gradients ? 4 : elementBytes(training.precision);
  }
  /// Of one that is summed over ranks.
  double reducedBytes() const {
    return std::min(gradientBytes(), elementBytes(training.reducePrecision));
  }
  /// Whether a block of which `kind` is recomputed is of Work::cheapBlocks.
  bool recomputesCheap(Recompute kind) const {
    return kind == Recompute::Selective && framework().recomputesCheap &&
           !work.cheapBlocks.empty();
  }
  const Block &block(int index, Recompute kind) const {
    return recomputesCheap(kind) ? work.cheapBlocks[index] : work.blocks[index];
  }
  /// Ranks over which gradients are summed.
  int replicas() const { return int(configuration.mesh.replicas()); }
  /// Ranks over which ZeRO divides: of the experts that ep splits, or of all
  /// else.
  int divisions(bool experts) const {
    const Mesh &mesh = configuration.mesh;
    if (framework().joinsReplicas)
      return int(mesh.sharers() /
                 (experts ? mesh.product(&AxisFacts::splitsExperts) : 1));
    return int(mesh.product([&](const AxisFacts &facts) {
      return experts ? facts.dividesExperts() : facts.dividesState;
    }));
  }

  /// The stage of ZeRO, of which nothing is left among one rank. What replicas
  /// compress they send once a step, as by ZeRO 1.
  int zero(bool experts) const {
    bool isOnce = training.compress.isOn() && configuration.zero == 2;
    return divisions(experts) <= 1 ? 0 : isOnce ? 1 : configuration.zero;
  }
  /// Whether micro-batches add gradients to what replicas feed back, so that
  /// they take no memory of their own: from ZeRO 2 on, where no ranks but
  /// replicas have parts of sums (StepUnit::addsToError).
  bool addsToErrors(bool experts) const {
    return training.compress.isOn() && configuration.zero >= 2 &&
           divisions(experts) > 1 &&
           divisions(experts) == configuration.mesh[Axis::DP];
  }

  /// Whether gradients of weights are sent to their owners from where they are
  /// made. Matmuls of experts are none that this matters to.
  bool sendsGradients() const {
    return zero(/*experts=*/false) >= 2 && !training.compress.isOn();
  }

  /// Whether ranks of cp wait, for what they exchange in backward passes, for
  /// all gradients that are on their way: those go through the same links, in
  /// the order in which they are made.
  bool queuesContext() const {
    return framework().gathersContext && sendsGradients() && hasHost();
  }

  /// Whether gradients of weights are made in one call where they lie side by
  /// side, where they stay: not on processors, which have no idle cores in a
  /// last wave of tiles, and not in halves of backward passes, which leave each
  /// gradient in a place of its own unless it comes from another one.
  bool joinsGradients(bool split) const {
    return framework().joinsGradients && hasHost() && !sendsGradients() &&
           (!split || offloadsActivations(configuration.offload));
  }

  /// Whether ZeRO 2 and 3 divide it, where there is more than one rank to.
  bool isDivided(const ParameterGroup &group) const {
    if (training.compress.isOn() && configuration.zero >= 3)
      return dividesChunks(group);
    return !framework().dividesParameters ||
           group.divides(divisions(group.experts));
  }
  /// Whether replicas store parts of it and compress its gradient: with whole
  /// chunks for each, where nobody else has parts of sums (divideChunks()).
  bool dividesChunks(const ParameterGroup &group) const {
    const Mesh &mesh = configuration.mesh;
    int ranks = mesh[Axis::DP];
    auto outer = std::ranges::find_if(group.sizes,
                                      [](int64_t size) { return size > 1; });
    bool isShared = (group.tied && mesh[Axis::PP] > 1) ||
                    mesh.sharers() != ranks ||
                    (configuration.sequenceParallel && mesh[Axis::TP] > 1);
    return !isShared && outer != group.sizes.end() && *outer % ranks == 0 &&
           int64_t(group.elements) / ranks % training.compress.block == 0;
  }
  /// Whether they do here.
  bool dividesByStage(const ParameterGroup &group) const {
    return zero(group.experts) >= 2 && isDivided(group);
  }
  /// Returns what a rank has of `elements`, those of which ZeRO divides from
  /// stage `level` on.
  double getShare(const Elements &elements, int level) const {
    double share = 0;
    for (bool experts : {false, true})
      share += Elements(elements).of(experts) /
               (zero(experts) >= level ? divisions(experts) : 1);
    return share;
  }

  Group group(int members, int64_t stride) const;
  Group group(Axis axis) const {
    return group(configuration.mesh[axis], configuration.mesh.stride(axis));
  }
  /// Of those over which ZeRO divides.
  Group replicaGroup(bool experts) const {
    if (!framework().joinsReplicas)
      return group(Axis::DP);
    // Neighbours have other experts.
    int64_t stride = configuration.mesh.stride(Axis::CP) *
                     (divisions(false) / divisions(experts));
    return group(divisions(experts), stride);
  }
  /// Neighbouring stages may lie on different nodes.
  bool stagesCrossNodes() const {
    return configuration.ranks() > cluster.devicesPerNode;
  }
};

/// Seconds of a block, and when its passes need its parameters.
struct BlockTime : StageTime {
  PartMarks marks;  // none where needsMarks() says so
  double again = 0; // of backwardInput: computed again, but for cp's exchanges
  /// The part of backwardInput that only the gradient of the block's input
  /// needs, where gradients of weights run apart; and what these hide of it.
  double ofInput = 0, ofInputHidden = 0;
  double forWeights = 0; // of tensorBackward: gradients of weights alone wait
  /// Seconds in which all goes to another place that the first half of a
  /// backward pass leaves to the second, and of that what is left when it ends.
  double leaving = 0, leavingBehind = 0;
};

/// Seconds of one microbatch of block `index`. `split` says that the schedule
/// runs the gradients of weights apart, where they hide no communication. Only
/// layers are recomputed, not what comes before and after them: its `kind` is
/// None.
BlockTime getBlockTime(int index, const Context &context, bool split,
                       bool isLayer, Recompute kind);

/// Tells by block whether it is one of the layers, between the embedding and
/// the head.
std::vector<bool> findLayers(const Work &work);

/// Times of all blocks where layers have `kind` recomputed, by block. Estimates
/// of one search ask for the same ones over and over: they depend on no axis
/// but those inside of a layer, on no schedule and of a cut on how many layers
/// sequences go through; of ZeRO on whether gradients are divided. So there are
/// as many of them as works, microbatches and such numbers, kinds of context
/// parallelism and recomputation, and places of activations, however large the
/// cluster is and however deep the model. Works, and what the training and the
/// cluster say of computing and of links, are the same for all that ask one
/// object. For any number of threads.
class BlockTimes {
public:
  using Times = std::shared_ptr<const std::vector<BlockTime>>;

  /// Returns what make() does.
  Times get(const Context &context, bool split, Recompute kind);
  /// Computes them anew.
  static Times make(const Context &context, bool split, Recompute kind);

  using Costs = std::shared_ptr<const std::vector<Cost>>;
  /// Returns what the operations of `block` cost. All kinds of recomputation
  /// and most schedules ask for the same; `make` computes them.
  Costs getCosts(const Block &block, const Context &context, bool split,
                 const std::function<std::vector<Cost>()> &make);

  /// Returns the chains of `block`, of which all kinds of recomputation and of
  /// schedules with as many `runLayers` ask for the same, too; `make` finds
  /// them.
  std::shared_ptr<const Chains> getChains(const Block &block,
                                          const Context &context, int runLayers,
                                          const std::function<Chains()> &make);

private:
  /// Returns what is known for `key`, or else `make` makes, outside of the
  /// lock, which takes far less time. Two threads may make the same: the first
  /// to be entered is used.
  template <typename Key, typename Value, typename Make>
  std::shared_ptr<const Value>
  getKnown(std::map<Key, std::shared_ptr<const Value>> &known, const Key &key,
           Make make);

  using Key = std::tuple<const Work *, int, int, ContextParallel, int64_t, bool,
                         bool, MemoryPlace, bool, Recompute, int, bool>;
  /// All that costOptions() asks of a configuration.
  using CostsKey =
      std::tuple<const Block *, int, ContextParallel, int64_t, bool>;
  static CostsKey getCostsKey(const Block &block, const Context &context,
                              bool split);

  static constexpr size_t mostCosts = 2048; // some 15 MB
  std::mutex mutex;                         // of what follows
  std::map<Key, Times> known;
  std::map<CostsKey, Costs> knownCosts; // emptied when it has grown to the most
  std::map<std::tuple<CostsKey, bool, int>, std::shared_ptr<const Chains>>
      knownChains;
};

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SIMULATOR_BLOCKTIME_H
