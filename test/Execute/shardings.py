#!/usr/bin/env python3
#===- shardings.py - Divided parameters against one rank ---*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains small models with parameters that are pinned to shardings over several
axes, or divided by ZeRO, and on one rank, where nothing is divided. Loss
and gradient norm agree for three steps, gradients in `plait-run --check`, and the
weights that are saved before the first update are those of one rank, to the bit.
What a plan's ranks hold of parameters, gradients and optimizer state is what
Rajbhandari et al. 2020, figure 1, says."""

import dataclasses
import pathlib
import re
import sys
import tempfile

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

sys.path.insert(0, str(GOLDEN))
import compare  # noqa: E402

MODELS = {
    "gpt2": (ROOT / "examples" / "models" / "gpt2-nano", 256),
    "llama": (GOLDEN / "llama-small-test", 320),
    # A tied table of 321 rows: on two ranks the last one is padding.
    "padded": (GOLDEN / "gpt2-small-test", 321),
}
BATCH, SEQUENCE, STEPS = 8, 64, 3
# Sums of thousands of numbers in another order, and what three steps of Adam,
# which looks at signs, make of that.
TOLERANCE = {"loss": 1e-6, "grad_norm": 1e-3}
# What rounding partial sums to eight bits in another order does.
BF16_TOLERANCE = {"loss": 2**-9, "grad_norm": 2**-3}
# Bytes of a row in two packs.
PACKS = 2 * 4096 * 4
BF16 = ("--precision", "bf16")
FULL = ("--recompute", "full")


@dataclasses.dataclass(frozen=True)
class Run:
    model: str
    mesh: str
    options: tuple[str, ...] = ()
    zero: int = 0
    pins: tuple[str, ...] = ()
    # An op that the sharding must lead to.
    op: str = ""

    @property
    def name(self) -> str:
        words = [x.lstrip("-") for x in self.options]
        words += [f"zero-{self.zero}"] if self.zero else []
        words += [pin.replace('"', "") for pin in self.pins]
        return "/".join((self.model, self.mesh, *words))

    def get_choices(self) -> dict:
        choices = covering.split_options(self.mesh, self.options)
        choices |= {f"pin {pin}": True for pin in self.pins}
        return choices | {"model": self.model, "zero": self.zero, "op": self.op}

    def size(self, axis: str) -> int:
        found = re.search(rf"{axis}=(\d+)", self.mesh)
        return int(found[1]) if found else 1

    @property
    def precision(self) -> str:
        return "bf16" if "bf16" in self.options else "fp32"


ROWS = '*.wte.weight=[{"tp"},{}]'
EMBEDDING = '*.wte.weight=[{"tp","dp"},{}]'
RUNS = (
    # Two axes on one dimension, in both orders, and one on each.
    Run("gpt2", "dp=2,tp=2", pins=(EMBEDDING, '*.c_fc.weight=[{"dp"},{"tp"}]')),
    Run(
        "gpt2",
        "pp=2,dp=2,tp=2",
        FULL,
        pins=(EMBEDDING, '*.c_fc.weight=[{},{"dp","tp"}]'),
        op="dist.reduce_scatter",
    ),
    Run("llama", "dp=2,tp=2", BF16, pins=('*.down_proj.weight=[{"dp"},{"tp"}]',)),
    Run("padded", "dp=2,tp=2", zero=1, pins=(ROWS,)),
    Run("gpt2", "dp=2", zero=2),
    Run("gpt2", "dp=4", FULL, zero=2),
    Run("gpt2", "pp=2,dp=2", BF16, zero=2),
    Run("llama", "pp=2,dp=2,tp=2", zero=2, op="dist.reduce_scatter"),
    Run("gpt2", "dp=2", zero=3),
    Run("gpt2", "dp=4", FULL + BF16, zero=3),
    Run("gpt2", "pp=2,dp=2", FULL, zero=3, op="dist.all_gather"),
    Run("llama", "dp=4", zero=3),
    Run("llama", "pp=2,dp=2,tp=2", ("--sequence-parallel",), zero=3),
    Run("llama", "pp=2,dp=2", ("--schedule", "zb-h1"), zero=3),
    # Groups of replicas, each of which divides a copy of its own.
    Run("padded", "replicate=2,dp=2,tp=2", zero=1, pins=(ROWS,)),
    Run("gpt2", "replicate=2,dp=2", BF16, zero=2),
    Run("gpt2", "replicate=4,dp=2", FULL, zero=3),
    Run("llama", "pp=2,replicate=2,dp=2", ("--schedule", "zb-v", "--chunks", "2"), zero=3),
    Run("llama", "replicate=2,dp=2,cp=2", BF16, zero=3, op="dist.reduce_scatter"),
)


class Suite:
    def __init__(self, tools: Tools, report: Reporter, folder: pathlib.Path):
        self.tools, self.report, self.folder = tools, report, folder
        self.tokens = folder / "tokens.bin"
        write_tokens(self.tokens, 5, STEPS * BATCH * SEQUENCE + 1, 256)
        self.alone = {}

    def compile(self, run: Run, *more) -> None:
        self.tools.run(
            "plaitc",
            MODELS[run.model][0],
            *("--mesh", run.mesh, "--zero", run.zero, *run.options),
            *("--global-batch", BATCH, "--micro-batch", 1),
            *("--seq", SEQUENCE),
            *(word for pin in run.pins for word in ("--shard", pin)),
            *more,
        )

    def train(self, run: Run) -> tuple[list[dict], bytes]:
        """The steps, and the weights before them."""
        plan, log = self.folder / "out.plan", self.folder / "steps.jsonl"
        log.unlink(missing_ok=True)
        self.compile(run, "-o", plan)
        data = (plan, "--tokens", self.tokens, "--seed", 3)
        self.tools.run("plait-run", *data, "--check")
        saved = ("--save", self.folder / "saved", "--weight-decay", 0)
        self.tools.run("plait-run", *data, "--steps", 1, "--lr", 0, *saved)
        self.tools.run(
            "plait-run",
            *data[:3],
            # Where they lie does not matter for who reads them, either.
            *("--weights", self.folder / "saved" / "model.safetensors"),
            *("--steps", STEPS, "--lr", 0.01, "--grad-clip", 0.5),
            *("--log", log),
        )
        weights = (self.folder / "saved" / "model.safetensors").read_bytes()
        return compare.read_steps(str(log)), weights

    def reference(self, run: Run) -> tuple[list[dict], bytes]:
        key = (run.model, run.precision)
        if key not in self.alone:
            options = BF16 if run.precision == "bf16" else ()
            self.alone[key] = self.train(Run(run.model, "pp=1", options))
        return self.alone[key]

    def check_bytes(self, run: Run) -> str:
        """Parameters, gradients and optimizer state of the first rank, by the
        sizes of its shards: with a bf16 copy 2, 4 and 12 bytes an element, else
        4, 4 and 8. Two packs, whose last rows need not be full, may differ."""
        shown = self.tools.run("plait-plan", "show", self.folder / "out.plan")
        replicas = run.size("dp") * run.size("cp")
        require(f", zero {run.zero}\n" in shown.stdout, shown.stdout)

        def held(category):
            return int(re.search(rf"{category} .* (\d+) bytes", shown.stdout)[1])

        bf16 = run.precision == "bf16"
        whole = dataclasses.replace(run, zero=0)
        self.compile(whole, "--no-reference", "-o", self.folder / "whole.plan")
        plain = self.tools.run(
            "plait-plan", "show", self.folder / "whole.plan"
        ).stdout

        def given(category):
            return int(re.search(rf"{category} .* (\d+) bytes", plain)[1])

        gradients, state = given("gradients"), given("optimizer")
        parameters = given("parameters")
        # A master copy is a parameter to the plan.
        values = parameters * 2 // 6 if bf16 else parameters
        master = parameters - values if bf16 else 0
        expected = {
            "parameters": (values if run.zero < 3 else values / replicas)
            + master / replicas,
            "gradients": (gradients if run.zero < 2 else 0)
            + gradients / replicas,
            "optimizer": state / replicas,
        }
        for category, bytes in expected.items():
            # Gradients are held whole and in part.
            rows = PACKS * max(1, bytes / given(category))
            require(
                abs(held(category) - bytes) <= max(0.01 * bytes, rows),
                f"{category}: {held(category)} bytes, expected {bytes:.0f}",
            )
        return f"{sum(map(held, expected))} of {parameters + gradients + state} bytes"

    def check(self, run: Run):
        def body():
            expected, initial = self.reference(run)
            steps, saved = self.train(run)
            require(saved == initial, "saved other weights than one rank does")
            rows = compare.differences(expected, steps)
            require(len(rows) == STEPS, f"{len(rows)} steps")
            bounds = BF16_TOLERANCE if run.precision == "bf16" else TOLERANCE
            worst = {key: max(row[key] for row in rows) for key in bounds}
            remark = ", ".join(f"{key} off {x:.2g}" for key, x in worst.items())
            for key, bound in bounds.items():
                require(worst[key] <= bound, remark)
            if run.op:
                ir = self.folder / "out.mlir"
                self.compile(run, "--compile-to", "partition", "-o", ir)
                require(run.op in ir.read_text(), f"no {run.op}")
            if run.zero:
                remark += ", " + self.check_bytes(run)
            return remark

        self.report.case(run.name, body)


def main() -> int:
    parser = arguments(__doc__)
    covering.add_option(parser)
    options = parser.parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("shardings", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(tools, report, pathlib.Path(folder))
        for run in covering.chosen(RUNS, Run.get_choices, options):
            suite.check(run)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
