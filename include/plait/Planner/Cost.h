//===- Cost.h - Cost model of operations and messages -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Analytic: no measurement of the target is needed, only its hardware file.
// What is modelled are causes: tiles and waves of matmuls, alignment,
// memory traffic, the steps and protocols of collectives. Every function is
// pure, allocates nothing and takes well below a microsecond, because a search
// asks a million times. Sizes of zero or less cost nothing.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_COST_H
#define PLAIT_PLANNER_COST_H

#include "plait/Planner/Cluster.h"
#include "plait/Planner/Configuration.h"
#include "plait/Planner/Work.h"

namespace plait::planner {

/// The members of a communicator: `ranks` of them, `perNode` of which share a
/// node. perNode divides ranks, or the last node holds fewer.
struct Group {
  int ranks = 1;
  int perNode = 1;
};

/// `members` ranks of which neighbours are `stride` ranks apart. Ranks are
/// numbered node by node.
Group getGroup(int members, int64_t stride, const Cluster &cluster);

struct CostOptions {
  Precision precision = Precision::BF16;
  bool flashAttention = true;
  bool dropout = false;
  int64_t microBatch = 1; // sequences
  /// The number of pieces of a matmul's or a kernel's rows, of which this is
  /// one.
  int pieces = 1;
  /// Ranks that share a sequence: each has its share of the tokens, and of
  /// attention that of the queries against all keys. They are spread over
  /// the sequence (balanced), or the cost is that of the last ones.
  int sequenceParts = 1;
  bool balancedContext = true;
  /// They have two pieces of it, in zig-zag order.
  bool reorderedContext = false;
  /// They have of attention their share of the heads, and all queries.
  bool contextHeads = false;
  /// Traffic per element that the matmul of a weight's gradient has at its
  /// result. Where it adds to a sum of 4 bytes over microbatches: reads and
  /// writes them.
  double weightGradientBytes = 8;
  /// Gradients of weights that lie side by side are made in one call.
  bool joinsGradients = true;
  /// Attention that is not fused keeps its scores; otherwise its backward pass
  /// computes them again.
  bool keepsScores = true;
};

/// Seconds of work on a device by what bounds them, as a roofline has it
/// (Williams et al. 2009): of arithmetic and memory traffic the longer one, and
/// of the shorter one what does not hide behind it.
struct Cost {
  double seconds = 0;
  // Parts of it.
  double memory = 0; // for the device's memory
  double launch = 0; // from kernel to kernel

  double arithmetic() const { return seconds - memory - launch; }
  Cost &operator+=(const Cost &other) {
    seconds += other.seconds;
    memory += other.memory;
    launch += other.launch;
    return *this;
  }
  friend Cost operator*(double factor, const Cost &cost) {
    return {factor * cost.seconds, factor * cost.memory, factor * cost.launch};
  }
};

/// Bytes of an activation.
double elementBytes(Precision precision);

/// Seconds of a collective over `bytes`, the full tensor's (what an all-reduce
/// combines, what an all-gather ends with, what a reduce-scatter begins with,
/// what one rank holds before an all-to-all), alone on its links. All groups of
/// the same shape run at the same time: where the members lie one per node,
/// their node's other devices use their own NICs. Monotone in `bytes`.
double collectiveSeconds(CollectiveKind kind, double bytes, Group group,
                         const Cluster &cluster);

/// The same of a gather or scatter of rows of experts, of which `bytes` move
/// with even routing.
double rowsSeconds(CollectiveKind kind, double bytes, Group group,
                   const Cluster &cluster);

/// All-reduces of a group as a straight line, for who needs no more than that.
struct Line {
  double latency = 0;   // seconds of the shortest
  double bandwidth = 0; // bytes/s that a member sends while a large one lasts
};
Line fitCollectives(Group group, const Cluster &cluster);

/// Seconds from the send of `bytes` until the receiver can read them.
double transferSeconds(double bytes, bool sameNode, const Cluster &cluster);

/// The same over the link between sites of a cluster that has one, which so
/// many devices of each site share.
double siteCollectiveSeconds(CollectiveKind kind, double bytes, int64_t sites,
                             int64_t sharing, const Cluster &cluster);
double siteTransferSeconds(double bytes, int64_t sharing,
                           const Cluster &cluster);

/// Returns the cost of one operation on the device. Collectives are not its
/// business: they cost 0 here.
Cost operationCost(const Operation &operation, const Device &device,
                   const CostOptions &options);

/// Returns the cost of one matmul batch x (m x k) . (k x n).
Cost matmulCost(int64_t batch, int64_t m, int64_t n, int64_t k,
                const Device &device, Precision precision);

/// FLOP/s of a large matmul, and bytes/s of a large kernel.
double getGemmRate(const Device &device, Precision precision);
double getMemoryRate(const Device &device);

/// Seconds of a pipeline that would take `seconds` if every rank had its share
/// of a processor and no more, and in which a rank is busy for `busy` of them
/// on average. Cores that resting ranks leave serve the others, up to
/// Device::burst times their share; devices of their own gain nothing.
double sharedSeconds(double seconds, double busy, const Device &device);

/// Returns the cost of one kernel that does nothing but move `bytes` through
/// the device's memory (reads and writes together): an optimizer, a cast.
Cost memoryCost(double bytes, const Device &device);

} // namespace plait::planner

#endif // PLAIT_PLANNER_COST_H
