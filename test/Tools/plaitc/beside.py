#!/usr/bin/env python3
# ===- beside.py - Matmuls beside collectives, executed ---------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""usage: beside.py OUT

Trains on processors what plan-overlap-collectives makes for GPUs, matmuls of weights'
gradients moved and cut: the dump of a phase is lowered with links so slow that it has
to, and the pass runs on it as on a plan for a GPU. Weights are held against those of
the plan that was not touched, and, so that they can differ, against one in which one
of the parts of a matmul is missing. Standard library only."""

import array
import json
import pathlib
import re
import struct
import subprocess
import sys

MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
    "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 4, "max_position_embeddings": 128, "vocab_size": 256,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "initializer_range": 0.02, "tie_word_embeddings": False,
}
# Options, and the latency of a sum, in seconds: at the cluster's rates it needs one and a
# half of the gradients of a layer's largest weights, of rows that can be cut.
CASES = [
    (["tp=2", "--sequence-parallel"], "0.95e-03"),
    (["tp=2", "--sequence-parallel", "--recompute", "selective", "--tp-comm-overlap", "4"],
     "0.95e-03"),
    (["tp=2"], "0.95e-03"),
    (["tp=4", "--sequence-parallel", "--precision", "bf16"], "0.47e-03"),
]
# Of weights after two steps of AdamW, each of up to 1e-3. They are equal here; where a
# library adds up parts of a matmul in another order than the whole, gradients that are all
# but zero change their signs, which makes up to 1e-5. One that is missing leaves whole
# steps.
SAME, MISSING = 1e-4, 1e-3


def run(*words, given=None):
    done = subprocess.run(list(map(str, words)), input=given, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


def train(plan):
    """The weights after two steps."""
    folder = plan.with_suffix(".model")
    run("plait-run", plan, "--text", pathlib.Path(__file__), "--steps", 2, "--seed", 5,
        "--lr", "1e-3", "--warmup-steps", 0, "--save", folder)
    data = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    weights = {}
    for name, tensor in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = tensor["data_offsets"]
            weights[name] = array.array("f", data[8 + size + begin:8 + size + end])
    return weights


def differ(left, right):
    """The largest difference of a weight, and where."""
    return max((max(abs(a - b) for a, b in zip(left[name], right[name])), name)
               for name in left)


def find_cut(before, after):
    """A matmul that is not among those before."""
    shapes = [re.findall(r"plan\.gemm (m \d+ n \d+ k \d+)", text) for text in (before, after)]
    return next((shape for shape in shapes[1] if shape not in shapes[0]), None)


def check(out, options, latency):
    print(*options)
    out.mkdir(parents=True, exist_ok=True)
    ranks = options[0].removeprefix("tp=")
    (out / "config.json").write_text(json.dumps(MODEL))
    words = ["plaitc", out, "--cluster", f"cpu:{ranks}", "--mesh", *options, "--global-batch",
             4, "--micro-batch", 2, "--seq", 128, "--no-reference", "--no-prove"]
    run(*words, "--pin", "pp=1", "--dump-phases-to", out / "all", "-o", out / "whole.plan")
    slow = re.sub(r'(axis = "tp", latency = )[0-9.e+-]+', rf"\g<1>{latency}",
                  (out / "all" / "6-schedule.mlir").read_text())
    steps = run("plait-opt", "--plait-lower", "--plait-steps", given=slow)
    target = re.search(r"#plait\.target<[^>]*>", steps)[0]
    gpu = '#plait.target<cuda, name = "sm_90", cubin = "sm_90">'
    moved = run("plait-opt", "--plan-overlap-collectives",
                given=steps.replace(target, gpu)).replace(gpu, target)
    cut = find_cut(steps, moved)
    if not cut:
        sys.exit("no matmul has been cut")
    lines = moved.splitlines()
    lost = next(i for i, line in enumerate(lines) if f"plan.gemm {cut} " in line)
    texts = {"moved": moved, "lost": "\n".join(lines[:lost] + lines[lost + 1:])}
    weights = {"whole": train(out / "whole.plan")}
    for name, text in texts.items():
        (out / f"{name}.mlir").write_text(text)
        run("plaitc", out / f"{name}.mlir", "-o", out / f"{name}.plan")
        weights[name] = train(out / f"{name}.plan")
    most, where = differ(weights["whole"], weights["moved"])
    print(f"  {cut} was cut off; {where} is off by {most:.1e}")
    if most > SAME:
        sys.exit(f"expected {SAME:.0e} at most")
    most, where = differ(weights["whole"], weights["lost"])
    print(f"  without it {where} is off by {most:.1e}")
    if most < MISSING:
        sys.exit(f"expected {MISSING:.0e} at least")


def main():
    out = pathlib.Path(sys.argv[1])
    for number, case in enumerate(CASES):
        check(out / str(number), *case)
    print(f"{len(CASES)} plans train as the whole")


if __name__ == "__main__":
    main()
