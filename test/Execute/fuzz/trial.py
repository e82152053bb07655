#===- trial.py - One draw, compiled, run and compared -----*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Compiles a drawn model with plaitc, trains it with plait-run, and holds loss,
gradient norm and weights against PyTorch in fp64."""

import array
import dataclasses
import json
import math
import pathlib
import random
import re
import shlex

import torch

from harness import Failure, Tools, read_safetensors, write_floats

from .graph import Graph, to_text
from .layout import Layout, draw_groups, draw_layout, finish_layout, run_options
from .mirror import Arithmetic, Trained, find_matrices, samples, train
from .models import draw_graph
from .recipe import Recipe

# fp32 keeps 24 bits, 6e-8, and sums of a few hundred roundings of either sign
# stay near that. The farthest of 150 draws were off by 2.4e-7, 5.5e-7 and, of
# how far a parameter has moved in three steps of 0.03, 4.2e-5.
BASE = {"loss": 2e-6, "norm": 5e-6, "weights": 4e-4}
# Where that is not enough, the model may magnify rounding. How much it does is
# measured, by moving every intermediate result by up to one unit in the last
# place: the farthest of a few such draws, times this. PyTorch's own run in that
# precision is among the draws. In bf16 every draw is judged so.
NOISE_FACTOR = {"fp32": 8, "bf16": 16}
NOISE_DRAWS = 3
ULP = {"fp32": 2.0**-23, "bf16": 2.0**-7}
# How many of the norm a gradient of zero may be off: its terms are rounded one by
# one, at their own size. Of 13,000 draws in fp32 three were more than half of one
# off, by up to 11, that of a norm of one element. In bf16 more would hide what any
# parameter is moved by.
ZERO_ULPS = {"fp32": 16, "bf16": 0.5}
# A maximum that is nearer than this to a runner-up may have another winner.
SMALLEST_GAP = {"fp32": 1e-5, "bf16": 2.0**-5}
# What --check says of a model that has nothing left to learn.
CERTAIN = "f32 does not tell it from 0"
# What bf16 alone moves a loss by, at least, where the noise happens to cancel.
HALF_FLOOR = 2.0**-9

# What may be refused of a mesh, as (pattern, reason): shardings that are pinned
# at random do not always go together, or leave uneven blocks to be moved.
REFUSALS = (
    (
        r"shardings given for parameters cannot be met|cannot move \d+ elements"
        r"|cannot be split along dimension \d+ over tp|all-to-all",
        "pinned shardings cannot be met",
    ),
)


@dataclasses.dataclass
class Verdict:
    """`kind` is what shrinking must keep: passed, refused, or what failed."""

    kind: str
    text: str = ""
    measures: dict = dataclasses.field(default_factory=dict)

    @property
    def failed(self) -> bool:
        return self.kind not in ("passed", "refused")


def refused(tool: str, outcome) -> Verdict:
    """What a tool says that has not done its work."""
    text = (outcome.stderr or outcome.stdout).strip()
    if outcome.code < 0 or outcome.code >= 128:
        return Verdict(f"{tool} crashed with {outcome.code}", text[-1500:])
    for pattern, reason in REFUSALS:
        if re.search(pattern, text):
            return Verdict("refused", reason)
    return Verdict(f"{tool}: {normalised(text)}", text[-1500:])


def unproven(compiled, options: str) -> Verdict | None:
    """Of a plan that the proof has no rule for."""
    said = re.search(r"cannot be proven .*", compiled.stderr)
    if said is None:
        return None
    if "sums over the padding" in said[0] and "muon" in options:
        return Verdict("refused", "Muon on uneven parts of a matrix has no proof")
    return Verdict(f"no proof: {normalised(said[0])}", compiled.stderr[-1500:])


def normalised(message: str) -> str:
    """An error without what is different in every model."""
    first = next((x for x in message.splitlines() if "error:" in x), message)
    first = first.split("error:")[-1].strip()
    first = re.sub(r"^\S*\.mlir:\d+:\d+: ", "", first)
    first = re.sub(r"(tensor|#dist\.sharding)<[^ ]*>", "T", first)
    first = re.sub(r"'[^']*'|\"[^\"]*\"|@\S+", "X", first)
    return re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "N", first)[:160]


@dataclasses.dataclass
class Trial:
    seed: str
    graph: Graph
    layout: Layout
    recipe: Recipe
    tokens: list[int]
    weights: dict[str, torch.Tensor]

    #===-- Files ----------------------------------------------------------===#

    def write(self, folder: pathlib.Path) -> None:
        (folder / "model.mlir").write_text(to_text(self.graph))
        (folder / "tokens.bin").write_bytes(array.array("H", self.tokens))
        drawn = {name: self.weights[name] for name in self.graph.parameters}
        write_floats(folder / "weights.safetensors", drawn)

    def compile_arguments(self, folder) -> list[str]:
        options = self.layout.options(self.graph)
        return [f"{folder}/model.mlir", *options, "-o", f"{folder}/out.plan"]

    def data(self, folder) -> list[str]:
        return [
            f"{folder}/out.plan",
            *("--tokens", f"{folder}/tokens.bin", "--token-type", "uint16"),
            *("--weights", f"{folder}/weights.safetensors"),
            *("--threads", "1"),
        ]

    def train_arguments(self, folder) -> list[str]:
        options = [*self.data(folder)]
        options += run_options(self.recipe, self.layout, self.graph)
        options += ["--log", f"{folder}/steps.jsonl"]
        return options + ["--save", f"{folder}/saved"]

    def commands(self) -> str:
        lines = [
            ["plaitc", *self.compile_arguments(".")],
            ["plait-run", *self.train_arguments(".")],
            ["plait-run", *self.data("."), "--check"],
        ]
        return "".join(shlex.join(line) + "\n" for line in lines)

    #===-- Running --------------------------------------------------------===#

    def run(self, tools: Tools, folder: pathlib.Path, trains=True) -> Verdict:
        try:
            return self.attempt(tools, folder, trains)
        except Failure as failure:  # a tool that does not end
            return Verdict("hang", str(failure))

    def attempt(self, tools: Tools, folder: pathlib.Path, trains: bool) -> Verdict:
        """What the proof refuses has to be wrong: a false alarm is a failure. So
        is a plan that is right and not proven."""
        self.write(folder)
        arguments = self.compile_arguments(folder)
        compiled = tools.call("plaitc", *arguments)
        if "computes something else than the model" in compiled.stderr:
            told = compiled.stderr.strip()[-1500:]
            compiled = tools.call("plaitc", *arguments, "--no-prove")
            verdict = self.execute(tools, folder, compiled)
            return verdict if verdict.failed else Verdict("false alarm", told)
        if trains:
            verdict = self.execute(tools, folder, compiled)
        else:
            verdict = self.judge(compiled)
        if verdict.failed:
            return verdict
        return unproven(compiled, " ".join(map(str, arguments))) or verdict

    def trains_nothing(self) -> bool:
        trained = self.mirror(Arithmetic()).weights
        return all(
            torch.equal(trained[name], self.weights[name].double())
            for name in trained
        )

    def judge(self, compiled) -> Verdict:
        """Whether there is a plan."""
        if not compiled.code:
            return Verdict("passed")
        text = compiled.stderr
        if "no parameter would be trained" in text and self.trains_nothing():
            return Verdict("refused", "PyTorch does not train it either")
        return refused("plaitc", compiled)

    def execute(self, tools: Tools, folder: pathlib.Path, compiled) -> Verdict:
        if compiled.code:
            return self.judge(compiled)
        ran = tools.call("plait-run", *self.train_arguments(folder))
        if ran.code:
            return refused("plait-run", ran)
        log = (folder / "steps.jsonl").read_text()
        steps = [json.loads(x) for x in log.splitlines()]
        weights = read_weights(folder / "saved" / "model.safetensors")
        missing = set(self.weights) - set(weights)
        if missing:
            return Verdict("parameters are not saved", " ".join(missing))
        verdict = self.compare(Trained(steps, weights, math.inf))
        if verdict.failed or not self.layout.reference:
            return verdict
        checked = tools.call("plait-run", *self.data(folder), "--check")
        if checked.code and CERTAIN not in checked.stderr:
            if self.is_constant():
                return Verdict("refused", "a loss that no parameter changes")
            return refused("plait-run --check", checked)
        return verdict

    def is_constant(self) -> bool:
        """x + y - x - y: what is computed of it is rounding alone."""
        steps = self.mirror(Arithmetic()).steps
        return max(step["grad_norm"] for step in steps) < ULP["fp32"]

    #===-- Comparing ------------------------------------------------------===#

    def mirror(self, arithmetic: Arithmetic) -> Trained:
        return train(
            self.graph,
            self.weights,
            self.tokens,
            self.layout.batch,
            self.recipe,
            arithmetic,
            self.layout.optimizer,
            self.layout.groups,
        )

    def noises(self):
        """How far the mirror goes when it rounds as the plan does."""
        ulp = ULP[self.layout.precision]
        for draw in range(NOISE_DRAWS):
            generator = torch.Generator().manual_seed(draw)
            yield self.mirror(Arithmetic(noise=ulp, generator=generator))
        own = {"fp32": torch.float32, "bf16": torch.bfloat16}
        yield self.mirror(Arithmetic(own[self.layout.precision]))

    def find_lost(self, truth: Trained) -> set[str]:
        """Matrices that Muon moves by a whole step along what is rounded alone: it
        keeps the direction of a gradient, however small that is."""
        own = dict(self.layout.groups)
        precision = self.layout.precision
        norm = max(step["grad_norm"] for step in truth.steps)
        least = ZERO_ULPS[precision] * ULP[precision] * norm
        matrices = {
            x
            for x in find_matrices(self.graph)
            if own.get(x, self.layout.optimizer) == "muon"
        }
        return {x for x in matrices if truth.gradients.get(x, 0.0) <= least}

    def compare(self, found: Trained) -> Verdict:
        precision = self.layout.precision
        truth = self.mirror(Arithmetic())
        # How far a gradient of zero moves a parameter: terms that cancel, as those
        # of a bias of keys under softmax, leave what is rounded of them, and Adam
        # divides by little more than eps.
        norm = max(step["grad_norm"] for step in truth.steps)
        still = ZERO_ULPS[precision] * ULP[precision] * norm * self.recipe.lr
        still *= self.recipe.steps / self.recipe.eps
        kept = 1 - self.recipe.lr * self.recipe.weight_decay
        given = (self.weights, still, kept**self.recipe.steps, self.find_lost(truth))
        measured = distance(truth, found, *given)
        if within(measured, BASE):
            return Verdict("passed", measures=measured)
        noise = [distance(truth, x, *given) for x in self.noises()]
        factor = NOISE_FACTOR[precision]
        floor = HALF_FLOOR if precision == "bf16" else 0.0
        bounds = {
            key: BASE[key] + floor + factor * max(x[key] for x in noise)
            for key in BASE
        }
        if within(measured, bounds):
            return Verdict("passed", measures=measured)
        if truth.gap < SMALLEST_GAP[precision]:
            return Verdict("refused", "a maximum with a close runner-up")
        worst = next(k for k in bounds if not measured[k] <= bounds[k])
        lines = [
            f"{key} off {measured[key]:.3g} of {bounds[key]:.3g}"
            for key in bounds
        ]
        lines += [
            f"step {a['step']}: loss {a['loss']:.9g}, {b['loss']:.9g} expected;"
            f" norm {a['grad_norm']:.9g}, {b['grad_norm']:.9g} expected"
            for a, b in zip(found.steps, truth.steps)
        ]
        return Verdict(f"{worst} differs", "\n".join(lines), measured)


def within(measured: dict, bounds: dict) -> bool:
    return all(measured[key] <= bounds[key] for key in bounds)


def relative(found: float, expected: float, floor: float) -> float:
    """Infinite when `found` is no number."""
    if not math.isfinite(found):
        return math.inf
    return abs(found - expected) / max(abs(expected), floor)


def distance(
    truth: Trained, found: Trained, start, still: float, kept: float, lost: set[str]
) -> dict[str, float]:
    """The farthest of all steps and of all parameters. A target that is next to
    certain has a probability of about 1, which is off by an ulp of 1 however
    small the loss and its gradient, 1 minus that, are: hence the floors. What a
    gradient of zero may move is `still`, what decay leaves of a weight `kept`; of
    what is `lost` nothing is known."""
    loss, norm = (
        max(
            relative(b[key], a[key], 0.1)
            for a, b in zip(truth.steps, found.steps)
        )
        for key in ("loss", "grad_norm")
    )
    weights = 0.0
    for name, expected in truth.weights.items():
        if name in lost:
            continue
        off = (found.weights[name] - expected).norm().item()
        # By its gradient or by decay, which a parameter may be without.
        begin = start[name].double()
        moved = (expected - begin).norm().item()
        by_gradient = min(moved, (expected - kept * begin).norm().item())
        if max(off, by_gradient) <= still:
            continue
        # What is not moved at all is kept to the last bit but one.
        floor = 1e-3 * expected.norm().item() + 1e-6
        weights = max(weights, relative(off + moved, moved, floor))
    return {"loss": loss, "norm": norm, "weights": weights}


def read_weights(path: pathlib.Path) -> dict[str, torch.Tensor]:
    header, data = read_safetensors(path)
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = array.array("f", data[begin:end]).tolist()
        tensor = torch.tensor(values, dtype=torch.float64)
        found[name] = tensor.view(entry["shape"])
    return found


#===-----------------------------------------------------------------------===#
# Drawing
#===-----------------------------------------------------------------------===#


def draw_weights(rng: random.Random, graph: Graph):
    """Normal, in fp32; some parameters have zeros among them."""
    generator = torch.Generator().manual_seed(rng.getrandbits(40))
    weights = {}
    for name, parameter in graph.parameters.items():
        shape = graph.shape(parameter.dims)
        values = torch.randn(shape, generator=generator)
        values = values * parameter.std + parameter.mean
        if parameter.zeros:
            zero = torch.rand(shape, generator=generator) < parameter.zeros
            values = values.masked_fill(zero, 0.0)
        weights[name] = values
    return weights


def ignored_by(graph: Graph) -> int:
    return next(
        op.attrs["ignore"] for op in graph.ops if graph.count in op.results
    )


def draw_tokens(rng: random.Random, trial: Trial) -> None:
    """Few different tokens make ties; short files wrap. Every step has a target
    that counts."""
    graph, batch = trial.graph, trial.layout.batch
    sequence = graph.extents["s"]
    vocabulary = graph.extents[graph.vocabulary]
    ignored = ignored_by(graph)
    while True:
        needed = sequence * batch.size * trial.recipe.steps + 1
        length = max(sequence + 1, int(needed * rng.choice((0.5, 1, 1.3))))
        different = rng.choice((1, 2, vocabulary, vocabulary, vocabulary))
        known = rng.sample(range(vocabulary), min(vocabulary, different))
        trial.tokens = [rng.choice(known) for _ in range(length)]
        counted = [
            (
                samples(
                    trial.tokens,
                    [(step * batch.size) + row for row in range(batch.size)],
                    sequence,
                )[1]
                != ignored
            ).any()
            for step in range(trial.recipe.steps)
        ]
        if all(counted):
            return


def draw_trial(seed: str) -> Trial:
    rng = random.Random(seed)
    layout = draw_layout(rng)
    graph = draw_graph(rng, layout)
    finish_layout(rng, layout, graph)
    # Apart, so that all else of a seed stays as it was.
    draw_groups(random.Random(f"{seed}/groups"), layout, graph, find_matrices(graph))
    recipe = Recipe(
        steps=rng.choice((1, 2, 2, 3)),
        grad_clip=rng.choice((0.0, 1.0, 1.0)),
    )
    weights = draw_weights(rng, graph)
    trial = Trial(seed, graph, layout, recipe, [], weights)
    draw_tokens(rng, trial)
    return trial
