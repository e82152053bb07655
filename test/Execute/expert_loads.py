#!/usr/bin/env python3
#===- expert_loads.py - Uneven loads of experts -----------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Tokens whose experts are known before a run, by the eight workloads of Megatron-LM's
benchmark of imbalance (pull request 7488) and some more, against an exact oracle. A token's number says
which experts it takes: its embedding points at them, the router is the identity, and
attention adds nothing. So the load of experts, the rows that go between ranks and the
rounds that they go in are counted from the tokens alone. What a run reports and what its
processes send have to be that, to the token, the byte and the message.

Losses are those of dp in place of ep, bit for bit, and what a process holds at most is the
same, to the byte, whatever the routing."""

import dataclasses
import itertools
import json
import pathlib
import sys
import tempfile
from collections.abc import Callable

import numpy

import processes as base
from harness import (
    GOLDEN,
    Reporter,
    Tools,
    arguments,
    require,
    write_floats,
)
from tensors import read_tensors

sys.path.insert(0, str(GOLDEN))
import compare  # noqa: E402

RANKS, EXPERTS, CHOICES = 4, 16, 2
OWN = EXPERTS // RANKS  # experts of a rank
SEQUENCE, HIDDEN = 512, 512
STEPS = 2
# Of each pair of ranks, there and back, as many rows as fit its share of 4 MB.
ROUND = (4 << 20) // (2 * RANKS) // (4 * HIDDEN)


def spread(token: int, width: int = EXPERTS, first: int = 0) -> list[int]:
    """Experts in turn, from `first` on."""
    return [first + (token * CHOICES + choice) % width for choice in range(CHOICES)]


def hot(token: int, experts: list[int]) -> list[int]:
    """Three tokens of four take `experts`, in turns; others spread."""
    if token % 4 == 3:
        return spread(token // 4)
    return [experts[(token + choice) % len(experts)] for choice in range(CHOICES)]


def ragged(source: int, token: int) -> list[int]:
    """The first ranks send nothing, the last ones all that they have."""
    target = source if source < RANKS // 2 else (source + 1 + token % 3) % RANKS
    return spread(token, OWN, target * OWN)


def rotating(step: int, token: int) -> list[int]:
    return spread(token, OWN, step % RANKS * OWN)


# (step, rank, token of the rank) -> its experts, the first choice first. All ranks have
# as many tokens, since plans say so: at the sources of W4 it is uneven what leaves them.
WORKLOADS: dict[str, Callable[[int, int, int], list[int]]] = {
    "W0-balanced": lambda step, source, token: spread(token),
    "W1-hot-experts": lambda step, source, token: hot(token, [0, 1, 2, 3]),
    "W2-hot-rank": lambda step, source, token: spread(token, OWN, OWN),
    "W3-spread-hot-experts": lambda step, source, token: hot(token, [0, 5, 10, 15]),
    "W4-ragged-sources": lambda step, source, token: ragged(source, token),
    "W5-ranks-without-rows": lambda step, source, token: [token % 3, 8 + token % 4],
    "W6-rotating": lambda step, source, token: rotating(step, token),
    "W7-burst": lambda step, source, token: [15, 14] if step == 1 else spread(token),
    "one-expert": lambda step, source, token: [7, source * OWN],
}
# No rows leave their ranks.
STAYING = lambda step, source, token: spread(token, OWN, source * OWN)  # noqa: E731


@dataclasses.dataclass
class Counts:
    """What the processes of a run do."""

    sent: int = 0  # bytes
    messages: int = 0
    held: tuple[int, ...] = ()  # bytes, by rank


class Oracle:
    """Counts what a workload makes of a step."""

    def __init__(self, workload, step: int):
        self.experts = [
            [workload(step, source, token) for token in range(SEQUENCE)]
            for source in range(RANKS)
        ]

    def load(self) -> float:
        """The mean over sequences of the most tokens that an expert has, over the mean."""
        most = [max(numpy.bincount(numpy.ravel(x))) for x in self.experts]
        return sum(most) / RANKS / (SEQUENCE * CHOICES / EXPERTS)

    def pairs(self) -> list[tuple[int, int]]:
        """Tokens that go from one rank to another, and rows that come back, of all
        pairs."""
        found = []
        for source, target in itertools.permutations(range(RANKS), 2):
            there = [
                sum(expert // OWN == target for expert in experts)
                for experts in self.experts[source]
            ]
            found.append((sum(x > 0 for x in there), sum(there)))
        return found

    def counts(self, dispatches: int, combines: int) -> Counts:
        counts = Counts()
        for tokens, rows in self.pairs():
            for times, number in ((dispatches, tokens), (combines, rows)):
                counts.sent += times * number * HIDDEN * 4
                counts.messages += times * -(-number // ROUND)
        return counts


class Suite(base.Suite):
    def begin(self) -> None:
        """A model whose routing is known, plans, and what a step does of which no rows
        leave their ranks."""
        self.log = self.folder / "log.jsonl"
        self.model, self.weights = self.folder / "model", self.folder / "w.safetensors"
        self.model.mkdir()
        config = json.loads((GOLDEN / "mixtral-small-test" / "config.json").read_text())
        config |= {
            "hidden_size": HIDDEN,
            "num_hidden_layers": 1,
            "num_experts_per_tok": CHOICES,
            "num_local_experts": EXPERTS,
            "vocab_size": EXPERTS * EXPERTS,
            "max_position_embeddings": SEQUENCE,
        }
        (self.model / "config.json").write_text(json.dumps(config))
        self.plans = {axis: self.build(axis) for axis in ("ep", "dp")}
        self.tools.run(
            "plait-run", self.plans["dp"], "--threads", 1, "--steps", 1, "--lr", 0,
            "--tokens", self.write_data(STAYING), "--save", self.folder / "saved",
        )  # fmt: skip
        tensors = {
            name: values.copy()
            for name, values in read_tensors(self.folder / "saved/model.safetensors").items()
        }
        embedding = tensors["model.embed_tokens.weight"]
        for token in range(len(embedding)):
            embedding[token, :EXPERTS] = 0
            for place, expert in enumerate(divmod(token, EXPERTS)):
                embedding[token, expert] = 4 - place
        (router,) = (x for x in tensors if x.endswith("gate.weight"))
        tensors[router] = numpy.eye(EXPERTS, HIDDEN, dtype=numpy.float32)
        (output,) = (x for x in tensors if x.endswith("o_proj.weight"))
        tensors[output] = numpy.zeros_like(tensors[output])
        write_floats(self.weights, tensors)
        _, self.staying = self.together(STAYING)

    def build(self, axis: str) -> pathlib.Path:
        plan = self.folder / f"{axis}.plan"
        rows = ("--expert-exchange", "rows") if axis == "ep" else ()
        self.tools.run(
            "plaitc", self.model, "--mesh", f"{axis}={RANKS}", *rows,
            *("--global-batch", RANKS, "--micro-batch", 1, "--seq", SEQUENCE),
            *("--optimizer", "sgd", "--recompute", "none", "--balance", "load"),
            *("--no-reference", "--dump-phases-to", self.folder / "phases", "-o", plan),
        )  # fmt: skip
        if axis == "ep":
            lowered = (self.folder / "phases" / "7-lower.mlir").read_text()
            self.dispatches = lowered.count("= dist.dispatch ")
            self.combines = lowered.count("= dist.combine ")
        return plan

    def write_data(self, workload) -> pathlib.Path:
        """Sequences of all steps, of a step by rank. A sequence ends with a target that
        is the next one's first token."""
        tokens = [
            first * EXPERTS + second
            for step in range(STEPS)
            for source in range(RANKS)
            for first, second in (
                workload(step, source, token) for token in range(SEQUENCE)
            )
        ]
        numpy.array([*tokens, 0], numpy.uint16).tofile(self.tokens)
        return self.tokens

    def words(self, axis: str, workload) -> list:
        words = [self.plans[axis], "--threads", 1, "--steps", STEPS, "--weights"]
        words += [self.weights, "--lr", 0, "--weight-decay", 0]
        self.log.unlink(missing_ok=True)
        return [*words, "--tokens", self.write_data(workload), "--log", self.log]

    def alone(self, workload) -> list[dict]:
        """The steps of ranks of dp, which have all experts each."""
        words = self.words("dp", workload)
        self.tools.run("plait-run", *words)
        return compare.read_steps(str(self.log))

    def together(self, workload) -> tuple[list[dict], Counts]:
        """The steps of ranks of ep, each a process, and what these do."""
        sent, memory = self.folder / "sent", self.folder / "memory"
        for path in (sent, memory):
            path.unlink(missing_ok=True)
        libraries = [self.preload(x) for x in ("count_sent", "count_memory")]
        given = {"COUNT_SENT": sent, "COUNT_LEAST": 4 * HIDDEN, "COUNT_MEMORY": memory}
        words = self.words("ep", workload)
        done = self.mpirun_counted(RANKS, libraries, given, *words)
        require(done.code == 0, done.stdout + done.stderr)
        lines = [line.split() for line in sent.read_text().splitlines()]
        held = [line.split() for line in memory.read_text().splitlines()]
        counts = Counts(*(sum(map(int, column)) for column in zip(*lines)))
        counts.held = tuple(int(most) for _, most in sorted(held))
        return compare.read_steps(str(self.log)), counts

    def check(self, workload) -> str:
        expected, (found, counts) = self.alone(workload), self.together(workload)
        wanted = dataclasses.replace(self.staying)
        loads = []
        for step in range(STEPS):
            oracle = Oracle(workload, step)
            loads.append(oracle.load())
            # A quotient of numbers below 2^24, and a mean of four.
            told = [float(steps[step]["losses"]["load"]) for steps in (found, expected)]
            require(told == [loads[-1]] * 2, f"loads {told} of {loads[-1]}, step {step}")
            losses = [steps[step]["loss"] for steps in (found, expected)]
            require(losses[0] == losses[1], f"losses {losses} in step {step}")
            more = oracle.counts(self.dispatches, self.combines)
            wanted.sent += more.sent
            wanted.messages += more.messages
        require(counts == wanted, f"{counts} counted, {wanted} expected")
        return "loads " + ", ".join(f"{load:g}" for load in loads)


def main() -> int:
    options = arguments(__doc__).parse_args()
    report = Reporter("expert-loads", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(Tools(options.bin, options.timeout), report, pathlib.Path(folder))
        suite.begin()
        for name, workload in WORKLOADS.items():
            report.case(name, lambda x=workload: suite.check(x))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
