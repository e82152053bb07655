#!/usr/bin/env python3
#===- checkpoint_cost.py - What checkpoints take of a run --*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""How much longer a run takes that writes a checkpoint every few steps: GPT-2 124M
on one rank of this processor, fp32, AdamW, 4 sequences of 64 tokens a step, 1.5 GB a
checkpoint. Runs without checkpoints, with --keep and without it take turns, and each
ratio is one within a round, since the speed of a machine that others use as well
swings. Measured is the time from one step to a later one, with as many checkpoints
between as steps say; the first steps are left out. Printed are medians over rounds.

DIR is where checkpoints go: on the disk that is to be measured."""

import argparse
import array
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def measure(command: list, first: int, last: int) -> float:
    """Seconds a step, from the end of `first` to that of `last`."""
    process = subprocess.Popen(
        [*map(str, command), "--steps", str(last), "--log", "-"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )
    ends = [time.monotonic() for line in process.stdout if line.startswith("{")]
    if process.wait() or len(ends) != last:
        sys.exit(f"plait-run ended with {process.returncode} after {len(ends)} steps")
    return (ends[last - 1] - ends[first - 1]) / (last - first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin")
    parser.add_argument("--model", default=ROOT / "examples" / "models" / "gpt2")
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--every", type=int, default=10, help="steps a checkpoint")
    parser.add_argument("--checkpoints", type=int, default=3, help="of a run")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = pathlib.Path(name)
        plan, tokens = folder / "model.plan", folder / "tokens.bin"
        subprocess.run(
            [options.bin / "plaitc", options.model, "--mesh", "1",
             *("--global-batch", "4", "--seq", str(options.seq)),
             *("--no-reference", "-o", plan)],
            check=True, stdout=subprocess.DEVNULL,
        )
        draw = random.Random(1)
        array.array("H", (draw.randrange(50000) for _ in range(100000))).tofile(
            tokens.open("wb")
        )
        base = [options.bin / "plait-run", plan, "--tokens", tokens]
        kinds = {"none": [], "all stay": [], "--keep 2": ["--keep", "2"]}
        seconds = {kind: [] for kind in kinds}
        for _ in range(options.rounds):
            for kind, more in kinds.items():
                saved = folder / "saved"
                if kind != "none":
                    more = [*more, "--checkpoint", saved,
                            "--checkpoint-every", options.every]
                seconds[kind].append(measure(
                    [*base, *more], options.every,
                    options.every * (options.checkpoints + 1),
                ))
                shutil.rmtree(saved, ignore_errors=True)
            print(", ".join(f"{k} {v[-1]:.3f}" for k, v in seconds.items()),
                  "s a step", flush=True)
        for kind in kinds:
            if kind == "none":
                continue
            costs = [x / y - 1 for x, y in zip(seconds[kind], seconds["none"])]
            print(f"{kind}: {statistics.median(costs):+.1%} "
                  f"({min(costs):+.1%} to {max(costs):+.1%}), a checkpoint every "
                  f"{options.every} steps of {statistics.median(seconds['none']):.2f} s")


if __name__ == "__main__":
    main()
