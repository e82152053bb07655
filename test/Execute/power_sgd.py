#!/usr/bin/env python3
#===- power_sgd.py - Gradients sent as two factors ---------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains with `--compress powersgd` on meshes and holds each step against Algorithm 1
of Vogels et al. 2019 in numpy, of gradients that one rank has measured: products, error
feedback, and the factor that a step leaves to the next. Half of the runs are drawn."""

import dataclasses
import math
import random
import re
import sys
import tempfile
import pathlib

import compression
import compressors
import covering
import numpy
from compression import BATCH, RATE, SEQUENCE, STEPS, Run, numbers
from harness import GOLDEN, Reporter, Tools, arguments, require

sys.path.insert(0, str(GOLDEN))
import plait_init  # noqa: E402

# Products and lengths in fp32 of gradients that are measured to about 2^-20, of the
# largest element of a matrix; a factor that lies badly loses some digits more.
TOLERANCE = 2.0**-14

RUNS = (
    Run("powersgd", "dp=2"),
    Run("powersgd+feedback", "dp=2"),
    Run("powersgd:1+feedback", "dp=4", ("--micro-batch", "2")),
    Run("powersgd:2+feedback", "pp=2,dp=2", ("--schedule", "zb-h1")),
    Run("powersgd:2+feedback", "dp=2,tp=2"),
    Run("powersgd:3", "dp=2,tp=2", ("--sequence-parallel",)),
    Run("powersgd:2+feedback", "dp=2,cp=2"),
    Run("powersgd:2+feedback", "dp=2", ("--zero", "1")),
    Run("powersgd:8+feedback", "pp=2,dp=2,tp=2", ("--zero", "1")),
    Run("powersgd:2+feedback", "1"),
)


def draw_run(choose: random.Random) -> Run:
    rank = choose.choice((1, 2, 3, 4, 8))
    scheme = f"powersgd:{rank}".removesuffix(":4") + choose.choice(("", "+feedback"))
    return dataclasses.replace(compression.draw_run(choose), scheme=scheme)


def find_sides(shape: list[int]) -> tuple[int, int]:
    """Rows and columns with the least sum, of dimensions that stay in their order."""
    cuts = [
        (math.prod(shape[:cut]), math.prod(shape[cut:])) for cut in range(1, len(shape))
    ]
    return min(cuts, key=sum)


def orthonormalize(p: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Gram and Schmidt, column by column, each twice. A column in which the first time
    has left roundings alone is left out: the second time takes most of it."""
    out, kept = numpy.zeros_like(p), numpy.zeros(p.shape[1], bool)
    for index in range(p.shape[1]):
        column = p[:, index] / (abs(p[:, index]).max() + 2.0**-100)
        column = column - out @ (out.T @ column)
        column = column / (abs(column).max() + 2.0**-100)
        before = column @ column
        column = column - out @ (out.T @ column)
        if column @ column > before / 4:
            out[:, index], kept[index] = column / numpy.linalg.norm(column), True
    return out, kept


class Matrix:
    """What replicas keep of a parameter that is a matrix."""

    def __init__(self, symbol: str, shape: list[int], rank: int, replicas: int):
        self.sides = find_sides(shape)
        own = f"{symbol}.factor"
        # The same whatever the seed of a run is.
        factor = plait_init.normal(own, (rank, self.sides[1]), 0, 1.0)
        self.q = factor.astype(float).T
        self.errors = [0.0] * replicas

    def step(self, gradients: list[numpy.ndarray], feedback: bool) -> numpy.ndarray:
        """Algorithm 1, of a sum in place of a mean."""
        own = [x.reshape(self.sides) + e for x, e in zip(gradients, self.errors)]
        m = sum(own)
        p, kept = orthonormalize(m @ self.q)
        q = m.T @ p
        if feedback:
            self.errors = [x - p @ (x.T @ p).T for x in own]
        self.q = q + self.q * ~kept
        return (p @ q.T).reshape(gradients[0].shape)


class Suite(compression.Suite):
    def find_matrices(self, run: Run) -> dict[str, Matrix]:
        """What has two dimensions in files, by name and as plait has it."""
        rank = int((re.match(r"powersgd:(\d+)", run.scheme) or (0, 4))[1])
        ir = (self.folder / "import.mlir").read_text()
        pattern = r"nn\.parameter @(\S+) : tensor<(\S+?)> .*?file *<(.*?)>"
        found = {}
        for symbol, type_, file in re.findall(pattern, ir):
            box = re.search(r"box = \[(.*?)\]", file)[1]
            if len(numbers(box)) > 1:
                shape = [int(x) for x in type_.split("x")[:-1]]
                found[symbol] = Matrix(symbol, shape, rank, run.replicas)
        return found

    def check(self, run: Run) -> str:
        plan, parameters = self.compile(run), self.find_parameters()
        matrices = self.find_matrices(run)
        shown = self.tools.run("plait-plan", "show", plan).stdout
        require(f"gradients sent as {run.scheme}" in shown, f"not told in {shown}")
        require(len(matrices) > 8, f"{len(matrices)} matrices")
        start = self.train(plan, None, 1, 0.0, self.tokens).rename(
            self.folder / "start.safetensors"
        )
        now, worst, factor = start, 0.0, RATE / (BATCH * SEQUENCE)
        for step in range(1, STEPS + 1):
            gradients, before = self.gradients(run, now), self.read(now)
            now = self.train(plan, start, step, RATE, self.tokens)
            after = self.read(now)
            for parameter in parameters:
                own = [parameter.of(x) for x in gradients]
                matrix = matrices.get(parameter.symbol)
                total = (
                    matrix.step(own, "feedback" in run.scheme) if matrix else sum(own)
                )
                off = abs(parameter.of(after) - parameter.of(before) + factor * total)
                # Of weights of about 1 in fp32, too.
                bound = TOLERANCE * factor * abs(total).max() + 2.0**-23 * (
                    abs(parameter.of(after)).max() + RATE
                )
                worst = max(worst, float(off.max() / bound))
                require(
                    off.max() <= bound,
                    f"step {step}: {parameter.tensor} off {off.max():.3g}, at most {bound:.3g}",
                )
        return f"{len(matrices)} matrices, off {worst:.2g} of what may be"

    def check_theory(self) -> str:
        """Columns are those of a QR decomposition, up to signs, and steps the paper's;
        a matrix of fewer ranks is sent whole."""
        draws = numpy.random.default_rng(3)
        p = draws.standard_normal((40, 4))
        ours, kept = orthonormalize(p)
        q, _ = numpy.linalg.qr(p)
        off = abs(abs((ours * q).sum(axis=0)) - 1).max()
        require(kept.all() and off < 1e-12, f"off {off:.2g}")
        matrix, paper = Matrix("m", [40, 30], 4, 1), None
        for _ in range(3):
            own = draws.standard_normal((40, 30))
            paper, q = compressors.power_sgd(own, matrix.q if paper is None else q)
            off = abs(matrix.step([own], False) - paper).max()
            require(off < 1e-12, f"off {off:.2g} of the paper's steps")
        low = draws.standard_normal((40, 2)) @ draws.standard_normal((2, 30))
        matrix = Matrix("m", [40, 30], 4, 1)
        off = abs(matrix.step([low], False) - low).max()
        require(off < 1e-9, f"a matrix of rank 2 is off {off:.2g}")
        return f"off {off:.1g}"

    def check_resumed(self) -> str:
        """Checkpoints have factors and errors: the same bits, from ZeRO 0 and 1."""
        run = Run("powersgd:2+feedback", "dp=2")
        for other in (run, dataclasses.replace(run, options=("--zero", "1"))):
            plan = self.compile(other, "resumed")
            whole = self.read(self.train(plan, None, 4, RATE, self.tokens))
            folder = self.folder / f"checkpoints-{len(other.options)}"
            self.tools.run(
                *self.words(self.compile(run, "before"), 2, RATE, self.tokens),
                *("--checkpoint", folder, "--checkpoint-every", 2),
            )
            resume = ("--resume", folder)
            resumed = self.read(self.train(plan, None, 4, RATE, self.tokens, *resume))
            require(not any(x.endswith(".factor") for x in whole), "factors are exported")
            for name, values in whole.items():
                require(numpy.array_equal(values, resumed[name]), f"{name}: other bits")
        return "the same bits"

    def check_refused(self) -> str:
        said = []
        for scheme, text in (
            ("powersgd:33+feedback", "has a rank of 33, expected at most 32"),
            ("powersgd:0", 'compress has a rank of "0", expected 1 to 64'),
            ("powersgd+rounds:2", 'has "rounds" behind the scheme'),
        ):
            plan = self.folder / "refused.plan"
            outcome = self.tools.call(
                "plaitc", GOLDEN / "llama-small-test", "--seq", SEQUENCE, "--global-batch", BATCH,
                "--mesh", "dp=2", "--compress", scheme, "-o", plan,
            )  # fmt: skip
            require(outcome.code == 1 and text in outcome.stderr, outcome.stderr)
            require(not plan.exists(), "there is a plan all the same")
            said.append(text)
        return "; ".join(said)


def main() -> int:
    parser = arguments(__doc__)
    covering.add_option(parser)
    parser.add_argument("--draws", type=int, default=3, help="runs drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="of these")
    options = parser.parse_args()
    report = Reporter("power-sgd", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(Tools(options.bin, options.timeout), pathlib.Path(folder))
        for run in RUNS if covering.takes_all(options) else RUNS[1::2]:
            report.case(run.name, lambda run=run: suite.check(run))
        choose = random.Random(options.seed)
        for index in range(options.draws):
            run = draw_run(choose)
            report.case(f"draw {index}: {run.name}", lambda run=run: suite.check(run))
        report.case("theory", suite.check_theory)
        report.case("resumed", suite.check_resumed)
        report.case("refused", suite.check_refused)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
