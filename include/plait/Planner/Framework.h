//===- Framework.h - Overheads of training frameworks -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two programs that run the same configuration on the same cluster differ in
// what they overlap, in how often they walk over the gradients and in what the
// host costs. These are switches of a program and constants of its host code;
// none is of a model, a cluster or a run.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_FRAMEWORK_H
#define PLAIT_PLANNER_FRAMEWORK_H

#include "plait/Support/Status.h"

#include <span>
#include <string_view>

namespace plait::planner {

/// The defaults are what plait's own plans do.
struct Framework {
  const char *name = "plait";

  /// A sum over tp in the backward pass runs beside the gradient of the weight
  /// (Narayanan et al. call it asynchronous all-reduce).
  bool overlapTensor = true;
  /// Beside such a sum are all gradients of weights that the layer has left by
  /// then; otherwise the matmul that follows.
  bool delaysWeights = true;
  /// Sums over tp and what is gathered are cut into pieces, each beside a piece
  /// of the matmul that makes or reads it (plait/Support/PieceOverlap.h), as
  /// many as Training::tensorOverlap asks for.
  bool cutsCollectives = true;
  /// Gradients are reduced while the last microbatch still runs backward, in
  /// buckets; otherwise after it.
  bool overlapGradients = true;
  /// Sharded parameters are gathered while the next step's first microbatch
  /// runs forward; otherwise before it.
  bool overlapParameters = true;
  /// Only copies in 16 bit of these, and none where the parameters that they
  /// are made of lie in the memory of hosts.
  bool overlapsCopies = true;
  /// The rank's part of the reduced gradient lies, with ZeRO 1, beside the
  /// whole, and not in it.
  bool separateReduction = true;
  /// A message between stages holds up the rank that sends it.
  bool blockingTransfers = false;
  /// A message that all ranks of tp hold alike is cut over them, and gathered
  /// on the other side (Narayanan et al. 2021, section 4.1).
  bool scatterGather = true;
  /// Sums over many rows are made in two steps on GPUs.
  bool splitsColumnSums = true;
  /// Few-tiled gradients of weights that share an operand are one matmul there.
  bool joinsGradients = true;
  /// The matmul of a weight's gradient adds to the accumulated one
  /// instead of a kernel of its own.
  bool fusedAccumulation = true;
  /// The ranks of dp and cp are one group: gradients are reduced and state is
  /// divided over both. Otherwise state is divided over dp, and gradients are
  /// reduced over cp after that.
  bool joinsReplicas = false;
  /// Keys and values of a sequence that ranks share are gathered before
  /// attention, once more before its backward pass, and their gradients are
  /// reduced and scattered after it; each rank has consecutive queries, so that
  /// the last one sees the most keys. Otherwise they pass round a ring beside
  /// the work, which is even (Liu et al. 2023). With ContextParallel::Heads
  /// neither.
  bool gathersContext = true;
  /// Microbatches add up, with ZeRO 2, to a rank's part of the gradients, which
  /// are reduced after each. Otherwise after the last.
  bool addsUpParts = true;
  /// ZeRO 2 and 3 divide each parameter by itself, which is gathered and
  /// reduced by itself; one without a dimension that ranks divide stays whole.
  /// Otherwise what they divide is one flat buffer.
  bool dividesParameters = true;
  /// Ranks reduce and gather, with ZeRO 2 and 3, what they divide beside the
  /// work of other layers.
  bool overlapsParts = true;
  /// Exchanges of replicas wait for what ranks of cp exchange, and hide behind
  /// what is computed or goes over other axes.
  bool exchangesOneByOne = true;
  /// Gradients are reduced after every microbatch with ZeRO 3.
  bool reduceEveryMicrobatch = true;
  /// The search chooses what lies in the memory of hosts. Otherwise it is what
  /// is given, nothing by default.
  bool searchesOffload = true;
  /// Full recomputation ends with what the backward pass reads, in front of the
  /// layer's last matmul. Otherwise it runs the whole layer again.
  bool recomputesRead = true;
  /// Attention that is not fused keeps its scores for its backward pass, unless
  /// these are recomputed. Otherwise they are always computed again, of what
  /// fused attention keeps.
  bool keepsScores = false;
  /// Selective recomputation takes all that is cheap, as the profile has it, or
  /// as savesOtherMatmuls says. Otherwise the inside of attention alone
  /// (Korthikanti et al. 2022).
  bool recomputesCheap = true;
  /// Selective recomputation saves what attention and every other matmul of a
  /// layer have made (torchtitan's "selective op"), and runs the rest again.
  bool savesOtherMatmuls = false;
  /// A layer keeps the result of each operation that its backward pass reads,
  /// the activation of a gate too. Otherwise what one kernel computes, or a
  /// compiler computes again, is not stored.
  bool keepsEachResult = false;

  /// Bytes of each logit in 16-bit training: those that the loss keeps until
  /// its backward pass, and those that it holds beside them while that runs. 0
  /// and 0: as the profile has it.
  double keptLogitBytes = 0, madeLogitBytes = 0;
  /// Bytes of memory traffic of kernels that copy, with ZeRO 3, an element of a
  /// gathered parameter out of the buffer that was received, and of its
  /// gradient into the one that is reduced.
  double unpackedBytes = 0, packedBytes = 0;
  /// The part of the tensors' memory that the allocator reserves beyond them.
  double reservedPart = 0;

  /// The part that its fused attention reaches of what the hardware file says
  /// of today's.
  double attentionFraction = 1;
  /// The part of that on Hopper, which older kernels are not made for.
  double hopperAttention = 1;
  /// How often a layer's elementwise work goes through memory, as a multiple of
  /// once per fused kernel.
  double kernelPasses = 1;
  /// The part that a collective between nodes keeps of its rate when its group
  /// has some but not all devices of a node: a library that cannot relay
  /// through the device beside a NIC then crosses the host.
  double stridedFraction = 1;
  /// Bytes of memory traffic per parameter that the optimizer's step adds to
  /// reading and writing its state once: unscaling, copies between
  /// precisions, the norm.
  double optimizerExtraBytes = 0;
  /// Host time from one kernel to the next, in the forward and in the backward
  /// pass (which Python may not be part of): what a device waits for when its
  /// kernels are shorter.
  double hostSeconds = 0, backwardHostSeconds = 0;
  /// Once a step: input, logging, synchronisation.
  double stepSeconds = 0;
  /// Standard deviation of the time of a replica's step, as a part of it. All
  /// replicas wait for the slowest.
  double spread = 0.01;

  /// Finds what its fused attention reaches on a device (Device::target).
  double getAttentionFraction(std::string_view target) const {
    return attentionFraction * (target == "sm_90" ? hopperAttention : 1);
  }
};

/// All named frameworks, in the order in which help texts list them.
std::span<const Framework> getFrameworks();

/// The framework called `name`, or a failure that lists the names there are.
Result<Framework> findFramework(std::string_view name);

} // namespace plait::planner

#endif // PLAIT_PLANNER_FRAMEWORK_H
