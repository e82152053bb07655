#!/usr/bin/env python3
#===- heterogeneous.py - Sites with data of their own -----*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains small models in the nn dialect, whose gradients numpy has by formulas, on sites
whose data differs, and compares the weights of each site with what the papers' formulas
come to (corrections.py)."""

import dataclasses
import functools
import json
import pathlib
import random
import re
import struct
import sys

import numpy

import corrections
import correction_defects
import covering
import local_steps
import processes
import site_defects
import sites
from checkpoint_suite import read_checkpoint
from harness import ROOT, Tools, require
from sites import draw_layout, run_suite
from tensors import read_tensors

CLASSES, FEATURES, BATCH, SEQUENCE, STEPS = 32, 8, 8, 8, 5
RATE, TOLERANCE = 0.5, 1e-5
DRAWS, FEW_DRAWS = 200, 5

# Softmax regression behind two matrices, one a layer, of given features.
MODEL = f"""
module attributes {{plait.model = {{layers = 2 : i64, model_type = "regression",
    name = "regression", vocab = {CLASSES} : i64}}}} {{
  nn.parameter @features : tensor<{CLASSES}x{FEATURES}xf32> init<mean = 0.0, std = 1.0>
  nn.parameter @first : tensor<{FEATURES}x{FEATURES}xf32> init<mean = 0.0, std = 0.3>
  nn.parameter @second : tensor<{FEATURES}x{CLASSES}xf32> init<mean = 0.0, std = 0.3>

  func.func @loss(%tokens: tensor<1x{SEQUENCE}xi32>, %targets: tensor<1x{SEQUENCE}xi32>)
      -> (tensor<f32>, tensor<f32>) {{
    %table = nn.read @features value : tensor<{CLASSES}x{FEATURES}xf32>
    %given = nn.stop_gradient %table : tensor<{CLASSES}x{FEATURES}xf32>
    %x = nn.embedding %given, %tokens : (tensor<{CLASSES}x{FEATURES}xf32>, tensor<1x{SEQUENCE}xi32>) -> tensor<1x{SEQUENCE}x{FEATURES}xf32>
    %a = nn.read @first value {{nn.layer = 0}} : tensor<{FEATURES}x{FEATURES}xf32>
    %h = nn.matmul %x, %a "bsh,hv->bsv" {{nn.layer = 0}} : (tensor<1x{SEQUENCE}x{FEATURES}xf32>, tensor<{FEATURES}x{FEATURES}xf32>) -> tensor<1x{SEQUENCE}x{FEATURES}xf32>
    %b = nn.read @second value {{nn.layer = 1}} : tensor<{FEATURES}x{CLASSES}xf32>
    %logits = nn.matmul %h, %b "bsh,hv->bsv" {{nn.layer = 1}} : (tensor<1x{SEQUENCE}x{FEATURES}xf32>, tensor<{FEATURES}x{CLASSES}xf32>) -> tensor<1x{SEQUENCE}x{CLASSES}xf32>
    %sum, %count = nn.softmax_cross_entropy %logits, %targets ignore -100 : (tensor<1x{SEQUENCE}x{CLASSES}xf32>, tensor<1x{SEQUENCE}xi32>) -> (tensor<f32>, tensor<f32>)
    return %sum, %count : tensor<f32>, tensor<f32>
  }}
}}
"""
# Directed, of different weights, and with a zero: transposed it is another one.
MATRIX = "0.5 0.25 0.25 0\n0 0.5 0.25 0.25\n0.5 0 0.25 0.25\n0 0.25 0.25 0.5\n"


@dataclasses.dataclass(frozen=True)
class Run:
    outer: str
    mesh: str
    options: tuple[str, ...] = ()  # of plaitc
    words: tuple = ()  # of plait-run

    @property
    def name(self) -> str:
        words = [str(x).removeprefix("--") for x in (*self.options, *self.words)]
        return "/".join((self.outer, self.mesh, *words))

    @property
    def sites(self) -> int:
        return int(re.search(r"sites=(\d+)", self.mesh)[1])

    def get_choices(self) -> dict:
        own = {"scheme": self.outer.split(":")[0]}
        return own | covering.split_options(self.mesh, (*self.options, *self.words))


RUNS = (
    Run("scaffold:2", "sites=2"),
    Run("scaffold:1", "sites=4"),
    Run("scaffold:3", "tp=2,sites=4"),
    Run("scaffold:2", "pp=2,sites=2", ("--schedule", "zb-h1")),
    Run("scaffold:2", "sites=2", (), ("--beta1", 0.5)),
    Run("tracking:ring", "sites=4"),
    Run("tracking:matrix.txt", "sites=4"),
    Run("tracking:matrix.txt,every=2", "sites=4"),
    Run("tracking:exponential", "tp=2,sites=4"),
    Run("tracking:one-peer,every=2", "pp=2,sites=4"),
    Run("tracking:ring", "sites=4", (), ("--beta1", 0.5)),
    Run("tracking:ring", "sites=4", (), ("--lr-schedule", "linear")),
    Run("tracking:ring", "dp=2,sites=4", ("--zero", "1")),
    Run("awc:matrix.txt", "sites=4"),
    Run("awc:ring,every=2", "tp=2,sites=4"),
    Run("awc:one-peer", "pp=2,sites=4"),
    Run("awc:grid", "dp=2,sites=2", ("--zero", "2")),
)


def draw_run(seed: int) -> Run:
    """A scheme, and a layout of each site."""
    rng = random.Random(seed)
    count = rng.choice((2, 4))
    every = rng.choice((1, 1, 2, 3))
    graph = rng.choice(("ring", "grid", "exponential", "one-peer", "complete"))
    outer = rng.choice((
        f"average:{every}", f"scaffold:{every}", f"tracking:{graph},every={every}",
        f"awc:{graph},every={every}", f"gossip:{graph},every={every}",
        f"gossip:{graph},average=2", f"median:{every}",
        f"diloco:{every},rate=0.5,momentum=0.5", "streaming:3,fragments=1,momentum=0.5",
    ))  # fmt: skip
    axes, options = draw_layout(rng)
    options += ["--precision", rng.choice(("fp32", "fp32", "bf16"))]
    words = ("--beta1", rng.choice((0.5, 0.9))) if rng.random() < 0.4 else ()
    return Run(outer, f"{axes}sites={count}", tuple(options), words)


class Suite:
    def __init__(self, tools: Tools, folder: pathlib.Path):
        self.tools, self.folder = tools, folder
        (folder / "model.mlir").write_text(MODEL)
        (folder / "matrix.txt").write_text(MATRIX)
        draw = numpy.random.RandomState(1)
        shapes = {
            "features": (CLASSES, FEATURES),
            "first": (FEATURES, FEATURES),
            "second": (FEATURES, CLASSES),
        }
        self.start = {
            name: draw.standard_normal(shape).astype("f4").astype(float)
            for name, shape in shapes.items()
        }
        local_steps.write(folder / "start.safetensors", self.start)
        self.tokens = {count: self.write_tokens(count) for count in (2, 4)}
        self.plans: dict[tuple, pathlib.Path] = {}

    def write_tokens(self, count: int) -> list[numpy.ndarray]:
        """Of so many sites, each a file in which some tokens come more often."""
        own = []
        for site in range(count):
            draw = random.Random(count * 10 + site)
            samples = STEPS * BATCH // count
            tokens = [
                draw.randrange(CLASSES) if draw.random() < 0.3
                else (8 * site + draw.randrange(8)) % CLASSES
                for _ in range(samples * SEQUENCE + 1)
            ]  # fmt: skip
            data = struct.pack(f"<{len(tokens)}H", *tokens)
            (self.folder / f"of-{count}-{site}.bin").write_bytes(data)
            own.append(numpy.array(tokens))
        return own

    def gradient(self, tokens: numpy.ndarray, weights: dict) -> dict:
        """Of the mean loss over these, the last one of which is a target only."""
        x, targets = weights["features"][tokens[:-1]], tokens[1:]
        h = x @ weights["first"]
        logits = h @ weights["second"]
        p = numpy.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p[numpy.arange(len(targets)), targets] -= 1
        p /= len(targets)
        return {
            "features": numpy.zeros_like(weights["features"]),
            "first": x.T @ (p @ weights["second"].T),
            "second": h.T @ p,
        }

    def simulate(self, run: Run, steps=STEPS) -> list[dict]:
        count = run.sites
        rows = BATCH // count * SEQUENCE

        def gradient(site: int, step: int, weights: dict) -> dict:
            begin = (step - 1) * rows
            own = self.tokens[count][site][begin : begin + rows + 1]
            return self.gradient(own, weights)

        words = dict(zip(run.words[::2], run.words[1::2]))
        isLinear = words.get("--lr-schedule") == "linear"

        def rate(step: int) -> float:
            return RATE * (1 - (step - 1) / STEPS) if isLinear else RATE

        outer = run.outer.replace("matrix.txt", str(self.folder / "matrix.txt"))
        beta = float(words.get("--beta1", 0))
        return corrections.train(
            outer, gradient, self.start, count, steps, rate, beta
        )

    def words_of(self, run: Run) -> list:
        outer = run.outer.replace("matrix.txt", str(self.folder / "matrix.txt"))
        return [
            "plaitc", self.folder / "model.mlir", "--seq", SEQUENCE, "--no-reference",
            "--global-batch", BATCH, "--optimizer", "sgd", "--mesh", run.mesh,
            "--outer", outer, *run.options,
        ]  # fmt: skip

    def compile(self, run: Run) -> pathlib.Path:
        key = (run.outer, run.mesh, run.options)
        if key not in self.plans:
            plan = self.folder / f"plan-{len(self.plans)}.plan"
            self.tools.run(*self.words_of(run), "-o", plan)
            self.plans[key] = plan
        return self.plans[key]

    def run_words(self, plan, run: Run, steps: int, tokens=None) -> list:
        own = tokens or self.folder / f"of-{run.sites}-{{site}}.bin"
        words = ["--lr", RATE, *(() if "--beta1" in run.words else ("--beta1", 0))]
        return [
            "plait-run", plan, "--tokens", own, "--token-type", "uint16",
            "--weight-decay", 0, "--grad-clip", 0, "--threads", 1, "--steps", steps,
            *words, *run.words,
        ]  # fmt: skip

    def train(self, run: Run, *more, steps=STEPS, tokens=None) -> list[dict]:
        """The weights of each site."""
        kept = self.folder / "kept"
        if "--resume" not in more:
            for path in sorted(kept.rglob("*"), reverse=True):
                path.unlink() if path.is_file() else path.rmdir()
            more = (*more, "--weights", self.folder / "start.safetensors")
        self.tools.run(
            *self.run_words(self.compile(run), run, steps, tokens),
            "--checkpoint", kept, "--checkpoint-every", steps, *more,
        )  # fmt: skip
        _, self.slots = read_checkpoint(kept / f"step-{steps:08}")
        return [
            {name: self.slots[name, f"weight.{site}"] for name in self.start}
            for site in range(run.sites)
        ]

    def compare(self, found: list[dict], expected: list[dict], bound=TOLERANCE) -> str:
        """Against how far weights have moved."""
        worst = 0.0
        for site, (own, wanted) in enumerate(zip(found, expected)):
            for name, values in wanted.items():
                moved = numpy.abs(values - self.start[name]).max()
                off = numpy.abs(own[name] - values).max()
                if name == "features":
                    require(off <= 1e-6, f"site {site}: features moved by {off:.3g}")
                    continue
                require(off <= bound * moved, f"site {site}: {name} is off by {off:.3g}, "
                        f"it moved by {moved:.3g}")  # fmt: skip
                worst = max(worst, float(off / moved))
        return f"off {worst:.2g} of what weights moved by"

    def check(self, run: Run) -> str:
        bound = 2**-4 if "bf16" in run.options else TOLERANCE
        return self.compare(self.train(run), self.simulate(run), bound)

    def check_draw(self, seed: int) -> str:
        run = draw_run(seed)
        return f"{run.name}: {self.check(run)}"

    def check_balance(self) -> str:
        """Corrections of all sites add up to nothing, and are something."""
        told = []
        for outer in ("scaffold:2", "tracking:matrix.txt"):
            self.train(Run(outer, "sites=4"))
            own = [self.slots["second", f"correction.{site}"] for site in range(4)]
            off, most = numpy.abs(sum(own)).max(), numpy.abs(own).max()
            require(off <= 1e-5 * most and most > 0.01, f"{outer}: {off} of {most}")
            told.append(f"{off / most:.1g}")
        return ", ".join(told)

    def check_identities(self) -> str:
        """On the complete graph tracking is SCAFFOLD, and one site of a scheme trains as
        it does with that of no scheme."""
        scaffold = self.train(Run("scaffold:2", "sites=4"))
        found = self.train(Run("tracking:complete,every=2", "sites=4"))
        text = self.compare(found, self.widen(scaffold))
        tokens = self.folder / "of-2-0.bin"
        plain = self.train(Run("average:1", "dp=2,sites=1"), tokens=tokens)[0]
        for outer in ("scaffold:2", "tracking:ring", "awc:ring,every=2"):
            one = self.train(Run(outer, "dp=2,sites=1"), tokens=tokens)[0]
            for name, values in plain.items():
                require(numpy.array_equal(values, one[name]), f"{outer}: {name}")
        return text

    def widen(self, sites: list[dict]) -> list[dict]:
        return [{k: v.astype(float) for k, v in x.items()} for x in sites]

    def check_processes(self) -> str:
        """Several processes have the bits of threads."""
        runs = processes.Suite(self.tools, None, self.folder)
        for outer in ("scaffold:2", "tracking:matrix.txt"):
            run, target = Run(outer, "sites=4"), self.folder / "saved"
            found = []
            for call in (self.tools.run, functools.partial(self.start_processes, runs)):
                words = self.run_words(self.compile(run), run, STEPS)
                start = self.folder / "start.safetensors"
                call(*words, "--weights", start, "--save", target)
                found.append(read_tensors(next(target.rglob("*.safetensors"))))
            for name, values in found[0].items():
                require(numpy.array_equal(values, found[1][name]), f"{outer}: {name}")
        return ""

    def start_processes(self, runs, program: str, *words) -> None:
        done = runs.mpirun(2, *words)
        require(done.code == 0, done.stderr)

    def check_parts(self) -> str:
        """`{part}` is a file for each of its parts, and both are the samples of one
        file where it lies as a global batch does."""
        run = Run("tracking:ring", "sites=4")
        whole = self.folder / "whole.bin"
        # Samples overlap by a token: the parts of a file have one in common.
        text, whole_tokens = [], []
        for site in range(4):
            whole_tokens += list(self.tokens[4][site][:-1])
        whole_tokens.append(int(self.tokens[4][3][-1]))
        whole.write_bytes(struct.pack(f"<{len(whole_tokens)}H", *whole_tokens))
        found = self.train(run, tokens=f"{whole}{{part}}")
        own = self.tokens[4]
        size = STEPS * BATCH // 4 * SEQUENCE
        self.tokens[4] = [
            numpy.array(whole_tokens[site * size : (site + 1) * size + 1])
            for site in range(4)
        ]
        text = self.compare(found, self.simulate(run))
        self.tokens[4] = own
        return text

    def check_samples(self) -> str:
        """Each row of a log is of the file of its site, as often as its weight says."""
        run, log = Run("average:1", "dp=2,sites=2"), self.folder / "samples.jsonl"
        shared = self.folder / "of-2-0.bin"
        own = f"{shared}:0.5,{self.folder}/of-2-{{site}}.bin:0.5"
        self.tools.run(
            *self.run_words(self.compile(run), run, 4, own), "--log-samples", log,
        )  # fmt: skip
        rows = [json.loads(x)["samples"] for x in log.read_text().splitlines()]
        for step in rows:
            for row, (source, _) in enumerate(step):
                require(source // 2 == row // (BATCH // 2), f"row {row}: {source}")
        seen = [sum(x[0] == i for step in rows for x in step) for i in range(4)]
        require(seen == [8] * 4, f"{seen}")
        return f"{seen} samples"

    def check_resumed(self) -> str:
        """Between two agreements, on other ranks, and from other data not at all."""
        for outer in ("scaffold:3", "tracking:ring,every=3", "awc:ring,every=3"):
            run = Run(outer, "sites=4")
            whole = self.train(run)
            self.train(run, steps=2)
            resumed = ("--resume", self.folder / "kept")
            again = self.train(run, *resumed)
            for one, other in zip(whole, again):
                for name in one:
                    same = numpy.array_equal(one[name], other[name])
                    require(same, f"{outer}: {name} has other bits")
            self.train(run, steps=2)
            spread = self.train(Run(outer, "pp=2,tp=2,sites=4"), *resumed)
            text = self.compare(spread, self.widen(whole))
        self.train(Run("scaffold:2", "sites=4"), steps=2)
        two = Run("scaffold:2", "sites=2")
        outcome = self.tools.call(
            *self.run_words(self.compile(two), two, STEPS), *resumed
        )
        said = "whose corrections add up to 0 with those of all"
        require(outcome.code != 0 and said in outcome.stderr, outcome.stderr)
        return text

    def check_told(self) -> str:
        """What is kept and sent of each weight."""
        shown = {}
        for outer in ("average:2", "scaffold:2", "gossip:ring", "awc:ring", "tracking:ring"):
            plan = self.compile(Run(outer, "sites=4"))
            text = self.tools.run("plait-plan", "show", plan).stdout
            names = ("gradients", "optimizer", "sites, in a step on average")
            rows = [re.search(rf"^ *{x}  .* (\d+) bytes$", text, re.M) for x in names]
            shown[outer] = [int(x[1]) for x in rows]
        weights, kept, sent = zip(*shown.values())
        own = [(x - kept[0]) / weights[0] for x in kept]
        require(own == [0, 1, 0, 1, 2], f"kept {kept} of {weights[0]}")
        require(sent[0] == sent[1] and sent[2] == sent[3], f"sent {sent}")
        require(2 * (sent[2] - 18) == sent[4] - 18, f"sent {sent}")
        return f"kept {kept}, sent {sent}"

    def compile_large(self, mesh: str, outer: str, *more) -> pathlib.Path:
        """Of a model with several weights side by side, and some that are not."""
        plan = self.folder / "large.plan"
        self.tools.run(
            "plaitc", ROOT / "examples" / "models" / "gpt2-nano", "--seq", 32,
            "--no-reference", "--global-batch", 4, "--optimizer", "sgd", "--mesh", mesh,
            "--outer", outer, "-o", plan, *more,
        )  # fmt: skip
        return plan

    def check_predicted(self) -> str:
        """The planner's list of what sites exchange is that of the plan, but for
        padding."""
        report, told = self.folder / "r.json", []
        for outer in ("scaffold:2", "tracking:ring"):
            more = ("--cluster", "cpu:8", "--json", report)
            plan = self.compile_large("tp=2,sites=4", outer, *more)
            told += sites.compare_lists(
                self.tools, report, plan, lambda x: x["over"] == "sites", numbers=("bytes",)
            )[1]
        return f"{', '.join(told)} of the plan's bytes"

    def check_defects(self) -> str:
        target, count = self.folder / "defect.plan", 0
        for outer, defects in correction_defects.DEFECTS.items():
            plan = self.compile_large("sites=4", outer)
            count += site_defects.check_defects(self.tools, plan, defects, target)
        return f"{count} of {count} refused"

    def check_errors(self) -> str:
        plan = self.folder / "none.plan"
        cases = {
            "which corrects gradients and takes optimizer sgd: adamw moves weights by "
            "something else": ("scaffold:2", "adamw"),
            "tracking:ring+sites:4, which corrects gradients and takes optimizer sgd":
                ("tracking:ring", "adamw"),
            "but scaffold has none": ("scaffold:2,rate=1", "sgd"),
            "expected every=E, once": ("tracking:ring,average=2", "sgd"),
            "expected the graph behind it, as awc:ring": ("awc", "sgd"),
        }  # fmt: skip
        for text, (outer, optimizer) in cases.items():
            words = self.words_of(Run(outer, "sites=4"))
            words[words.index("sgd")] = optimizer
            outcome = self.tools.call(*words, "-o", plan)
            lines = outcome.stderr.strip().splitlines()
            require(outcome.code != 0 and len(lines) == 1, f"{text}: {outcome.stderr}")
            require(text in lines[0] and not plan.exists(), f"{text}: {outcome.stderr}")
        return f"{len(cases) + self.check_data_errors()} errors"

    def check_data_errors(self) -> int:
        run = Run("average:1", "sites=2")
        plain = self.folder / "plain.plan"
        words = self.words_of(run)
        words[words.index("--mesh") : words.index("--outer") + 2] = ["--mesh", "1"]
        self.tools.run(*words, "-o", plain)
        short = self.folder / "short-1.bin"
        (self.folder / "short-0.bin").write_bytes(bytes(2 * (4 * SEQUENCE + 1)))
        short.write_bytes(bytes(2 * (3 * SEQUENCE + 1)))
        tiny = self.folder / "tiny.bin"
        tiny.write_bytes(bytes(2 * (SEQUENCE + 1)))
        cases = {
            "is of each site, the plan has no sites": (plain, "short-{site}.bin"),
            "expected as many: give both as many, or sources with weights, which begin "
            "again on their own": (self.compile(run), "short-{site}.bin"),
            "has 1 sample, 2 sites need one each": (self.compile(run), "tiny.bin{part}"),
            "of-4-{site}": (self.compile(run), "missing/of-4-{site}.bin"),
        }  # fmt: skip
        for text, (plan, tokens) in cases.items():
            outcome = self.tools.call(
                *self.run_words(plan, run, 1, self.folder / tokens)
            )
            said = text.replace("{site}", "0")
            require(outcome.code != 0 and said in outcome.stderr, outcome.stderr)
        return len(cases)


CHECKS = (
    "balance", "identities", "processes", "predicted", "parts", "samples",
    "resumed", "told", "defects", "errors",
)  # fmt: skip


def main() -> int:
    return run_suite("heterogeneous", __doc__, Suite, RUNS, CHECKS, draws=(FEW_DRAWS, DRAWS))


if __name__ == "__main__":
    sys.exit(main())
