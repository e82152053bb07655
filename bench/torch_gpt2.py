#!/usr/bin/env python3
#===- torch_gpt2.py - One PyTorch measurement -------------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Prints, as JSON, the median seconds of a training step of GPT-2 in PyTorch on
the CPU (`step`), or of its matrix products and its optimizer alone (`floor`).
A process of its own, because OpenMP reads its environment at the start."""

import argparse
import json
import pathlib
import statistics
import time

import torch
import transformers

GPT2 = pathlib.Path(__file__).resolve().parents[1] / "examples/models/gpt2"


def median_seconds(body, count: int, warm_up: int = 1) -> float:
    times = []
    for number in range(warm_up + count):
        start = time.perf_counter()
        body()
        if number >= warm_up:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def build(config: dict) -> torch.nn.Module:
    settings = transformers.GPT2Config(**config)
    settings._attn_implementation = "eager"
    return transformers.GPT2LMHeadModel(settings).train()


def optimizer_of(model, kind: str) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-4, **{kind: True})


def measure_step(options) -> dict:
    config = json.loads((GPT2 / "config.json").read_text())
    model = build(config)
    optimizer = optimizer_of(model, options.optimizer)
    forward = torch.compile(model) if options.compile else model
    shape = (options.batch, options.seq + 1)
    tokens = torch.randint(config["vocab_size"], shape)
    inputs, targets = tokens[:, :-1], tokens[:, 1:].reshape(-1)

    def step():
        logits = forward(input_ids=inputs, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), targets
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return {"seconds": median_seconds(step, options.steps, warm_up=2)}


def linear_shapes(config: dict, rows: int):
    """(count, m, k, n) of the forward products with weights."""
    width, layers = config["n_embd"], config["n_layer"]
    return [
        (layers, rows, width, 3 * width),
        (layers, rows, width, width),
        (layers, rows, width, 4 * width),
        (layers, rows, 4 * width, width),
        (1, rows, width, config["vocab_size"]),
    ]


def measure_linear(m: int, k: int, n: int, reps: int) -> float:
    """Forward, input gradient and weight gradient of one linear layer."""
    x, w, dy = torch.rand(m, k), torch.rand(k, n), torch.rand(m, n)
    y, dx, dw = torch.empty(m, n), torch.empty(m, k), torch.empty(k, n)
    return (
        median_seconds(lambda: torch.mm(x, w, out=y), reps)
        + median_seconds(lambda: torch.mm(dy, w.t(), out=dx), reps)
        + median_seconds(lambda: torch.mm(x.t(), dy, out=dw), reps)
    )


def measure_attention(heads: int, seq: int, width: int, reps: int) -> float:
    """Two products forward, four backward; the mask saves nothing."""
    q, scores = torch.rand(heads, seq, width), torch.rand(heads, seq, seq)
    small, large = torch.empty_like(q), torch.empty_like(scores)
    transposed = q.transpose(1, 2)
    return 2 * median_seconds(
        lambda: torch.bmm(q, transposed, out=large), reps
    ) + 4 * median_seconds(lambda: torch.bmm(scores, q, out=small), reps)


def measure_floor(options) -> dict:
    config = json.loads((GPT2 / "config.json").read_text())
    reps = options.steps
    gemm = sum(
        count * measure_linear(m, k, n, reps)
        for count, m, k, n in linear_shapes(config, options.batch * options.seq)
    )
    heads = config["n_head"]
    gemm += config["n_layer"] * measure_attention(
        options.batch * heads, options.seq, config["n_embd"] // heads, reps
    )
    model = build(config)
    for p in model.parameters():
        p.grad = torch.rand_like(p)
    optimizer = optimizer_of(model, "fused")
    update = median_seconds(optimizer.step, reps)
    return {"seconds": gemm + update, "gemm": gemm, "optimizer": update}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("step", "floor"))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument(
        "--optimizer", choices=("foreach", "fused"), default="fused"
    )
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    measure = measure_step if options.what == "step" else measure_floor
    print(json.dumps(measure(options) | {"torch": torch.__version__}))


if __name__ == "__main__":
    main()
