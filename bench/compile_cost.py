#!/usr/bin/env python3
# ===- compile_cost.py - What planning and compiling cost ---*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Prints the table "Planning and compiling" of bench/Measurements.md: for each model and
cluster the time and the memory of plaitc, with --predict and to a checked plan.
Standard library only.

  compile_cost.py [--bin build/bin] [--runs 3] [--filter llama]

The best of several runs: what else a machine does only makes them slower."""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

MODELS = pathlib.Path(__file__).resolve().parent.parent / "examples" / "models"

# Model, sequences of a step, tokens of a sequence, cluster; further options.
CASES = [
    ("gpt2", 512, 1024, "cpu:8", ""),
    ("gpt2", 512, 1024, "h100:1x8", ""),
    ("llama-3-8b", 512, 8192, "h100:8x8", ""),
    ("llama-3-70b", 1024, 8192, "h100:64x8", ""),
    ("llama-3-70b", 1024, 8192, "h100:128x8", ""),
    ("llama-3.1-405b", 2048, 8192, "h100:2048x8", ""),
    ("llama-3.1-405b", 2048, 8192, "", "--mesh pp=16,dp=128,tp=8 --backend cuda"),
    ("gpt-1t", 3072, 2048, "a100-80g:384x8", ""),
    ("qwen3-30b-a3b", 128, 4096, "h100:2x8", ""),
    ("mixtral-8x7b", 256, 4096, "h100:8x8", ""),
    ("gpt-oss-120b", 256, 4096, "h100:8x8", ""),
    ("deepseek-v3", 4096, 4096, "h100:128x8", ""),
]


def find_model(name, folder):
    """The folder of a model; of gpt-oss-120b one that is written into `folder`."""
    if name != "gpt-oss-120b":
        return MODELS / name
    config = json.loads((MODELS / "gpt-oss-20b" / "config.json").read_text())
    config["num_hidden_layers"] = 36
    config["num_local_experts"] = 128
    config["layer_types"] = ["sliding_attention", "full_attention"] * 18
    made = folder / name
    made.mkdir(exist_ok=True)
    (made / "config.json").write_text(json.dumps(config))
    return made


def measure(command):
    """CPU seconds, wall-clock seconds and MiB of one run; fails with it."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"failed: {' '.join(command)}")
    cpu = usage.ru_utime + usage.ru_stime
    return cpu, time.monotonic() - start, usage.ru_maxrss / 1024


def best(command, runs):
    return [min(figures) for figures in zip(*(measure(command) for _ in range(runs)))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--filter", default="")
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp())
    plan = folder / "x.plan"
    print(
        "| model, sequences of a step | devices | predict, CPU s | wall s | MiB "
        "| plan, CPU s | wall s | MiB | file, MB |\n|" + "---|" * 9
    )
    for model, batch, sequence, cluster, options in CASES:
        name = f"{model}, {batch:,} × {sequence:,}"
        if args.filter not in name:
            continue
        command = [f"{args.bin}/plaitc", str(find_model(model, folder)), *options.split()]
        command += ["--global-batch", str(batch), "--seq", str(sequence)]
        figures = ["", "", ""]
        if cluster:
            command += ["--cluster", cluster]
            cpu, wall, memory = best(command + ["--predict"], args.runs)
            figures = [f"{cpu:.2g}", f"{wall:.2g}", f"{memory:.0f}"]
        cpu, wall, memory = best(command + ["-o", str(plan)], args.runs)
        figures += [f"{cpu:.2g}", f"{wall:.2g}", f"{memory:.0f}"]
        figures += [f"{plan.stat().st_size / 1e6:.2g}"]
        print("|", " | ".join([name, cluster or options, *figures]), "|", flush=True)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
