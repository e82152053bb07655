#!/usr/bin/env python3
# ===- depth.py - What the depth of a model costs ---*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Prints the table "Depth" of bench/Measurements.md: what planning, compiling and proving
a model takes, with few layers and with many of two kinds in turn, in seconds of user time
with children, and the ratio of both. Standard library only.

  depth.py [--bin build/bin] [--runs 3] [--layers 12 126] [--filter tp=8]

Phases are told apart by what is left out: a search without a placement is one in fp16,
of which no plan can be compiled; of a proof, runs with and without it are subtracted. The
least of several runs counts, which take turns: what else a machine does only makes them
slower, and differences of a few hundredths mean nothing while it does."""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile

MODEL = pathlib.Path(__file__).resolve().parent.parent / "examples" / "models" / "qwen3-8b"
SIZE = ["--global-batch", "128", "--seq", "8192"]
COMPILED = ["--backend", "cuda", "--target", "sm_90", "--precision", "bf16", "--no-plan",
            "--no-reference", *SIZE]

# Cluster; mesh, or none: it is searched for, and not compiled; how the mesh is compiled.
CASES = [
    ("h100:8x8", "", ""),
    ("h100:1x4", "pp=1,dp=2,tp=2", "--zero 1"),
    ("h100:1x4", "pp=1,dp=2,tp=2", "--zero 2 --recompute selective"),
    ("h100:1x4", "pp=2,tp=2", "--recompute full"),
    ("h100:2x8", "dp=2,tp=8", "--zero 1 --sequence-parallel"),
]


def write_model(folder, layers):
    """Qwen3 8B of so many layers, of which every other one sees 1,024 tokens."""
    config = json.loads((MODEL / "config.json").read_text())
    kinds = ["sliding_attention", "full_attention"]
    config.update(num_hidden_layers=layers, use_sliding_window=True, sliding_window=1024,
                  max_window_layers=0, layer_types=[kinds[i % 2] for i in range(layers)])
    path = folder / str(layers)
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


def measure(command):
    """User seconds of a command and its children; ends where it fails."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"failed: {' '.join(command)}")
    return usage.ru_utime


def make_commands(plaitc, model, case, folder):
    """What is run of a case, by what it includes."""
    cluster, mesh, options = case
    own = ["--mesh", mesh] if mesh else []
    predict = [plaitc, model, *SIZE, "--cluster", cluster, "--predict", *own]
    commands = {"searched": [*predict, "--precision", "fp16"], "predicted": predict}
    if not mesh:
        return commands
    compiled = [plaitc, model, *COMPILED, *own, *options.split()]
    plan, lowered = str(folder / "x.plan"), str(folder / "x.mlir")
    return commands | {
        "lowered": [*compiled, "--no-prove", "--compile-to", "lower", "-o", lowered],
        "compiled": [*compiled, "--no-prove", "-o", plan],
        "proven": [*compiled, "-o", plan]}


def get_phases(seconds):
    """The phases, by what runs differ in."""
    phases = {"profile and search": seconds["searched"],
              "placing the choice": seconds["predicted"] - seconds["searched"]}
    if "proven" in seconds:
        proof = seconds["proven"] - seconds["compiled"]
        phases |= {"lowering": seconds["lowered"],
                   "conversion, code and check": seconds["compiled"] - seconds["lowered"],
                   "proof": proof,
                   "profile, search and proof": seconds["searched"] + proof,
                   "compilation": seconds["proven"]}
    return phases


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--layers", type=int, nargs=2, default=(12, 126))
    parser.add_argument("--filter", default="")
    args = parser.parse_args()
    few, many = args.layers
    print(f"| | phase | {few} layers, s | {many}, s | ratio |\n|" + "---|" * 5)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        models = {layers: write_model(folder, layers) for layers in args.layers}
        for case in CASES:
            title = " ".join(f"{case[0]} {case[1]} {case[2]}".split())
            if args.filter not in title:
                continue
            best = {}
            for _ in range(args.runs):
                for layers, model in models.items():
                    for kind, command in make_commands(f"{args.bin}/plaitc", model, case,
                                                       folder).items():
                        key = layers, kind
                        best[key] = min(best.get(key, float("inf")), measure(command))
            phases = [get_phases({kind: seconds for (layers, kind), seconds in best.items()
                                  if layers == wanted}) for wanted in args.layers]
            for phase, seconds in phases[0].items():
                more = phases[1][phase]
                ratio = f"{more / seconds:.1f}" if seconds > 0.02 else ""
                print(f"| {title} | {phase} | {seconds:.2f} | {more:.2f} | {ratio} |", flush=True)
                title = ""


if __name__ == "__main__":
    main()
