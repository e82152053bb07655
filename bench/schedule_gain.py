#!/usr/bin/env python3
# ===- schedule_gain.py - One schedule against another -----------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""What a schedule gains over another, as simulated from measured step times and
as measured, side by side.

Compiles a small GPT-2 for four CPU ranks under both schedules, runs them in turn
with `plait-run --profile`, and prints medians over the rounds of

  measured   the step of the run
  replayed   plait-plan simulate, with the seconds of the run's own steps: what
             they took while ranks shared the machine's cores
  own cores  the same with the processor time of each step and no waiting: a
             machine with a core for every rank

Standard library only; needs an otherwise idle machine."""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

from cpu_ground_truth import CONFIG

ROWS = ("measured", "replayed", "own cores")


def run(*command) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return done.stdout


def give_own_cores(profile: dict) -> dict:
    """Every step takes its processor time, and nobody waits but for messages."""
    for program in profile["programs"]:
        steps = [x for f in program["functions"] for x in f["steps"]]
        for step in steps + program["transfers"]:
            step["seconds"] = step["processor_seconds"]
            step["waiting_seconds"] = 0.0
    return profile


class Bench:
    def __init__(self, options, folder: pathlib.Path):
        self.options = options
        self.folder = folder
        (folder / "config.json").write_text(json.dumps(CONFIG))
        (folder / "text").write_text("In the beginning was the word. " * 4000)

    def compile(self, schedule: str) -> None:
        run(
            *(self.options.bin / "plaitc", self.folder, "--mesh", "pp=4", "--no-plan"),
            *("--schedule", schedule, "--seq", 128, "--no-reference"),
            *("--global-batch", self.options.microbatches, "--micro-batch", 1),
            *("-o", self.folder / f"{schedule}.plan"),
        )

    def simulate(self, schedule: str, profile: pathlib.Path) -> float:
        plan = self.folder / f"{schedule}.plan"
        command = [self.options.bin / "plait-plan", "simulate", plan]
        text = run(*command, "--profile", profile, "--json", "-")
        return json.loads(text)["step_seconds"]

    def measure(self, schedule: str) -> tuple[float, ...]:
        """One round: the numbers of ROWS, in seconds."""
        plan = self.folder / f"{schedule}.plan"
        measured = self.folder / "profile.json"
        run(
            *(self.options.bin / "plait-run", plan, "--profile", measured),
            *("--text", self.folder / "text", "--threads", 4),
            *("--steps", self.options.steps),
        )
        profile = json.loads(measured.read_text())
        seconds = profile["step_seconds"]
        replayed = self.simulate(schedule, measured)
        own = self.folder / "own.json"
        own.write_text(json.dumps(give_own_cores(profile)))
        return seconds, replayed, self.simulate(schedule, own)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default="build/bin")
    parser.add_argument("--schedules", nargs=2, default=("1f1b", "zb-v"))
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, pathlib.Path(folder))
        for schedule in options.schedules:
            bench.compile(schedule)
        rounds = {schedule: [] for schedule in options.schedules}
        for _ in range(options.rounds):
            for schedule, found in rounds.items():
                found.append(bench.measure(schedule))
    first, second = options.schedules
    print(f"{'':10}{first:>12}{second:>12}{'gain':>10}")
    for row, name in enumerate(ROWS):
        times = [
            1e3 * statistics.median(x[row] for x in rounds[schedule])
            for schedule in options.schedules
        ]
        gain = 100 * (times[0] / times[1] - 1)
        print(f"{name:10}{times[0]:9.1f} ms{times[1]:9.1f} ms{gain:8.1f} %")


if __name__ == "__main__":
    main()
