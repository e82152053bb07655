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
gradients are those of one rank, and the memory of a plan is what it says.

What processes send is counted where they call MPI. It is what the planner's list of
exchanges and the plan's say, where all tokens are exchanged; of rows, as many as the
routing moves, which is known where all go to one rank."""

import json
import pathlib
import shutil
import sys
import tempfile

import numpy

import processes as base
from harness import (
    GOLDEN,
    Reporter,
    Tools,
    arguments,
    require,
    write_floats,
    write_tokens,
)
from tensors import read_tensors

sys.path.insert(0, str(GOLDEN))
import compare  # noqa: E402

BATCH, SEQUENCE = 8, 32
ROWS = ("--expert-exchange", "rows")
# Texts that processes send each other when they begin and end have times in them.
TEXTS = 64  # bytes
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

    def equal_routers(self, model) -> pathlib.Path:
        """Weights with which each token takes the first experts."""
        weights = self.folder / "skewed.safetensors"
        tensors = read_tensors(GOLDEN / model / "model.safetensors")
        routers = [x for x in tensors if x.endswith((".gate.weight", "router.weight"))]
        require(bool(routers), f"no routers among {list(tensors)}")
        for name in routers:
            tensors[name] = numpy.zeros_like(tensors[name])
        write_floats(weights, tensors)
        return weights

    def skewed(self, model, mesh: str, sequence: int, *options) -> None:
        weights = self.equal_routers(model)
        plan = self.build(model, mesh, "--seq", sequence, *ROWS, *options)
        self.tools.run("plait-run", plan, "--weights", weights, "--check")

    def count_sent(self, plan, ranks: int, *data) -> float:
        """Bytes that all processes send in a step."""
        library, told = self.preload("count_sent"), self.folder / "sent"
        totals = []
        for steps in (1, 3):
            told.unlink(missing_ok=True)
            words = (plan, "--threads", 1, "--steps", steps, *data)
            done = self.mpirun_counted(ranks, [library], {"COUNT_SENT": told}, *words)
            require(done.code == 0, done.stdout + done.stderr)
            lines = told.read_text().splitlines()
            totals.append(sum(int(line.split()[0]) for line in lines))
        return (totals[1] - totals[0]) / 2

    def list_sent(self, plan, report) -> float:
        """Bytes that a rank sends in a step: by the plan's list, which has to be the
        planner's."""
        listed = self.folder / "list.json"
        self.tools.run("plait-plan", "exchanges", plan, "--json", listed)
        compiled, predicted = (
            [
                (row["over"], row["in"], row["what"], row["count"], row["sent_bytes"])
                for row in json.loads(path.read_text())["exchanges"][0]
                if row["in"] in ("forward", "backward")
            ]
            for path in (listed, report)
        )
        require(compiled == predicted, f"{predicted} predicted, {compiled} compiled")
        rows = json.loads(listed.read_text())["exchanges"][0]
        return sum(row["sent_bytes"] for row in rows)

    def bytes_sent(self, ranks: int, sequence: int, choices: int, *options) -> str:
        """Of Mixtral, whose tokens take so many experts each, all of the first rank."""
        model = self.folder / "model"
        model.mkdir(exist_ok=True)
        config = json.loads((GOLDEN / "mixtral-small-test" / "config.json").read_text())
        config["num_experts_per_tok"] = choices
        (model / "config.json").write_text(json.dumps(config))
        plan, report = self.folder / "sent.plan", self.folder / "report.json"
        dumped = self.folder / "phases"
        self.tools.run(
            "plaitc", model, "--cluster", f"cpu:{ranks}", "--mesh", f"ep={ranks}",
            *("--global-batch", BATCH, "--micro-batch", 1, "--seq", sequence),
            *("--recompute", "none", "--zero", 0, "--optimizer", "sgd"), *options,
            *("--no-reference", "--dump-phases-to", dumped, "--json", report),
            "-o", plan,
        )  # fmt: skip
        expected = ranks * self.list_sent(plan, report)
        lowered = (dumped / "7-lower.mlir").read_text()
        dispatches = lowered.count("= dist.dispatch ")
        require(bool(dispatches) == ("rows" in options), f"{dispatches} dispatches")
        # A list has even routing. Here no other rank has experts of a token. As many
        # rows come back as ever.
        chunks = options[-1] if "--expert-chunks" in options else 1
        token = BATCH // ranks * sequence // chunks * config["hidden_size"] * 4
        others = ranks - 1
        even = ranks * others * (1 - (1 - 1 / ranks) ** choices)
        expected += dispatches * token * (others - even)
        # What moves routers would have tokens take other experts.
        data = ["--tokens", self.tokens, "--seed", 3, "--lr", 0, "--weight-decay", 0]
        data += ["--weights", self.equal_routers("mixtral-small-test")]
        write_tokens(self.tokens, 3, 4096, config["vocab_size"])
        found = self.count_sent(plan, ranks, *data)
        remark = f"{found:.0f} bytes counted, {expected:.0f} expected"
        require(abs(found - expected) <= TEXTS, remark)
        return remark


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
        for ranks, sequence, choices, more in (
            (2, SEQUENCE, 2, ("--expert-exchange", "tokens")),
            (2, SEQUENCE, 2, ROWS),
            (2, SEQUENCE, 1, ROWS),
            (4, SEQUENCE, 1, ROWS),
            (2, 1, 1, ROWS),
            (2, SEQUENCE, 2, (*ROWS, "--expert-chunks", 4)),
            (4, SEQUENCE, 1, ("--expert-exchange", "tokens", "--expert-chunks", 4)),
        ):
            words = [str(x).removeprefix("--") for x in more[1:]]
            name = "/".join((f"ep={ranks}", f"seq={sequence}", f"k={choices}", *words))
            report.case(
                f"bytes/{name}",
                lambda given=(ranks, sequence, choices, *more): suite.bytes_sent(*given),
            )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
