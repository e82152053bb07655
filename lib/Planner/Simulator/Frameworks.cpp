//===- Frameworks.cpp - Training programs by name -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Framework.h"
#include "plait/Support/Suggest.h"

#include <iterator>
#include <string>

using namespace plait;
using namespace plait::planner;

/// Before NCCL 2.12 (PXN). From eight runs of 3.6B on 64 devices with tp 2 and
/// 4 (vTrain), in which the step's tail is the only part that tp 1 and 8 do not
/// share.
static constexpr double withoutRelay = 0.45;

/// A layer of 1,024 on one sequence of 1,024 tokens takes 3.3 ms forward,
/// forward again and backward, whatever the size of its kernels (vTrain, the
/// fastest of 128 runs with tp 1 on one node): 59 kernels as they are counted
/// here.
static constexpr double launchFromPython = 75e-6;

/// PyTorch without a compiler, for a layer like Llama's in 16 bit, in bytes an
/// element: a root-mean-square norm in 4 bytes is eight kernels (36 instead of
/// 4), a rotary embedding by complex numbers three (22 instead of 4), SwiGLU
/// two (10 instead of 6); together three times the fused ones.
static constexpr double eagerPasses = 3;

/// Bytes of a logit that Megatron-LM's loss over a split vocabulary keeps, its
/// exponentials in 4 bytes (core/tensor_parallel/cross_entropy.py), and makes:
/// the gradient in 2.
static constexpr double megatronKeptLogit = 4, megatronMadeLogit = 2;

/// The same of PyTorch's cross-entropy, of logits that are cast to 4 bytes: it
/// keeps their log-softmax, and makes the gradients of that and of the cast.
static constexpr double torchKeptLogit = 4, torchMadeLogit = 8;

/// A gathered element is read and written in 2 bytes, one of a gradient read in
/// 2 and written in 4 (torch/distributed/fsdp, _fsdp_collectives.py:
/// split_with_sizes_copy, chunk_cat).
static constexpr double torchUnpacked = 4, torchPacked = 6;

/// The gradient of a flat parameter, before it is summed in 4 bytes: those of
/// its parts are joined (4; the backward pass of a split), widened (6), and
/// divided by a part of the number of ranks (8; torch/distributed/fsdp,
/// _runtime_utils.py, and algorithms/_comm_hooks/default_hooks.py).
static constexpr double torchFlatPacked = 18;

/// FlashAttention-2 on Hopper, forward and backward: 335 TFLOP/s (Dao 2023,
/// figure 7) of 519, which are 0.6 and 0.5 of the peak as h100.json has them.
/// PyTorch's scaled_dot_product_attention takes it first there
/// (pytorch/pytorch#138522, huggingface/transformers#48163).
static constexpr double flashAttention2OnHopper = 0.645;

/// PyTorch's allocator beside full devices: reserved over what tensors take in
/// the five runs of torchtitan with memory, 1.07 to 1.12.
static constexpr double torchReserved = 0.10;

/// A program of Python on PyTorch: the host's time.
static constexpr Framework makePython(const char *name) {
  Framework python;
  python.name = name;
  python.delaysWeights = python.cutsCollectives = false;
  python.overlapsCopies = false;
  python.separateReduction = python.splitsColumnSums = false;
  python.joinsGradients = false;
  python.joinsReplicas = true;
  python.gathersContext = false;
  python.addsUpParts = false;
  python.dividesParameters = python.exchangesOneByOne = false;
  python.keepsScores = true;
  python.overlapsParts = true;
  python.searchesOffload = false;
  python.recomputesCheap = python.recomputesRead = false;
  python.keepsEachResult = true;
  python.keptLogitBytes = megatronKeptLogit;
  python.madeLogitBytes = megatronMadeLogit;
  python.hostSeconds = launchFromPython;
  python.backwardHostSeconds = launchFromPython / 3;
  python.stepSeconds = 0.01;
  return python;
}

/// Narayanan et al. 2021: gradients are reduced after the last microbatch, sums
/// over tp are waited for, transfers are synchronous.
static constexpr Framework makeMegatron2021(const char *name) {
  Framework megatron = makePython(name);
  megatron.overlapTensor = false;
  megatron.overlapGradients = megatron.overlapParameters = false;
  megatron.blockingTransfers = true;
  megatron.fusedAccumulation = false;
  megatron.stridedFraction = withoutRelay;
  megatron.optimizerExtraBytes = 22;
  return megatron;
}

/// Korthikanti et al. 2022, section 6: tensor-parallel sums run beside
/// gradients of weights, data-parallel ones after the last microbatch.
static constexpr Framework makeMegatron2022() {
  Framework megatron = makeMegatron2021("megatron-2022");
  megatron.overlapTensor = megatron.fusedAccumulation = true;
  megatron.stepSeconds = 0.02;
  return megatron;
}

/// Its gated activation is one kernel, which keeps what it reads
/// (core/fusions/fused_bias_swiglu.py).
static constexpr Framework makeMegatronCore() {
  Framework megatron = makePython("megatron-core");
  megatron.scatterGather = false;
  megatron.keepsEachResult = false;
  return megatron;
}

/// PyTorch's fully sharded data parallelism, with torchtitan's selective
/// recomputation. A compiler makes one kernel of several, and computes again
/// what costs it little. Recomputation stops at the last tensor that was saved
/// (torch.utils.checkpoint, early stop of the non-reentrant form, since 2.1).
static constexpr Framework makeFsdp(const char *name, double kernelPasses) {
  Framework fsdp = makePython(name);
  fsdp.overlapTensor = fsdp.scatterGather = false;
  fsdp.fusedAccumulation = false;
  fsdp.recomputesCheap = fsdp.savesOtherMatmuls = true;
  fsdp.recomputesRead = true;
  fsdp.keepsEachResult = kernelPasses > 1;
  fsdp.kernelPasses = kernelPasses;
  fsdp.keptLogitBytes = torchKeptLogit;
  fsdp.madeLogitBytes = torchMadeLogit;
  fsdp.unpackedBytes = torchUnpacked;
  fsdp.packedBytes = torchPacked;
  fsdp.reservedPart = torchReserved;
  fsdp.hopperAttention = flashAttention2OnHopper;
  return fsdp;
}

/// It asks for cuDNN's attention (torchtitan/models/attention.py, since the end
/// of 2025; pytorch/torchtitan#1042).
static constexpr Framework makeTorchtitan() {
  Framework torchtitan = makeFsdp("torchtitan", 1);
  torchtitan.hopperAttention = 1;
  return torchtitan;
}

/// MosaicML's Composer with PyTorch 1.13 to 2.1: Triton's first FlashAttention,
/// which reaches half to two thirds of FlashAttention-2 (Dao 2023, figure 4),
/// and an AdamW that makes ten passes over its state. Its layers have no chains
/// of elementwise kernels that a compiler would fuse.
static constexpr Framework makeFsdp2023() {
  Framework composer = makeFsdp("fsdp-2023", 1);
  composer.attentionFraction = 0.55;
  composer.optimizerExtraBytes = 60;
  composer.unpackedBytes = 0; // gathered where it is read
  composer.packedBytes = torchFlatPacked;
  composer.recomputesCheap = composer.savesOtherMatmuls = false;
  composer.recomputesRead = false;
  return composer;
}

/// Rasley et al. 2020, around a model in PyTorch that no compiler has seen.
/// Gradients are reduced in flat buffers, with ZeRO 2 after each microbatch to
/// the part of a rank.
static constexpr Framework makeDeepSpeed() {
  Framework deepspeed = makeFsdp("deepspeed", eagerPasses);
  deepspeed.addsUpParts = true;
  deepspeed.unpackedBytes = deepspeed.packedBytes = 0;
  deepspeed.recomputesCheap = deepspeed.savesOtherMatmuls = false;
  deepspeed.recomputesRead = false;
  return deepspeed;
}

static constexpr Framework frameworks[] = {
    Framework(),
    makeMegatron2021("megatron-2021"),
    makeMegatron2022(),
    makeMegatronCore(),
    makeMegatron2021("megatron-deepspeed"),
    makeFsdp("fsdp", eagerPasses),
    makeFsdp("fsdp-compiled", 1),
    makeFsdp2023(),
    makeTorchtitan(),
    makeDeepSpeed(),
};

std::span<const Framework> planner::getFrameworks() { return frameworks; }

Result<Framework> planner::findFramework(std::string_view name) {
  auto found = findNamed("framework", name, getFrameworks());
  if (!found.ok())
    return found.status();
  return **found;
}
