#!/usr/bin/env python3
#===- target_weights.py - Targets that count by weights ----*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains GPT-2 and Llama with `target-weights` over meshes and options, and in PyTorch
in fp64: with weights of 0 and 1 by F.cross_entropy and its ignore_index, of which a
microbatch may have none, and with other weights by their definition. Loss and gradient
norm agree for three steps. Means of microbatches or of rows would not pass.

Runs under an interpreter with PyTorch and NumPy, Debian's."""

import functools
import json
import pathlib
import sys
import tempfile

import numpy
import torch

import covering
from harness import Reporter, Tools, arguments, require
from masks import models, training
from masks.runs import (
    BATCH,
    BF16,
    FLASH,
    FULL,
    HEADS,
    SELECTIVE,
    SEQUENCE,
    SP,
    STEPS,
    TOLERANCE,
    VOCABULARY,
    ZIGZAG,
    Run,
    RunSuite,
)
from masks.training import draw_weights, excess

MODELS = models.WITHOUT_DROPOUT
CHUNKS = ("--loss-chunks", "2")

RUNS = (
    *(
        Run(model, mesh, options)
        for model in MODELS
        for mesh, options in (
            ("pp=1", ()),
            ("pp=1", FULL + BF16),
            ("pp=2", FULL),
            ("dp=2", FLASH),
            ("tp=2", SP),
            ("cp=2", ()),
            ("dp=4", ("--zero", "3")),
            ("pp=2,dp=2,tp=2", SP + ("--zero", "2")),
        )
    ),
    Run("gpt2", "pp=1", CHUNKS + ("--micro-batch", "4")),
    Run("llama", "tp=2", CHUNKS + ("--micro-batch", "2")),
    Run("gpt2", "pp=2", FLASH + ("--schedule", "zb-v", "--chunks", "2")),
    Run("gpt2", "pp=1", ("--micro-batch", "4",) + SELECTIVE),
    Run("gpt2", "dp=8"),
    Run("gpt2", "cp=4", HEADS),
    Run("llama", "dp=2,cp=2", ZIGZAG + FLASH + FULL),
    Run("llama", "cp=2,tp=2", ZIGZAG + SP),
    Run("gpt2", "pp=2,dp=2,tp=2", BF16 + ("--zero", "1")),
)


def mean_of_mask(logits, targets, weights):
    """PyTorch's own, as fine-tuning has it."""
    masked = torch.where(weights.bool(), targets, -100)
    return torch.nn.functional.cross_entropy(logits, masked, ignore_index=-100)


def mean_by_weight(logits, targets, weights):
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    return (losses * weights).sum() / weights.sum()


def mean_of_rows(logits, targets, weights):
    """A mistake: each row that has targets counts as much as any other."""
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    sums, counts = (
        x.reshape(BATCH, SEQUENCE).sum(1) for x in (losses * weights, weights)
    )
    return (sums[counts > 0] / counts[counts > 0]).mean()


def mean_of_all(logits, targets, weights):
    """A mistake: what is not learned counts in what is divided by."""
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    return (losses * weights).mean()


class Suite(RunSuite):
    def __init__(self, tools: Tools, report: Reporter, folder: pathlib.Path):
        super().__init__(tools, report, folder, MODELS)
        random = numpy.random.default_rng(3)
        rows = STEPS * BATCH
        self.tokens = random.integers(0, VOCABULARY, (rows, SEQUENCE + 1))
        # Answers of different lengths at the ends of rows; every fourth row has none.
        begins = random.integers(1, SEQUENCE, rows)
        begins[::4] = SEQUENCE
        self.weights = {
            "mask": (numpy.arange(SEQUENCE) >= begins[:, None]).astype("<f4"),
            "weight": random.random((rows, SEQUENCE)).astype("<f4"),
        }
        for kind, weights in self.weights.items():
            self.write(self.folder / f"{kind}.rows", self.tokens, weights)

    @staticmethod
    def write(path: pathlib.Path, tokens, weights) -> None:
        ids = tokens.astype("<i4").view("<f4")
        numpy.concatenate([ids, weights], axis=1).tofile(path)

    def start(self, run: Run, plan: pathlib.Path, kind: str = "mask") -> list:
        return [
            plan,
            *("--tokens", self.folder / f"{kind}.rows"),
            *("--weights", self.folder / run.model / "weights.safetensors"),
        ]

    def train(self, model: str, mean, kind: str = "mask") -> list[dict]:
        def measure(logits, targets, step):
            now = slice((step - 1) * BATCH, step * BATCH)
            weights = torch.from_numpy(self.weights[kind][now]).double()
            return mean(logits, targets, weights.flatten())

        def forward(weights, step, tokens):
            return models.logits(MODELS[model], weights, tokens, models.keep)

        rows = torch.from_numpy(self.tokens).reshape(STEPS, BATCH, SEQUENCE + 1)
        return training.train(draw_weights(MODELS[model]), rows, forward, measure)

    @functools.cache
    def expected(self, model: str) -> list[dict]:
        return self.train(model, mean_of_mask)

    #===-- Cases ----------------------------------------------------------===#

    def check_run(self, run: Run) -> str:
        plan = self.compile(run, "--target-weights", "--no-reference")
        return self.compare(run, self.steps(run, plan))

    def check_weights(self, model: str) -> str:
        """Weights that are no mask. The number of targets is their sum."""
        run = Run(model, "dp=2,tp=2")
        plan = self.compile(run, "--target-weights", "--no-reference")
        log = self.folder / "steps.jsonl"
        log.unlink(missing_ok=True)
        self.tools.run(
            "plait-run",
            *self.start(run, plan, "weight"),
            *("--log", log, "--steps", STEPS, *training.OPTIONS),
        )
        found = [json.loads(line) for line in log.read_text().splitlines()]
        off = excess(found, self.train(model, mean_by_weight, "weight"), TOLERANCE)
        require(off <= 1, f"{off:.3g} of what is allowed")
        return f"{off:.2g} of what is allowed"

    def check_mistake(self, model: str, mean) -> str:
        wrong = self.train(model, mean)
        off = excess(wrong, self.expected(model), TOLERANCE)
        require(off > 10, f"only {off:.3g} times what is allowed")
        return f"{off:.0f} times what is allowed"

    def check_evaluation(self) -> str:
        """Held-out steps that count nothing leave the mean as it is; one that is all
        there is has none."""
        run = Run("llama", "pp=2,tp=2")
        plan = self.compile(run, "--target-weights", "--no-reference")
        none = numpy.zeros((BATCH, SEQUENCE), "<f4")
        tokens, mask = self.tokens[:BATCH], self.weights["mask"][:BATCH]
        uneven, empty = (self.folder / f"{name}.rows" for name in ("uneven", "empty"))
        self.write(uneven, numpy.tile(tokens, (2, 1)), numpy.concatenate([none, mask]))
        self.write(empty, tokens, none)
        lines = self.evaluate(run, plan, "--eval-tokens", uneven)
        off = self.check_held_out(run, lines)
        counted = int(mask.sum())
        require(lines[0]["tokens"] == counted, f"{lines[0]}, expected {counted}")
        outcome = self.tools.call(
            "plait-run", *self.start(run, plan), "--lr", 0, "--steps", 1,
            *("--eval-tokens", empty),
        )  # fmt: skip
        message = "evaluation: its 1 steps count 0 tokens"
        require(
            outcome.code == 1 and message in outcome.stderr,
            f"ended with {outcome.code}: {outcome.stderr}",
        )
        return f"off by {off:.2g}"

    def check_against_reference(self, run: Run) -> str:
        """plait-run --check compares with one rank, which weighs the same."""
        plan = self.compile(run, "--target-weights")
        text = self.tools.run("plait-run", *self.start(run, plan), "--check").stdout
        return text.splitlines()[-1]

    def check_nothing(self) -> None:
        """A step of which no target counts has no mean: the run ends with a message."""
        run = Run("gpt2", "dp=2")
        weights = self.weights["mask"][: 2 * BATCH].copy()
        weights[BATCH:] = 0
        rows = self.folder / "none.rows"
        self.write(rows, self.tokens[: 2 * BATCH], weights)
        plan = self.compile(run, "--target-weights", "--no-reference")
        outcome = self.tools.call("plait-run", plan, "--tokens", rows, "--steps", 2)
        # Not for a learning rate.
        message = "step 2: the step counts 0 tokens, and the loss is the mean over them\n"
        require(
            outcome.code == 1 and outcome.stderr.endswith(message),
            f"ended with {outcome.code}: {outcome.stderr}",
        )

    def check_errors(self) -> None:
        run = Run("gpt2", "pp=1")
        weighed, plain = (
            self.compile(run, *more, "--no-reference").rename(
                self.folder / f"{name}.plan"
            )
            for name, more in (("weighed", ("--target-weights",)), ("plain", ()))
        )
        rows = self.folder / "mask.rows"
        broken = self.folder / "broken.rows"
        bad = self.weights["mask"].copy()
        bad[0, 3] = numpy.nan
        self.write(broken, self.tokens, bad)
        short = self.folder / "short.rows"
        short.write_bytes(rows.read_bytes()[:-4])
        for plan, data, message in (
            (weighed, short, "bytes, which are no rows of"),
            (weighed, broken, "number 3 of 'target_weights' in row 0"),
            (plain, rows, "the vocabulary has 97"),
        ):
            outcome = self.tools.call(
                "plait-run", plan, "--tokens", data, "--steps", STEPS
            )
            require(
                outcome.code == 1 and message in outcome.stderr,
                f"ended with {outcome.code}: {outcome.stderr}",
            )
        outcome = self.tools.call(
            "plaitc", self.folder / "gpt2", "--target-weights", "--emit", "megatron",
            *("--cluster", "h100:8", "--global-batch", 8, "--seq", 16),
        )
        require(
            outcome.code == 1 and "--emit excludes --target-weights" in outcome.stderr,
            f"ended with {outcome.code}: {outcome.stderr}",
        )

    def check_proof(self) -> None:
        """A rank that counts without weights is not what was asked for."""
        folder = self.folder / "phases"
        self.compile(
            Run("gpt2", "dp=2"),
            *("--target-weights", "--no-reference", "--dump-phases-to", folder),
        )
        text = (folder / "5-partition.mlir").read_text()
        place = text.index("nn.valid")
        name = text[text.rindex("%", 0, place) : place].split()[0]
        product = text.index(f"nn.mul {name}, ", place)
        start = product + len(f"nn.mul {name}, ")
        other = text[start:].split()[0]
        edited = text[:start] + name + text[start + len(other) :]
        for content, proves in ((text, True), (edited, False)):
            (folder / "edited.mlir").write_text(content)
            outcome = self.tools.call(
                "plait-opt",
                *(folder / "edited.mlir", "-o", "/dev/null"),
                f"--plait-prove-meaning=claim={folder / '0-import.mlir'}",
            )
            require(
                (outcome.code == 0) == proves and outcome.code in (0, 1),
                f"ended with {outcome.code}: {outcome.stderr[-2000:]}",
            )

    def run(self, options) -> None:
        case = self.report.case
        for run in covering.chosen(RUNS, Run.choices, options):
            case(run.name, functools.partial(self.check_run, run))
        for run in (
            Run("gpt2", "pp=2,dp=2,tp=2", FLASH),
            Run("llama", "dp=2,cp=2,tp=2", BF16 + FULL),
        ):
            case("check/" + run.name, functools.partial(self.check_against_reference, run))
        for model in MODELS:
            case(f"{model}/weights", functools.partial(self.check_weights, model))
            for mistake in (mean_of_rows, mean_of_all):
                case(
                    f"{model}/mistake/{mistake.__name__}",
                    functools.partial(self.check_mistake, model, mistake),
                )
        for name in ("evaluation", "nothing", "errors", "proof"):
            case(name, getattr(self, f"check_{name}"))


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    covering.add_option(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    report = Reporter("Target weights", options.filter)
    tools = Tools(options.bin, options.timeout)
    with tempfile.TemporaryDirectory() as folder:
        Suite(tools, report, pathlib.Path(folder)).run(options)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
