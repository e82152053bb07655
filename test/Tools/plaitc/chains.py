#!/usr/bin/env python3
# ===- chains.py - Chains in pieces, executed --------------------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""usage: chains.py OUT

Trains on processors what plan-split-collectives makes of forward passes for GPUs: matmuls,
kernels and collectives between two attentions in pieces of rows, in another order, and
where pieces are whole sequences attentions as well. Weights
are held against those of the plan that was not touched, and, so that they can differ,
against ones in which a piece is missing. Standard library only."""

import json
import pathlib
import re
import sys

from beside import MISSING, MODEL, SAME, differ, run, train

GPT2 = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 2, "n_embd": 256,
    "n_head": 8, "n_positions": 128, "vocab_size": 256, "activation_function": "gelu_new",
    "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "layer_norm_epsilon": 1e-5,
    "initializer_range": 0.02, "tie_word_embeddings": True,
}
LLAMA = {**MODEL, "max_position_embeddings": 512}
LONG_GPT2 = {**GPT2, "n_positions": 256}
# Whole sequences are pieces, or rounds of one, or both; from 256 tokens on attention is one
# step, which pieces of whole sequences go through.
CASES = [
    (LLAMA, 128, ["tp=2", "--sequence-parallel", "--micro-batch", "4"]),
    (LLAMA, 512, ["tp=4", "--sequence-parallel", "--micro-batch", "1"]),
    (LLAMA, 128, ["tp=2", "--sequence-parallel", "--micro-batch", "2", "--recompute", "full"]),
    (LLAMA, 128, ["tp=2", "--micro-batch", "2"]),
    (GPT2, 128, ["tp=2", "--sequence-parallel", "--micro-batch", "2"]),
    (GPT2, 128, ["pp=2,tp=2", "--micro-batch", "1"]),
    (LLAMA, 256, ["tp=2", "--sequence-parallel", "--micro-batch", "4"]),
    (LLAMA, 256, ["tp=4", "--micro-batch", "4"]),
    (LONG_GPT2, 256, ["tp=2", "--sequence-parallel", "--micro-batch", "4"]),
]


def find_function(text, name):
    begin = text.index(f"plan.function @{name} ")
    end = text.find("\n  plan.function @", begin + 1)
    return text[begin:end if end >= 0 else len(text)]


def count_steps(text):
    forward = find_function(text, "forward_0")
    return {kind: len(re.findall(rf"^    plan\.{kind}\b", forward, re.M))
            for kind in ("gemm", "kernel", "collective", "attention")}


def lose(text, kind, whole):
    """The text without the first step of a kind that is not in the whole one."""
    lines = find_function(text, "forward_0").splitlines()
    lost = next(line for line in lines if line.startswith(f"    plan.{kind} ")
                and line not in whole)
    return text.replace(lost + "\n", "", 1)


def check(out, model, sequence, options):
    print(model["model_type"], *options)
    out.mkdir(parents=True, exist_ok=True)
    ranks = 1
    for axis in options[0].split(","):
        ranks *= int(axis.split("=")[1])
    (out / "config.json").write_text(json.dumps(model))
    words = ["plaitc", out, "--cluster", f"cpu:{ranks}", "--mesh", *options, "--global-batch",
             4, "--seq", sequence, "--no-reference", "--no-prove",
             "--tp-comm-overlap", 4]
    run(*words, *(() if "pp=" in options[0] else ("--pin", "pp=1")), "--dump-phases-to",
        out / "all", "-o", out / "pieces.plan")
    # So that what is exchanged takes as long as what is computed beside it.
    given = re.sub(r'(axis = "tp", latency = )[0-9.e+-]+( : f64, bandwidth = )[0-9.e+-]+',
                   r"\g<1>1.0e-06\g<2>4.0e+08", (out / "all" / "6-schedule.mlir").read_text())
    given, count = re.subn(r", tp_comm_overlap = 4", "", given)
    if not count:
        sys.exit("the configuration has no tp_comm_overlap = 4")
    whole = run("plait-opt", "--plait-lower", "--plait-steps", given=given)
    target = re.search(r"#plait.target<[^>]*>", whole)[0]
    gpu = '#plait.target<cuda, name = "sm_90", cubin = "sm_90">'
    pieces = run("plait-opt", "--plait-configure=tp-comm-overlap=4",
                 "--plan-split-collectives", given=whole.replace(target, gpu))
    pieces = pieces.replace(gpu, target).replace(", tp_comm_overlap = 4", "")
    before, after = count_steps(whole), count_steps(pieces)
    print(" ", ", ".join(f"{before[kind]} {kind}s, now {after[kind]}" for kind in before))
    sequences = int(options[options.index("--micro-batch") + 1])
    cut = [kind for kind in before
           if kind != "attention" or (before[kind] and sequences > 1)]
    if any(after[kind] <= before[kind] for kind in cut):
        sys.exit("a kind of step has not been cut")
    lost = [kind for kind in cut if kind != "kernel"]
    texts = {"whole": whole, "pieces": pieces,
             **{kind: lose(pieces, kind, whole) for kind in lost}}
    weights = {}
    for name, text in texts.items():
        (out / f"{name}.mlir").write_text(text)
        run("plaitc", out / f"{name}.mlir", "-o", out / f"{name}.plan")
        weights[name] = train(out / f"{name}.plan")
    most, where = differ(weights["whole"], weights["pieces"])
    print(f"  {where} is off by {most:.1e}")
    if most > SAME:
        sys.exit(f"expected {SAME:.0e} at most")
    for name in lost:
        most, where = differ(weights["whole"], weights[name])
        print(f"  without a piece of {name} {where} is off by {most:.1e}")
        if most < MISSING:
            sys.exit(f"expected {MISSING:.0e} at least")


def main():
    out = pathlib.Path(sys.argv[1])
    for number, case in enumerate(CASES):
        check(out / str(number), *case)
    print(f"{len(CASES)} plans train as the whole")


main()
