#!/usr/bin/env python3
#===- step_cost.py - What a step costs, by its plan -------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""What a training step of a model on one GPU consists of, as its plan says: one
column for each folder of plaitc and plait-plan that is given, so that two builds
can be compared. Nothing is run and no GPU is needed. `predicted` is what
`plait-plan simulate` says of the plan, tokens per second."""

import argparse
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(*words) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def find(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    return float(found.group(1)) if found else float("nan")


def describe(options, tools: pathlib.Path) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        plan = pathlib.Path(folder) / "model.plan"
        words = [tools / "plaitc", options.model, "--cluster", options.cluster]
        words += ["--mesh", "1", "--precision", "bf16", "--seq", options.seq]
        words += ["--global-batch", options.batch, "--dropout", "off"]
        words += ["--micro-batch", options.batch, "--no-reference"]
        words += ["--recompute", options.recompute, "--no-prove", "-o", plan]
        run(*words)
        show = [ROOT / "build" / "bin" / "plait-plan", "show", plan]
        text = run(*show)
        step = run(show[0], "simulate", plan)
    tokens = options.batch * options.seq
    row = {
        "arena, GB": find(r"arena .* (\d+) bytes", text) / 1e9,
        "kernels": find(r"(\d+) kernel", text),
        "matmuls": find(r"(\d+) gemm", text),
        "bytes of kernels, GB": find(r"read and write .* (\d+) bytes", text)
        / 1e9,
    }
    for aligned, flops in re.findall(
        r"gemm with rows at multiples of (\d+) +([\d.]+) TFLOP", text
    ):
        row[f"matmuls at multiples of {aligned} bytes, TFLOP"] = float(flops)
    milliseconds = find(r"step +([\d.]+) ms", step)
    row["predicted step, ms"] = milliseconds
    row["predicted tokens/s"] = tokens / milliseconds * 1e3
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "tools", type=pathlib.Path, nargs="*", default=[ROOT / "build" / "bin"]
    )
    parser.add_argument(
        "--model",
        type=pathlib.Path,
        default=ROOT / "examples" / "models" / "gpt2",
    )
    parser.add_argument("--cluster", default="h100:1x1")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--recompute", default="none")
    options = parser.parse_args()
    columns = [describe(options, tools) for tools in options.tools]
    names = list(dict.fromkeys(n for column in columns for n in column))
    head = " | ".join(str(tools) for tools in options.tools)
    print(f"| | {head} |")
    print("|---|" + "--:|" * len(columns))
    for name in names:
        cells = " | ".join(f"{c.get(name, 0):.6g}" for c in columns)
        print(f"| {name} | {cells} |")


if __name__ == "__main__":
    main()
