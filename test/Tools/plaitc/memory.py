# ===- memory.py - Predicted memory against compiled arenas ---*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Holds what the planner prints against what the compiler then makes: each
stage's peak is the program's arena to the byte, and below what the device
leaves. Standard library only.

  memory.py MODELS [--all]

Without --all, a few configurations that take seconds."""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from unassembled import make_environment

# A machine that holds models which no laptop does.
LARGE = {"extends": "cpu", "name": "large", "device": {"memoryBytes": 4e12}}

QUICK = [
    ("gpt2", "h100:1x8", 512, 1024, ""),
    ("gpt2", "cpu:4", 16, 256, "zero=3,dp=4"),
    ("llama-3.1-8b", "h100:2x8", 2, 65536, "cp=4,context-parallel=heads"),
    ("llama-3-8b", "h100:8x8", 512, 8192, "pp=4,schedule=zb-v,chunks=2"),
]
# Of which the estimate, which the pick's alternatives keep, is held against the pick's
# memory. Scores that are not fused were counted as if they were kept: 1.2 and 1.5.
ESTIMATED = [
    ("gpt2", "cpu:1", 4, 512, "recompute=none"),
    ("tinyllama-1.1b", "h100:1x8", 64, 1024, "recompute=none,dp=8,micro-batch=8"),
]
# So many microbatches that a prediction places fewer and goes on from there.
MANY = [
    ("gpt2-nano", "h100:1x1", 707, 64, "micro-batch=1"),
    ("gpt2-nano", "h100:1x1", 707, 64, "micro-batch=1,offload=activations"),
    ("gpt2-nano", "cpu:1", 707, 61, "micro-batch=1,schedule=zb-h1"),
]
# Where layers differ in what they compute again, which has to be asked for.
MIXED = [
    ("llama-3-8b", "h100:8x8", 512, 8192,
     "pp=2,dp=8,tp=4,micro-batch=8,recompute=auto"),
]
ALL = [
    ("gpt2", "cpu:4", 16, 256, ""),
    ("gpt2", "cpu:4", 16, 256, "zero=2,dp=4"),
    ("llama-3-8b", "h100:8x8", 512, 8192, "recompute=full"),
    ("gpt2", "cpu:1", 8, 256, ""),
    ("gpt2", "cpu:8", 64, 512, "pp=2"),
    ("gpt2", "a100-40g:1x8", 512, 1024, "tp=2,sp=on"),
    ("gpt2", "a100-80g:2x8", 512, 1024, "schedule=gpipe,pp=4"),
    ("gpt2", "b200:1x4", 512, 1024, "recompute=full"),
    ("llama-3-8b", "h100:8x8", 512, 8192, ""),
    ("llama-3-8b", "h100:8x8", 512, 8192, "tp=2"),
    ("llama-3-8b", "h100:8x8", 512, 8192, "tp=4"),
    ("llama-3-8b", "h100:8x8", 512, 8192, "tp=8"),
    ("llama-3-8b", "h100:8x8", 512, 8192, "pp=4"),
    ("llama-3-8b", "a100-80g:4x8", 256, 4096, ""),
    ("llama-3-8b", "a100-40g:8x8", 512, 8192, ""),
    ("llama-3-8b", "b200:1x8", 128, 8192, ""),
    ("llama-3-8b", "large:8", 16, 2048, "tp=2"),
    ("gpt2", "cpu:8", 64, 512, "pp=4,schedule=zb-h2"),
    ("gpt2", "h100:1x8", 512, 1024, "pp=2,schedule=interleaved-1f1b,chunks=3"),
    ("llama-3-70b", "h100:64x8", 1024, 8192, ""),
    ("llama-3-70b", "h100:64x8", 1024, 8192, "tp=4,recompute=full"),
    ("llama-3-70b", "a100-80g:64x8", 1024, 8192, ""),
    ("llama-3-70b", "b200:16x8", 512, 8192, ""),
]


def predict(command):
    text = subprocess.run(
        command + ["--json", "-"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return json.loads(text)


def compile_arenas(command, folder):
    """What each program allocates, in the order of stages."""
    output = folder / "compiled.plan"
    subprocess.run(command + ["--no-reference", "-o", output], check=True,
                   env=make_environment(folder))
    shown = subprocess.run(
        ["plait-plan", "show", output],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    return [int(bytes) for bytes in re.findall(r"arena .* (\d+) bytes", shown)]


def check(case, models, folder, isMixed=False):
    """Prints a line; returns what is wrong with it."""
    model, cluster, batch, sequence, pins = case
    command = ["plaitc", models / model]
    command += ["--cluster", cluster.replace("large", f"{folder}/large.json")]
    command += ["--global-batch", str(batch), "--seq", str(sequence)]
    if pins:
        command += ["--pin", pins]
    predicted = predict(command)
    peaks = [int(stage["peak"]) for stage in predicted["memory_bytes"]]
    arenas = compile_arenas(command, folder)
    chosen = predicted["configuration"]
    mesh = " ".join(f"{axis} {chosen[axis]}" for axis in ("pp", "dp", "tp"))
    print(
        f"{model} on {cluster} {pins}: {mesh}: predicted {max(peaks)}, "
        f"compiled {max(arenas)}",
        flush=True,
    )
    wrong = []
    if peaks != arenas:
        wrong.append(f"predicted {peaks}, compiled {arenas}")
    if max(peaks) > predicted["memory_limit_bytes"]:
        wrong.append(f"{max(peaks)} does not fit")
    if isMixed and chosen["recompute"] in ("none", "selective", "full"):
        wrong.append(f"all layers have recompute {chosen['recompute']}")
    return wrong


def check_estimate(case, models):
    model, cluster, batch, sequence, pins = case
    command = ["plaitc", models / model, "--cluster", cluster, "--precision", "fp32"]
    command += ["--global-batch", str(batch), "--seq", str(sequence), "--pin", pins]
    placed = predict(command)["memory_bytes"][0]["peak"]
    # Of another pick, for the pick's own memory is no estimate.
    command[-1] = "recompute=full"
    text = subprocess.run(
        command + ["--why-not", pins], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    shown = re.search(r"peak memory +[\d.]+ [MG]B +about ([\d.]+) ([MG])B", text)
    number, unit = shown.groups()
    ratio = float(number) * {"M": 1e6, "G": 1e9}[unit] / placed
    print(f"{model} on {cluster} {pins}: estimated {ratio:.2f} of what is compiled")
    # Temporaries of the layer and of the head are not all alive at once.
    return [] if abs(ratio - 1) <= 0.12 else [f"{model}: estimated {ratio:.2f}"]


def check_limit(models, folder):
    """On a device that lacks one byte of what the choice needs, another one is
    found that fits."""
    command = ["plaitc", models / "gpt2-nano", "--global-batch", "64"]
    command += ["--seq", "128", "--cluster"]
    device = folder / "small.json"

    def choose(memory):
        fields = {"memoryBytes": memory, "reservedBytes": 0}
        content = {"extends": "cpu", "name": "small", "device": fields}
        device.write_text(json.dumps(content))
        return predict(command + [f"{device}:1"])

    peak = choose(16e9)["memory_bytes"][0]["peak"]
    less = choose(peak - 1)["memory_bytes"][0]["peak"]
    print(f"one byte less than {peak:.0f}: {less:.0f}")
    return [] if less < peak else ["what does not fit is chosen again"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "large.json").write_text(json.dumps(LARGE))
        for case in QUICK + MANY + (ALL if given.all else []):
            wrong += check(case, given.models, folder)
        for case in MIXED:
            wrong += check(case, given.models, folder, isMixed=True)
        for case in ESTIMATED:
            wrong += check_estimate(case, given.models)
        wrong += check_limit(given.models, folder)
    for line in wrong:
        print("error:", line, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
