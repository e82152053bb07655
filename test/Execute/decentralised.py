#!/usr/bin/env python3
#===- decentralised.py - What textbooks say of sites ------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Least squares and softmax regression in the nn dialect, which are convex, on sites
whose data differs. All samples of a site are in each step, so that what is left of the
distance to the minimum is what a scheme does, and not noise. Minima are numpy's.

- What sites differ by shrinks by the second largest |eigenvalue| of the mixing matrix.
- D-SGD stops beside the minimum, gradient tracking does not.
- Local SGD stops the farther from it the more steps sites take alone; with SCAFFOLD's
  corrections it does not.
- A mean does not bear one site that sends nonsense; a median, a trimmed mean and
  centred clipping do.

--draw FOLDER writes pictures of it: docs/images/sites-*.svg are
`test/Execute/decentralised.py --draw docs/images`."""

import functools
import pathlib
import random
import struct
import sys
import tempfile

import numpy

import local_steps
import pictures
from checkpoint_suite import read_checkpoint
from harness import Reporter, Tools, arguments, require

TOKENS, FEATURES, CLASSES, SEQUENCE = 64, 4, 64, 16
# The upper half of the tokens is of sites that send nonsense.
HONEST = 32
STEPS, EACH = 240, 12
RATES = {"squares": 0.1, "softmax": 2.0}
# Weights come to a distance of about 2, in steps of at most the radius.
ROBUST = ("average:1", "median:1", "trimmed:1", "clip:1,radius=0.05")


def write_model(kind: str) -> str:
    """Of given features: least squares against a given number of each token, or softmax
    regression for the next one."""
    outputs = 1 if kind == "squares" else CLASSES
    tokens, given = f"tensor<1x{SEQUENCE}xi32>", f"tensor<1x{SEQUENCE}x{FEATURES}xf32>"
    result, table = f"tensor<1x{SEQUENCE}x{outputs}xf32>", f"tensor<{TOKENS}x{FEATURES}xf32>"
    weights, wanted = f"tensor<{FEATURES}x{outputs}xf32>", f"tensor<{TOKENS}x1xf32>"
    squares = f"""
    %wanted = nn.read @wanted value : {wanted}
    %fixed = nn.stop_gradient %wanted : {wanted}
    %y = nn.embedding %fixed, %tokens : ({wanted}, {tokens}) -> {result}
    %d = nn.sub %p, %y {{nn.layer = 0}} : {result}
    %q = nn.mul %d, %d {{nn.layer = 0}} : {result}
    %sum = nn.reduce sum %q dims [0, 1, 2] {{nn.layer = 0}} : {result} -> tensor<f32>
    %seen = nn.valid %targets ignore -100 : {tokens} -> tensor<1x{SEQUENCE}xf32>
    %count = nn.reduce sum %seen dims [0, 1] : tensor<1x{SEQUENCE}xf32> -> tensor<f32>"""
    softmax = f"""
    %sum, %count = nn.softmax_cross_entropy %p, %targets ignore -100 : ({result}, {tokens}) -> (tensor<f32>, tensor<f32>)"""
    declared = f"nn.parameter @wanted : {wanted} init<mean = 0.0, std = 1.0>"
    return f"""
module attributes {{plait.model = {{layers = 1 : i64, model_type = "regression",
    name = "regression", vocab = {TOKENS} : i64}}}} {{
  nn.parameter @features : {table} init<mean = 0.0, std = 1.0>
  {declared if kind == "squares" else ""}
  nn.parameter @weights : {weights} init<mean = 0.0, std = 0.0>

  func.func @loss(%tokens: {tokens}, %targets: {tokens}) -> (tensor<f32>, tensor<f32>) {{
    %table = nn.read @features value : {table}
    %given = nn.stop_gradient %table : {table}
    %x = nn.embedding %given, %tokens : ({table}, {tokens}) -> {given}
    %w = nn.read @weights value {{nn.layer = 0}} : {weights}
    %p = nn.matmul %x, %w "bsh,hv->bsv" {{nn.layer = 0}} : ({given}, {weights}) -> {result}{squares if kind == "squares" else softmax}
    return %sum, %count : tensor<f32>, tensor<f32>
  }}
}}
"""


class Problem:
    """One model, and the samples of each site, which are those of each step."""

    def __init__(self, suite, kind: str, count: int, bad: int = 0):
        self.suite, self.kind, self.count, self.bad = suite, kind, count, bad
        self.folder = suite.folder / f"{kind}-{count}-{bad}"
        self.folder.mkdir()
        (self.folder / "model.mlir").write_text(write_model(kind))
        draw = numpy.random.RandomState(3)
        self.features = draw.standard_normal((TOKENS, FEATURES)).astype("f4")
        wanted = self.features @ draw.standard_normal((FEATURES, 1))
        wanted += 0.5 * draw.standard_normal(wanted.shape)
        # What nonsense is worth: signs are flipped, or all is noise.
        self.features[HONEST:] = self.features[:HONEST]
        wanted[HONEST:] = -20 * wanted[:HONEST]
        self.wanted = wanted.astype("f4")
        outputs = 1 if kind == "squares" else CLASSES
        self.start = {"features": self.features, "weights": numpy.zeros((FEATURES, outputs))}
        if kind == "squares":
            self.start["wanted"] = self.wanted
        local_steps.write(self.folder / "start.safetensors", self.start)
        self.tokens = [self.write_tokens(site, site < bad) for site in range(count)]
        self.honest = self.tokens[bad:]

    def write_tokens(self, site: int, isBad: bool) -> numpy.ndarray:
        """Of each site, a few tokens that come more often there."""
        draw = random.Random(site)
        tokens = [
            draw.choice((draw.randrange(HONEST), (3 * site + draw.randrange(4)) % HONEST))
            + HONEST * isBad
            for _ in range(SEQUENCE + 1)
        ]
        data = struct.pack(f"<{len(tokens)}H", *tokens)
        (self.folder / f"site-{site}.bin").write_bytes(data)
        return numpy.array(tokens)

    def measure(self, weights: numpy.ndarray):
        """The loss of all honest samples, and its gradient."""
        x = numpy.concatenate([self.features[own[:-1]] for own in self.honest])
        p = x.astype(float) @ weights
        if self.kind == "squares":
            d = p - numpy.concatenate([self.wanted[own[:-1]] for own in self.honest])
            return (d * d).mean(), 2 * x.T @ d / len(x)
        targets = numpy.concatenate([own[1:] for own in self.honest])
        p = p - p.max(axis=1, keepdims=True)
        total = numpy.log(numpy.exp(p).sum(axis=1, keepdims=True))
        rows = numpy.arange(len(x))
        loss = (total[:, 0] - p[rows, targets]).mean()
        d = numpy.exp(p - total)
        d[rows, targets] -= 1
        return loss, x.T @ d / len(x)

    @functools.cached_property
    def least(self) -> float:
        """Of least squares in closed form."""
        if self.kind == "squares":
            x = numpy.concatenate([self.features[own[:-1]] for own in self.honest])
            y = numpy.concatenate([self.wanted[own[:-1]] for own in self.honest])
            best = numpy.linalg.lstsq(x.astype(float), y.astype(float), rcond=None)[0]
            return self.measure(best)[0]
        weights, momentum = numpy.zeros((FEATURES, CLASSES)), 0.0
        for _ in range(8000):
            loss, gradient = self.measure(weights)
            momentum = 0.95 * momentum + gradient
            weights = weights - 0.3 * momentum
        return loss

    def train(self, outer: str, rate: float, steps: int, each: int = 1) -> list[list]:
        """From step 0 on, of each so many steps, the weights of each site."""
        plan, kept = self.suite.compile(self, outer), self.folder / "kept"
        for path in sorted(kept.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        self.suite.tools.run(
            "plait-run", plan, "--tokens", self.folder / "site-{site}.bin",
            "--token-type", "uint16", "--weights", self.folder / "start.safetensors",
            "--lr", rate, "--beta1", 0, "--weight-decay", 0, "--grad-clip", 0, "--steps",
            steps, "--threads", 1, "--checkpoint", kept, "--checkpoint-every", each,
        )  # fmt: skip
        found = [[self.start["weights"]] * self.count]
        for step in range(each, steps + 1, each):
            _, slots = read_checkpoint(kept / f"step-{step:08}")
            found.append(
                [slots["weights", f"weight.{site}"].astype(float) for site in range(self.count)]
            )
        return found

    def get_gaps(self, outer: str, each: int = STEPS) -> list[float]:
        """How far the loss of the worst honest site is from the least one, at the
        beginning and after each so many steps."""
        rate = RATES[self.kind] / (2 if self.bad else 1)
        return [
            max(self.measure(own)[0] for own in sites[self.bad :]) - self.least
            for sites in self.train(outer, rate, STEPS, each)
        ]


class Suite:
    def __init__(self, tools: Tools, folder: pathlib.Path):
        self.tools, self.folder = tools, folder
        self.problems: dict[tuple, Problem] = {}
        self.plans: dict[tuple, pathlib.Path] = {}

    def problem(self, kind: str, count: int, bad: int = 0) -> Problem:
        key = (kind, count, bad)
        if key not in self.problems:
            self.problems[key] = Problem(self, *key)
        return self.problems[key]

    def compile(self, problem: Problem, outer: str) -> pathlib.Path:
        key = (problem.kind, problem.count, outer)
        if key not in self.plans:
            plan = self.folder / f"plan-{len(self.plans)}.plan"
            self.tools.run(
                "plaitc", problem.folder / "model.mlir", "--mesh",
                f"sites={problem.count}", "--no-reference", "--global-batch",
                problem.count, "--seq", SEQUENCE, "--optimizer", "sgd", "--outer", outer,
                "-o", plan,
            )  # fmt: skip
            self.plans[key] = plan
        return self.plans[key]

    def get_distances(self, graph: str, steps: int = 25) -> list[float]:
        """What eight sites differ by that do not train, relative to the beginning."""
        problem = self.problem("squares", 8)
        problem.train(f"gossip:{graph}", 0.05, 1)
        plan, kept = self.compile(problem, f"gossip:{graph}"), problem.folder / "kept"
        self.tools.run(
            "plait-run", plan, "--tokens", problem.folder / "site-{site}.bin",
            "--token-type", "uint16", "--resume", kept, "--lr", 0, "--beta1", 0,
            "--weight-decay", 0, "--grad-clip", 0, "--steps", steps + 1, "--threads", 1,
            "--checkpoint", kept, "--checkpoint-every", 1,
        )  # fmt: skip
        found = []
        for step in range(1, steps + 2):
            _, slots = read_checkpoint(kept / f"step-{step:08}")
            sites = [slots["weights", f"weight.{i}"].astype(float) for i in range(8)]
            mean = sum(sites) / 8
            found.append(float(numpy.sqrt(sum(((x - mean) ** 2).sum() for x in sites))))
        return [x / found[0] for x in found]

    def check_rate(self, graph: str) -> str:
        """From one step to the next, once the other eigenvalues no longer matter. On the
        exponential graph they are close to each other."""
        distances = self.get_distances(graph)
        rho = local_steps.contraction(local_steps.make_graph(graph, 8))
        last = max(i for i, x in enumerate(distances) if x > 1e-4)
        begin = last // 2
        found = (distances[last] / distances[begin]) ** (1 / (last - begin))
        text = f"{found:.4f} a step, rho {rho:.4f}"
        bound = 0.05 * rho if graph == "exponential" else 1e-4
        require(abs(found - rho) <= bound, text)
        require(all(x <= 1.001 * rho**k for k, x in enumerate(distances[: last + 1])), text)
        return text

    def check_bias(self, kind: str) -> str:
        problem, gaps = self.problem(kind, 8), {}
        for outer in ("average:1", "gossip:ring", "awc:ring", "tracking:ring"):
            gaps[outer] = problem.get_gaps(outer)[-1]
        text = ", ".join(f"{key} {value:.3g}" for key, value in gaps.items())
        exact, gossip, early, tracking = gaps.values()
        require(min(gossip, early) - exact > 10 * abs(tracking - exact), text)
        return text

    def check_drift(self, kind: str) -> str:
        problem, gaps = self.problem(kind, 8), {}
        for outer in ("average:1", "average:4", "average:12", "scaffold:12"):
            gaps[outer] = problem.get_gaps(outer)[-1]
        text = ", ".join(f"{key} {value:.3g}" for key, value in gaps.items())
        one, four, twelve, repaired = gaps.values()
        require(one < four < twelve, text)
        require(abs(repaired - one) < 0.1 * (twelve - one), text)
        return text

    def check_robust(self) -> str:
        """One of eight sites has data with flipped signs, 20 times as large."""
        problem = self.problem("squares", 8, 1)
        gaps = {x: problem.get_gaps(x) for x in ROBUST}
        text = ", ".join(f"{x} {y[-1]:.3g} of {y[0]:.3g}" for x, y in gaps.items())
        mean, *robust = (y[-1] / y[0] for y in gaps.values())
        require(mean > 1 and max(robust) < 0.1, text)
        return text

    def draw(self, folder: pathlib.Path) -> None:
        colors = ("#444444", "#c0392b", "#2471a3", "#1e8449")
        marks = [10.0**x for x in range(-8, 4)]

        def write(name: str, runs: dict[str, list[float]], each: int = 1) -> None:
            lines = {
                key: pictures.Line([max(x, 1e-7) for x in values], color)
                for (key, values), color in zip(runs.items(), colors)
            }
            text = pictures.draw(lines, marks, every=1, axis=10 if each == 1 else 5, unit=each)
            (folder / f"sites-{name}.svg").write_text(text)

        write("mixing", {x: self.get_distances(x) for x in ("ring", "grid", "exponential")})
        for name, kind, bad, outers in (
            ("bias", "softmax", 0, ("average:1", "gossip:ring", "tracking:ring")),
            ("drift", "squares", 0, ("average:1", "average:4", "average:12", "scaffold:12")),
            ("robust", "squares", 1, ROBUST),
        ):
            problem = self.problem(kind, 8, bad)
            write(name, {x: problem.get_gaps(x, EACH) for x in outers}, EACH)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--draw", type=pathlib.Path, help="write pictures and end")
    options = parser.parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("decentralised", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(tools, pathlib.Path(folder))
        if options.draw:
            suite.draw(options.draw)
            return 0
        for graph in ("ring", "grid", "exponential"):
            report.case(f"rate/{graph}", functools.partial(suite.check_rate, graph))
        for kind in ("squares", "softmax"):
            report.case(f"bias/{kind}", functools.partial(suite.check_bias, kind))
            report.case(f"drift/{kind}", functools.partial(suite.check_drift, kind))
        report.case("robust", suite.check_robust)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
