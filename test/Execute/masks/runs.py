#===- runs.py - Training runs against PyTorch's -----------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Runs of the models of models.py over meshes and options, which are to have the
losses and gradient norms of training.py."""

import dataclasses
import json
import pathlib

import covering
from harness import Reporter, Tools, require, write_floats
from masks import training
from masks.training import draw_weights, excess

BATCH, SEQUENCE, STEPS = 8, 16, 3
VOCABULARY = 97
# fp32 against fp64, three steps; the farthest of these runs were off by a tenth:
# with dropout by 3e-7 and 3e-6.
TOLERANCE = {"loss": 2e-6, "grad_norm": 2e-5}
# Eight bits: 2**-9 a rounding, averaged by the loss; the farthest of these runs
# were off by a third of these.
BF16_TOLERANCE = {"loss": 2**-9, "grad_norm": 2**-5}

FULL = ("--recompute", "full")
HEADS = ("--context-parallel", "heads")
ZIGZAG = ("--context-parallel", "zigzag")
SELECTIVE = ("--recompute", "selective")
FLASH = ("--attention", "flash")
BF16 = ("--precision", "bf16")
SP = ("--sequence-parallel",)


@dataclasses.dataclass(frozen=True)
class Run:
    model: str
    mesh: str
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        words = [word.lstrip("-") for word in self.options]
        return "/".join((self.model, self.mesh, *words))

    def choices(self) -> dict:
        """What covering.py tells runs apart by."""
        return {"model": self.model} | covering.split_options(self.mesh, self.options)

    @property
    def tolerance(self) -> dict[str, float]:
        return BF16_TOLERANCE if "bf16" in self.options else TOLERANCE


class RunSuite:
    """Configs and weights of `models` in `folder`, where a suite of its own adds
    tokens.bin and what PyTorch expects of a model."""

    def __init__(self, tools: Tools, report: Reporter, folder: pathlib.Path, models):
        self.tools, self.report, self.folder = tools, report, folder
        for name, config in models.items():
            (folder / name).mkdir()
            self.write_config(name, config)
            write_floats(folder / name / "weights.safetensors", draw_weights(config))

    def write_config(self, name: str, config: dict) -> None:
        (self.folder / name / "config.json").write_text(json.dumps(config))

    def compile(self, run: Run, *more) -> pathlib.Path:
        plan = self.folder / "run.plan"
        micro = () if "--micro-batch" in run.options else ("--micro-batch", 1)
        self.tools.run(
            "plaitc",
            self.folder / run.model / "config.json",
            *("--mesh", run.mesh, *run.options, *micro),
            *("--global-batch", BATCH, "--seq", SEQUENCE, "-o", plan),
            *more,
        )
        return plan

    def start(self, run: Run, plan: pathlib.Path) -> list:
        return [
            plan,
            *("--tokens", self.folder / "tokens.bin"),
            *("--weights", self.folder / run.model / "weights.safetensors"),
        ]

    def steps(self, run: Run, plan: pathlib.Path, *more) -> list[dict]:
        log = self.folder / "steps.jsonl"
        log.unlink(missing_ok=True)
        self.tools.run(
            "plait-run",
            *self.start(run, plan),
            *("--log", log, "--steps", STEPS, *training.OPTIONS, *more),
        )
        return [json.loads(line) for line in log.read_text().splitlines()]

    def evaluate(self, run: Run, plan: pathlib.Path, *more) -> list[dict]:
        """The log of a step that changes nothing, and is evaluated."""
        log = self.folder / "steps.jsonl"
        log.unlink(missing_ok=True)
        self.tools.run(
            "plait-run",
            *self.start(run, plan),
            *("--lr", 0, "--steps", 1, "--log", log),
            *more,
        )
        return [json.loads(line) for line in log.read_text().splitlines()]

    def check_held_out(self, run: Run, lines: list[dict]) -> float:
        """The loss on data that is held out is that of the first step."""
        found = [line["eval_loss"] for line in lines if "eval_loss" in line]
        expected = self.expected(run.model)[0]["loss"]
        require(len(found) == 1, f"{len(found)} evaluations in {lines}")
        off = abs(found[0] / expected - 1)
        require(off < TOLERANCE["loss"], f"{found}, expected {expected}")
        return off

    def compare(self, run: Run, found: list[dict]) -> str:
        expected = self.expected(run.model)
        off = excess(found, expected, run.tolerance)
        require(
            off <= 1, f"{off:.3g} of what is allowed: {found}, expected {expected}"
        )
        return f"{off:.2g} of what is allowed"
