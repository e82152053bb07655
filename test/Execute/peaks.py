#!/usr/bin/env python3
#===- peaks.py - What ranks hold, against theory -----------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Compiles a small model under each schedule and reads from the plan's buffers
how many microbatches' residuals every rank holds at most from one action to the
next, and whether the arena is as large as what is live at its fullest moment.
Compares with what the schedules' authors say: Narayanan et al. 2021, Qi et al.
2024 (twice). Nothing here asks the generators.

A microbatch of a stage is what lies there between its forward and its input
gradient; a rank with v stages counts each as 1 / v. What a weight gradient still
needs is the share w of it, measured too."""

import dataclasses
import json
import pathlib
import re
import sys
import tempfile
from collections import defaultdict

from harness import ROOT, Reporter, Tools, arguments, require

NANO = ROOT / "examples" / "models" / "gpt2-nano" / "config.json"
BUFFER = re.compile(
    r'plan\.buffer @"(.+?)"\s+(\w+) at (\d+) bytes (\d+) live \[(\d+), (\d+)\]'
)
RESIDUAL = re.compile(r"residuals \d+ of stage (\d+), microbatch (\d+)$")
PROGRAM = re.compile(r"plan\.program @rank(\d+) rank \d+ bytes (\d+)")


@dataclasses.dataclass
class Buffer:
    name: str
    bytes: int
    first: int
    last: int


@dataclasses.dataclass
class Held:
    """Of one rank, in microbatches."""

    most: float = 0
    share: float = 0  # w, of its first stage
    arena: int = 0  # bytes
    live: int = 0  # bytes at the fullest moment


def read_programs(text: str) -> dict[int, tuple[int, list[Buffer]]]:
    programs: dict[int, tuple[int, list[Buffer]]] = {}
    for line in text.splitlines():
        if found := PROGRAM.search(line):
            buffers: list[Buffer] = []
            programs[int(found[1])] = (int(found[2]), buffers)
        elif found := BUFFER.search(line):
            name, _, _, size, first, last = found.groups()
            buffers.append(Buffer(name, int(size), int(first), int(last)))
    return programs


def sum_by_moment(spans) -> list[float]:
    """What is alive at each moment, of (weight, first, last)."""
    changes: dict[int, float] = defaultdict(float)
    for weight, first, last in spans:
        changes[first] += weight
        changes[last + 1] -= weight
    total, sums = 0.0, []
    for moment in sorted(changes):
        total += changes[moment]
        sums.append(total)
    return sums


def measure(arena: int, buffers: list[Buffer], chunks: int) -> Held:
    parts = defaultdict(list)  # by stage and microbatch
    for buffer in buffers:
        if found := RESIDUAL.match(buffer.name):
            parts[int(found[1]), int(found[2])].append(buffer)
    spans, shares = [], []
    for held in parts.values():
        start = min(buffer.first for buffer in held)
        whole = sum(x.bytes for x in held if x.first == start)
        end = max(buffer.last for buffer in held)
        inputs = [x for x in held if x.first > start]
        if inputs:  # what the input gradient leaves
            middle = min(x.first for x in inputs)
            left = sum(x.bytes for x in held if x.first <= middle < x.last)
            shares.append(left / whole)
        # From one action to the next: the last one of a life does not count.
        spans += [
            (x.bytes / whole / chunks, x.first, x.last - 1)
            for x in held
            if x.last > x.first
        ]
        require(end > start, "a residual that nothing reads")
    live = sum_by_moment((x.bytes, x.first, x.last) for x in buffers)
    return Held(
        most=max(sum_by_moment(spans)),
        share=max(shares, default=0),
        arena=arena,
        live=int(max(live)),
    )


@dataclasses.dataclass(frozen=True)
class Theory:
    """Microbatches on rank r of p, of m, with v stages a rank and the share w:
    exactly, or at most."""

    chunks: int
    exactly: object = None
    most: object = None


def interleaved(p, m, r, v, w):
    return min(m, (2 * (p - r - 1) + (v - 1) * p + 1) / v)


THEORY = {
    "gpipe": Theory(1, lambda p, m, r, v, w: m),
    "1f1b": Theory(1, lambda p, m, r, v, w: min(m, p - r)),
    "interleaved-1f1b": Theory(2, interleaved),
    "breadth-first": Theory(2, lambda p, m, r, v, w: m),
    "zb-h1": Theory(
        1,
        lambda p, m, r, v, w: min(m, p - r + r * w),
        lambda p, m, r, v, w: p,
    ),
    "zb-h2": Theory(
        1,
        lambda p, m, r, v, w: min(m, 2 * (p - r) - 1 + 2 * r * w),
        lambda p, m, r, v, w: 2 * p - 1,
    ),
    "zb-v": Theory(2, most=lambda p, m, r, v, w: p),
    "v-half": Theory(2, most=lambda p, m, r, v, w: p / 2 + 1),
    "v-min": Theory(2, most=lambda p, m, r, v, w: p / 3 + 2),
    "dualpipe-v": Theory(2, most=lambda p, m, r, v, w: p + 1),
}


class Suite:
    def __init__(self, tools: Tools, report: Reporter):
        self.tools = tools
        self.report = report

    def compile(self, schedule: str, p: int, m: int, chunks: int, layers: int):
        """The held microbatches of each rank."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            config = json.loads(NANO.read_text())
            config["n_layer"] = layers
            (folder / "config.json").write_text(json.dumps(config))
            self.tools.run(
                *("plaitc", folder, "--mesh", f"pp={p}"),
                *("--schedule", schedule, "--chunks", chunks),
                *("--global-batch", m, "--micro-batch", 1, "--seq", 32),
                *("--compile-to", "lower", "-o", folder / "x.mlir"),
            )
            text = (folder / "x.mlir").read_text()
        programs = read_programs(text)
        require(len(programs) == p, f"{len(programs)} programs, expected {p}")
        return [measure(*programs[rank], chunks) for rank in range(p)]

    def check(self, schedule: str, p: int, m: int) -> str:
        theory = THEORY[schedule]
        v = theory.chunks
        held = self.compile(schedule, p, m, v, 2 * p * v)
        for rank, found in enumerate(held):
            arguments = (p, m, rank, v, found.share)
            if theory.exactly:
                exact = theory.exactly(*arguments)
                require(
                    abs(found.most - exact) < 1e-6,
                    f"rank {rank} holds {found.most:g}, in theory {exact:g}",
                )
            if theory.most:
                most = theory.most(*arguments)
                require(
                    found.most <= most + 1e-6,
                    f"rank {rank} holds {found.most:g}, at most {most:g}",
                )
            require(
                found.arena <= 1.02 * found.live,
                f"rank {rank}: the arena has {found.arena} bytes, "
                f"{found.live} are live at most",
            )
        return "held " + " ".join(f"{found.most:.3g}" for found in held)

    def run(self) -> None:
        for schedule in THEORY:
            for p, m in ((2, 4), (4, 8), (4, 16), (6, 12)):
                self.report.case(
                    f"{schedule}/pp={p}/m={m}",
                    lambda: self.check(schedule, p, m),
                )
        self.report.case("grows/zb-v", self.check_growth)

    def check_growth(self) -> str:
        """More microbatches, no more memory: stashed weight gradients do not
        pile up."""
        few, many = (
            max(x.most for x in self.compile("zb-v", 4, m, 2, 8))
            for m in (12, 48)
        )
        require(few == many, f"{few:g} of 12 microbatches, {many:g} of 48")
        return f"held {few:.3g} of 12 and of 48"


def main() -> int:
    options = arguments(__doc__).parse_args()
    report = Reporter("peaks", options.filter)
    Suite(Tools(options.bin, options.timeout), report).run()
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
