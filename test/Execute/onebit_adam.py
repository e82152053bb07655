#!/usr/bin/env python3
#===- onebit_adam.py - 1-bit Adam against numpy -----------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Warms a small GPT-2 up with AdamW, goes on from its checkpoint with onebit-adam, and
computes in numpy what each step must have come to: AdamW as PyTorch has it, then
Algorithm 1 of Tang et al. 2021 ("1-bit Adam") one way. Gradients of replicas are
measured as in compression.py. Runs that end and are resumed anywhere have the same
bits; without a warm-up there is an error."""

import pathlib
import random
import sys
import tempfile

import numpy

import compression
import compressors
import covering
from compression import BATCH, SEQUENCE, Run
from harness import Reporter, Tools, arguments, require
from tensors import read_tensors

WARM, COMPRESSED = 3, 3
RATE, BETA1, BETA2, EPSILON, DECAY = 1e-3, 0.9, 0.95, 1e-8, 0.1
COUNT = BATCH * SEQUENCE
# Of what a step moves, where no sign is another one: gradients are added up in another
# order than they are measured in, and divided by the root of a few squares.
TOLERANCE = 2e-3
# The part of all elements whose sign may be another one, or whose squares are so small
# that they are not known to that.
OTHERS = 2e-3

RUNS = (
    Run("onebit-adam", "dp=2"),
    Run("onebit-adam:32", "dp=4", ("--micro-batch", "1")),
    Run("onebit-adam:64", "1"),
    Run("onebit-adam", "pp=2,dp=2", ("--schedule", "zb-h1")),
    Run("onebit-adam:32", "dp=2,tp=2", ("--sequence-parallel",)),
    Run("onebit-adam", "dp=2,cp=2"),
    Run("onebit-adam:64", "pp=2,dp=2,tp=2", ("--schedule", "gpipe")),
)


def draw_run(choose: random.Random) -> Run:
    mesh = choose.choice(("dp=2", "dp=4", "pp=2,dp=2", "dp=2,tp=2", "dp=2,cp=2"))
    micro = choose.choice(("1", "2"))
    block = choose.choice((32, 64))
    return Run(f"onebit-adam:{block}", mesh, ("--micro-batch", micro))


class Suite(compression.Suite):
    def make(self, run: Run, *options, name="run") -> pathlib.Path:
        plan = self.folder / f"{name}.plan"
        self.call(
            "--mesh", run.mesh, *run.options, "--global-batch", BATCH,
            "--optimizer", "adamw", *options, "-o", plan,
        )  # fmt: skip
        return plan

    def words_of(self, plan, steps) -> list:
        return [
            "plait-run", plan, "--tokens", self.tokens, "--token-type", "uint16",
            "--lr", RATE, "--beta1", BETA1, "--beta2", BETA2, "--eps", EPSILON,
            "--weight-decay", DECAY, "--grad-clip", 0, "--threads", 1,
            "--steps", steps,
        ]  # fmt: skip

    def go(self, plan, steps, *options) -> pathlib.Path:
        saved = self.folder / "saved"
        self.tools.run(*self.words_of(plan, steps), "--save", saved, *options)
        path = next(saved.rglob("*.safetensors"))
        return path.rename(self.folder / f"{plan.stem}-{steps}.safetensors")

    def find_decaying(self) -> set[str]:
        ir = (self.folder / "import.mlir").read_text().splitlines()
        lines = [line for line in ir if "nn.parameter @" in line]
        words = [line.split("@")[1].split()[0] for line in lines if " decay" in line]
        return set(words)

    def check(self, run: Run) -> str:
        parameters = self.find_parameters()
        decaying = self.find_decaying()
        require(0 < len(decaying) < len(parameters), f"{len(decaying)} decay")
        warm = self.make(run, name="warm")
        plan = self.make(run, "--compress", run.scheme)
        with tempfile.TemporaryDirectory() as folder:
            files = [self.go(warm, step) for step in range(WARM)]
            files.append(self.go(warm, WARM, "--checkpoint", folder))
            resume = ("--resume", folder)
            for step in range(WARM + 1, WARM + COMPRESSED + 1):
                files.append(self.go(plan, step, *resume))
        compressor = compressors.Compressor.parse(run.scheme)
        n = run.replicas
        m = [0.0 for _ in parameters]
        v = [0.0 for _ in parameters]
        errors = [[0.0] * len(parameters) for _ in range(n)]
        others, count, worst = 0, 0, 0.0
        for step in range(1, WARM + COMPRESSED + 1):
            gradients = self.gradients(run, files[step - 1])
            before, after = self.read(files[step - 1]), self.read(files[step])
            for index, parameter in enumerate(parameters):
                own = [parameter.of(g) for g in gradients]
                if step <= WARM:
                    g = sum(own) / COUNT
                    m[index] = BETA1 * m[index] + (1 - BETA1) * g
                    v[index] = BETA2 * v[index] + (1 - BETA2) * g * g
                    root = numpy.sqrt(v[index]) / (1 - BETA2**step) ** 0.5
                    delta = m[index] / (1 - BETA1**step) / (root + EPSILON)
                else:
                    total = 0.0
                    for replica in range(n):
                        kept_of_m = BETA1 * COUNT / n * m[index]
                        x = (1 - BETA1) * own[replica] + kept_of_m
                        x = x + errors[replica][index]
                        sent = compressor.compress(x, step, parameter.symbol, replica)
                        errors[replica][index] = x - sent
                        total = total + sent
                    m[index] = numpy.where(v[index] > 0, total / COUNT, 0)
                    delta = m[index] / (numpy.sqrt(v[index]) + EPSILON)
                decay = DECAY if parameter.symbol in decaying else 0
                w = parameter.of(before)
                expected = (1 - RATE * decay) * w - RATE * delta
                off = numpy.abs(parameter.of(after) - expected)
                bound = 1e-6 * numpy.abs(w) + TOLERANCE * RATE * numpy.abs(delta) + 1e-9
                isOther = off > bound
                others += int(isOther.sum())
                count += off.size
                worst = max(worst, float((off / bound)[~isOther].max(initial=0)))
        text = f"{others} of {count} elements another, worst {worst:.2g} of the bound"
        require(others <= OTHERS * count, text)
        return text

    def check_resumed(self) -> str:
        """Across the end of the warm-up and behind it, on the same mesh and on one of
        as many replicas."""
        run = Run("onebit-adam:32", "dp=2")
        warm = self.make(run, name="warm")
        plan = self.make(run, "--compress", run.scheme)
        with tempfile.TemporaryDirectory() as folder:
            begun, halfway = pathlib.Path(folder, "a"), pathlib.Path(folder, "b")
            self.go(warm, 2, "--checkpoint", begun)
            whole = self.read(self.go(plan, 6, "--resume", begun))
            kept = ("--checkpoint", halfway)
            self.go(plan, 4, "--resume", begun, *kept)
            resumed = self.read(self.go(plan, 6, "--resume", halfway, *kept))
            for name, values in whole.items():
                require(numpy.array_equal(values, resumed[name]), f"{name}: other bits")
            # What was not sent is kept: it would be missed.
            for path in halfway.glob("*/*.safetensors"):
                names = path.read_bytes()[:2000].decode(errors="replace")
                require("error.0" in names or "error.1" in names, f"{path}: no errors")
            # And back: errors are no state of plain AdamW.
            self.refuse(warm, 7, "error.0, error.1, moment1", "--resume", halfway)
            four = self.make(Run("", "dp=4"), "--compress", run.scheme, name="four")
            self.refuse(four, 7, "error.0, error.1, moment1", "--resume", halfway)
        return "the same bits"

    def check_frozen(self) -> str:
        """Checkpoints have the variance of the warm-up, to the bit, and another
        momentum."""
        run = Run("onebit-adam:32", "dp=2")
        warm, seen = self.make(run, name="warm"), []
        plan = self.make(run, "--compress", run.scheme)
        with tempfile.TemporaryDirectory() as folder:
            begun, behind = pathlib.Path(folder, "a"), pathlib.Path(folder, "b")
            self.go(warm, 2, "--checkpoint", begun)
            self.go(plan, 4, "--resume", begun, "--checkpoint", behind)
            for place in (begun, behind):
                tensors = {}
                for path in sorted(place.glob("*/*.safetensors")):
                    tensors |= read_tensors(path)
                seen.append(tensors)
        count = 0
        for name, values in seen[0].items():
            isEqual = numpy.array_equal(values, seen[1][name])
            # Nobody reads the rows of positions behind the last one.
            isFrozen = "/moment2" in name or not values.any()
            require(isEqual == isFrozen, f"{name}: equal: {isEqual}")
            count += "/moment2" in name
        require(count > 10, f"{count} variances")
        return f"{count} variances"

    def refuse(self, plan, steps, text, *options) -> None:
        outcome = self.tools.call(*self.words_of(plan, steps), *options)
        require(outcome.code != 0 and text in outcome.stderr, outcome.stderr)

    def check_cold(self) -> str:
        """Without a warm-up there is no variance, wherever a run begins."""
        plan = self.make(Run("", "dp=2"), "--compress", "onebit-adam")
        text = "--compress is onebit-adam, which freezes the variance that AdamW has found"
        self.refuse(plan, 1, text)
        with tempfile.TemporaryDirectory() as folder:
            start = ("--checkpoint", folder, "--resume", folder)
            self.refuse(plan, 1, text, *start)
            require(not any(pathlib.Path(folder).iterdir()), "something was written")
        return "refused"


def main() -> int:
    parser = arguments(__doc__)
    covering.add_option(parser)
    parser.add_argument("--draws", type=int, default=0, help="runs drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="of these")
    options = parser.parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("1-bit Adam", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(tools, pathlib.Path(folder))
        for run in covering.chosen(RUNS, Run.get_choices, options):
            report.case(run.name, lambda run=run: suite.check(run))
        report.case("resumed", suite.check_resumed)
        report.case("frozen", suite.check_frozen)
        report.case("cold", suite.check_cold)
        choose = random.Random(options.seed)
        for index in range(options.draws):
            run = draw_run(choose)
            name = f"draw {index}: {run.name}"
            report.case(name, lambda run=run: suite.check(run))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
