//===- BandFacts.cpp - What is known of published runs --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Written by `plait-bench-published --facts`, but for plait's own row; a test
// holds all of it against the runs. Where each source was published stands with
// its runs (test/Unit/Planner/Published/data). "Megatron CI 7B" is left out:
// its runs are in deterministic mode, which is not predicted.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Band.h"

using namespace plait;
using namespace plait::planner;

static constexpr BandFact facts[] = {
    {"Megatron SC21 table 1", "megatron-2021", "sm_80", 10, 32, 3072, 0.034,
     0.026, 0.047},
    {"Korthikanti table 5", "megatron-2022", "sm_80", 9, 8, 2240, 0.019, 0.021,
     0.025},
    {"Korthikanti table 4", "megatron-2022", "sm_80", 10, 8, 8, 0.011, 0.018,
     0.033},
    {"vTrain multi-node", "megatron-deepspeed", "sm_80", 109, 64, 512, -0.006,
     0.028, 0.158},
    {"llm-foundry H100 80GB", "fsdp-2023", "sm_90", 52, 8, 64, 0.155, 0.097,
     0.049},
    {"llm-foundry A100 80GB", "fsdp-2023", "sm_80", 61, 8, 64, 0.051, 0.088,
     0.042},
    {"llm-foundry A100 40GB", "fsdp-2023", "sm_80", 78, 8, 128, 0.069, 0.071,
     0.066},
    {"Megatron CI 15B", "megatron-core", "sm_80", 1, 256, 256, 0.067, 0.000,
     0.000},
    {"SimuMax B200", "megatron-core", "sm_100", 31, 8, 8, 0.124, 0.039, 0.074},
    {"Zero bubble tables 4 and 6", "megatron-2022", "sm_80", 36, 8, 24, 0.002,
     0.080, 0.051},
    {"Narayanan SC21 table 2", "megatron-2021", "sm_80", 6, 384, 2240, 0.011,
     0.025, 0.029},
    {"MT-NLG 530B", "megatron-deepspeed", "sm_80", 3, 2240, 3360, 0.250, 0.009,
     0.023},
    {"MegaScale baseline", "megatron-2022", "sm_80", 8, 256, 12288, 0.005,
     0.042, 0.027},
    {"Llama 3 405B", "megatron-core", "sm_90", 2, 8192, 16384, 0.053, 0.011,
     0.011},
    {"torchtitan A100", "fsdp", "sm_80", 2, 64, 64, 0.107, 0.014, 0.014},
    {"BLOOM, February 26", "megatron-deepspeed", "sm_80", 42, 384, 384, 0.079,
     0.071, 0.153},
    {"BLOOM, February 28", "megatron-deepspeed", "sm_80", 17, 384, 384, 0.072,
     0.039, 0.150},
    {"Nemotron-4, H100", "megatron-core", "sm_90", 12, 16, 2048, 0.032, 0.092,
     0.014},
    {"Llama 3.1, H100", "megatron-core", "sm_90", 16, 8, 2048, 0.019, 0.014,
     0.017},
    {"GPT-3 175B, H100", "megatron-core", "sm_90", 5, 128, 2048, 0.002, 0.001,
     0.003},
    {"Nemotron-4, GB200", "megatron-core", "sm_100", 6, 128, 512, -0.049, 0.010,
     0.010},
    {"Llama 3.1, GB200", "megatron-core", "sm_100", 3, 128, 512, -0.003, 0.001,
     0.005},
    {"fms-fsdp A100 80GB, eager", "fsdp", "sm_80", 4, 128, 128, 0.078, 0.017,
     0.039},
    {"torchtitan H100 96GB, eager", "fsdp", "sm_90", 2, 8, 128, 0.084, 0.011,
     0.011},
    {"torchtitan H100 96GB, compiled", "fsdp-compiled", "sm_90", 4, 8, 256,
     0.047, 0.080, 0.035},
    {"fms-fsdp A100 80GB", "fsdp-compiled", "sm_80", 1, 128, 128, -0.020, 0.000,
     0.000},
    {"fms-fsdp H100", "fsdp-compiled", "sm_90", 1, 96, 96, 0.154, 0.000, 0.000},
    // What was measured on it, docs/GPU.md.
    {"plait, one H200", "plait", "sm_90", 5, 1, 1, -0.020, 0.051, 0.046},
};

std::span<const BandFact> planner::getBandFacts() { return facts; }
