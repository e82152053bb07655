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

import json
import pathlib
import shutil
import sys
import tempfile

from harness import Failure, Tools, arguments
from run import ONE_RANK, WHOLE, Case, Layout

TRAINED = (
    ONE_RANK,
    Layout((("tp", 2),), "1f1b", "none"),
    Layout((("dp", 2),), "1f1b", "none"),
    Layout((("pp", 2),), "gpipe", "none"),
    Layout((("pp", 2),), "1f1b", "full"),
    Layout((("tp", 2),), "1f1b", "none", sequence_parallel=True),
    WHOLE,
)
CASES = ("gpt2-small-test", "llama-small-test", "llama3-small-test")
# Tokens per second: one GPU, GPT-2 124M, sequences of 1024.
SPEED = {"config": "gpt2-124m", "seq": 1024, "batches": (4, 16)}


class CudaTools(Tools):
    """plaitc compiles for GPUs."""

    def run(self, name, *given, cwd=None):
        more = ("--backend", "cuda") if name == "plaitc" else ()
        return super().run(name, *given, *more, cwd=cwd)


def options_of(case: Case, inputs: str) -> list[str]:
    """Of plait-run, with paths below the bundle."""
    recipe = case.recipe
    options = ["--tokens", f"{inputs}/tokens.bin", "--seed", str(case.seed)]
    if (case.inputs / "model.safetensors").exists():
        options += ["--weights", f"{inputs}/model.safetensors"]
    for name in ("steps", "lr", "beta1", "beta2", "eps", "weight_decay"):
        options += ["--" + name.replace("_", "-"), str(recipe[name])]
    return options + ["--grad-clip", str(recipe["grad_clip"])]


def copy_inputs(case: Case, folder: pathlib.Path) -> str:
    target = folder / "inputs" / case.inputs.name
    target.mkdir(parents=True, exist_ok=True)
    for name in ("model.safetensors", "tokens.bin", "config.json"):
        if (case.inputs / name).exists():
            shutil.copy(case.inputs / name, target / name)
    return f"inputs/{case.inputs.name}"


def add_trained(case: Case, layout: Layout, cpu, cuda, folder) -> dict:
    name = f"{case.name}-{layout.name}".replace("/", "-").replace("=", "")
    name = name.replace(",", "-")
    plan = folder / "plans" / f"{name}.plan"
    case.compile(cuda, layout, plan)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        case.compile(cpu, layout, scratch / "cpu.plan")
        records, _ = case.train(cpu, scratch / "cpu.plan", scratch)
    return {
        "name": name,
        "plan": f"plans/{name}.plan",
        "ranks": layout.axes["pp"] * layout.axes["dp"] * layout.axes["tp"],
        "options": options_of(case, copy_inputs(case, folder)),
        "losses": [record["loss"] for record in records],
    }


def add_speed(cuda, folder: pathlib.Path, batch: int) -> dict:
    name = f"{SPEED['config']}-batch{batch}"
    plan = folder / "plans" / f"{name}.plan"
    source = pathlib.Path(__file__).parents[1] / "golden" / SPEED["config"]
    cuda.run(
        "plaitc",
        source,
        *("--global-batch", batch),
        *("--micro-batch", batch),
        *("--seq", SPEED["seq"]),
        *("-o", plan, "--no-reference"),
    )
    return {
        "name": name,
        "plan": f"plans/{name}.plan",
        "ranks": 1,
        "speed": True,
        "options": ["--text", "text", "--steps", "20"],
    }


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    given = parser.parse_args()
    cpu, cuda = (
        kind(given.bin, given.timeout) for kind in (Tools, CudaTools)
    )
    (given.folder / "plans").mkdir(parents=True, exist_ok=True)
    manifest, failed = [], 0
    work = [
        lambda case=case, layout=layout: add_trained(
            Case(case), layout, cpu, cuda, given.folder
        )
        for case in CASES
        for layout in TRAINED
        if given.filter in case
    ]
    work += [
        lambda batch=batch: add_speed(cuda, given.folder, batch)
        for batch in SPEED["batches"]
        if given.filter in SPEED["config"]
    ]
    for entry in work:
        try:
            manifest.append(entry())
            print(manifest[-1]["name"], flush=True)
        except Failure as failure:
            failed += 1
            print(f"left out: {failure}", flush=True)
    # One token a byte, every byte below the smallest vocabulary.
    (given.folder / "text").write_bytes(bytes(range(200)) * 2000)
    text = json.dumps(manifest, indent=1) + "\n"
    (given.folder / "manifest.json").write_text(text)
    print(f"{len(manifest)} plans, {failed} left out")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
