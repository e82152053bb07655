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
import os
import pathlib
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
]


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
    plan = pathlib.Path(tempfile.mkdtemp()) / "x.plan"
    print(
        "| model, sequences of a step | devices | predict, CPU s | wall s | MiB "
        "| plan, CPU s | wall s | MiB | file, MB |\n|" + "---|" * 9
    )
    for model, batch, sequence, cluster, options in CASES:
        name = f"{model}, {batch:,} × {sequence:,}"
        if args.filter not in name:
            continue
        command = [f"{args.bin}/plaitc", str(MODELS / model), *options.split()]
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
    plan.unlink()
    plan.parent.rmdir()


if __name__ == "__main__":
    main()
