#!/usr/bin/env python3
#===- schedules.py - Every schedule against one rank --------*- Python -*--===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains a small GPT-2 of eight layers under each schedule on four ranks, with
numbers of microbatches that the ranks do not divide and fewer than ranks, and
under orders from files: PyTorch's own, what `plait-plan schedule` found for uneven
layers, and one drawn at random. Compares with one rank: loss and gradient norm for
three steps, and every parameter's gradient by `plait-run --check`."""

import dataclasses
import json
import pathlib
import random
import sys
import tempfile

import covering
from harness import GOLDEN, ROOT, Reporter, Tools, arguments, require, write_tokens

sys.path.insert(0, str(GOLDEN))
import compare  # noqa: E402

NANO = ROOT / "examples" / "models" / "gpt2-nano" / "config.json"
SEQUENCE, STEPS, LAYERS = 32, 3, 8
# Microbatches are added up in the order in which a schedule takes them; what
# is left is what three steps of Adam make of rounding.
TOLERANCE = {"loss": 1e-6, "grad_norm": 1e-5}


@dataclasses.dataclass(frozen=True)
class Run:
    microbatches: int
    options: tuple[str, ...]
    mesh: str = "pp=4"

    @property
    def name(self) -> str:
        words = [word.lstrip("-").split("/")[-1] for word in self.options]
        return "/".join((self.mesh, f"m={self.microbatches}", *words))


# Numbers of microbatches that four ranks do not divide, and seeds of orders, of a
# default run and of --all: what is left over, 3, 2 and 1, comes twice there.
UNEVEN, ALL_UNEVEN = (3, 6, 9), (3, 5, 6, 7, 9)
SEEDS, ALL_SEEDS = 1, 3


def runs(is_all: bool):
    for chunks, schedules in (
        (1, ("gpipe", "1f1b", "zb-h1", "zb-h2", "zb-auto")),
        (2, ("interleaved-1f1b", "breadth-first", "zb-v", "v-half")),
        (2, ("v-min", "dualpipe-v", "zb-auto")),
    ):
        for schedule in schedules:
            options = ("--schedule", schedule, "--chunks", str(chunks))
            yield Run(8, options)
    for microbatches in ALL_UNEVEN if is_all else UNEVEN:
        options = ("--schedule", "interleaved-1f1b", "--chunks", "2")
        yield Run(microbatches, options)
    yield Run(6, ("--schedule", "zb-v"))
    yield Run(3, ("--schedule", "v-half"))
    yield Run(5, ("--schedule", "interleaved-1f1b", "--chunks", "4"), "pp=2")
    for name in (
        "ZBVZeroBubble-4-2-8-comms",
        "DualPipeV-4-2-8",  # overlapped pairs
        "InterleavedZeroBubble-4-2-8",
        "LoopedBFS-2-2-4-comms",
    ):
        ranks, microbatches = name.split("-")[1], name.split("-")[3]
        path = GOLDEN / "schedules" / f"pytorch-{name}.csv"
        yield Run(
            int(microbatches), ("--schedule-file", str(path)), f"pp={ranks}"
        )
    yield Run(8, ("--schedule-file", "searched"))
    for seed in range(ALL_SEEDS if is_all else SEEDS):
        yield Run(6, ("--schedule-file", f"drawn-{seed}"))


def draw(seed: int, ranks: int, microbatches: int) -> str:
    """A sound order: what can run next does, on a rank drawn at random. Half of
    the backward passes are split, and microbatches in no order."""
    choose = random.Random(seed)
    splits = {
        (s, m): choose.random() < 0.5
        for s in range(ranks)
        for m in range(microbatches)
    }
    done, lists = set(), [[] for _ in range(ranks)]
    left = {
        (s, kind, m)
        for (s, m), split in splits.items()
        for kind in (("F", "I", "W") if split else ("F", "B"))
    }

    def is_ready(s: int, kind: str, m: int) -> bool:
        if kind == "W":
            return (s, "I", m) in done
        if kind == "F":
            return s == 0 or (s - 1, "F", m) in done
        behind = s + 1 == ranks or any(
            (s + 1, other, m) in done for other in ("B", "I")
        )
        return (s, "F", m) in done and behind

    while left:
        ready = sorted(x for x in left if is_ready(*x))
        stage, kind, microbatch = choose.choice(ready)
        left.remove((stage, kind, microbatch))
        done.add((stage, kind, microbatch))
        lists[stage].append(f"{stage}{kind}{microbatch}")
    return "\n".join(",".join(cells) for cells in lists) + "\n"


class Suite:
    def __init__(self, tools: Tools, report: Reporter, folder: pathlib.Path):
        self.tools = tools
        self.report = report
        self.folder = folder
        self.references: dict[int, list[dict]] = {}
        config = json.loads(NANO.read_text())
        config["n_layer"] = LAYERS
        (folder / "config.json").write_text(json.dumps(config))
        write_tokens(folder / "tokens.bin", 7, 9 * 4 * (SEQUENCE + 1), 256)
        self.write_orders()

    def write_orders(self) -> None:
        for seed in range(ALL_SEEDS):
            (self.folder / f"drawn-{seed}").write_text(draw(seed, 4, 6))
        layer = {"f": 1, "b": 1.3, "w": 0.7}
        costs = {"stages": 4, "microbatches": 8, "layers": [layer] * LAYERS}
        (self.folder / "costs.json").write_text(json.dumps(costs))
        self.tools.run(
            *("plait-plan", "schedule", "--kind", "auto"),
            *("--costs", self.folder / "costs.json"),
            *("--csv", self.folder / "searched"),
        )

    def train(self, run: Run) -> list[dict]:
        plan, log = self.folder / "a.plan", self.folder / "log.jsonl"
        log.unlink(missing_ok=True)
        self.tools.run(
            *("plaitc", self.folder, "--mesh", run.mesh, *run.options),
            *("--global-batch", run.microbatches, "--micro-batch", 1),
            *("--seq", SEQUENCE, "-o", plan),
            cwd=self.folder,
        )
        data = ("--tokens", self.folder / "tokens.bin")
        if run.options:
            self.tools.run("plait-run", plan, "--check", *data)
        self.tools.run("plait-run", plan, "--steps", STEPS, "--log", log, *data)
        return [json.loads(line) for line in log.read_text().splitlines()]

    def check(self, run: Run) -> str:
        batch = run.microbatches
        if batch not in self.references:
            self.references[batch] = self.train(Run(batch, (), "pp=1"))
        rows = compare.differences(self.references[batch], self.train(run))
        require(len(rows) == STEPS, f"{len(rows)} steps")
        worst = {key: max(row[key] for row in rows) for key in TOLERANCE}
        remark = ", ".join(f"{key} off {x:.2g}" for key, x in worst.items())
        for key, bound in TOLERANCE.items():
            require(worst[key] <= bound, remark)
        return remark


def main() -> int:
    parser = arguments(__doc__)
    covering.add_option(parser)
    options = parser.parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("schedules", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(tools, report, pathlib.Path(folder))
        for run in runs(covering.takes_all(options)):
            report.case(run.name, lambda run=run: suite.check(run))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
