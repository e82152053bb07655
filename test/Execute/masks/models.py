#===- models.py - GPT-2 and Llama in PyTorch, in training -*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""The two families as Hugging Face's transformers compute them in training mode
(modeling_gpt2.py and modeling_llama.py), with dropouts that are given: `drop(x,
probability)` is called in the order in which they have it. `attend` may be another
function of the same arguments."""

import math

import torch
from torch.nn.functional import layer_norm, silu

GPT2 = {
    "model_type": "gpt2",
    "n_embd": 32,
    "n_head": 4,
    "n_layer": 4,
    "n_positions": 32,
    "vocab_size": 97,
    "activation_function": "gelu_new",
    "attn_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "resid_pdrop": 0.1,
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 4,
    "max_position_embeddings": 32,
    "vocab_size": 97,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "attention_dropout": 0.2,
}


WITHOUT_DROPOUT = {
    "gpt2": GPT2 | {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0},
    "llama": LLAMA | {"attention_dropout": 0.0},
}


def keep(x: torch.Tensor, probability: float) -> torch.Tensor:
    """No dropout."""
    assert probability == 0, "the reference has no dropout"
    return x


def shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """Of the parameters, by Hugging Face's names."""
    found = {}
    if config["model_type"] == "gpt2":
        hidden = config["n_embd"]
        found["transformer.wte.weight"] = (config["vocab_size"], hidden)
        found["transformer.wpe.weight"] = (config["n_positions"], hidden)
        for i in range(config["n_layer"]):
            at = f"transformer.h.{i}."
            for name, rows, columns in (
                ("attn.c_attn", hidden, 3 * hidden),
                ("attn.c_proj", hidden, hidden),
                ("mlp.c_fc", hidden, 4 * hidden),
                ("mlp.c_proj", 4 * hidden, hidden),
            ):
                found[f"{at}{name}.weight"] = (rows, columns)
                found[f"{at}{name}.bias"] = (columns,)
            for name in ("ln_1", "ln_2"):
                found[f"{at}{name}.weight"] = found[f"{at}{name}.bias"] = (hidden,)
        for kind in ("weight", "bias"):
            found[f"transformer.ln_f.{kind}"] = (hidden,)
        return found
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    narrow = hidden * config["num_key_value_heads"] // config["num_attention_heads"]
    found["model.embed_tokens.weight"] = (config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        for name, rows, columns in (
            ("self_attn.q_proj", hidden, hidden),
            ("self_attn.k_proj", narrow, hidden),
            ("self_attn.v_proj", narrow, hidden),
            ("self_attn.o_proj", hidden, hidden),
            ("mlp.gate_proj", inner, hidden),
            ("mlp.up_proj", inner, hidden),
            ("mlp.down_proj", hidden, inner),
        ):
            found[f"{at}{name}.weight"] = (rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{at}{name}.weight"] = (hidden,)
    found["model.norm.weight"] = (hidden,)
    found["lm_head.weight"] = (config["vocab_size"], hidden)
    return found


def attend(q, k, v, probability, drop):
    """Queries [batch, key head, query head of it, position, size]; keys and
    values without the third."""
    size = q.shape[-1]
    scores = torch.einsum("bgrsd,bgtd->bgrst", q, k) / math.sqrt(size)
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    softmax = scores.masked_fill(~seen, -math.inf).softmax(-1)
    out = torch.einsum("bgrst,bgtd->bgrsd", drop(softmax, probability), v)
    batch, groups, shared, length, size = out.shape
    heads = out.reshape(batch, groups * shared, length, size)
    return heads.transpose(1, 2).reshape(batch, length, -1)


def gelu(x):
    cube = x + 0.044715 * x**3
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * cube))


def gpt2(config: dict, w: dict, tokens, drop, attend=attend):
    """The logits."""
    heads, hidden = config["n_head"], config["n_embd"]
    eps = 1e-5

    def norm(x, name):
        return layer_norm(x, (hidden,), w[name + ".weight"], w[name + ".bias"], eps)

    def linear(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    def split(x):
        batch, length, _ = x.shape
        return x.reshape(batch, length, heads, -1).transpose(1, 2)

    x = w["transformer.wte.weight"][tokens]
    x = x + w["transformer.wpe.weight"][: tokens.shape[1]]
    x = drop(x, config["embd_pdrop"])
    for i in range(config["n_layer"]):
        at = f"transformer.h.{i}."
        joined = linear(norm(x, at + "ln_1"), at + "attn.c_attn")
        q, k, v = (split(part) for part in joined.split(hidden, -1))
        y = attend(q[:, :, None], k, v, config["attn_pdrop"], drop)
        x = x + drop(linear(y, at + "attn.c_proj"), config["resid_pdrop"])
        y = gelu(linear(norm(x, at + "ln_2"), at + "mlp.c_fc"))
        x = x + drop(linear(y, at + "mlp.c_proj"), config["resid_pdrop"])
    return norm(x, "transformer.ln_f") @ w["transformer.wte.weight"].T


def rotate(x, theta):
    """Of [..., position, size]."""
    length, size = x.shape[-2:]
    frequency = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angle = torch.arange(length)[:, None] * frequency.repeat(2)
    half = torch.cat((-x[..., size // 2 :], x[..., : size // 2]), -1)
    return x * angle.cos().to(x) + half * angle.sin().to(x)


def llama(config: dict, w: dict, tokens, drop, attend=attend):
    """The logits."""
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    theta = config["rope_theta"]

    def norm(x, name):
        scale = (x.square().mean(-1, True) + config["rms_norm_eps"]).rsqrt()
        return x * scale * w[name + ".weight"]

    def linear(x, name):
        return x @ w[name + ".weight"].T

    def split(x, count):
        batch, length, _ = x.shape
        return x.reshape(batch, length, count, -1).transpose(1, 2)

    x = w["model.embed_tokens.weight"][tokens]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        y = norm(x, at + "input_layernorm")
        q = rotate(split(linear(y, at + "self_attn.q_proj"), heads), theta)
        k = rotate(split(linear(y, at + "self_attn.k_proj"), groups), theta)
        v = split(linear(y, at + "self_attn.v_proj"), groups)
        q = q.reshape(len(q), groups, heads // groups, *q.shape[2:])
        y = attend(q, k, v, config["attention_dropout"], drop)
        x = x + linear(y, at + "self_attn.o_proj")
        y = norm(x, at + "post_attention_layernorm")
        y = silu(linear(y, at + "mlp.gate_proj")) * linear(y, at + "mlp.up_proj")
        x = x + linear(y, at + "mlp.down_proj")
    return norm(x, "model.norm") @ w["lm_head.weight"].T


def logits(config: dict, w: dict, tokens, drop, attend=attend):
    return (gpt2 if config["model_type"] == "gpt2" else llama)(
        config, w, tokens, drop, attend
    )
