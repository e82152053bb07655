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
        "mixtral": {"num_local_experts": experts},
        "olmoe": mixed,
        "qwen3_moe": mixed | {"moe_intermediate_size": 9, "head_dim": 6},
    }
    name = rng.choice(sorted(families))
    return config | {"model_type": name} | families[name]


def count_experts(config: dict) -> int:
    """0: it is no mixture."""
    return config.get("num_experts", config.get("num_local_experts", 0))


def draw_family(rng: random.Random, layers: int, dropout) -> dict:
    """What another family than Llama has beside it; nothing, for Llama."""
    window = rng.choice((1, 5, 16, 40))
    windows = {
        "sliding_window": window,
        "use_sliding_window": rng.random() < 0.7,
        "max_window_layers": rng.randint(0, layers),
    }
    families = {
        "llama": {},
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
