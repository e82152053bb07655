#!/usr/bin/env python3
#===- dropout.py - Training with dropout against PyTorch --*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains a GPT-2 with all three of its dropouts, and a Llama with that of its
attention, over meshes and options, and in PyTorch in fp64, where the masks are
those of a second implementation of the hash (masks/draw.py). Loss and gradient
norm agree for three steps: every rank, microbatch, layer and recomputation has
drawn the mask that it is to draw. That other masks would not pass is tested, too.

Runs under an interpreter with PyTorch and NumPy, Debian's."""

import array
import functools
import pathlib
import re
import sys
import tempfile

import torch

import covering
from harness import (
    Reporter,
    Tools,
    arguments,
    require,
    write_tokens,
)
from masks import draw, models, training
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

SEED = 7
MODELS = {"gpt2": models.GPT2, "llama": models.LLAMA}


RUNS = (
    *(
        Run(model, mesh, options)
        for model in MODELS
        for mesh, options in (
            ("pp=1", ()),
            ("pp=1", FLASH),
            ("pp=1", BF16),
            ("pp=1", FULL + FLASH + BF16),
            ("pp=2", FULL),
            ("pp=2,tp=2", SELECTIVE + SP),
            ("dp=2", SELECTIVE + FLASH + BF16),
            ("pp=4", ("--schedule", "gpipe")),
            ("dp=2", ("--zero", "3")),
            ("dp=4", FULL),
            ("cp=2", ()),
            ("cp=4", FLASH),
            ("tp=2", ()),
            ("tp=2", SP + FULL),
            ("tp=2", FLASH),
            ("dp=2,cp=2,tp=2", FLASH + FULL),
            ("pp=2,dp=2,tp=2", SP + ("--zero", "2")),
            ("pp=2,dp=2", BF16 + ("--schedule", "zb-h1")),
            ("pp=2", ("--schedule", "zb-v", "--chunks", "2")),
            ("pp=1", ("--epilogues", "all")),
        )
    ),
    Run("gpt2", "tp=4", SP),
    Run("gpt2", "pp=2,cp=2,tp=2", FULL),
    Run("gpt2", "pp=1", ("--micro-batch", "4")),
    Run("gpt2", "dp=2,cp=2,tp=2", HEADS + FLASH),
    Run("gpt2", "cp=4", HEADS + FULL),
    Run("llama", "cp=2", HEADS),
    Run("gpt2", "dp=2,cp=2,tp=2", ZIGZAG + FLASH),
    Run("gpt2", "cp=4", ZIGZAG + FULL),
    Run("gpt2", "cp=2,tp=2", ZIGZAG + SP),
    Run("llama", "cp=2", ZIGZAG + FLASH + BF16),
    Run("llama", "dp=2,cp=2", HEADS + FLASH + BF16),
)

# Masks that are not what they are to be: another seed, or those that should
# differ do not.
MISTAKES = {
    "seed": lambda step, row, site: (SEED + 1, step, row, site),
    "steps": lambda step, row, site: (SEED, 1, row, site),
    "microbatches": lambda step, row, site: (SEED, step, row % 4, site),
    "data-parallel ranks": lambda step, row, site: (SEED, step, row // 2, site),
    "layers": lambda step, row, site: (SEED, step, row, site % 3),
}


def get_choices(run: Run) -> dict:
    return {"model": run.model} | covering.split_options(run.mesh, run.options)


class Drop:
    """The dropouts of one forward pass, in order."""

    def __init__(self, step: int, numbers):
        self.step, self.numbers, self.site = step, numbers, 0

    def __call__(self, x: torch.Tensor, probability: float) -> torch.Tensor:
        if not probability:
            return x
        site, self.site = self.site, self.site + 1
        masks = []
        for row in range(len(x)):
            seed, step, number, at = self.numbers(self.step, row, site)
            key = draw.keys(seed, step, [number])
            masks.append(draw.mask(key, at, (1, *x.shape[1:]), probability)[0])
        return x * torch.stack([torch.from_numpy(mask) for mask in masks]).to(x)


def train(config: dict, tokens: list[int], numbers) -> list[dict]:
    """Loss and gradient norm of each step."""

    def forward(weights: dict, step: int, rows) -> torch.Tensor:
        return models.logits(config, weights, rows, Drop(step, numbers))

    return training.train(
        draw_weights(config), training.cut(tokens, STEPS, BATCH, SEQUENCE), forward
    )


def correct(step: int, row: int, site: int):
    return SEED, step, row, site


class Suite(RunSuite):
    def __init__(self, tools: Tools, report: Reporter, folder: pathlib.Path):
        super().__init__(tools, report, folder, MODELS)
        path = folder / "tokens.bin"
        write_tokens(path, 5, STEPS * BATCH * SEQUENCE + 1, VOCABULARY)
        self.tokens = array.array("H", path.read_bytes()).tolist()

    @functools.cache
    def expected(self, model: str) -> list[dict]:
        return train(MODELS[model], self.tokens, correct)

    def steps(self, run: Run, plan: pathlib.Path, *more) -> list[dict]:
        return super().steps(run, plan, "--seed", SEED, *more)

    #===-- Cases ----------------------------------------------------------===#

    def check_run(self, run: Run) -> str:
        plan = self.compile(run, "--no-reference")
        return self.compare(run, self.steps(run, plan))

    def check_against_reference(self, run: Run) -> str:
        """plait-run --check compares with one rank, which draws the same."""
        plan = self.compile(run)
        text = self.tools.run("plait-run", plan, "--check", "--seed", 3).stdout
        return text.splitlines()[-1]

    def check_mistake(self, model: str, mistake: str) -> str:
        """The least that a mistake makes, over what is allowed."""
        wrong = train(MODELS[model], self.tokens, MISTAKES[mistake])
        off = excess(wrong, self.expected(model), TOLERANCE)
        require(off > 10, f"only {off:.3g} times what is allowed")
        return f"{off:.0f} times what is allowed"

    def check_off(self, model: str) -> str:
        """As if the config said 0, to the bit."""
        config = dict(MODELS[model])
        for field in config:
            if re.search("pdrop|dropout", field):
                config[field] = 0.0
        off = self.steps(
            Run(model, "pp=1"), self.compile(Run(model, "pp=1"), "--dropout", "off")
        )
        self.write_config(model, config)
        never = self.steps(Run(model, "pp=1"), self.compile(Run(model, "pp=1")))
        self.write_config(model, MODELS[model])
        for name in TOLERANCE:
            require(
                [step[name] for step in off] == [step[name] for step in never],
                f"{name} differs: {off} and {never}",
            )
        far = excess(off, self.expected(model), TOLERANCE)
        require(far > 10, "dropout makes no difference")

    def check_gpu_attention(self) -> None:
        """What cuDNN cannot do is refused, or done otherwise with a note."""
        run = Run("gpt2", "pp=1", BF16)
        gpu = ("--backend", "cuda", "--target", "sm_90")
        text = self.tools.call(
            "plaitc",
            self.folder / "gpt2" / "config.json",
            *("--seq", SEQUENCE, *BF16, *gpu, *FLASH, "-o", self.folder / "x.plan"),
        )
        require(
            text.code == 1
            and "--attention unfused" in text.stderr
            and "--dropout off" in text.stderr,
            f"ended with {text.code}: {text.stderr}",
        )
        for more, notes in (((), 1), (("--dropout", "off"), 0)):
            outcome = self.tools.run(
                "plaitc",
                self.folder / run.model / "config.json",
                *("--seq", SEQUENCE, *BF16, *gpu, *more),
                *("-o", self.folder / "x.plan"),
            )
            require(
                outcome.stderr.count("note: attention is unfused") == notes,
                f"told: {outcome.stderr}",
            )

    def check_code(self) -> str:
        """Layers share kernels: twice as many need hardly more code."""
        sizes = []
        for layers in (3, 6):
            self.write_config("gpt2", MODELS["gpt2"] | {"n_layer": layers})
            plan = self.compile(Run("gpt2", "pp=1"), "--no-reference")
            text = self.tools.run("plait-plan", "show", plan).stdout
            found = re.search(r"code .*, (\d+) bytes", text)
            require(found is not None, f"no size of the code: {text[:500]}")
            sizes.append(int(found[1]))
        self.write_config("gpt2", MODELS["gpt2"])
        small, large = sizes
        require(large < 1.1 * small, f"{small} and {large} bytes of code")
        return f"{small} and {large} bytes"

    def run(self, options) -> None:
        for run in covering.chosen(RUNS, get_choices, options):
            self.report.case(run.name, functools.partial(self.check_run, run))
        for run in (
            Run("gpt2", "pp=2,dp=2,tp=2", FLASH),
            Run("llama", "dp=2,cp=2,tp=2", BF16 + FULL),
        ):
            check = functools.partial(self.check_against_reference, run)
            self.report.case("check/" + run.name, check)
        for model in MODELS:
            for mistake in MISTAKES:
                self.report.case(
                    f"{model}/same/{mistake}",
                    functools.partial(self.check_mistake, model, mistake),
                )
            self.report.case(f"{model}/off", functools.partial(self.check_off, model))
        self.report.case("gpu-attention", self.check_gpu_attention)
        self.report.case("code", self.check_code)


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    covering.add_option(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    report = Reporter("Dropout", options.filter)
    tools = Tools(options.bin, options.timeout)
    with tempfile.TemporaryDirectory() as folder:
        Suite(tools, report, pathlib.Path(folder)).run(options)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
