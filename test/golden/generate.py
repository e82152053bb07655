#!/usr/bin/env python3
#===- generate.py - Golden training runs ------------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Writes the golden cases of test/golden from PyTorch and transformers.

A case is a folder with config.json, tokens.bin, model.safetensors (absent when
plait's own initialisation is used), golden.json and final.safetensors. Every
case is also trained in fp64; the distance between the two runs, printed and
kept in golden.json, says how much of a tolerance rounding alone uses up.
"""

import argparse
import dataclasses
import json
import pathlib
import shutil

import numpy
import safetensors.torch
import torch

import plait_init
from training import (
    Recipe,
    RoutingMargin,
    biases,
    build_model,
    file_tensors,
    train,
    trainable_names,
)

HERE = pathlib.Path(__file__).resolve().parent
GPT2_CONFIG = HERE.parents[1] / "examples" / "models" / "gpt2" / "config.json"

GPT2_SMALL = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "attn_pdrop": 0.0,
    "bos_token_id": 320,
    "embd_pdrop": 0.0,
    "eos_token_id": 320,
    "resid_pdrop": 0.0,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "n_embd": 64,
    "n_head": 4,
    "n_layer": 4,
    "n_positions": 64,
    "tie_word_embeddings": True,
    # Not a multiple of any mesh axis: shards of the vocabulary are padded.
    "vocab_size": 321,
}

LLAMA_SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "hidden_size": 64,
    "initializer_range": 0.02,
    "intermediate_size": 176,
    "max_position_embeddings": 128,
    "mlp_bias": False,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": 320,
}

# Head dimension 8 and these bounds put one frequency in each branch of the
# rule: kept, interpolated, divided.
LLAMA3_SMALL = LLAMA_SMALL | {
    "num_hidden_layers": 2,
    "rope_scaling": {
        "factor": 8.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 64,
        "rope_type": "llama3",
    },
    "tie_word_embeddings": True,
}

# Each with what its family has beside Llama's: a window shorter than the
# sequence; biases before attention and windows of some layers; norms of heads,
# whose size is not that of hidden / heads; merged projections.
MISTRAL_SMALL = LLAMA_SMALL | {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "head_dim": 16,
    "num_hidden_layers": 2,
    "sliding_window": 9,
}
QWEN2_SMALL = LLAMA_SMALL | {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "max_window_layers": 1,
    "num_hidden_layers": 3,
    "sliding_window": 12,
    "tie_word_embeddings": True,
    "use_sliding_window": True,
}
QWEN3_SMALL = LLAMA_SMALL | {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "head_dim": 16,
    "num_hidden_layers": 2,
    "rope_theta": 1000000.0,
}
PHI3_SMALL = LLAMA_SMALL | {
    "architectures": ["Phi3ForCausalLM"],
    "model_type": "phi3",
    "num_hidden_layers": 2,
    "original_max_position_embeddings": 128,
    "pad_token_id": None,
    "sliding_window": 20,
}
# Mixtures of experts, without the loss that balances them: that depends on how a
# batch is cut.
MIXTRAL_SMALL = LLAMA_SMALL | {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "intermediate_size": 48,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "num_local_experts": 4,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.0,
    "router_jitter_noise": 0.0,
    "sliding_window": None,
}
QWEN3_MOE_SMALL = QWEN3_SMALL | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 24,
    "norm_topk_prob": True,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.0,
}
# Norms of all query heads together, and of all key heads.
OLMO2_SMALL = LLAMA_SMALL | {
    "architectures": ["Olmo2ForCausalLM"],
    "model_type": "olmo2",
    "num_hidden_layers": 2,
    "pad_token_id": None,
}
OLMOE_SMALL = OLMO2_SMALL | {
    "architectures": ["OlmoeForCausalLM"],
    "model_type": "olmoe",
    "clip_qkv": None,
    "intermediate_size": 24,
    "norm_topk_prob": False,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.0,
}
# The first layer has no experts; heads whose key, value and turning part have
# sizes of their own; groups of experts, of which a token uses some; frequencies
# that are kept, interpolated and divided, with a factor of scores and one of
# cosines.
DEEPSEEK_V3_SMALL = LLAMA_SMALL | {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 1,
    "intermediate_size": 96,
    "kv_lora_rank": 16,
    "moe_intermediate_size": 24,
    "n_group": 4,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 4,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "rope_interleave": True,
    "rope_scaling": {
        "beta_fast": 8,
        "beta_slow": 0.5,
        "factor": 8.0,
        "mscale": 1.0,
        "mscale_all_dim": 0.5,
        "original_max_position_embeddings": 64,
        "type": "yarn",
    },
    "rope_theta": 100.0,
    "routed_scaling_factor": 2.5,
    "topk_group": 2,
    "v_head_dim": 10,
}
# All layers but the first have experts, chosen among all of them by softmax.
DEEPSEEK_V2_SMALL = DEEPSEEK_V3_SMALL | {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "n_group": 1,
    "norm_topk_prob": False,
    "q_lora_rank": None,
    "routed_scaling_factor": 1.5,
    "scoring_func": "softmax",
    "topk_group": 1,
    "topk_method": "greedy",
}
del DEEPSEEK_V2_SMALL["rope_interleave"]
# A shared expert that a sigmoid opens.
QWEN2_MOE_SMALL = LLAMA_SMALL | {
    "architectures": ["Qwen2MoeForCausalLM"],
    "model_type": "qwen2_moe",
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 24,
    "norm_topk_prob": False,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 2,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.0,
    "shared_expert_intermediate_size": 40,
}
YARN_SMALL = QWEN2_SMALL | {
    "num_hidden_layers": 2,
    "rope_scaling": {
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "type": "yarn",
    },
    "rope_theta": 100.0,
}
# Sinks and biases everywhere, windows of every other layer, experts whose gate
# and up take turns and are often bounded, frequencies between pairs.
GPT_OSS_SMALL = LLAMA_SMALL | {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "attention_bias": True,
    "head_dim": 16,
    "intermediate_size": 24,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_experts_per_tok": 3,
    "num_local_experts": 8,
    "output_router_logits": False,
    "rope_scaling": {
        "beta_fast": 8.0,
        "beta_slow": 0.5,
        "factor": 8.0,
        "original_max_position_embeddings": 64,
        "rope_type": "yarn",
        "truncate": False,
    },
    "rope_theta": 100.0,
    "router_aux_loss_coef": 0.0,
    "sliding_window": 9,
    "swiglu_limit": 0.75,
}
# One head of keys and values for all, norms whose weights begin at 0, scaled
# embeddings.
GEMMA_SMALL = LLAMA_SMALL | {
    "architectures": ["GemmaForCausalLM"],
    "model_type": "gemma",
    "head_dim": 16,
    "hidden_act": "gelu_pytorch_tanh",
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "pad_token_id": None,
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": True,
}
# Norms on both sides, windows of every other layer, scores and logits beyond
# their caps.
GEMMA2_SMALL = GEMMA_SMALL | {
    "architectures": ["Gemma2ForCausalLM"],
    "model_type": "gemma2",
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 5.0,
    "hidden_activation": "gelu_pytorch_tanh",
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "query_pre_attn_scalar": 24,
    "sliding_window": 9,
}
# Two of three layers have a window and frequencies of their own; norms of heads.
GEMMA3_SMALL = GEMMA_SMALL | {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "hidden_activation": "gelu_pytorch_tanh",
    "num_hidden_layers": 6,
    "num_key_value_heads": 4,
    "query_pre_attn_scalar": 24,
    "rope_local_base_freq": 100.0,
    "rope_scaling": {"factor": 4.0, "rope_type": "linear"},
    "rope_theta": 1000.0,
    "sliding_window": 9,
    "sliding_window_pattern": 3,
}
GRANITE_SMALL = LLAMA_SMALL | {
    "architectures": ["GraniteForCausalLM"],
    "model_type": "granite",
    "attention_multiplier": 0.2,
    "embedding_multiplier": 3.0,
    "logits_scaling": 1.5,
    "num_hidden_layers": 2,
    "residual_multiplier": 0.4,
    "tie_word_embeddings": True,
}
# The last of four layers knows no positions.
SMOLLM3_SMALL = LLAMA_SMALL | {
    "architectures": ["SmolLM3ForCausalLM"],
    "model_type": "smollm3",
    "no_rope_layer_interval": 4,
    "no_rope_layers": [1, 1, 1, 0],
    "pad_token_id": None,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
}
# Windows of three of four layers, scaled frequencies of the others.
OLMO3_SMALL = OLMO2_SMALL | {
    "architectures": ["Olmo3ForCausalLM"],
    "model_type": "olmo3",
    "num_hidden_layers": 4,
    "rope_parameters": {
        "full_attention": {
            "attention_factor": 1.2,
            "beta_fast": 8.0,
            "beta_slow": 0.5,
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            "rope_theta": 100.0,
            "rope_type": "yarn",
        },
        "sliding_attention": {"rope_theta": 100.0, "rope_type": "default"},
    },
    "sliding_window": 9,
}
for field in ("rope_scaling", "rope_theta"):
    del OLMO3_SMALL[field]
for config in (
    DEEPSEEK_V2_SMALL,
    DEEPSEEK_V3_SMALL,
    GEMMA_SMALL,
    GEMMA2_SMALL,
    GEMMA3_SMALL,
    GPT_OSS_SMALL,
    OLMO2_SMALL,
    OLMO3_SMALL,
    OLMOE_SMALL,
    MISTRAL_SMALL,
    QWEN2_SMALL,
    YARN_SMALL,
    QWEN3_SMALL,
    PHI3_SMALL,
    MIXTRAL_SMALL,
    QWEN2_MOE_SMALL,
    QWEN3_MOE_SMALL,
):
    del config["mlp_bias"]
for config in (
    MISTRAL_SMALL,
    QWEN2_SMALL,
    YARN_SMALL,
    MIXTRAL_SMALL,
    QWEN2_MOE_SMALL,
):
    del config["attention_bias"]
# Scores that are nearer than this may be ordered by rounding.
LEAST_MARGIN = 1e-5


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    recipe: Recipe
    seed: int = 0
    config: dict | None = None
    # Another case whose config, tokens and weights this one trains.
    inputs: str | None = None
    keep_final: bool = True
    # What balances experts, as plaitc --balance has it.
    balance: tuple[str, ...] = ()


CASES = [
    Case("deepseek-v2-small-test", Recipe(), seed=37, config=DEEPSEEK_V2_SMALL),
    Case("qwen2-moe-small-test", Recipe(), seed=39, config=QWEN2_MOE_SMALL),
    Case("deepseek-v3-small-test", Recipe(), seed=21, config=DEEPSEEK_V3_SMALL),
    Case(
        "deepseek-v3-balanced-test",
        Recipe(),
        inputs="deepseek-v3-small-test",
        balance=("bias=0.01", "sequence=0.02", "z=0.0001"),
    ),
    Case(
        "qwen3-moe-balanced-test",
        Recipe(),
        inputs="qwen3-moe-small-test",
        keep_final=False,
        balance=("sequence=0.25", "z=0.02"),
    ),
    Case("qwen2-yarn-small-test", Recipe(), seed=22, config=YARN_SMALL),
    Case("gemma-small-test", Recipe(), seed=31, config=GEMMA_SMALL),
    Case("gemma2-small-test", Recipe(), seed=32, config=GEMMA2_SMALL),
    Case("gemma3-small-test", Recipe(), seed=33, config=GEMMA3_SMALL),
    Case("granite-small-test", Recipe(), seed=34, config=GRANITE_SMALL),
    Case("smollm3-small-test", Recipe(), seed=47, config=SMOLLM3_SMALL),
    Case("olmo3-small-test", Recipe(), seed=36, config=OLMO3_SMALL),
    Case("gpt-oss-small-test", Recipe(), seed=26, config=GPT_OSS_SMALL),
    Case("gpt2-small-test", Recipe(), seed=1, config=GPT2_SMALL),
    Case("llama-small-test", Recipe(), seed=12, config=LLAMA_SMALL),
    Case("llama3-small-test", Recipe(), seed=3, config=LLAMA3_SMALL),
    Case("mistral-small-test", Recipe(), seed=4, config=MISTRAL_SMALL),
    Case("mixtral-small-test", Recipe(), seed=14, config=MIXTRAL_SMALL),
    Case("olmo2-small-test", Recipe(), seed=10, config=OLMO2_SMALL),
    Case("olmoe-small-test", Recipe(), seed=17, config=OLMOE_SMALL),
    Case("phi3-small-test", Recipe(), seed=5, config=PHI3_SMALL),
    Case("qwen2-small-test", Recipe(), seed=6, config=QWEN2_SMALL),
    Case("qwen3-small-test", Recipe(), seed=7, config=QWEN3_SMALL),
    Case("qwen3-moe-small-test", Recipe(), seed=9, config=QWEN3_MOE_SMALL),
    Case(
        "gpt2-small-test-plain",
        Recipe(weight_decay=0.0, grad_clip=0.0),
        inputs="gpt2-small-test",
        keep_final=False,
    ),
    Case("gpt2-124m", Recipe(seq=64, global_batch=4), keep_final=False),
]


def randomise(model: torch.nn.Module, seed: int) -> None:
    """Random weights in which every term matters, norms and biases too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(trainable_names(model).items()):
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() >= 2:
                p.copy_(0.1 * noise)
            elif name.endswith("bias"):
                p.copy_(0.1 * noise)
            else:  # Gemma's norms begin at 0
                p.copy_((1.0 if p.any() else 0.0) + 0.2 * noise)
        for buffer in biases(model).values():
            buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))


def random_tokens(vocab: int, samples: int, seq: int, seed: int):
    """Skewed towards small numbers, so that there is something to learn. A
    few tokens past the last whole sample must be ignored."""
    uniform = numpy.random.default_rng(seed).random(samples * seq + 6)
    return (vocab * uniform**2).astype("<u2")


def save_weights(path: pathlib.Path, tensors: dict) -> None:
    tensors = {
        name: p.detach().to(torch.float32).contiguous()
        for name, p in tensors.items()
    }
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)


def write_inputs(case: Case, folder: pathlib.Path) -> None:
    """config.json, tokens.bin and model.safetensors of a case of its own."""
    recipe = case.recipe
    samples = recipe.steps * recipe.global_batch
    if case.config is None:
        shutil.copy(GPT2_CONFIG, folder / "config.json")
    else:
        text = json.dumps(case.config, indent=2) + "\n"
        (folder / "config.json").write_text(text)
        samples -= recipe.global_batch // 2  # the last step wraps
        model = build_model(folder / "config.json")
        randomise(model, case.seed)
        save_weights(folder / "model.safetensors", file_tensors(model))
    vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
    tokens = random_tokens(vocab, samples, recipe.seq, case.seed)
    (folder / "tokens.bin").write_bytes(tokens.tobytes())


def load_model(case: Case, source: pathlib.Path) -> torch.nn.Module:
    model = build_model(source / "config.json")
    if (source / "model.safetensors").exists():
        values = safetensors.torch.load_file(source / "model.safetensors")
    else:
        config = json.loads((source / "config.json").read_text())
        shapes = {n: p.shape for n, p in trainable_names(model).items()}
        values = {
            name: torch.from_numpy(value)
            for name, value in plait_init.initialise(
                config, shapes, case.seed
            ).items()
        }
    parameters = trainable_names(model)
    if parameters.keys() != values.keys():
        # A tensor for each expert, which transformers puts together.
        loaded = type(model).from_pretrained(source, dtype=torch.float32)
        assert file_tensors(loaded).keys() == values.keys()
        values = trainable_names(loaded)
        for name, buffer in biases(model).items():
            buffer.copy_(biases(loaded)[name])
    assert parameters.keys() == values.keys()
    with torch.no_grad():
        for name, value in values.items():
            parameters[name].copy_(value)
    return model


def as_steps(records) -> list[dict]:
    steps = [
        {key: float(f"{value:.9g}") for key, value in record.items()}
        for record in records
    ]
    for step in steps:
        step["step"] = int(step["step"])
    return steps


def rounding(records, records64) -> float:
    """The largest relative distance of a run from one of more precision."""
    return max(
        abs(a[key] - b[key]) / abs(b[key])
        for a, b in zip(records, records64)
        for key in ("loss", "grad_norm")
    )


def weight_rounding(model, model64) -> float:
    """Largest absolute difference of the weights; GPT-2's key bias, whose true
    gradient is zero, is left out."""
    worst = 0.0
    others = trainable_names(model64)
    for name, p in trainable_names(model).items():
        difference = (p.detach() - others[name].detach()).abs()
        if name.endswith("attn.c_attn.bias"):
            width = p.shape[0] // 3
            difference[width : 2 * width] = 0
        worst = max(worst, difference.max().item())
    return worst


def generate(case: Case) -> None:
    folder = HERE / case.name
    folder.mkdir(exist_ok=True)
    source = HERE / (case.inputs or case.name)
    if case.inputs is None:
        write_inputs(case, folder)
    tokens = numpy.frombuffer((source / "tokens.bin").read_bytes(), "<u2")
    model = load_model(case, source)
    margin = RoutingMargin(model)
    records = train(model, tokens, case.recipe, balance=case.balance)
    if margin.least < LEAST_MARGIN:
        raise SystemExit(
            f"{case.name}: two experts have scores {margin.least:.2g} apart, "
            "expected another seed"
        )
    model64 = load_model(case, source).to(torch.float64)
    records64 = train(model64, tokens, case.recipe, balance=case.balance)
    mixed = train(
        load_model(case, source), tokens, case.recipe, True, case.balance
    )
    golden = {
        "case": case.name,
        "inputs": case.inputs or case.name,
        "seed": case.seed,
        "recipe": dataclasses.asdict(case.recipe),
        **({"balance": case.balance} if case.balance else {}),
        "rounding": float(f"{rounding(records, records64):.3g}"),
        "steps": as_steps(records),
        "bf16_steps": as_steps(mixed),
    }
    if margin.least < float("inf"):  # a mixture of experts
        off = weight_rounding(model, model64)
        golden["weight_rounding"] = float(f"{off:.3g}")
    (folder / "golden.json").write_text(json.dumps(golden, indent=2) + "\n")
    if case.keep_final:
        save_weights(folder / "final.safetensors", file_tensors(model))
    print(
        f"{case.name}: loss {records[0]['loss']:.6f} -> "
        f"{records[-1]['loss']:.6f}, fp32 to fp64: records "
        f"{rounding(records, records64):.2g}, weights "
        f"{weight_rounding(model, model64):.2g}; bf16 to fp32: records "
        f"{rounding(mixed, records):.2g}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filter", default="", help="part of the case name")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.use_deterministic_algorithms(True)
    for case in CASES:
        if arguments.filter in case.name:
            generate(case)


if __name__ == "__main__":
    main()
