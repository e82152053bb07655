# ===- cost.py - Sizes of plans by what is repeated ---*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Counts what a compilation makes: buffers of a microbatch, bytes of an action,
tables of a plan. Counts say the same on every machine; a plan of a model with
hundreds of stages takes memory and time in proportion. Standard library only.

  cost.py MODELS SCRATCH"""

import pathlib
import re
import subprocess
import sys

models, scratch = map(pathlib.Path, sys.argv[1:3])


def compile(output, *options):
    """A Llama with tables of positions, for GPUs: with steps like a large one."""
    command = ["plaitc", models / "tinyllama-1.1b", "--backend", "cuda"]
    command += ["--target", "sm_90", "--precision", "bf16", "--no-reference"]
    command += ["--seq", "2048", *options, "-o", scratch / output]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return scratch / output


def pipeline(output, stages, microbatches, *options):
    """A pipeline that holds all microbatches at once."""
    return compile(
        output, "--mesh", f"pp={stages}", "--no-plan", "--schedule", "gpipe",
        "--global-batch", microbatches, *options,
    )  # fmt: skip


def expect(what, found, most):
    print(f"{what}: {found:.1f}, at most {most}")
    if found > most:
        sys.exit(f"{what}: {found}, expected at most {most}")


# Eleven layers have hundreds of residuals. Each call has a workspace, a
# message has a buffer; the rest are sets of residuals.
text = pipeline("256.mlir", 2, 256, "--compile-to", "lower").read_text()
calls = len(re.findall(r"plan\.action +(?:forward|backward) ", text))
buffers = len(re.findall(r"plan\.buffer .* live \[(?!0, )", text))
expect("buffers of a call", buffers / calls, 5)

# A call and its transfers take few bytes of a plan.
few = pipeline("few.plan", 2, 256).stat().st_size
many = pipeline("many.plan", 2, 512).stat().st_size
most = 500
expect("bytes of a call", (many - few) / (2 * 2 * (512 - 256)), most)

# Tables of sines and cosines are in it once, not in every stage.
deep = pipeline("deep.plan", 11, 256).stat().st_size
tables = 2 * 2048 * 64 * 4
rest = deep - few - 2 * (11 - 2) * 256 * most
expect("bytes of a stage, beside its calls", rest / (11 - 2), tables / 4)
