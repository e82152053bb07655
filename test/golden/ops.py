#!/usr/bin/env python3
#===- ops.py - Golden values of single operations ---------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Writes test/golden/ops/*.json: inputs, output and vector-Jacobian products of
single operations, computed by PyTorch in fp64.

Every file is {"attributes", "inputs", "output", "cotangent", "gradients"}; a
tensor is {"shape", "data"} in row-major order. `gradients` holds, by input
name, the gradient of sum(output * cotangent).
"""

import json
import math
import pathlib
import types

import torch
from torch.nn import functional
from transformers import LlamaConfig
from transformers.models.gemma2 import modeling_gemma2
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.llama import modeling_llama

FOLDER = pathlib.Path(__file__).resolve().parent / "ops"
GENERATOR = torch.Generator().manual_seed(7)


def random(*shape):
    """Random numbers that are exact in fp32."""
    values = torch.randn(shape, generator=GENERATOR, dtype=torch.float32)
    return values.to(torch.float64)


def plain(tensor):
    if not tensor.dtype.is_floating_point:
        return {"shape": list(tensor.shape), "data": tensor.flatten().tolist()}
    data = [float(f"{x:.12g}") for x in tensor.detach().flatten().tolist()]
    return {"shape": list(tensor.shape), "data": data}


def write(name, function, inputs, **attributes):
    """Evaluates `function` on the named inputs and writes ops/<name>.json."""
    leaves = {
        key: value.clone().requires_grad_()
        for key, value in inputs.items()
        if value.dtype.is_floating_point
    }
    output = function(**(inputs | leaves))
    cotangent = random(*output.shape)
    gradients = torch.autograd.grad(output, list(leaves.values()), cotangent)
    record = {
        "attributes": attributes,
        "inputs": {key: plain(value) for key, value in inputs.items()},
        "output": plain(output),
        "cotangent": plain(cotangent),
        "gradients": {
            key: plain(value) for key, value in zip(leaves, gradients)
        },
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(record) + "\n")


def rms_norm(x, weight, eps=1e-5):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def angles(inverse_frequencies, positions):
    """cos and sin [1, S, D] as Hugging Face builds them: halves repeated."""
    phase = torch.outer(torch.arange(positions).double(), inverse_frequencies)
    phase = torch.cat((phase, phase), dim=-1)[None]
    return phase.cos(), phase.sin()


def rope(x, inverse_frequencies):
    """x is [batch, sequence, heads, head dimension]; pairs are (i, i + D/2)."""
    cos, sin = angles(inverse_frequencies, x.shape[1])
    rotated, _ = modeling_llama.apply_rotary_pos_emb(
        x, x, cos, sin, unsqueeze_dim=2
    )
    return rotated


def attention(q, k, v):
    """[batch, sequence, heads, D], causal; heads of k and v are shared by
    consecutive groups of q's heads."""
    repeats = q.shape[2] // k.shape[2]
    k = k.repeat_interleave(repeats, dim=2)
    v = v.repeat_interleave(repeats, dim=2)
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(q.shape[3])
    future = torch.ones(scores.shape[-2:]).triu(1).bool()
    weights = scores.masked_fill(future, -math.inf).softmax(-1)
    return torch.einsum("bhij,bjhd->bihd", weights, v)


def inverse_frequencies(config):
    return modeling_llama.LlamaRotaryEmbedding(config).inv_freq.double()


def llama31_config():
    return LlamaConfig(
        hidden_size=4096,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=131072,
        rope_theta=500000.0,
        rope_scaling={
            "factor": 8.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
    )


def write_norms_and_activations():
    norm = {"x": random(2, 3, 7), "weight": random(7), "bias": random(7)}
    write(
        "layer_norm",
        lambda x, weight, bias: functional.layer_norm(
            x, (7,), weight, bias, 1e-5
        ),
        norm,
        eps=1e-5,
    )
    del norm["bias"]
    write("rms_norm", rms_norm, norm, eps=1e-5)
    x = {"x": 3 * random(4, 9)}
    write("gelu_tanh", lambda x: functional.gelu(x, approximate="tanh"), x)
    write("gelu_erf", lambda x: functional.gelu(x), x)
    write("silu", lambda x: functional.silu(x), x)
    write(
        "swiglu",
        lambda gate, up: functional.silu(gate) * up,
        {"gate": 3 * random(4, 9), "up": random(4, 9)},
    )


def write_rope():
    theta, dimension = 10000.0, 6
    exponents = torch.arange(0, dimension, 2).double() / dimension
    write(
        "rope",
        lambda x: rope(x, theta**-exponents),
        {"x": random(2, 5, 2, dimension)},
        theta=theta,
    )
    config = llama31_config()
    parameters = {"theta": 500000.0, "head_dim": 128} | {
        key: value
        for key, value in (
            getattr(config, "rope_parameters", None) or config.rope_scaling
        ).items()
        if key not in ("rope_theta", "type")
    }
    frequencies = inverse_frequencies(config)
    record = {"attributes": parameters, "output": plain(frequencies)}
    path = FOLDER / "rope_llama3_inverse_frequencies.json"
    path.write_text(json.dumps(record) + "\n")


def write_attention():
    shape = {"batch": 2, "sequence": 5, "head_dim": 4}
    for name, heads, kv_heads in (
        ("attention", 2, 2),
        ("attention_grouped", 4, 2),
    ):
        inputs = {
            "q": random(2, 5, heads, 4),
            "k": random(2, 5, kv_heads, 4),
            "v": random(2, 5, kv_heads, 4),
        }
        write(
            name, attention, inputs, heads=heads, kv_heads=kv_heads, **shape
        )


def write_loss_and_embedding():
    targets = torch.tensor([3, -100, 0, 10, -100, 7])
    for name, reduction in (
        ("cross_entropy_ignored", "mean"),
        ("cross_entropy_ignored_per_row", "none"),
    ):
        write(
            name,
            lambda logits, targets: functional.cross_entropy(
                logits, targets, ignore_index=-100, reduction=reduction
            ),
            {"logits": 2 * random(6, 11), "targets": targets},
            ignore_index=-100,
            reduction=reduction,
        )
    write(
        "embedding",
        lambda table, tokens: functional.embedding(tokens, table),
        {"table": random(5, 3), "tokens": torch.tensor([[1, 4, 1], [0, 1, 4]])},
    )


def write_ties():
    """Where several elements attain the extremum, they share its gradient."""
    x = (2 * random(3, 4, 5)).round() / 2
    write("amax", lambda x: x.amax(1), {"x": x})
    a, b = ((2 * random(4, 9)).round() / 2 for _ in range(2))
    write("minimum", torch.minimum, {"input": a, "other": b})


def eager_attention(library, q, k, v, attributes, **arguments):
    """The eager attention of a model of transformers, whose module has `attributes`."""
    module = types.SimpleNamespace(
        num_key_value_groups=q.shape[2] // k.shape[2],
        training=False,
        **attributes,
    )
    mask = torch.full((q.shape[1],) * 2, -1e30, dtype=q.dtype).triu(1)
    heads_first = (x.transpose(1, 2) for x in (q, k, v))
    out, _ = library.eager_attention_forward(
        module,
        *heads_first,
        mask,
        scaling=1 / math.sqrt(q.shape[3]),
        **arguments,
    )
    return out


def write_attention_variants():
    """Sinks as GPT-OSS has them, and the soft cap of Gemma 2, which takes its softmax
    in fp32, whatever the inputs are: in fp64 here."""
    q, k, v = random(2, 5, 4, 4), random(2, 5, 2, 4), random(2, 5, 2, 4)
    inputs = {"q": q, "k": k, "v": v}
    write(
        "attention_sinks",
        lambda q, k, v, sinks: eager_attention(
            modeling_gpt_oss, q, k, v, {"sinks": sinks}
        ),
        inputs | {"sinks": 2 * random(4)},
    )
    modeling_gemma2.torch = types.SimpleNamespace(
        **(vars(torch) | {"float32": torch.float64})
    )
    write(
        "attention_soft_cap",
        lambda q, k, v: eager_attention(
            modeling_gemma2, q, k, v, {}, softcap=0.8
        ),
        inputs,
        soft_cap=0.8,
    )


def main():
    FOLDER.mkdir(exist_ok=True)
    write_norms_and_activations()
    write_rope()
    write_attention()
    write_loss_and_embedding()
    write_ties()
    write_attention_variants()


if __name__ == "__main__":
    main()
