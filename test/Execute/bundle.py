#!/usr/bin/env python3
#===- bundle.py - Plans and expected losses for a GPU node -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Compiles the golden cases for GPUs and runs the same layouts on the CPU.

Leaves FOLDER/plans/*.plan, FOLDER/inputs/ and FOLDER/manifest.json, which
gpu.py executes on a machine that has a GPU but no compiler. Called by
scripts/bundle.sh.
"""

import array
import json
import math
import pathlib
import random
import re
import shutil
import sys
import tempfile

from harness import ROOT, Failure, Tools, arguments
from train import CHOICES, Case, Suite
from training_checks import Golden, golden_of
from training_files import read_test

# As a file of test/Training.
TRAINED = """
model test/golden/gpt2-small-test test/golden/llama-small-test test/golden/llama3-small-test
model test/golden/gpt-oss-small-test
against pytorch
layout 1
layout tp=2
layout dp=2
layout dp=2 --zero 1
layout pp=2 --schedule gpipe
layout pp=2 --recompute full
layout tp=2 --sequence-parallel
layout pp=2,dp=2,tp=2 --recompute full
layout 1 --precision bf16 --attention flash
layout pp=2,dp=2,tp=2 --recompute full --precision bf16 --attention flash
layout pp=2,dp=2,tp=2 --recompute full --precision bf16 --attention flash --zero 1
layout cp=2 --precision bf16 --attention flash --context-parallel zigzag
"""
# Tokens per second of one GPU in bf16: model, length of a sequence, what is
# recomputed, and the microbatches of which the largest that fits is taken.
SPEED = (
    ("gpt2", 1024, "none", (128, 64, 32, 16, 8)),
    ("llama-3.2-1b", 4096, "none", (8, 4, 2, 1)),
    ("llama-3.2-1b", 4096, "full", (16, 8, 4, 2)),
)


class CudaTools(Tools):
    """plaitc compiles for GPUs."""

    options = ("--backend", "cuda")

    def run(self, name, *given, **how):
        more = self.options if name == "plaitc" else ()
        return super().run(name, *given, *more, **how)


class RepeatableTools(CudaTools):
    """Every run of a plan has the same bits."""

    options = (*CudaTools.options, "--deterministic")


def copy_inputs(golden: Golden, folder: pathlib.Path) -> str:
    target = folder / "inputs" / golden.inputs.name
    target.mkdir(parents=True, exist_ok=True)
    for name in ("model.safetensors", "tokens.bin", "config.json"):
        if (golden.inputs / name).exists():
            shutil.copy(golden.inputs / name, target / name)
    return f"inputs/{golden.inputs.name}"


def add_trained(case: Case, cpu, cuda, folder) -> dict:
    golden = golden_of(case)
    name = re.sub("[/,]", "-", case.name).replace("=", "")
    plan = folder / "plans" / f"{name}.plan"
    with tempfile.TemporaryDirectory() as scratch:
        Suite(cuda, case.test, pathlib.Path(scratch)).compile(case, plan)
        suite = Suite(cpu, case.test, pathlib.Path(scratch))
        suite.compile(case, suite.folder / "cpu.plan")
        found = suite.train(case, suite.folder / "cpu.plan")
    # With paths below the bundle.
    inputs = copy_inputs(golden, folder)
    options = [str(x).replace(str(golden.inputs), inputs) for x in golden.data]
    return {
        "name": name,
        "plan": f"plans/{name}.plan",
        "ranks": math.prod(case.layout.axes.values()),
        "options": [*options, *map(str, golden.run)],
        "precision": "bf16" if "bf16" in case.layout.options else "fp32",
        "losses": [record["loss"] for record in found.steps],
    }


def add_pipeline(cuda, folder) -> dict:
    """Two stages of GPT-2 124M, whose messages of 3 MB fit no buffer of NCCL's;
    gpu.py compares a process a stage with both in one."""
    plan = folder / "plans" / "gpt2-pp2.plan"
    cuda.run(
        "plaitc",
        ROOT / "examples" / "models" / "gpt2",
        *("--mesh", "pp=2", "--schedule", "1f1b", "--precision", "bf16"),
        *("--global-batch", 16, "--micro-batch", 2, "--seq", 1024),
        *("-o", plan, "--no-reference"),
    )
    return {
        "name": "gpt2-pp2-messages",
        "pipeline": True,
        "plan": f"plans/{plan.name}",
        "ranks": 2,
        "options": [
            *("--tokens", "tokens", "--token-type", "uint16"),
            *("--steps", "8", "--lr", "1e-4"),
        ],
        "precision": "bf16",
    }


def add_speed(cuda, folder, model, seq, recompute, batches) -> dict:
    """An entry of bench/gpu.py: the same training in several microbatches."""
    name = f"{model}-seq{seq}-{recompute}"
    source = ROOT / "examples" / "models" / model
    config = folder / "inputs" / model / "config.json"
    config.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / "config.json", config)
    for batch in batches:
        cuda.run(
            "plaitc",
            source,
            *("--global-batch", batch),
            *("--micro-batch", batch),
            *("--seq", seq, "--recompute", recompute, "--precision", "bf16"),
            *("-o", folder / "plans" / f"{name}-{batch}.plan"),
            "--no-reference",
        )
    return {
        "name": name,
        "speed": True,
        "config": f"inputs/{model}/config.json",
        "seq": seq,
        "recompute": recompute,
        "plans": {str(b): f"plans/{name}-{b}.plan" for b in batches},
    }


def add_node(cuda, folder, gpus, tensor) -> dict:
    """An entry of node.py: as many sequences on each of so many GPUs, or on each of
    as many groups of tensor parallelism."""
    batch, seq, groups = 64, 1024, gpus // tensor
    name = f"gpt2-dp{groups}" + (f"-tp{tensor}" if tensor > 1 else "")
    plan = folder / "plans" / f"{name}.plan"
    cuda.run(
        "plaitc",
        ROOT / "examples" / "models" / "gpt2",
        *("--mesh", f"dp={groups},tp={tensor}", "--zero", min(1, groups - 1)),
        *(["--sequence-parallel"] if tensor > 1 else []),
        *("--precision", "bf16", "--seq", seq),
        *("--global-batch", batch * groups, "--micro-batch", batch),
        *("-o", plan, "--no-reference"),
    )
    return {
        "name": name,
        "tensor": tensor,
        "node": gpus,
        "plan": f"plans/{plan.name}",
        "ranks": gpus,
        "options": [
            *("--tokens", "tokens", "--token-type", "uint16"),
            *("--steps", "8", "--lr", "1e-4"),
        ],
        "precision": "bf16",
        "tokens": batch * groups * seq,
    }


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    given = parser.parse_args()
    cpu, cuda, repeatable = (
        kind(given.bin, given.timeout)
        for kind in (Tools, CudaTools, RepeatableTools)
    )
    (given.folder / "plans").mkdir(parents=True, exist_ok=True)
    test = read_test(pathlib.Path("golden"), CHOICES, TRAINED)
    manifest, failed = [], 0
    work = [
        lambda case=case: add_trained(case, cpu, repeatable, given.folder)
        for case in (Case(test, model, layout) for model in range(len(test.models))
                     for layout in test.layouts)
        if given.filter in case.name
    ]
    if given.filter in "gpt2-pp2-messages":
        work.insert(0, lambda: add_pipeline(repeatable, given.folder))
    work += [
        lambda entry=entry: add_speed(cuda, given.folder, *entry)
        for entry in SPEED
        if given.filter in entry[0]
    ]
    work += [
        lambda gpus=gpus, tensor=tensor: add_node(cuda, given.folder, gpus, tensor)
        for gpus in (1, 2, 4, 8)
        for tensor in (1, 2)
        if tensor <= gpus and given.filter in f"gpt2-dp{gpus // tensor}-tp{tensor}"
    ]
    for entry in work:
        try:
            manifest.append(entry())
            print(manifest[-1]["name"], flush=True)
        except Failure as failure:
            failed += 1
            print(f"left out: {failure}", flush=True)
    # Few distinct tokens would make lookups and sums of rows too fast.
    draws = random.Random(1)
    tokens = array.array("H", (draws.randrange(50257) for _ in range(1 << 21)))
    (given.folder / "tokens").write_bytes(tokens.tobytes())
    text = json.dumps(manifest, indent=1) + "\n"
    (given.folder / "manifest.json").write_text(text)
    print(f"{len(manifest)} plans, {failed} left out")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
