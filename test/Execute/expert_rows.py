#!/usr/bin/env python3
#===- expert_rows.py - Rows of experts over ranks ---------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Ranks that exchange rows of experts add up in the order of one rank: what the layers
make of tokens has the same bits with ep and with dp in its place. So the loss has, and
the gradients of what comes behind the layers. Those before have them up to how kernels
are fused around routers. A step of processes has the bits of one of threads.

Routers whose weights are zero find all experts equal, and take the first ones for every
token: all rows go to one rank, or to few, and most experts have none. Losses and
gradients are those of one rank, and the memory of a plan is what it says."""

import pathlib
import shutil
import sys
import tempfile

import numpy

import processes as base
from harness import GOLDEN, Reporter, Tools, arguments, require, write_floats
from tensors import read_tensors

sys.path.insert(0, str(GOLDEN))
import compare  # noqa: E402

BATCH, SEQUENCE = 8, 32
ROWS = ("--expert-exchange", "rows")
RATE = ("--lr", 1, "--beta1", 0, "--grad-clip", 0, "--weight-decay", 0)


class Suite(base.Suite):
    def build(self, model, mesh: str, *options) -> pathlib.Path:
        plan = self.folder / f"{mesh}.plan"
        self.tools.run(
            "plaitc", GOLDEN / model, "--mesh", mesh, "--optimizer", "sgd",
            *("--global-batch", BATCH, "--micro-batch", 1), *options, "-o", plan,
        )  # fmt: skip
        return plan

    def train(self, model, plan, weights=None, processes=0) -> tuple[float, dict]:
        """The loss of a step, and all parameters after it."""
        log, saved = self.folder / "log.jsonl", self.folder / "saved"
        log.unlink(missing_ok=True)
        shutil.rmtree(saved, ignore_errors=True)
        words = (
            plan, "--threads", 1, "--steps", 1, *RATE,
            *("--tokens", GOLDEN / model / "tokens.bin", "--seed", 3),
            *("--weights", weights or GOLDEN / model / "model.safetensors"),
            *("--log", log, "--save", saved),
        )  # fmt: skip
        if processes:
            done = self.mpirun(processes, *words)
            require(done.code == 0, done.stdout + done.stderr)
        else:
            self.tools.run("plait-run", *words)
        loss = compare.read_steps(str(log))[0]["loss"]
        return loss, read_tensors(saved / "model.safetensors")

    def same_bits(self, model, *options) -> str:
        sequence = ("--seq", SEQUENCE, "--no-reference", *options)
        ranks = 4
        expected, made = self.train(model, self.build(model, f"dp={ranks}", *sequence))
        plan = self.build(model, f"ep={ranks}", *sequence, *ROWS)
        loss, found = self.train(model, plan)
        require(loss == expected, f"loss {loss!r}, with dp {expected!r}")
        for name in ("lm_head.weight", "model.norm.weight"):
            same = numpy.array_equal(found[name], made[name])
            require(same, f"{name} has other bits with dp")
        if not shutil.which("mpirun"):
            return "no mpirun"
        # Of two processes each has ranks that read each other's memory.
        for processes in (2, ranks):
            other, apart = self.train(model, plan, processes=processes)
            require(loss == other, f"loss {other!r}, with threads {loss!r}")
            for name, values in found.items():
                same = numpy.array_equal(apart[name], values)
                require(same, f"{name} has other bits with {processes} processes")
        return ""

    def skewed(self, model, mesh: str, sequence: int, *options) -> None:
        weights = self.folder / "skewed.safetensors"
        tensors = read_tensors(GOLDEN / model / "model.safetensors")
        routers = [x for x in tensors if x.endswith((".gate.weight", "router.weight"))]
        require(bool(routers), f"no routers among {list(tensors)}")
        for name in routers:
            tensors[name] = numpy.zeros_like(tensors[name])
        write_floats(weights, tensors)
        plan = self.build(model, mesh, "--seq", sequence, *ROWS, *options)
        self.tools.run("plait-run", plan, "--weights", weights, "--check")


def main() -> int:
    options = arguments(__doc__).parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("expert-rows", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(tools, report, pathlib.Path(folder))
        for name, more in (
            ("mixtral", ()),
            ("qwen3-moe", ("--recompute", "full")),
            ("deepseek-v3", ("--expert-chunks", 2)),
        ):
            model = f"{name}-small-test"
            report.case(
                f"same-bits/{name}",
                lambda model=model, more=more: suite.same_bits(model, *more),
            )
        for model, mesh, sequence, more in (
            ("mixtral-small-test", "ep=2", SEQUENCE, ()),
            ("mixtral-small-test", "ep=4", 1, ()),
            ("qwen3-moe-small-test", "dp=2,ep=4", 5, ("--zero", 2)),
            ("olmoe-small-test", "ep=2,tp=2", SEQUENCE, ("--expert-chunks", 4)),
        ):
            name = "/".join(str(x).removeprefix("--") for x in (mesh, sequence, *more))
            report.case(
                f"skewed/{model.removesuffix('-small-test')}/{name}",
                lambda model=model, mesh=mesh, sequence=sequence, more=more: suite.skewed(
                    model, mesh, sequence, *more
                ),
            )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
