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
#include "plait/Plan/Communicators.h"

#include <algorithm>

using namespace plait;
using namespace plait::planner;

/// Whether GPUs gather keys and values, of `bytes` each, in one launch
/// (plan::batchGathers): where they come one behind the other.
bool BlockTimer::joinsGathers(double bytes) const {
  return context.hasHost() && !context.isReordered() &&
         2 * bytes / options.sequenceParts <= double(plan::kMostBatched);
}

/// Two collectives of equal tensors over the ranks of cp: of keys and of
/// values, say, with `beside` seconds of work that need not wait for them.
/// Returns what is left to wait for.
double BlockTimer::addContext(const Operation &op, CollectiveKind kind,
                              double bytes, double beside) {
  // Nothing is beside what waits for both.
  bool joins = kind == CollectiveKind::AllGather && joinsGathers(bytes);
  if (joins && op.pass == Pass::Forward)
    beside = 0;
  double calls = joins ? 1 : 2;
  double seconds =
      calls * collectiveSeconds(kind, 2 / calls * bytes,
                                context.group(Axis::CP), context.cluster);
  bool queues = op.pass != Pass::Forward && context.queuesContext();
  // What is gathered waits for that in PartTime.cpp.
  if (queues && kind == CollectiveKind::AllGather)
    marker.addGather(seconds, beside);
  else if (queues)
    beside = 0;
  double hidden = std::min(seconds, beside);
  note({Axis::CP, getCarrier(kind), getMoment(op), options.sequenceParts, 2,
        2 * bytes, seconds, hidden});
  return seconds - hidden;
}

/// What ranks of cp wait for before and after an attention. One that is
/// computed again has what its gradients need, of which they are charged.
double BlockTimer::contextSeconds(const Operation &op) {
  contextBehind = 0;
  if (options.sequenceParts == 1 || op.again)
    return 0;
  double seconds = 0, before = 0;
  if (options.contextHeads)
    seconds = exchangeSeconds(op, before);
  else if (!context.framework().gathersContext)
    return ringSeconds(op);
  else
    seconds =
        gatherSeconds(op) + (context.isReordered() ? reorderSeconds(op) : 0);
  contextBehind = options.contextHeads ? seconds - before : seconds / 2;
  // Gradients of weights have come behind the first collective, all of them.
  if (op.pass != Pass::Forward && !split)
    delayed = 0;
  return seconds;
}

/// Keys and values are brought into order once they are gathered, and their
/// gradients out of it: each by a kernel that reads and writes it. In the
/// backward pass both are.
double BlockTimer::reorderSeconds(const Operation &op) const {
  double bytes = double(op.keys) * op.keyValueHeads * op.headSize *
                 options.microBatch * elementBytes(options.precision);
  bool isBoth = op.pass != Pass::Forward && kind != Recompute::Full;
  double tensors = isBoth ? 4 : 2;
  return tensors * memoryCost(2 * bytes, context.cluster.device).seconds;
}

/// Keys and values are gathered for each pass, for the backward pass by what is
/// computed again if layers are; then their gradients are scattered. While keys
/// come values are computed, and while the second gradient comes the first is
/// used. What the forward pass has kept has beside it the last collective over
/// tp, once whose gradients of weights are done there is memory for it, and the
/// work since then; where it is brought into order, the first tensor alone.
double BlockTimer::gatherSeconds(const Operation &op) {
  double bytes = double(op.keys) * op.keyValueHeads * op.headSize *
                 options.microBatch * elementBytes(options.precision);
  bool forward = op.pass == Pass::Forward;
  bool repeated = !forward && kind == Recompute::Full;
  // From another place it comes no sooner than it is needed.
  bool hides = !forward && context.hasHost() &&
               !offloadsActivations(context.configuration.offload);
  double work = split ? passed : std::max(delayed, passed), seconds = 0;
  if (!repeated) {
    double one = collectiveSeconds(CollectiveKind::AllGather, bytes,
                                   context.group(Axis::CP), context.cluster);
    if (context.isReordered())
      work = std::min(work, one);
    seconds += addContext(op, CollectiveKind::AllGather, bytes,
                          forward ? getProjectionSeconds(op)
                          : hides ? work
                                  : 0);
  }
  if (forward)
    return seconds;
  // Nothing else has taken the gradients of weights that are left.
  double one = collectiveSeconds(CollectiveKind::ReduceScatter, bytes,
                                 context.group(Axis::CP), context.cluster);
  double left = repeated && !split ? std::min(one, delayed) : 0;
  return seconds + addContext(op, CollectiveKind::ReduceScatter, bytes,
                              getReaderSeconds(op) + left);
}

/// Seconds of the last matmul in front of an attention of the forward pass, if
/// it makes values alone.
double BlockTimer::getProjectionSeconds(const Operation &op) const {
  const Operation *first = block.operations.data(), *before = &op;
  while (before != first && (--before)->kind != OperationKind::Matmul)
    ;
  return context.hasHost() && before->kind == OperationKind::Matmul &&
                 before->n == op.keyValueHeads * op.headSize
             ? getCost(*before).seconds
             : 0;
}

/// Seconds of the first matmul behind an attention of the backward pass, if it
/// takes one gradient alone to its input.
double BlockTimer::getReaderSeconds(const Operation &op) const {
  const Operation *reader = findReader({&op + 1, getEnd()});
  return context.hasHost() && reader &&
                 reader->k == op.keyValueHeads * op.headSize
             ? getCost(*reader).seconds
             : 0;
}

/// Positions are exchanged for heads: of queries, keys and values before
/// attention, of its result after it, and of as many gradients in the backward
/// pass, for which what attention reads is kept. Where there are too few
/// key/value heads, keys and values are gathered. In the forward pass each has
/// the matmul of the next one beside it, but for the result, for which all
/// waits; in the backward pass the gradient of the result has the gradients of
/// weights that are left, and others have the matmul that reads the one before.
double BlockTimer::exchangeSeconds(const Operation &op, double &before) {
  double bytesOfHead = double(op.keys) / options.sequenceParts * op.headSize *
                       options.microBatch * elementBytes(options.precision);
  bool forward = op.pass == Pass::Forward;
  double next = forward ? getProjectionSeconds(op) : getReaderSeconds(op);
  double one =
      collectiveSeconds(CollectiveKind::AllToAll, op.heads * bytesOfHead,
                        context.group(Axis::CP), context.cluster);
  double left =
      forward || split || !context.hasHost() ? next : std::min(one, delayed);
  double seconds =
      addContext(op, CollectiveKind::AllToAll, op.heads * bytesOfHead, left);
  before = std::max(0.0, one - left);
  if (op.keyValueHeads % options.sequenceParts != 0)
    return seconds + gatherSeconds(op);
  return seconds + addContext(op, CollectiveKind::AllToAll,
                              op.keyValueHeads * bytesOfHead, next);
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
