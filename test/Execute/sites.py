#!/usr/bin/env python3
#===- sites.py - Local steps against numpy ----------------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains a small GPT-2 on several sites, and computes in numpy what each of them must
have come to: AdamW or SGD on a site's own samples, and what sites do every H steps,
from the papers' formulas (local_steps.py). Gradients are measured: a step of SGD on
one rank, from a site's weights and on its samples alone, moves them by it."""

import copy
import dataclasses
import functools
import json
import pathlib
import random
import re
import sys
import tempfile

import numpy

import covering
import local_steps
import processes
import site_defects
from harness import ROOT, Reporter, Tools, arguments, require, write_tokens
from tensors import read_tensors

MODEL = ROOT / "examples" / "models" / "gpt2-nano"
VOCABULARY, BATCH, SEQUENCE, STEPS = 256, 8, 32, 5
# So large that weights are lost beside the gradient, a power of two.
PROBE = 2.0**20
# Of AdamW: with a smaller epsilon, elements without a gradient move by the signs of
# roundings.
RATE, EPSILON = 1e-2, 1e-3
# Of what weights move by: sums over tokens in another order than that of the run.
# Beside it each step, and each agreement, rounds weights to fp32.
TOLERANCE = 2e-5
ROUNDINGS = 2 * STEPS * 2.0**-24


@dataclasses.dataclass(frozen=True)
class Run:
    outer: str  # as --outer has it
    mesh: str
    optimizer: str = "adamw"
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        words = [x.removeprefix("--") for x in self.options]
        return "/".join((self.outer, self.mesh, self.optimizer, *words))

    @property
    def sites(self) -> int:
        return int(re.search(r"sites=(\d+)", self.mesh)[1])

    def get_choices(self) -> dict:
        scheme, _, every = self.outer.partition(":")
        own = {"scheme": scheme, "every": every, "optimizer": self.optimizer}
        return own | covering.split_options(self.mesh, self.options)


RUNS = (
    Run("average:1", "sites=2"),
    Run("average:2", "sites=2"),
    Run("average:3", "sites=4"),
    Run("average:2", "sites=2", "sgd"),
    Run("diloco:2", "sites=2"),
    Run("diloco:1", "sites=2"),
    Run("diloco:3,rate=0.5,momentum=0.5", "sites=4"),
    Run("diloco:2,momentum=0", "sites=2", "sgd"),
    Run("diloco:2", "dp=2,sites=2"),
)

def draw_layout(rng: random.Random) -> tuple[str, list[str]]:
    """The axes of each site, in front of its own, and the options of plaitc."""
    axes = rng.choice(("", "tp=2,", "pp=2,", "dp=2,", "pp=2,tp=2,", "dp=2,tp=2,"))
    options = ["--recompute", rng.choice(("none", "full"))]
    if "pp" in axes:
        options += ["--schedule", rng.choice(("1f1b", "gpipe", "zb-h1"))]
    if "dp" in axes:
        options += ["--zero", rng.choice("012")]
    return axes, options


# Of one site the same training as without any split.
LAYOUTS = (
    ("tp=2,sites=2", ()),
    ("pp=2,sites=2", ()),
    ("pp=2,sites=2", ("--schedule", "zb-h1")),
    ("pp=2,dp=2,tp=2,sites=2", ()),
    ("dp=2,sites=2", ("--zero", "1")),
    ("dp=2,sites=2", ("--zero", "2")),
    ("cp=2,sites=2", ()),
    ("dp=2,sites=2", ("--compress", "int8")),
)


def compare_lists(
    tools: Tools, report: pathlib.Path, plan, isOf, numbers=("bytes", "seconds")
) -> tuple:
    """Requires that the planner's report lists as exchanged what the plan does, but
    for padding: of the rows that `isOf` takes. Returns what they are of and ratios."""
    listed = report.with_name("listed.json")
    tools.run("plait-plan", "exchanges", plan, "--json", listed)
    predicted, planned = (
        {(x["over"], x["what"]): x
         for x in json.loads(path.read_text())["exchanges"][0] if isOf(x)}
        for path in (report, listed)
    )  # fmt: skip
    require(predicted.keys() == planned.keys(), f"{plan}: {predicted}, {planned}")
    told = []
    for key, row in predicted.items():
        for number in numbers:
            ratio = row[number] / planned[key][number]
            require(0.95 <= ratio <= 1.05, f"{plan}: {number} of {key}: {ratio}")
            told.append(f"{ratio:.3f}")
    return predicted.keys(), told


class Suite:
    def __init__(self, tools: Tools, folder: pathlib.Path):
        self.tools, self.folder = tools, folder
        self.tokens = folder / "tokens.bin"
        write_tokens(self.tokens, 7, STEPS * BATCH * SEQUENCE + 1, VOCABULARY)
        self.plans: dict[tuple, pathlib.Path] = {}
        self.start = folder / "start.safetensors"
        self.train(self.compile("1", "--optimizer", "sgd"), self.start, 1, "--lr", 0)

    def words(self, *options) -> list:
        return [
            "plaitc", MODEL, "--seq", SEQUENCE, "--no-reference", "--global-batch",
            BATCH, *options,
        ]  # fmt: skip

    def compile(self, mesh: str, *options) -> pathlib.Path:
        key = (mesh, *options)
        if key not in self.plans:
            plan = self.folder / f"plan-{len(self.plans)}.plan"
            self.tools.run(*self.words("--mesh", mesh, *options, "-o", plan))
            self.plans[key] = plan
        return self.plans[key]

    def train(self, plan, target, steps, *options, tokens=None) -> list[dict]:
        """Saves the weights as `target`, and returns the log of the steps."""
        saved, log = self.folder / "saved", self.folder / "log.jsonl"
        log.unlink(missing_ok=True)
        self.tools.run(
            "plait-run", plan, "--tokens", tokens or self.tokens,
            "--token-type", "uint16", "--weight-decay", 0, "--grad-clip", 0,
            "--threads", 1, "--steps", steps, "--log", log, "--save", saved, *options,
        )  # fmt: skip
        next(saved.rglob("*.safetensors")).rename(target)
        return [json.loads(line) for line in log.read_text().splitlines()]

    def rules(self, optimizer: str) -> tuple:
        if optimizer == "sgd":
            return ("--lr", 1.0, "--beta1", 0)
        return ("--lr", RATE, "--eps", EPSILON)

    def measure(self, weights, step: int, site: int, sites: int):
        """The mean gradient of a site's samples, and the loss."""
        rows = BATCH // sites
        plan = self.compile("1", "--global-batch", rows, "--optimizer", "sgd")
        own = self.folder / "own.bin"
        begin = 2 * ((step - 1) * BATCH + site * rows) * SEQUENCE
        own.write_bytes(
            self.tokens.read_bytes()[begin : begin + 2 * (rows * SEQUENCE + 1)]
        )
        before, after = self.folder / "before.safetensors", self.folder / "after"
        local_steps.write(before, weights)
        log = self.train(
            plan, after, 1, "--weights", before, "--lr", PROBE, "--beta1", 0, tokens=own
        )
        moved = read_tensors(after)
        gradients = {
            name: (weights[name] - moved[name].astype(float)) / PROBE
            for name in weights
        }
        return gradients, log[-1]["loss"]

    def begin(self, run: Run):
        """Weights and optimizer of each site, and what they share."""
        start = {name: x.astype(float) for name, x in read_tensors(self.start).items()}
        rule = local_steps.Sgd(1.0) if run.optimizer == "sgd" else None
        sites = [
            (dict(start), rule or local_steps.AdamW(RATE, EPSILON))
            for _ in range(run.sites)
        ]
        return sites, local_steps.parse(run.outer).begin(start)

    def advance(self, sites, outer, every: int, steps) -> list[float]:
        """The losses of these steps."""
        losses = []
        for step in steps:
            told = []
            for site, (weights, inner) in enumerate(sites):
                gradients, loss = self.measure(weights, step, site, len(sites))
                inner.step(weights, gradients)
                told.append(loss)
            losses.append(sum(told) / len(told))
            if step % every == 0:
                outer.agree([weights for weights, _ in sites])
        return losses

    def simulate(self, run: Run, steps: int):
        """The mean of all sites' weights after so many steps, and the losses."""
        sites, outer = self.begin(run)
        every = local_steps.parse(run.outer).every
        losses = self.advance(sites, outer, every, range(1, steps + 1))
        return local_steps.mean([weights for weights, _ in sites]), losses

    def compile_run(self, run: Run) -> pathlib.Path:
        options = ("--optimizer", run.optimizer, "--outer", run.outer, *run.options)
        return self.compile(run.mesh, *options)

    def check(self, run: Run) -> str:
        plan, result = self.compile_run(run), self.folder / "result.safetensors"
        rules = self.rules(run.optimizer)
        log = self.train(plan, result, STEPS, "--weights", self.start, *rules)
        expected, losses = self.simulate(run, STEPS)
        text = self.compare(read_tensors(result), expected)
        for entry, loss in zip(log, losses):
            off = abs(entry["loss"] - loss)
            require(off <= TOLERANCE * loss, f"step {entry['step']}: loss off {off}")
        return text

    def compare(self, found, expected, bound=TOLERANCE) -> str:
        """Against how far weights have moved, beside roundings to fp32."""
        start = read_tensors(self.start)
        worst = 0.0
        for name, values in expected.items():
            moved = numpy.abs(values - start[name]).max()
            off = numpy.abs(found[name] - values) - ROUNDINGS * numpy.abs(values)
            off = max(0.0, off.max()) / (moved + 1e-30)
            require(off <= bound, f"{name} is off by {off:.3g} of what it moved by")
            worst = max(worst, float(off))
        return f"off {worst:.2g} of what weights moved by"

    def result(self, mesh, options, *rules, steps=STEPS):
        target = self.folder / "one.safetensors"
        plan = self.compile(mesh, *options)
        log = self.train(plan, target, steps, "--weights", self.start, *rules)
        return read_tensors(target), [entry["loss"] for entry in log]

    def check_one_site(self) -> str:
        """One site is plain training, to the bit."""
        rules = self.rules("adamw")
        plain = self.result("dp=2", (), *rules)
        one = self.result("dp=2,sites=1", ("--outer", "average:2"), *rules)
        require(plain[1] == one[1], f"losses {one[1]}, expected {plain[1]}")
        for name, values in plain[0].items():
            require(numpy.array_equal(values, one[0][name]), f"{name} has other bits")
        return ""

    def check_all_reduce(self) -> str:
        """Averages of each step are sums of gradients, under SGD without momentum."""
        rules, sgd = self.rules("sgd"), ("--optimizer", "sgd")
        expected, losses = self.result("dp=2", sgd, *rules)
        found, own = self.result("sites=2", (*sgd, "--outer", "average:1"), *rules)
        off = max(abs(a - b) for a, b in zip(losses, own))
        require(off <= 1e-5 * losses[0], f"losses off {off}")
        return self.compare(found, expected)

    def check_mean(self) -> str:
        """An outer optimizer of rate 1 without momentum takes the mean."""
        rules, plain = self.rules("adamw"), "diloco:2,rate=1,momentum=0"
        expected, _ = self.result("sites=2", ("--outer", "average:2"), *rules)
        found, _ = self.result("sites=2", ("--outer", plain), *rules)
        return self.compare(found, expected, 1e-5)

    def check_layout(self, mesh, options) -> str:
        rules = self.rules("adamw")
        flat = "dp=2,sites=2" if "--compress" in options else "sites=2"
        outer = ("--outer", "diloco:2", *(options if "--compress" in options else ()))
        expected, losses = self.result(flat, outer, *rules)
        found, own = self.result(mesh, ("--outer", "diloco:2", *options), *rules)
        off = max(abs(a - b) for a, b in zip(losses, own))
        require(off <= 1e-5 * losses[0], f"losses off {off}")
        return self.compare(found, expected)

    def check_bf16(self) -> str:
        """What sites compute with follows their weights: as all-reduced gradients."""
        rules, sgd = self.rules("sgd"), ("--optimizer", "sgd", "--precision", "bf16")
        expected, losses = self.result("dp=2", sgd, *rules)
        _, still = self.result("dp=2", sgd, "--lr", 0, "--beta1", 0)
        learned = abs(losses[-1] - still[-1])
        seen = []
        for mesh, more in (("sites=2", ()), ("dp=2,sites=2", ("--zero", "1"))):
            outer = ("--outer", "average:1", *more)
            found, own = self.result(mesh, (*sgd, *outer), *rules)
            off = max(abs(a - b) for a, b in zip(losses, own))
            require(off <= learned / 16, f"{mesh}: losses off {off} of {learned}")
            seen.append(self.compare(found, expected, 2**-4))
        return seen[0]

    def check_resumed(self) -> str:
        """A run that goes on between two agreements has the bits of a whole one, on
        other ranks what whole ones there have, and with other sites none."""
        outer, rules = ("--outer", "diloco:3"), self.rules("adamw")
        whole, _ = self.result("sites=2", outer, *rules)
        folder, target = self.folder / "checkpoints", self.folder / "two.safetensors"
        plan = self.compile("sites=2", *outer)
        kept = ("--checkpoint", folder, "--checkpoint-every", 2)
        self.train(plan, target, 2, "--weights", self.start, *kept, *rules)
        resume = ("--resume", folder, *rules)
        self.train(plan, target, STEPS, *resume)
        for name, values in read_tensors(target).items():
            require(numpy.array_equal(values, whole[name]), f"{name} has other bits")
        self.train(self.compile("pp=2,tp=2,sites=2", *outer), target, STEPS, *resume)
        text = self.compare(read_tensors(target), whole)
        said = {
            "of 2 sites, the plan of 4 sites, and step 2 is none after which all agree, "
            "as after each 3": self.compile("sites=4", *outer),
            "of 2 sites, the plan of no": self.compile("1"),
            "outer_momentum": self.compile("sites=2", "--outer", "average:3"),
        }
        for words, other in said.items():
            call = ["plait-run", other, "--steps", STEPS, "--tokens", self.tokens]
            outcome = self.tools.call(*call, "--token-type", "uint16", *resume)
            require(outcome.code != 0 and words in outcome.stderr, outcome.stderr)
        return text

    def check_other_number(self) -> str:
        """After an agreement site i of another number goes on from site i mod n."""
        told, rules = [], self.rules("adamw")
        for before, after in ((2, 4), (4, 2)):
            run = Run("diloco:2", f"sites={before}")
            folder = self.folder / f"checkpoints-of-{before}"
            kept = ("--checkpoint", folder, "--checkpoint-every", 2)
            target = self.folder / "other.safetensors"
            self.train(
                self.compile_run(run), target, 2, "--weights", self.start, *kept, *rules
            )
            plan = self.compile(f"pp=2,sites={after}", "--outer", run.outer)
            self.train(plan, target, 4, "--resume", folder, *rules)
            sites, outer = self.begin(run)
            self.advance(sites, outer, 2, (1, 2))
            sites = [copy.deepcopy(sites[i % before]) for i in range(after)]
            self.advance(sites, outer, 2, (3, 4))
            expected = local_steps.mean([weights for weights, _ in sites])
            told.append(self.compare(read_tensors(target), expected))
        return "; ".join(told)

    def compare_processes(self, mesh: str, *outer: str, steps=STEPS) -> None:
        """Several processes have the bits of threads."""
        target, rules = self.folder / "mpi", self.rules("adamw")
        whole, _ = self.result(mesh, outer, *rules, steps=steps)
        words = [
            "--tokens", self.tokens, "--token-type", "uint16", "--weight-decay", 0,
            "--grad-clip", 0, "--steps", steps, "--weights", self.start, *rules,
            "--save", target,
        ]  # fmt: skip
        own = self.folder / "processes"
        own.mkdir(exist_ok=True)
        runs = processes.Suite(self.tools, None, own)
        for count in (2, 3):
            done = runs.mpirun(count, self.compile(mesh, *outer), *words)
            require(done.code == 0, done.stderr)
            saved = read_tensors(next(target.rglob("*.safetensors")))
            for name, values in whole.items():
                same = numpy.array_equal(values, saved[name])
                require(same, f"{outer}: {name}: other bits")

    def check_processes(self) -> str:
        self.compare_processes("pp=2,dp=2,sites=2", "--outer", "diloco:2")
        return ""

    def check_told(self) -> str:
        """Reports have the bytes that are sent, and that are kept."""
        elements = sum(x.size for x in read_tensors(self.start).values())
        shown = {}
        for outer in ("average:4", "diloco:4", "diloco:4,momentum=0"):
            plan = self.compile("sites=4", "--outer", outer)
            shown[outer] = self.tools.run("plait-plan", "show", plan).stdout
            sent = self.bytes_of("sites, every 4 steps", shown[outer])
            # A ring sends 2 · 3 / 4 of all weights, which lie as their gradients do.
            weights = self.bytes_of("gradients", shown[outer])
            require(4 * elements <= weights <= 4.04 * elements, f"{weights} bytes")
            require(2 * sent == 3 * weights, f"{outer}: {sent} of {weights}")
            mean = self.bytes_of("sites, in a step on average", shown[outer])
            each = self.bytes_of("sites", shown[outer])
            require(each == 18 and mean == each + sent // 4, f"{each} and {mean}")
        arenas = [self.bytes_of("arena", text) for text in shown.values()]
        kept = [arena - arenas[0] for arena in arenas]
        require(kept == [0, 2 * weights, weights], f"kept {kept}")
        simulated = self.tools.run(
            "plait-plan", "simulate", self.compile("sites=4", "--outer", "average:4")
        ).stdout
        require("step " in simulated, simulated)
        return f"{elements} elements"

    def bytes_of(self, row: str, text: str) -> int:
        found = re.search(rf"^ *{row}  .* (\d+)(?: bytes)?$", text, re.MULTILINE)
        require(bool(found), f"no row '{row}' in\n{text}")
        return int(found[1])

    def check_defects(self) -> str:
        outer, bf16 = ("--outer", "diloco:2"), ("--precision", "bf16")
        plans = (
            (self.compile("pp=2,sites=2", *outer), site_defects.DEFECTS),
            (
                self.compile("tp=2,sites=2", "--outer", "average:2"),
                site_defects.AVERAGE_DEFECTS,
            ),
            (self.compile("sites=2", *outer, *bf16), site_defects.COPY_DEFECTS),
            (
                self.compile("dp=2,sites=2", *outer, *bf16, "--zero", "1"),
                site_defects.DIVIDED_DEFECTS,
            ),
            (self.compile("1"), site_defects.PLAIN_DEFECTS),
        )
        return self.refuse_defects(plans)

    def refuse_defects(self, plans) -> str:
        """Plans, each with the defects that make it a refused one."""
        target = self.folder / "defect.plan"
        count = sum(
            site_defects.check_defects(self.tools, plan, defects, target)
            for plan, defects in plans
        )
        return f"{count} of {count} refused"

    def refuse(self, text: str, *options) -> None:
        """One line that has `text`, and no plan."""
        plan = self.folder / "none.plan"
        outcome = self.tools.call(*self.words(*options, "-o", plan))
        lines = outcome.stderr.strip().splitlines()
        require(outcome.code != 0, f"{text}: accepted")
        require(len(lines) == 1 and text in lines[0], f"{text}: {outcome.stderr}")
        require(not plan.exists(), f"{text}: a plan was written")

    def add_layouts(self, layouts, report: Reporter, options) -> None:
        """Cases of (mesh, words of plaitc), or a subset that covers them."""
        for mesh, words in covering.chosen(
            layouts, lambda case: covering.split_options(*case), options
        ):
            run = functools.partial(self.check_layout, mesh, words)
            report.case("/".join((mesh, *words)), run)

    def check_errors(self) -> str:
        outer = ("--outer", "average:2")
        cases = {
            'outer has steps "0", expected 1 to': ("sites=2", "--outer", "average:0"),
            "expected the steps behind it, as average:8": (
                "sites=2", "--outer", "average"),
            'outer is "mean", expected none, average, diloco, median, trimmed, clip, '
            'gossip, streaming, sparseloco, scaffold, tracking or awc': (
                "sites=2", "--outer", "mean:2"),
            "expected rate=R, momentum=M, compress=NAME, chunk=C, k=K or decay=D, each once": (
                "sites=2", "--outer", "diloco:2,lr=1"),
            "expected compress=NAME, chunk=C, k=K or decay=D, each once": (
                "sites=2", "--outer", "average:2,rate=1"),
            'momentum "1", expected 0 or more, and below 1': (
                "sites=2", "--outer", "diloco:2,momentum=1"),
            'rate "nan", expected above 0': ("sites=2", "--outer", "diloco:2,rate=nan"),
            "--mesh has 2 sites, but no --outer says": ("sites=2",),
            "--outer is average:2, but --mesh has no sites": ("dp=2", *outer),
            'names axis "sites" twice': ("sites=2,sites=2", *outer),
            'sites "0", expected 1 to': ("sites=0", *outer),
            "global batch 8 is not divisible by micro batch 1 times 1 replica times sites 3 = 3":
                ("sites=3", *outer),
            "times 2 replicas times sites 2 = 12": (
                "dp=2,sites=2", *outer, "--micro-batch", "3"),
            "is of 1 x 4 devices, which cannot be divided among 3 sites": (
                "sites=3", *outer, "--global-batch", "12", "--cluster", "cpu:4"),
            "--outer is average:2+sites:2, but Megatron-Core": (
                "sites=2", *outer, "--cluster", "h100:1x8", "--emit", "megatron"),
            "--also has no plans with --outer: a run cannot be resumed with other": (
                "sites=2", *outer, "--also", "4"),
            "takes zero 0 to 2, not 3": ("dp=2,sites=2", *outer, "--zero", "3"),
            "takes no feedback": ("dp=2,sites=2", *outer, "--compress", "int8+feedback"),
            "takes no offload of the optimizer": (
                "sites=2", *outer, "--offload", "optimizer"),
            "for processors, not for GPUs": ("sites=2", *outer, "--backend", "cuda"),
        }  # fmt: skip
        plan = self.folder / "none.plan"
        for text, (mesh, *options) in cases.items():
            self.refuse(text, "--mesh", mesh, *options)
        words = ["plait-run", self.compile("sites=2", *outer), "--steps", 1]
        words += ["--tokens", self.tokens, "--token-type", "uint16"]
        outcome = self.tools.run(*words)
        text = "sites agree every 2 steps, which none of the steps 1 to 1 is"
        require(text in outcome.stderr, outcome.stderr)
        outcome = self.tools.call(*words, "--on-nan", "skip")
        text = (
            "--on-nan is skip, but sites count their steps together, and one of them "
            "would skip alone (--outer is average:2)"
        )
        require(outcome.code != 0 and text in outcome.stderr, outcome.stderr)
        words = [x for x in self.words("--mesh", "sites=2", *outer, "-o", plan)]
        words.remove("--no-reference")
        text = "each site trains weights of its own, and one rank has one of them"
        outcome = self.tools.run(*words)
        require(text in outcome.stderr, outcome.stderr)
        return f"{len(cases) + 2} errors, 2 warnings"


CHECKS = (
    "one-site", "all-reduce", "mean", "bf16", "resumed", "other-number", "processes",
    "told", "defects", "errors",
)  # fmt: skip


def run_suite(name, doc, kind, runs, checks, layouts=(), draws=(0, 0)) -> int:
    """Checks of a `kind` of Suite: its runs and layouts, or a subset that covers them;
    what is drawn, as often as `draws` says by default and in all; and `checks`, each
    the name of a method."""
    parser = arguments(doc)
    covering.add_option(parser)
    options = parser.parse_args()
    report = Reporter(name, options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = kind(Tools(options.bin, options.timeout), pathlib.Path(folder))
        for run in covering.chosen(runs, lambda run: run.get_choices(), options):
            report.case(run.name, functools.partial(suite.check, run))
        if layouts:
            suite.add_layouts(layouts, report, options)
        for seed in range(draws[covering.takes_all(options)]):
            report.case(f"draw-{seed}", functools.partial(suite.check_draw, seed))
        for check in checks:
            method = "check_" + re.sub("[-/]", "_", check)
            report.case(check, getattr(suite, method))
    return report.finish()


def main() -> int:
    return run_suite("sites", __doc__, Suite, RUNS, CHECKS, LAYOUTS)


if __name__ == "__main__":
    sys.exit(main())
