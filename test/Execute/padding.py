#!/usr/bin/env python3
#===- padding.py - Uneven splits against one rank ---------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains the models of padding/ on meshes that divide none of their extents, and
on one rank, where there is no padding. Loss and gradient norm agree for three
steps, so that values, gradients and updated parameters do.

A model is compiled with parameters pinned to splits that the planner would not
choose at such sizes, with sequence parallelism, or both."""

import pathlib
import sys
import tempfile

import covering
from harness import (
    Failure,
    Reporter,
    Tools,
    arguments,
    require,
    write_tokens,
)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
import compare  # noqa: E402

MODELS = pathlib.Path(__file__).parent / "padding"
BATCH, SEQUENCE, VOCABULARY, STEPS = 2, 9, 13, 3
# Sums of tens of numbers in another order, through three steps of Adam.
TOLERANCE = 1e-5
# What rounding to eight bits does to partial sums in another order.
BF16_TOLERANCE = 2**-7

SEQUENCES = ["--sequence-parallel"]
ROWS = ["--shard", 'embed=[{"tp"},{}]']


def shard(name: str, *dims: str) -> list[str]:
    axes = ",".join(f'{{"{dim}"}}' if dim else "{}" for dim in dims)
    return ["--shard", f"{name}=[{axes}]"]


# Model, ranks of tp, and how it is split.
CASES = (
    ("contraction", 2, SEQUENCES),
    ("contraction", 4, SEQUENCES),
    ("parameter", 4, SEQUENCES),
    ("parameter", 2, SEQUENCES),
    ("reductions", 2, SEQUENCES),
    ("reductions", 4, SEQUENCES),
    ("lookup", 4, shard("positions", "tp", "")),
    ("lookup", 2, ROWS),
    ("hidden", 4, shard("up", "", "tp")),
    ("hidden", 2, shard("scale", "tp")),
    ("named", 2, SEQUENCES),
    ("named", 4, shard("up", "", "tp")),
    ("heads", 2, shard("q", "", "tp", "")),
    ("heads", 4, SEQUENCES),
)
VARIANTS = {
    "fp32": [],
    "recompute": ["--recompute", "full"],
    "bf16": ["--precision", "bf16"],
}


class Suite:
    def __init__(self, tools: Tools, report: Reporter, folder: pathlib.Path):
        self.tools, self.report, self.folder = tools, report, folder
        self.tokens = folder / "tokens.bin"
        # Every id, some more often than others.
        count = (BATCH * 2 + 1) * (SEQUENCE + 1) * STEPS
        write_tokens(self.tokens, 7, count, VOCABULARY)
        self.alone: dict[tuple[str, str], list[dict]] = {}

    def train(self, model: str, mesh: str, dp: int, *options) -> list[dict]:
        plan, log = self.folder / "out.plan", self.folder / "steps.jsonl"
        log.unlink(missing_ok=True)
        self.tools.run(
            "plaitc",
            MODELS / f"{model}.mlir",
            *("--mesh", mesh, "--global-batch", 2 * BATCH),
            *("--micro-batch", BATCH // dp, "--seq", SEQUENCE),
            *options,
            *("--no-reference", "-o", plan),
        )
        self.tools.run(
            "plait-run",
            plan,
            *("--tokens", self.tokens, "--seed", 3, "--steps", STEPS),
            *("--lr", 0.03, "--weight-decay", 0.1, "--log", log),
        )
        return compare.read_steps(str(log))

    def reference(self, model: str, variant: str) -> list[dict]:
        precision = VARIANTS["bf16"] if variant == "bf16" else []
        key = (model, " ".join(precision))
        if key not in self.alone:
            self.alone[key] = self.train(model, "tp=1", 1, *precision)
        return self.alone[key]

    def check(self, model: str, tp: int, split: list, variant: str, dp: int):
        def body():
            expected = self.reference(model, variant)
            mesh = f"dp={dp},tp={tp}" if dp > 1 else f"tp={tp}"
            zero = ["--zero", 1] if dp > 1 else []
            actual = self.train(
                model, mesh, dp, *split, *zero, *VARIANTS[variant]
            )
            rows = compare.differences(expected, actual)
            require(len(rows) == STEPS, f"{len(rows)} steps")
            loss = max(row["loss"] for row in rows)
            norm = max(row["grad_norm"] for row in rows)
            remark = f"loss off {loss:.2g}, norm off {norm:.2g}"
            bound = BF16_TOLERANCE if variant == "bf16" else TOLERANCE
            require(max(loss, norm) <= bound, remark)
            return remark

        how = split[-1].lstrip("-").replace('"', "")
        self.report.case(f"{model}/tp={tp}/{how}/{variant}/dp={dp}", body)


def main() -> int:
    parser = arguments(__doc__)
    covering.add_option(parser)
    options = parser.parse_args()
    takes_all = covering.takes_all(options)
    tools = Tools(options.bin, options.timeout)
    report = Reporter("padding", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(tools, report, pathlib.Path(folder))
        # The variants take turns: what they change is not the padding. In a default
        # run each split is tried in fp32, on one replica or on two.
        for index, (model, tp, split) in enumerate(CASES):
            if takes_all or index % 2 == 0:
                suite.check(model, tp, split, "fp32", 1)
            if index % 2:
                suite.check(model, tp, split, "recompute", 2)
            elif takes_all or index % 4 == 0:
                suite.check(model, tp, split, "bf16", 2)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
