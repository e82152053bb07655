//===- Frameworks.cpp - Training programs by name -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Framework.h"

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

static constexpr Framework frameworks[] = {
    {},
    // Narayanan et al. 2021: gradients are reduced after the last microbatch,
    // sums over tp are waited for, transfers are synchronous.
    {.name = "megatron-2021",
     .overlapTensor = false,
     .overlapGradients = false,
     .overlapParameters = false,
     .blockingTransfers = true,
     .scatterGather = true,
     .fusedAccumulation = false,
     .stridedFraction = withoutRelay,
     .optimizerExtraBytes = 22,
     .hostSeconds = launchFromPython,
     .backwardHostSeconds = launchFromPython / 3,
     .stepSeconds = 0.01},
    // Korthikanti et al. 2022, section 6: tensor-parallel sums run beside
    // gradients of weights, data-parallel ones after the last microbatch.
    {.name = "megatron-2022",
     .overlapTensor = true,
     .overlapGradients = false,
     .overlapParameters = false,
     .blockingTransfers = true,
     .scatterGather = true,
     .fusedAccumulation = true,
     .stridedFraction = withoutRelay,
     .optimizerExtraBytes = 22,
     .hostSeconds = launchFromPython,
     .backwardHostSeconds = launchFromPython / 3,
     .stepSeconds = 0.02},
    {.name = "megatron-core",
     .overlapTensor = true,
     .overlapGradients = true,
     .overlapParameters = true,
     .blockingTransfers = false,
     .scatterGather = false,
     .fusedAccumulation = true,
     .optimizerExtraBytes = 0,
     .hostSeconds = launchFromPython,
     .backwardHostSeconds = launchFromPython / 3,
     .stepSeconds = 0.01},
    {.name = "megatron-deepspeed",
     .overlapTensor = false,
     .overlapGradients = false,
     .overlapParameters = false,
     .blockingTransfers = true,
     .scatterGather = true,
     .fusedAccumulation = false,
     .stridedFraction = withoutRelay,
     .optimizerExtraBytes = 22,
     .hostSeconds = launchFromPython,
     .backwardHostSeconds = launchFromPython / 3,
     .stepSeconds = 0.01},
    // PyTorch's fully sharded data parallelism, kernel by kernel.
    {.name = "fsdp",
     .overlapTensor = false,
     .overlapGradients = true,
     .overlapParameters = true,
     .blockingTransfers = false,
     .scatterGather = false,
     .fusedAccumulation = false,
     .kernelPasses = eagerPasses,
     .optimizerExtraBytes = 0,
     .hostSeconds = launchFromPython,
     .backwardHostSeconds = launchFromPython / 3,
     .stepSeconds = 0.01},
    {.name = "fsdp-compiled",
     .overlapTensor = false,
     .overlapGradients = true,
     .overlapParameters = true,
     .blockingTransfers = false,
     .scatterGather = false,
     .fusedAccumulation = false,
     .optimizerExtraBytes = 0,
     .hostSeconds = launchFromPython,
     .backwardHostSeconds = launchFromPython / 3,
     .stepSeconds = 0.01},
    // MosaicML's Composer with PyTorch 1.13: Triton's first FlashAttention,
    // which reaches half to two thirds of FlashAttention-2 (Dao 2023, figure
    // 4), and an AdamW that makes ten passes over its state.
    {.name = "fsdp-2023",
     .overlapTensor = false,
     .overlapGradients = true,
     .overlapParameters = true,
     .blockingTransfers = false,
     .scatterGather = false,
     .fusedAccumulation = false,
     .attentionFraction = 0.55,
     .optimizerExtraBytes = 60,
     .hostSeconds = launchFromPython,
     .backwardHostSeconds = launchFromPython / 3,
     .stepSeconds = 0.01},
};

std::span<const Framework> planner::getFrameworks() { return frameworks; }

Result<Framework> planner::findFramework(std::string_view name) {
  std::string known;
  for (const Framework &framework : frameworks) {
    if (framework.name == name)
      return framework;
    known += known.empty() ? "" : ", ";
    known += framework.name;
  }
  return fail("unknown framework '", name, "', expected one of ", known);
}
