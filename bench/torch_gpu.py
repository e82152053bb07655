#!/usr/bin/env python3
#===- torch_gpu.py - One PyTorch measurement on a GPU -----*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Prints, as JSON, the median seconds of a training step of a GPT-2 or a Llama
in PyTorch (`step`), or the best rate of a bf16 matmul in FLOP/s
(`gemm`).

What a careful user writes: torch.compile, fused AdamW on fp32 parameters, bf16
by autocast, attention by scaled_dot_product_attention, gradients clipped. Needs
torch alone. A process of its own, so that one that runs out of memory leaves
nothing behind; it then ends with 3."""

import argparse
import json
import pathlib
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.checkpoint import checkpoint
except ImportError:
    sys.exit("unsupported: no torch")

OUT_OF_MEMORY = 3


class Llama:
    """What distinguishes the family, read from config.json."""

    def __init__(self, config: dict):
        self.width = config["hidden_size"]
        self.layers = config["num_hidden_layers"]
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads", self.heads)
        self.inner = config["intermediate_size"]
        self.vocabulary = config["vocab_size"]
        self.tied = config.get("tie_word_embeddings", False)
        self.theta = config.get("rope_theta", 10000.0)
        self.gated, self.positions = True, 0


class Gpt2:
    def __init__(self, config: dict):
        self.width = config["n_embd"]
        self.layers = config["n_layer"]
        self.heads = self.kv_heads = config["n_head"]
        self.inner = config.get("n_inner") or 4 * self.width
        self.vocabulary = config["vocab_size"]
        self.tied, self.gated = True, False
        self.positions = config["n_positions"]


def rotate(x, cosine, sine):
    left, right = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-right, left), dim=-1) * sine


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape, bias = shape, not shape.gated
        head = shape.width // shape.heads
        norm = nn.RMSNorm if shape.gated else nn.LayerNorm
        self.norm1, self.norm2 = norm(shape.width), norm(shape.width)
        self.parts = [shape.width] + 2 * [head * shape.kv_heads]
        self.qkv = nn.Linear(shape.width, sum(self.parts), bias=bias)
        self.out = nn.Linear(shape.width, shape.width, bias=bias)
        up = shape.inner * (2 if shape.gated else 1)
        self.up = nn.Linear(shape.width, up, bias=bias)
        self.down = nn.Linear(shape.inner, shape.width, bias=bias)

    def attend(self, x, rotary):
        rows, length, _ = x.shape
        q, k, v = (
            part.view(rows, length, -1, self.shape.width // self.shape.heads)
            .transpose(1, 2)
            for part in self.qkv(x).split(self.parts, dim=-1)
        )
        if rotary is not None:
            q, k = rotate(q, *rotary), rotate(k, *rotary)
        grouped = self.shape.kv_heads != self.shape.heads
        y = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, **({"enable_gqa": True} if grouped else {})
        )
        return self.out(y.transpose(1, 2).reshape(rows, length, -1))

    def forward(self, x, rotary):
        x = x + self.attend(self.norm1(x), rotary)
        y = self.up(self.norm2(x))
        if self.shape.gated:
            gate, y = y.chunk(2, dim=-1)
            y = F.silu(gate) * y
        else:
            y = F.gelu(y, approximate="tanh")
        return x + self.down(y)


class Model(nn.Module):
    def __init__(self, shape, length: int, recompute: bool):
        super().__init__()
        self.shape, self.recompute = shape, recompute
        self.embed = nn.Embedding(shape.vocabulary, shape.width)
        self.place = (
            nn.Embedding(shape.positions, shape.width)
            if shape.positions
            else None
        )
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        norm = nn.RMSNorm if shape.gated else nn.LayerNorm
        self.norm = norm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        if shape.tied:
            self.head.weight = self.embed.weight
        if shape.gated:
            head = shape.width // shape.heads
            powers = torch.arange(0, head, 2).float() / head
            angles = torch.outer(torch.arange(length), shape.theta**-powers)
            angles = torch.cat((angles, angles), dim=-1)
            self.register_buffer("cosine", angles.cos().bfloat16())
            self.register_buffer("sine", angles.sin().bfloat16())

    def forward(self, tokens, targets):
        x, rotary = self.embed(tokens), None
        if self.place is not None:
            places = torch.arange(tokens.shape[1], device=tokens.device)
            x = x + self.place(places)
        else:
            rotary = (self.cosine, self.sine)
        for block in self.blocks:
            x = (
                checkpoint(block, x, rotary, use_reentrant=False)
                if self.recompute
                else block(x, rotary)
            )
        logits = self.head(self.norm(x)).flatten(0, 1)
        return F.cross_entropy(logits.float(), targets.flatten())


def read_shape(folder: pathlib.Path):
    path = folder / "config.json" if folder.is_dir() else folder
    config = json.loads(path.read_text())
    return (Gpt2 if config["model_type"] == "gpt2" else Llama)(config)


def flops_per_token(shape, length: int) -> float:
    """Of forward and backward, without what is recomputed: 6 a weight that
    is multiplied with, and the matmuls of attention with its causal mask."""
    head = shape.width // shape.heads
    layer = shape.width * (2 * shape.width + 2 * head * shape.kv_heads)
    layer += shape.width * shape.inner * (3 if shape.gated else 2)
    weights = shape.layers * layer + shape.width * shape.vocabulary
    return 6.0 * weights + 6.0 * shape.layers * shape.width * length


def median_seconds(body, count: int, warm_up: int, device: str) -> float:
    times = []
    for number in range(warm_up + count):
        start = time.perf_counter()
        body()
        if device == "cuda":
            torch.cuda.synchronize()
        if number >= warm_up:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure_step(options) -> dict:
    shape = read_shape(options.model)
    model = Model(shape, options.seq, options.recompute == "full")
    model = model.to(options.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    forward = torch.compile(model) if options.compile else model
    tokens = torch.randint(
        shape.vocabulary, (options.batch, options.seq + 1),
        device=options.device,
    )
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def step():
        with torch.autocast(options.device, dtype=torch.bfloat16):
            loss = forward(inputs, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    seconds = median_seconds(step, options.steps, 5, options.device)
    peak = (
        torch.cuda.max_memory_allocated() if options.device == "cuda" else 0
    )
    return {
        "seconds": seconds,
        "tokens_per_second": options.batch * options.seq / seconds,
        "peak_bytes": peak,
        "flops_per_token": flops_per_token(shape, options.seq),
    }


def measure_gemm(options) -> dict:
    """The best of some large shapes: what this GPU sustains at all."""
    best = 0.0
    sizes = (4096, 8192, 12288) if options.device == "cuda" else (256,)
    for size in sizes:
        a, b = (
            torch.randn(
                size, size, device=options.device, dtype=torch.bfloat16
            )
            for _ in range(2)
        )
        out = torch.empty_like(a)
        seconds = median_seconds(
            lambda: torch.mm(a, b, out=out), 20, 5, options.device
        )
        best = max(best, 2.0 * size**3 / seconds)
    return {"flops": best}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("step", "gemm"))
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--recompute", choices=("none", "full"), default="none")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("unsupported: torch sees no GPU")
    torch.manual_seed(0)
    measure = measure_step if options.what == "step" else measure_gemm
    try:
        result = measure(options)
    except torch.OutOfMemoryError:
        sys.exit(OUT_OF_MEMORY)
    print(json.dumps(result | {"torch": torch.__version__}))


if __name__ == "__main__":
    main()
