//===- ContextTime.cpp - Time of what ranks of cp exchange ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What ranks that share a sequence exchange before and after an attention, by
// the way in which they do, and what of that has work beside it.
//
//===----------------------------------------------------------------------===//

#include "BlockTimer.h"

#include <algorithm>

using namespace plait;
using namespace plait::planner;

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

/// What ranks of cp wait for before and after an attention. One that is
/// computed again has what its gradients need, of which they are charged.
double BlockTimer::contextSeconds(const Operation &op) {
  if (options.sequenceParts == 1 || op.again)
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
/// computed again if layers are; then their gradients are scattered. Of what
/// the forward pass has kept, the first tensor has the work since the last
/// collective beside it, while the second waits for memory; gradients have
/// those of weights that are left.
double BlockTimer::gatherSeconds(const Operation &op) {
  double bytes = double(op.keys) * op.keyValueHeads * op.headSize *
                 options.microBatch * elementBytes(options.precision);
  bool forward = op.pass == Pass::Forward;
  bool repeated = !forward && kind == Recompute::Full;
  bool hides = !forward && !split && context.hasHost();
  double seconds = 0;
  if (!repeated) {
    double one = collectiveSeconds(CollectiveKind::AllGather, bytes,
                                   context.group(Axis::CP), context.cluster);
    seconds +=
        addContext(op, CollectiveKind::AllGather, bytes,
                   hides ? std::min(one, std::max(delayed, computed)) : 0);
  }
  if (!forward)
    seconds += addContext(op, CollectiveKind::ReduceScatter, bytes,
                          hides ? getWeightSeconds({&op + 1, getEnd()}) : 0);
  return seconds;
}

/// Seconds of gradients of weights before the next collective.
double BlockTimer::getWeightSeconds(std::span<const Operation> behind) const {
  double seconds = 0;
  for (const Operation &op : behind) {
    if (op.kind == OperationKind::Collective)
      break;
    if (op.kind == OperationKind::Matmul && op.pass == Pass::BackwardWeight)
      seconds += getCost(op).seconds;
  }
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
