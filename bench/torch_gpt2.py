#!/usr/bin/env python3
#===- torch_gpt2.py - PyTorch's step of a model -----------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""For each line of its input trains a Hugging Face model a few steps on the CPU
and prints their median seconds, as JSON: so it can take turns with others. No
dropout, attention by scaled_dot_product_attention, fused AdamW, gradients
clipped to norm 1; in bf16 by autocast, with fp32 weights."""

import argparse
import contextlib
import json
import pathlib
import statistics
import sys
import time

import torch
import transformers


def build(options) -> torch.nn.Module:
    config = transformers.AutoConfig.from_pretrained(options.model)
    for name in ("attn_pdrop", "embd_pdrop", "resid_pdrop"):
        if hasattr(config, name):
            setattr(config, name, 0.0)
    config._attn_implementation = "sdpa"
    experts = {"experts_implementation": options.experts} if options.experts else {}
    model = transformers.AutoModelForCausalLM.from_config(config, **experts)
    return model.train()


def make_step(options):
    model = build(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    forward = torch.compile(model) if options.compile else model
    vocabulary = model.config.vocab_size
    tokens = torch.randint(vocabulary, (options.batch, options.seq + 1))
    inputs, targets = tokens[:, :-1], tokens[:, 1:].reshape(-1)
    narrow = torch.autocast("cpu", torch.bfloat16)
    context = narrow if options.bf16 else contextlib.nullcontext()

    def step():
        with context:
            logits = forward(input_ids=inputs, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(
                logits.reshape(-1, vocabulary), targets
            )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=pathlib.Path, help="folder of a config")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--experts", help="how they are computed: transformers'")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    clock = time.process_time if options.processor_time else time.perf_counter
    step = make_step(options)
    for _ in range(2):
        step()
    for _ in sys.stdin:
        times = []
        for _ in range(options.steps):
            start = clock()
            step()
            times.append(clock() - start)
        print(json.dumps({"seconds": statistics.median(times)}), flush=True)


if __name__ == "__main__":
    main()
