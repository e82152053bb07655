#!/usr/bin/env python3
#===- clipping.py - Centred clipping against numpy -------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains a small GPT-2 on sites that clip what they have moved by, and compares the
weights of each with numpy (sites.py says how): on each mesh the norm is that of all
weights of a site, each counted once. What it is good for is in decentralised.py."""

import dataclasses
import sys

import numpy

import clipping_defects
import gossip
import local_steps
import sites
from checkpoint_suite import read_checkpoint
from sites import Run
from tensors import read_tensors
from harness import require

# Between the norms of what two sites move by in two steps, so that one is scaled and the
# other is not; with SGD of rate 1 they move less.
BETWEEN, SGD = "clip:2,radius=BETWEEN", "clip:1,radius=0.5"
HUGE = "radius=1e+30"

RUNS = (
    Run(BETWEEN, "sites=2"),
    Run("clip:1,radius=1", "sites=4"),
    Run("clip:2,radius=2,rate=0.5", "sites=2"),
    Run(SGD, "sites=2", "sgd"),
    Run(BETWEEN, "tp=2,sites=2"),
    Run(BETWEEN, "pp=2,sites=2"),
    Run(BETWEEN, "cp=2,sites=2"),
    Run(BETWEEN, "dp=2,sites=2"),
    Run(BETWEEN, "dp=2,sites=2", options=("--zero", "1")),
    Run(BETWEEN, "dp=2,sites=2", options=("--zero", "2")),
    Run(BETWEEN, "pp=2,dp=2,tp=2,sites=2", options=("--schedule", "zb-h1")),
)


class Suite(gossip.Suite):
    steps = 2

    def __init__(self, *words):
        super().__init__(*words)
        self.simulated: dict = {}
        self.clipped: dict = {}
        self.flat: dict = {}  # weights of the same without a mesh
        self.between = 0.0

    def outer(self, text: str) -> str:
        """With the radius that is asked for by its place."""
        if "BETWEEN" not in text:
            return super().outer(text)
        if not self.between:
            _, outer = self.simulate(Run(f"clip:2,{HUGE}", "sites=2"))
            self.between = round(sum(outer.norms[0]) / 2, 4)
        return text.replace("BETWEEN", str(self.between))

    def simulate(self, run: Run):
        states, outer = self.begin(run)
        every = local_steps.parse(run.outer).every
        self.advance(states, outer, every, range(1, self.steps + 1))
        return [weights for weights, _ in states], outer

    def simulate_sites(self, run: Run, steps: int) -> list[dict]:
        """The same on each mesh."""
        run = dataclasses.replace(run, outer=self.outer(run.outer))
        key = (run.outer, run.optimizer, run.sites)
        if key not in self.simulated:
            self.simulated[key], outer = self.simulate(run)
            radius = local_steps.parse(run.outer).options["radius"]
            clipped = [sum(x > radius for x in norms) for norms in outer.norms]
            require(any(clipped), f"nothing is clipped: {outer.norms}")
            self.clipped[key] = clipped
        self.last = key
        return self.simulated[key]

    def train_sites(self, *words) -> list[dict]:
        self.found = super().train_sites(*words)
        return self.found

    def check(self, run: Run) -> str:
        """Against numpy, and against the same without a mesh: there nothing differs but
        the order of sums."""
        text = super().check(run)
        flat = self.flat.setdefault(self.last, self.found)
        for found, expected in zip(self.found, flat):
            self.compare(found, expected, 1e-5)
        return f"{text}; clipped {self.clipped[self.last]} of {run.sites}"

    def check_identities(self) -> str:
        """With a huge radius it is DiLoCo of rate 1 without momentum, to the bit, and
        the mean, up to roundings."""
        rules = self.rules("adamw")
        mesh, told = "tp=2,sites=2", []
        plain, _ = self.result(mesh, ("--outer", "diloco:2,rate=1,momentum=0"), *rules)
        found, losses = self.result(mesh, ("--outer", f"clip:2,{HUGE}"), *rules)
        for name, values in plain.items():
            require(numpy.array_equal(values, found[name]), f"{name} has other bits")
        mean, own = self.result(mesh, ("--outer", "average:2"), *rules)
        off = max(abs(a - b) for a, b in zip(losses, own))
        require(off <= 1e-5 * losses[0], f"losses off {off}")
        told.append(self.compare(found, mean, 1e-5))
        clipped, _ = self.result(mesh, ("--outer", "clip:2,radius=0.1"), *rules)
        require(
            any(not numpy.array_equal(found[x], clipped[x]) for x in found),
            "a radius of 0.1 changes nothing",
        )
        return "; ".join(told)

    def check_bf16(self) -> str:
        """Masters that ranks divide count once, too: as whole ones."""
        rules, told = self.rules("adamw"), []
        options = ("--precision", "bf16", "--outer", self.outer(BETWEEN))
        expected, losses = self.result("sites=2", options, *rules)
        learned = abs(losses[-1] - losses[0])
        for zero in ("1", "2"):
            found, own = self.result(
                "dp=2,tp=2,sites=2", (*options, "--zero", zero), *rules
            )
            off = max(abs(a - b) for a, b in zip(losses, own))
            require(off <= learned / 16, f"zero {zero}: losses off {off} of {learned}")
            # As bf16 against fp32 in sites.py: gradients have 8 bits.
            told.append(self.compare_norms(found, expected, 2**-4))
        return "; ".join(told)

    def compare_norms(self, found, expected, bound) -> str:
        """What all weights together are off by, of what they have moved by: single ones
        move by signs of gradients that round to either side."""
        start = read_tensors(self.start)
        off = sum(((found[x] - expected[x]).astype(float) ** 2).sum() for x in expected)
        moved = sum(((expected[x] - start[x]).astype(float) ** 2).sum() for x in expected)
        share = float(numpy.sqrt(off / moved))
        require(share <= bound, f"off {share:.3g} of what weights moved by")
        return f"off {share:.2g}"

    def check_resumed(self) -> str:
        """Between two agreements: to the bit, and on another mesh."""
        outer, rules = ("--outer", "clip:3,radius=1"), self.rules("adamw")
        whole, _ = self.result("tp=2,sites=2", outer, *rules)
        folder, target = self.folder / "checkpoints", self.folder / "two.safetensors"
        plan = self.compile("tp=2,sites=2", *outer)
        kept = ("--checkpoint", folder, "--checkpoint-every", 2)
        self.train(plan, target, 2, "--weights", self.start, *kept, *rules)
        _, slots = read_checkpoint(folder / "step-00000002")
        require(any(slot == "anchor" for _, slot in slots), "no anchor is kept")
        resume = ("--resume", folder, *rules)
        self.train(plan, target, sites.STEPS, *resume)
        for name, values in read_tensors(target).items():
            require(numpy.array_equal(values, whole[name]), f"{name} has other bits")
        other = self.compile("pp=2,sites=2", *outer)
        self.train(other, target, sites.STEPS, *resume)
        return self.compare(read_tensors(target), whole, 1e-5)

    def check_threads(self) -> str:
        """The norm has the same bits with any number of threads."""
        plan = self.compile("sites=2", "--outer", "clip:2,radius=1")
        words = ("--weights", self.start, *self.rules("adamw"))
        found = []
        for threads in (1, 3):
            target = self.folder / f"threads-{threads}.safetensors"
            self.train(plan, target, 2, *words, "--threads", threads)
            found.append(read_tensors(target))
        for name, values in found[0].items():
            require(numpy.array_equal(values, found[1][name]), f"{name} has other bits")
        return ""

    def check_processes(self) -> str:
        outer = ("--outer", "clip:1,radius=1")
        self.compare_processes("pp=2,tp=2,sites=2", *outer, steps=2)
        return ""

    def check_predicted(self) -> str:
        """The planner's list of an agreement is that of the plan: what sites exchange,
        and the norm over the axes of a site."""
        report, plan = self.folder / "report.json", self.folder / "predicted.plan"
        mesh = ("--mesh", "pp=2,tp=2,sites=2", "--outer", "clip:2,radius=1")
        self.tools.run(
            *self.words(*mesh), "--cluster", "cpu:8", "--json", report, "-o", plan
        )
        keys, told = sites.compare_lists(
            self.tools, report, plan, lambda x: x["in"] == "agreement"
        )
        require({"pp", "tp", "sites"} == {over for over, _ in keys}, str(keys))
        return f"{', '.join(told)} of the plan's bytes and seconds"

    def check_defects(self) -> str:
        plan = self.compile("pp=2,tp=2,sites=2", "--outer", "clip:2,radius=1")
        return self.refuse_defects(((plan, clipping_defects.DEFECTS),))

    def check_errors(self) -> str:
        bounds = "expected above 0 and at most 1e30"
        cases = {
            "has no radius, expected one, as in clip:8,radius=1": "clip:2",
            f'radius "0", {bounds}': "clip:2,radius=0",
            f'radius "-1", {bounds}': "clip:2,radius=-1",
            f'radius "nan", {bounds}': "clip:2,radius=nan",
            f'radius "inf", {bounds}': "clip:2,radius=inf",
            f'radius "wide", {bounds}': "clip:2,radius=wide",
            "expected the steps behind it, as clip:8,radius=1": "clip",
            "expected radius=R or rate=R, each once": "clip:2,radius=1,momentum=0.9",
            "for processors, not for GPUs": "clip:2,radius=1",
        }
        for text, outer in cases.items():
            more = ("--backend", "cuda") if "GPUs" in text else ()
            self.refuse(text, "--mesh", "sites=2", "--outer", outer, *more)
        plan = self.compile("sites=2", "--outer", "clip:2,radius=1")
        outcome = self.tools.call("plait-run", plan, "--coordinate", 0)
        text = "by average or diloco"
        require(outcome.code != 0 and text in outcome.stderr, outcome.stderr)
        return f"{len(cases) + 1} errors"


CHECKS = (
    "identities", "bf16", "resumed", "threads", "processes", "predicted", "defects",
    "errors",
)  # fmt: skip


def main() -> int:
    return sites.run_suite("clipping", __doc__, Suite, RUNS, CHECKS)


if __name__ == "__main__":
    sys.exit(main())
