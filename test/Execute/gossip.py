#!/usr/bin/env python3
#===- gossip.py - Averaging with neighbours against numpy -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains a small GPT-2 on sites that average with their neighbours, or take what is in
the middle, and compares the weights of each site with numpy (sites.py says how). Mixing
matrices, and how fast they bring sites together, are held against their definitions and
against the formulas of textbooks."""

import dataclasses
import json
import math
import pathlib
import random
import re
import sys

import numpy

import gossip_defects
import local_steps
import sites
from checkpoint_suite import read_checkpoint
from harness import Tools, require
from sites import TOLERANCE, Run
from tensors import read_tensors

STEPS = 3

# Directed, of different weights, and with a zero: transposed it is another one.
MATRIX = """0.5 0.25 0.25 0
0 0.5 0.25 0.25
0.5 0 0.25 0.25
0 0.25 0.25 0.5
"""

RUNS = (
    Run("gossip:ring", "sites=4"),
    Run("gossip:exponential", "sites=4"),
    Run("gossip:one-peer", "sites=4", "sgd"),
    Run("gossip:grid", "sites=2"),
    Run("gossip:matrix.txt", "sites=4"),
    Run("gossip:ring,average=2", "sites=4"),
    Run("gossip:ring,every=2", "sites=2"),
    Run("median:2", "sites=4"),
    Run("median:1", "sites=2", "sgd"),
    Run("trimmed:1", "sites=4"),
)

# Of one site the same training as without any split.
LAYOUTS = (
    ("tp=2,sites=4", ("--outer", "gossip:exponential,every=2,average=2")),
    ("pp=2,sites=4", ("--outer", "gossip:exponential,every=2,average=2")),
    ("pp=2,sites=4", ("--outer", "gossip:one-peer", "--schedule", "zb-h1")),
    ("pp=2,dp=2,tp=2,sites=2", ("--outer", "gossip:ring")),
    ("dp=2,sites=4", ("--outer", "gossip:one-peer", "--zero", "2")),
    ("tp=2,sites=4", ("--outer", "median:2")),
    ("pp=2,sites=4", ("--outer", "trimmed:2")),
)

# Where each of these has a formula of the number of sites.
GRAPHS = ("ring", "exponential", "grid", "one-peer")
COUNTS = (6, 8, 16)


# With --all, and without it.
DRAWS, FEW_DRAWS = 60, 4


def draw_matrix(rng: random.Random, count: int) -> str:
    """A mean of permutations, one of which is the identity, which is doubly stochastic
    (Birkhoff 1946); a circle is another one, so that all sites are connected."""
    circle = [(i + 1) % count for i in range(count)]
    others = [rng.sample(range(count), count) for _ in range(rng.choice((0, 1, 2)))]
    permutations = [list(range(count)), circle, *others]
    parts = [rng.random() + 0.1 for _ in permutations]
    w = sum(
        part / sum(parts) * numpy.eye(count)[own]
        for part, own in zip(parts, permutations)
    )
    return "\n".join(" ".join(f"{x:.8f}" for x in row) for row in w)


def draw_outer(rng: random.Random, count: int, folder: pathlib.Path) -> str:
    every = rng.choice((1, 1, 2))
    name = rng.choice(("gossip",) * 5 + ("average", "diloco", "median", "trimmed"))
    if name == "diloco":
        return f"diloco:{every},rate={rng.uniform(0.1, 1):.2f},momentum={rng.choice((0, 0.5))}"
    if name != "gossip":
        return f"{'median' if name == 'trimmed' and count < 3 else name}:{every}"
    graph = rng.choice((*GRAPHS, "complete", "file", "file"))
    if graph == "file":
        path = folder / f"drawn-{rng.getrandbits(40)}.txt"
        matrices = [draw_matrix(rng, count) for _ in range(rng.choice((1, 2)))]
        path.write_text("\n\n".join(matrices) + "\n")
        graph = str(path)
    return f"gossip:{graph},every={every}" + rng.choice(("", "", ",average=2"))


def draw_run(seed: int, folder: pathlib.Path) -> Run:
    """A scheme, and a layout of each site."""
    rng = random.Random(seed)
    count = rng.choice((2, 4))
    axes, options = sites.draw_layout(rng)
    outer = draw_outer(rng, count, folder)
    optimizer = rng.choice(("adamw", "sgd"))
    return Run(outer, f"{axes}sites={count}", optimizer, tuple(options))


class Suite(sites.Suite):
    steps, bound = STEPS, TOLERANCE

    def __init__(self, tools: Tools, folder: pathlib.Path):
        super().__init__(tools, folder)
        self.matrix = folder / "matrix.txt"
        self.matrix.write_text(MATRIX)
        self.measured: dict = {}

    def outer(self, text: str) -> str:
        return text.replace("matrix.txt", str(self.matrix))

    def compile_outer(self, mesh: str, text: str, *options) -> pathlib.Path:
        return self.compile(mesh, "--outer", self.outer(text), *options)

    def measure(self, weights, step: int, site: int, sites: int):
        """Runs begin alike, so that what they begin with is measured once."""
        key = (step, site, sites)
        if step == 1 and key in self.measured:
            return self.measured[key]
        found = super().measure(weights, step, site, sites)
        if step == 1:
            self.measured[key] = found
        return found

    def train_sites(self, plan, count: int, steps, *options) -> list[dict]:
        """The weights of each site, from a checkpoint; what is saved is their mean."""
        kept, saved = self.folder / "kept", self.folder / "mean.safetensors"
        for path in sorted(kept.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        words = ("--checkpoint", kept, "--checkpoint-every", steps, *options)
        self.train(plan, saved, steps, *words)
        _, slots = read_checkpoint(kept / f"step-{steps:08}")
        found = [
            {name: slots[name, f"weight.{site}"] for name, slot in slots
             if slot == "weight.0"}
            for site in range(count)
        ]  # fmt: skip
        for name, values in read_tensors(saved).items():
            mean = sum(site[name].astype(float) for site in found) / count
            off = numpy.abs(values - mean).max()
            require(off <= 1e-6 * numpy.abs(mean).max(), f"{name}: mean off {off}")
        return found

    def simulate_sites(self, run: Run, steps: int) -> list[dict]:
        run = dataclasses.replace(run, outer=self.outer(run.outer))
        states, outer = self.begin(run)
        every = local_steps.parse(run.outer).every
        self.advance(states, outer, every, range(1, steps + 1))
        return [weights for weights, _ in states]

    def check(self, run: Run) -> str:
        options = ("--optimizer", run.optimizer, *run.options)
        plan = self.compile_outer(run.mesh, run.outer, *options)
        rules = ("--weights", self.start, *self.rules(run.optimizer))
        found = self.train_sites(plan, run.sites, self.steps, *rules)
        expected = self.simulate_sites(run, self.steps)
        texts = [self.compare(*pair, self.bound) for pair in zip(found, expected)]
        return f"{len(texts)} sites, the first {texts[0]}"

    def check_draw(self, seed: int) -> str:
        run = draw_run(seed, self.folder)
        name = run.name.replace(f"{self.folder}/", "")
        return f"{name}: {self.check(run)}"

    def check_layout(self, mesh, options) -> str:
        rules = ("--weights", self.start, *self.rules("adamw"))
        count = int(re.search(r"sites=(\d+)", mesh)[1])
        flat = self.compile(f"sites={count}", *options[:2])
        expected = self.train_sites(flat, count, 4, *rules)
        found = self.train_sites(self.compile(mesh, *options), count, 4, *rules)
        return [self.compare(*pair) for pair in zip(found, expected)][-1]

    def check_complete(self) -> str:
        """W = J/n is the mean of all; a mean in each agreement is local SGD, to the
        bit."""
        rules = self.rules("adamw")
        expected, losses = self.result("sites=4", ("--outer", "average:1"), *rules)
        found, _ = self.result("sites=4", ("--outer", "gossip:complete"), *rules)
        text = self.compare(found, expected)
        always, own = self.result(
            "sites=4", ("--outer", "gossip:ring,average=1"), *rules
        )
        require(losses == own, f"losses {own}, expected {losses}")
        for name, values in expected.items():
            require(numpy.array_equal(values, always[name]), f"{name} has other bits")
        return text

    def check_bf16(self) -> str:
        """What sites compute with follows their weights, whole or divided: the mean over
        the complete graph, with the copies of it, is that of a sum."""
        rules, told = self.rules("sgd"), []
        for mesh, more in (("sites=2", ()), ("dp=2,sites=2", ("--zero", "1"))):
            options = ("--optimizer", "sgd", "--precision", "bf16", *more)
            expected, losses = self.result(
                mesh, (*options, "--outer", "average:1"), *rules
            )
            found, own = self.result(
                mesh, (*options, "--outer", "gossip:complete"), *rules
            )
            learned = abs(losses[-1] - losses[0])
            off = max(abs(a - b) for a, b in zip(losses, own))
            require(off <= learned / 64, f"{mesh}: losses off {off} of {learned}")
            told.append(self.compare(found, expected, 2**-6))
        return "; ".join(told)

    def check_one_site(self) -> str:
        """One site is plain training, to the bit."""
        rules = self.rules("adamw")
        plain, losses = self.result("dp=2", (), *rules)
        for outer in ("gossip:ring", "gossip:one-peer,average=2", "median:1"):
            one, own = self.result("dp=2,sites=1", ("--outer", outer), *rules)
            require(losses == own, f"{outer}: losses {own}, expected {losses}")
            for name, values in plain.items():
                require(numpy.array_equal(values, one[name]), f"{outer}: {name}")
        return ""

    def check_exact(self) -> str:
        """Of four sites, two one-peer agreements are the exact mean: sites train a step,
        and then agree without training."""
        plan, kept = self.compile_outer("sites=4", "gossip:one-peer"), self.folder / "kept"
        rules = self.rules("sgd")
        plan = self.compile_outer("sites=4", "gossip:one-peer", "--optimizer", "sgd")
        apart = self.train_sites(plan, 4, 1, "--weights", self.start, *rules)
        target = self.folder / "still.safetensors"
        still = ("--resume", kept, "--checkpoint", kept, "--checkpoint-every", 2)
        self.train(plan, target, 2, *still, "--lr", 0, "--beta1", 0)
        _, slots = read_checkpoint(kept / "step-00000002")
        mean = local_steps.mean([{k: v.astype(float) for k, v in x.items()} for x in apart])
        for site in range(4):
            own = {name: slots[name, f"weight.{site}"] for name in mean}
            text = self.compare(own, mean)
        moved = max(
            numpy.abs(site[name] - mean[name]).max() for site in apart for name in mean
        )
        require(moved > 1e-4, f"sites were {moved} apart only")
        return text

    def show(self, count: int, graph: str) -> str:
        plan = self.compile_outer(
            f"sites={count}", f"gossip:{graph}", "--global-batch", count
        )
        return self.tools.run("plait-plan", "show", plan).stdout

    def check_spectra(self) -> str:
        return ", ".join(f"{graph}: {self.check_spectrum(graph)}" for graph in GRAPHS)

    def check_spectrum(self, graph: str) -> str:
        told = []
        for count in COUNTS:
            shown = float(re.search(r"rho .*?(\d\.\d{4})$", self.show(count, graph),
                                    re.MULTILINE)[1])  # fmt: skip
            period = local_steps.make_graph(graph, count)
            hops = math.ceil(math.log2(count))
            known = {
                "ring": (1 + 2 * math.cos(2 * math.pi / count)) / 3,
                "exponential": (hops - 1) / (hops + 1),
            }
            exact = known.get(graph, local_steps.contraction(period))
            if graph == "one-peer" and count == 2**hops:
                exact = 0.0
            require(abs(shown - exact) <= 5.1e-5, f"{count}: {shown}, expected {exact}")
            told.append(f"{count}: {shown:.4f}")
        return ", ".join(told)

    def check_told(self) -> str:
        """The bytes of what a site sends: all weights to each neighbour."""
        whole = self.bytes_of("gradients", self.show(4, "ring"))
        for graph, messages in (("ring", 2), ("exponential", 2), ("one-peer", 1)):
            text = self.show(4, graph)
            row = "sites, every 2 steps" if messages == 1 else "sites, when they agree"
            require(self.bytes_of(row, text) == messages * whole, text)
            mean = self.bytes_of("sites, in a step on average", text)
            require(mean == messages * whole + 18, f"{graph}: {mean} bytes")
        plan = self.compile_outer("sites=4", "gossip:ring,every=3,average=2")
        text = self.tools.run("plait-plan", "show", plan).stdout
        mixed = self.bytes_of("sites, every 3 steps, not every 6", text)
        averaged = self.bytes_of("sites, every 6 steps", text)
        mean = self.bytes_of("sites, in a step on average", text)
        require(mixed == 2 * whole and 2 * averaged == 3 * whole, text)
        require(mean == 18 + int((mixed + averaged) / 6), text)
        return f"{whole} bytes"

    def check_simulated(self) -> str:
        """A site that sends to more neighbours takes longer, by one message each."""
        seconds = []
        for graph in ("one-peer", "ring", "complete"):
            plan = self.compile_outer("sites=4", f"gossip:{graph}")
            text = self.tools.run("plait-plan", "simulate", plan).stdout
            seconds.append(float(re.search(r"^step +([\d.]+) ms", text, re.MULTILINE)[1]))
        one, two, three = seconds
        off = abs((three - two) - (two - one)) / (two - one)
        require(one < two and off < 0.01, f"{seconds} ms")
        return f"{seconds} ms"

    def check_predicted(self) -> str:
        """The planner's list of what sites exchange is that of the plan, but for how
        many messages the weights are and for padding."""
        report, told = self.folder / "report.json", []
        for outer in ("average:2", "gossip:exponential,average=2", "median:2"):
            plan = self.folder / f"{outer}.plan"
            self.tools.run(
                *self.words("--mesh", "tp=2,sites=4", "--outer", outer), "--cluster",
                "cpu:8", "--json", report, "-o", plan,
            )  # fmt: skip
            told += sites.compare_lists(
                self.tools, report, plan, lambda x: x["over"] == "sites"
            )[1]
        return f"{', '.join(told)} of the plan's bytes and seconds"

    def check_processes(self) -> str:
        for outer in ("gossip:exponential", "trimmed:1"):
            self.compare_processes("pp=2,sites=4", "--outer", outer, steps=STEPS)
        return ""

    def check_evaluated(self) -> str:
        """An evaluation agrees about nothing: also where sites agree in each step."""
        rules = self.rules("adamw")
        evaluates = ("--eval-tokens", self.tokens, "--eval-every", 1)
        for outer in ("gossip:ring", "diloco:1", "median:1"):
            plain, _ = self.result("sites=2", ("--outer", outer), *rules, steps=STEPS)
            found, _ = self.result(
                "sites=2", ("--outer", outer), *rules, *evaluates, steps=STEPS
            )
            for name, values in plain.items():
                require(numpy.array_equal(values, found[name]), f"{outer}: {name}")
        return ""

    def check_defects(self) -> str:
        plans = (
            (self.compile_outer("sites=4", "gossip:exponential,every=2,average=2"),
             gossip_defects.DEFECTS),
            (self.compile_outer("sites=4", "gossip:ring", "--precision", "bf16"),
             gossip_defects.COPY_DEFECTS),
            (self.compile_outer("sites=4", "trimmed:2"), gossip_defects.MIDDLE_DEFECTS),
        )  # fmt: skip
        return self.refuse_defects(plans)

    def check_memory(self) -> str:
        """What sites receive has to fit, too, and is counted to the byte."""
        cluster, plan = self.folder / "small.json", self.folder / "fits.plan"
        micro = ("--micro-batch", 2)
        mesh = ("--mesh", "sites=4", *micro, "--cluster", cluster, "-o", plan)
        needed = []
        for outer in ("average:1", "gossip:ring"):
            own = self.compile("sites=4", "--outer", outer, *micro)
            shown = self.tools.run("plait-plan", "show", own).stdout
            needed.append(self.bytes_of("arena", shown))
        require(needed[0] < needed[1], f"{needed}")
        for room, fits in ((needed[1], True), (needed[1] - 64, False)):
            device = {"memoryBytes": 4 * room, "reservedBytes": 0}
            device = {key: {"value": x, "source": "test"} for key, x in device.items()}
            whole = {"extends": "cpu", "name": "small", "device": device}
            whole = {"name": "small", "device": whole, "nodes": 1, "devicesPerNode": 4}
            cluster.write_text(json.dumps(whole))
            words = self.words(*mesh, "--outer", "gossip:ring")
            outcome = self.tools.call(*words)
            require((outcome.code == 0) == fits, outcome.stderr)
        text = f"stage 0 needs {needed[1]} bytes, a device of small.json has"
        require(text.replace("small.json", str(cluster)) in outcome.stderr,
                outcome.stderr)  # fmt: skip
        self.tools.run(*self.words(*mesh, "--outer", "average:1"))
        return f"{needed} bytes"

    def check_errors(self) -> str:
        def graph(text: str) -> str:
            path = self.folder / f"wrong-{len(list(self.folder.glob('wrong-*')))}"
            path.write_text(text)
            return f"gossip:{path}"

        cases = {
            'graph "star", expected ring, grid, exponential, one-peer, complete or a file':
                "gossip:star",
            "expected the graph behind it, as gossip:ring": "gossip",
            'every "0", expected 1 to': "gossip:ring,every=0",
            "expected every=E or average=A, each once": "gossip:ring,every=2,every=2",
            "not doubly stochastic: column 0 adds up to 1.5, expected 1 up to 1e-05":
                graph("1 0\n.5 .5\n"),
            "not doubly stochastic: row 1 adds up to 0.9": graph(".5 .5\n.5 .4\n"),
            "has -0.5 in row 0 and column 0": graph("-.5 1.5\n1.5 -.5\n"),
            "has nan in row 0 and column 1": graph(".5 nan\n.5 .5\n"),
            "has a graph that is not connected: nothing of site 0 ever comes to site 1": graph("1 0\n0 1\n"),
            "has a graph by which sites never agree: what they differ by shrinks by the "
            "factor 1": graph("0 1\n1 0\n"),
            "has a matrix of 3 rows, expected 2": graph("1 0 0\n0 1 0\n0 0 1\n"),
            "has 3 numbers in row 1 of a matrix, expected 2": graph(".5 .5\n.5 .5 0\n"),
            'has "half" in row 0 of a matrix, expected a number': graph("half .5\n.5 .5"),
            "has ';' in a matrix, expected numbers": graph(".5;.5\n.5 .5\n"),
            "has drop 1, which takes more than 2 sites, not 2": "trimmed:2",
            "but median has none": "median:2,drop=1",
            "expected drop=D, once": "trimmed:2,rate=1",
        }  # fmt: skip
        others = {
            "is gossip of 257 sites, expected at most 256": (257, "gossip:ring"),
            "has a graph of 65 matrices, expected at most 64":
                (2, graph(".5 .5\n.5 .5\n\n" * 65)),
        }  # fmt: skip
        cases = {text: (2, outer) for text, outer in cases.items()} | others
        for text, (count, outer) in cases.items():
            mesh = ("--mesh", f"sites={count}", "--global-batch", count)
            self.refuse(text, *mesh, "--outer", outer)
        return f"{len(cases)} errors"


CHECKS = (
    "spectra", "complete", "bf16", "one-site", "exact", "told", "simulated", "predicted", "processes",
    "evaluated", "defects", "memory", "errors",
)  # fmt: skip


def main() -> int:
    return sites.run_suite("gossip", __doc__, Suite, RUNS, CHECKS, LAYOUTS, (FEW_DRAWS, DRAWS))


if __name__ == "__main__":
    sys.exit(main())
