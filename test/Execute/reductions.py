#!/usr/bin/env python3
#===- reductions.py - Gradients summed in bf16 against fp32 -*- Python -*--===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains small models with `--reduce-precision bf16` and without, on the same mesh.
The loss of the first step has the same bits, and the plan is as far from its
reference as `plait-run --check` allows. Gradients are measured: a step of SGD from the
same weights moves them by it. On one rank they are those of fp32, to
the bit; on several each is off by what rounding its parts may do. `--table` prints
how far, as Markdown."""

import dataclasses
import pathlib
import re
import sys
import tempfile

import numpy

import covering
from harness import (
    GOLDEN,
    ROOT,
    Reporter,
    Tools,
    arguments,
    require,
    write_tokens,
)
from tensors import read_tensors

sys.path.insert(0, str(GOLDEN))
import compare  # noqa: E402

MODELS = {
    "gpt2": ROOT / "examples" / "models" / "gpt2-nano",
    "llama": GOLDEN / "llama-small-test",
}
BATCH, SEQUENCE, STEPS = 8, 64, 10
# So large that weights are lost beside the gradient, a power of two.
PROBE = 2.0**20
# Half a unit in the last of bf16's eight places, relative.
UNIT = 2.0**-9


@dataclasses.dataclass(frozen=True)
class Run:
    model: str
    mesh: str
    options: tuple[str, ...] = ()
    ranks: int = 1  # that sum a gradient up

    @property
    def name(self) -> str:
        words = [x.removeprefix("--") for x in self.options]
        return "/".join((self.model, self.mesh, *words))

    def get_choices(self) -> dict:
        choices = covering.split_options(self.mesh, self.options)
        return {"model": self.model} | choices


def zero(stage: int, *more: str) -> tuple[str, ...]:
    return ("--zero", str(stage), *more)


BF16 = ("--precision", "bf16")
RUNS = (
    Run("gpt2", "1"),
    Run("llama", "1", BF16),
    Run("gpt2", "dp=2", ranks=2),
    Run("gpt2", "dp=8", ranks=8),
    Run("gpt2", "dp=4", BF16, ranks=4),
    Run("gpt2", "dp=4", zero(1), ranks=4),
    Run("gpt2", "dp=4", zero(2, *BF16), ranks=4),
    Run("gpt2", "dp=4", zero(3), ranks=4),
    # The tied table's gradients of two stages are added up as well.
    Run("gpt2", "pp=2,dp=2", zero(1, *BF16), ranks=4),
    Run("gpt2", "pp=2,dp=2", zero(3, "--schedule", "zb-h1"), ranks=4),
    Run("llama", "dp=2,cp=2", zero(1), ranks=4),
    Run("llama", "replicate=2,dp=2", zero(1), ranks=4),
    Run("gpt2", "replicate=2,dp=2", zero(3), ranks=4),
    Run("llama", "dp=2,tp=2", zero(2, "--sequence-parallel"), ranks=4),
    Run("llama", "pp=2,cp=2,tp=2", BF16, ranks=4),
)


class Suite:
    def __init__(self, tools: Tools, folder: pathlib.Path):
        self.tools, self.folder = tools, folder
        self.tokens = folder / "tokens.bin"
        write_tokens(self.tokens, 7, STEPS * BATCH * SEQUENCE + 1, 256)

    def call(self, run: Run, precision: str, *options) -> None:
        self.tools.run(
            "plaitc", MODELS[run.model], "--mesh", run.mesh, *run.options,
            *("--global-batch", BATCH, "--micro-batch", 1, "--seq", SEQUENCE),
            *("--reduce-precision", precision, *options),
        )  # fmt: skip

    def compile(self, run: Run, precision: str, optimizer: str) -> pathlib.Path:
        plan = self.folder / f"{precision}-{optimizer}.plan"
        checks = (precision, optimizer) == ("bf16", "adamw")
        reference = () if checks else ("--no-reference",)
        self.call(run, precision, "--optimizer", optimizer, *reference, "-o", plan)
        return plan

    def train(self, plan: pathlib.Path, *options) -> list[dict]:
        log = self.folder / "steps.jsonl"
        log.unlink(missing_ok=True)
        self.tools.run(
            "plait-run", plan, "--threads", 1, "--tokens", self.tokens, "--seed", 3, *options,
            *("--weight-decay", 0, "--log", log),
        )  # fmt: skip
        return compare.read_steps(str(log))

    def measure(self, run: Run, precision: str) -> tuple[dict, list[dict]]:
        """The gradients of the first step by parameter, and steps of AdamW."""
        plan, saved = self.compile(run, precision, "sgd"), self.folder / "saved"

        def move(rate: float) -> dict[str, numpy.ndarray]:
            options = ("--lr", rate, "--beta1", 0, "--grad-clip", 0)
            self.train(plan, "--steps", 1, "--save", saved, *options)
            return read_tensors(saved / "model.safetensors")

        before, after = move(0), move(PROBE)
        gradients = {name: (before[name] - after[name]) / PROBE for name in before}
        plan = self.compile(run, precision, "adamw")
        if precision == "bf16":
            self.tools.run("plait-run", plan, "--threads", 1, "--tokens", self.tokens, "--check")
        return gradients, self.train(plan, "--steps", STEPS, "--lr", 1e-3)

    def compare(self, run: Run) -> dict[str, float]:
        """How far bf16 is from fp32, relative: the gradient of the parameter of which
        it is the farthest, as norms, the norm of all, and the last loss."""
        plain, expected = self.measure(run, "fp32")
        found, steps = self.measure(run, "bf16")
        require(
            steps[0]["loss"] == expected[0]["loss"], "the first loss has other bits"
        )
        if run.ranks == 1:
            for name, values in plain.items():
                same = numpy.array_equal(found[name], values)
                require(same, f"{name} is rounded, and nothing is summed")
        apart = [
            numpy.linalg.norm(found[name] - values) / numpy.linalg.norm(values)
            for name, values in plain.items()
        ]
        rows = compare.differences(expected, steps)
        return {
            "gradient": float(max(apart)),
            "norm": rows[0]["grad_norm"],
            "loss": rows[-1]["loss"],
        }

    def check_bytes(self, run: Run) -> None:
        """What replicas add up, numbers apart, has two bytes an element."""
        ir = self.folder / "out.mlir"
        self.call(run, "bf16", "--compile-to", "partition", "-o", ir)
        sums = re.findall(
            r'dist\.(?:all_reduce|reduce_scatter) .*@mesh\["dp"\].* : tensor<(\d.*?)>',
            ir.read_text(),
        )
        wide = [shape for shape in sums if not shape.endswith("xbf16")]
        require(not wide, f"replicas add up tensors of {', '.join(wide)}")
        require(bool(sums) == ("dp=" in run.mesh), f"{len(sums)} sums over dp")

    def check(self, run: Run) -> str:
        self.check_bytes(run)
        away = self.compare(run)
        remark = ", ".join(f"{key} off {value:.2g}" for key, value in away.items())
        # Each of the parts is rounded, at its own size, and the sums; parts of a mean
        # over other tokens are hardly larger than √ranks times their mean. A norm is
        # off by no more than the gradient, but mostly roundings cancel.
        bound = UNIT * (1 + run.ranks**0.5)
        require(away["gradient"] <= bound, f"{remark}, expected up to {bound:.2g}")
        require(away["norm"] <= bound, remark)
        # Ten steps of AdamW, which looks at signs where gradients are small.
        require(away["loss"] <= UNIT, remark)
        return remark


def print_table(suite: Suite, pattern: str) -> None:
    print("| model | `--mesh` | options | gradient | norm of all | loss |")
    print("|---|---|---|---|---|---|")
    for run in RUNS:
        if pattern not in run.name:
            continue
        away = suite.compare(run)
        options = f"`{' '.join(run.options)}`" if run.options else ""
        numbers = " | ".join(f"{away[key]:.1e}" for key in ("gradient", "norm", "loss"))
        print(f"| {run.model} | `{run.mesh}` | {options} | {numbers} |", flush=True)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--table", action="store_true")
    covering.add_option(parser)
    options = parser.parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("reductions", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(tools, pathlib.Path(folder))
        if options.table:
            print_table(suite, options.filter)
            return 0
        for run in covering.chosen(RUNS, Run.get_choices, options):
            report.case(run.name, lambda run=run: suite.check(run))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
