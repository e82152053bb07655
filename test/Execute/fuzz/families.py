#===- families.py - Draws of config.json ------------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Small models of the families that plaitc imports."""

import functools
import random


def draw_config(rng: random.Random) -> dict:
    heads = rng.choice((2, 4))
    layers = rng.choice((2, 3, 4))
    dropout = functools.partial(rng.choice, (0.0, 0.0, 0.1, 0.5))
    hidden = heads * rng.choice((4, 8))
    vocabulary = rng.choice((97, 128, 256))
    if rng.random() < 0.5:
        return {
            "model_type": "gpt2",
            "n_embd": hidden,
            "n_head": heads,
            "n_layer": layers,
            "n_positions": 64,
            "vocab_size": vocabulary,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5,
            "initializer_range": 0.02,
            "embd_pdrop": dropout(),
            "attn_pdrop": dropout(),
            "resid_pdrop": dropout(),
        }
    if rng.random() < 0.3:
        return draw_normed(rng, heads, hidden, layers, vocabulary, dropout)
    llama = {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": rng.choice((24, 33, 40)),
        "num_attention_heads": heads,
        "num_key_value_heads": rng.choice((heads, 2, 1)),
        "num_hidden_layers": layers,
        "max_position_embeddings": 64,
        "vocab_size": vocabulary,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "initializer_range": 0.02,
        "attention_dropout": dropout(),
        "tie_word_embeddings": rng.random() < 0.5,
    }
    return llama | draw_family(rng, layers, dropout)


def draw_normed(rng: random.Random, heads, hidden, layers, vocabulary, dropout) -> dict:
    """A family whose norms take the mean of a row off, or that turns neighbours."""
    grouped = {"num_key_value_heads": rng.choice((heads, 2, 1))}
    epsilon = {"layer_norm_eps": 1e-5}
    part = {"partial_rotary_factor": rng.choice((0.5, 1.0))}
    parallel = {"use_parallel_residual": rng.random() < 0.5}
    gelu = {"hidden_act": rng.choice(("gelu", "gelu_new", "gelu_pytorch_tanh"))}
    residual = dropout()
    families = {
        "cohere": grouped
        | epsilon
        | {"rope_theta": 100.0, "logit_scale": 0.5, "use_qk_norm": rng.random() < 0.5},
        "glm": grouped | part | {"head_dim": rng.choice((4, 12))},
        "glm4": grouped | part | {"head_dim": rng.choice((4, 12))},
        "gpt_neox": epsilon
        | parallel
        | gelu
        | {"rotary_pct": rng.choice((0.5, 1.0)), "hidden_dropout": residual},
        "phi": grouped
        | epsilon
        | part
        | gelu
        | {"resid_pdrop": residual, "embd_pdrop": dropout()},
        "olmo": grouped,
        "stablelm": grouped
        | epsilon
        | part
        | parallel
        | {"use_qkv_bias": True, "qk_layernorm": rng.random() < 0.5},
        "starcoder2": grouped
        | gelu
        | {
            "residual_dropout": residual,
            "sliding_window": rng.choice((None, 5)),
            "use_bias": rng.random() < 0.5,
        },
    }
    name = rng.choice(sorted(families))
    return {
        "model_type": name,
        "hidden_size": hidden,
        "intermediate_size": rng.choice((24, 33, 40)),
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "max_position_embeddings": 64,
        "vocab_size": vocabulary,
        "initializer_range": 0.02,
        "attention_dropout": dropout(),
        "tie_word_embeddings": rng.random() < 0.5,
    } | families[name]


def draw_experts(rng: random.Random) -> dict:
    """A mixture of experts. Weights are large, so that scores lie apart: a mesh that
    rounds otherwise has to pick the same experts."""
    heads, experts = rng.choice((2, 4)), rng.randint(2, 7)
    config = {
        "hidden_size": heads * rng.choice((4, 8)),
        "intermediate_size": rng.choice((8, 11, 16)),
        "num_attention_heads": heads,
        "num_key_value_heads": rng.choice((heads, 2, 1)),
        "num_hidden_layers": rng.choice((1, 2, 3)),
        "max_position_embeddings": 64,
        "vocab_size": rng.choice((97, 128)),
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "initializer_range": 0.3,
        "num_experts_per_tok": rng.randint(1, experts),
        "tie_word_embeddings": rng.random() < 0.5,
    }
    mixed = {"num_experts": experts, "norm_topk_prob": rng.random() < 0.5}
    families = {
        "gpt_oss": {
            "num_local_experts": experts,
            "sliding_window": rng.choice((1, 5, 40)),
            "swiglu_limit": rng.choice((0.5, 7.0)),
            "rope_parameters": {"rope_type": "default"},
        },
        "mixtral": {"num_local_experts": experts},
        "olmoe": mixed,
        "qwen2_moe": mixed
        | {"moe_intermediate_size": 7, "shared_expert_intermediate_size": 10},
        "qwen3_moe": mixed | {"moe_intermediate_size": 9, "head_dim": 6},
    }
    name = rng.choice(sorted([*families, "deepseek_v2", "deepseek_v3"]))
    if name == "deepseek_v3":
        return config | {"model_type": name} | draw_latent(rng, heads)
    if name == "deepseek_v2":
        latent = draw_latent(rng, heads)
        del latent["rope_interleave"]
        latent |= {"norm_topk_prob": False, "topk_method": "greedy"}
        return config | {"model_type": name} | latent
    return config | {"model_type": name} | families[name]


def draw_latent(rng: random.Random, heads: int) -> dict:
    """What DeepSeek-V3 has: groups of experts, and heads of parts."""
    groups, each = rng.choice((1, 2, 3)), rng.choice((2, 3))
    kept = rng.randint(1, groups)
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
    if rng.random() < 0.5:
        scaling |= {"mscale": 1.0, "mscale_all_dim": 0.5}
    return {
        "num_key_value_heads": heads,
        "n_group": groups,
        "topk_group": kept,
        "n_routed_experts": groups * each,
        "num_experts_per_tok": rng.randint(1, kept * each),
        "n_shared_experts": rng.randint(0, 2),
        "first_k_dense_replace": rng.choice((0, 1)),
        "moe_intermediate_size": rng.choice((9, 16)),
        "norm_topk_prob": rng.random() < 0.7,
        "q_lora_rank": rng.choice((None, 7, 12)),
        "kv_lora_rank": rng.choice((5, 8)),
        "qk_nope_head_dim": rng.choice((2, 6)),
        "qk_rope_head_dim": rng.choice((2, 4)),
        "v_head_dim": rng.choice((3, 4)),
        "rope_interleave": rng.random() < 0.7,
        "rope_scaling": rng.choice((None, scaling)),
    }


def count_experts(config: dict) -> int:
    """0: it is no mixture."""
    for name in ("num_experts", "num_local_experts", "n_routed_experts"):
        if name in config:
            return config[name]
    return 0


def draw_balance(rng: random.Random, config: dict, counts: bool) -> list[str]:
    """Options of plaitc that balance the experts of a mixture; `counts` says whether
    sums of gradients are exact."""
    terms = ["sequence=0.1", "z=0.01", "load"]
    if config["model_type"] == "deepseek_v3" and counts:
        terms.append("bias=0.01")
    chosen = [term for term in terms if rng.random() < 0.3]
    return [word for term in chosen for word in ("--balance", term)]


def draw_family(rng: random.Random, layers: int, dropout) -> dict:
    """What another family than Llama has beside it; nothing, for Llama."""
    window = rng.choice((1, 5, 16, 40))
    windows = {
        "sliding_window": window,
        "use_sliding_window": rng.random() < 0.7,
        "max_window_layers": rng.randint(0, layers),
    }
    caps = {
        "attn_logit_softcapping": rng.choice((None, 2.0)),
        "final_logit_softcapping": rng.choice((None, 3.0)),
    }
    gemma = {"hidden_act": "gelu_pytorch_tanh", "head_dim": rng.choice((4, 10))}
    gemma2 = gemma | {"query_pre_attn_scalar": 6, "sliding_window": window}
    period = rng.randint(1, layers + 1)
    families = {
        "gemma": gemma,
        "gemma2": gemma2 | caps,
        "gemma3_text": gemma2
        | {"rope_local_base_freq": 50.0, "sliding_window_pattern": period},
        "granite": {
            "attention_multiplier": 0.3,
            "embedding_multiplier": 3.0,
            "logits_scaling": 1.5,
            "residual_multiplier": 0.5,
        },
        "llama": {},
        "olmo2": {},
        "olmo3": {"sliding_window": window, "rope_theta": 500000.0},
        "smollm3": {"no_rope_layer_interval": period},
        "mistral": {"sliding_window": rng.choice((None, window)), "head_dim": 6},
        "phi3": {"sliding_window": window, "resid_pdrop": dropout()},
        "qwen2": windows,
        "qwen3": windows | {"head_dim": 10, "attention_bias": rng.random() < 0.3},
    }
    name = rng.choice(sorted(families))
    return {"model_type": name} | families[name]


def get_heads(config: dict) -> tuple[int, int]:
    """Of keys and values, and query heads of each."""
    heads = config.get("n_head", config.get("num_attention_heads"))
    shared = config.get("num_key_value_heads", heads)
    return shared, heads // shared
