#!/usr/bin/env python3
#===- optimizers.py - Updates against their formulas ------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains a small GPT-2 with each optimizer for three steps, and computes what it
must have come to in numpy: AdamW, SGD and Muon as PyTorch documents them, Lion from
Chen et al. 2023, Algorithm 2. The gradient of each step is measured: a step of SGD
without momentum and decay from the same weights, on the same mesh, moves them by
it. Models and gradients are held against PyTorch by other suites, and so is SGD
as a whole (random_models.py). Plans say what their optimizer keeps, and hold as
many bytes of it."""

import dataclasses
import fnmatch
import itertools
import pathlib
import re
import sys
import tempfile

import numpy

import covering
from harness import (
    READ_BY,
    ROOT,
    Reporter,
    Tools,
    arguments,
    require,
    write_tokens,
)
from tensors import read_tensors

MODEL = ROOT / "examples" / "models" / "gpt2-nano"
VOCABULARY, BATCH, SEQUENCE, STEPS = 256, 12, 32, 3
RATE, BETA1, BETA2, EPSILON, DECAY, CLIP = 0.01, 0.9, 0.95, 1e-3, 0.1, 1.0
# So large that weights are lost beside the gradient, a power of two.
PROBE = 2.0**20
# Roundings to fp32 of a weight and of what is added to it.
TOLERANCE = 1e-6
# Newton-Schulz iterations multiply what is small by up to 3.4445^5 = 485, and so
# they do roundings to fp32 of the gradient and of the products on the way.
MATRIX_TOLERANCE = 485 * 2.0**-23
MOMENTUM, RATE_FACTOR = 0.9, 0.5
MOMENTS = ("moment1", "moment2")
KEPT = {
    "adamw": MOMENTS, "sgd": ("momentum",), "lion": ("momentum",),
    "muon": (*MOMENTS, "momentum"), "muon-match-rms": (*MOMENTS, "momentum"),
}
SETTINGS = (
    ("1",),
    ("dp=2", "--zero", "1"),
    ("pp=2,dp=2", "--zero", "2", "--schedule", "zb-h1"),
    ("dp=2,tp=2", "--zero", "3", "--sequence-parallel"),
    ("tp=2", "--precision", "bf16"),
    ("dp=2", "--zero", "1", "--precision", "bf16"),
    ("cp=2",),
    # Packs that are longer than what lies in them, and matrices without decay.
    ("dp=3", "--zero", "1", "--no-decay", "*wte.weight", "--no-decay", "*.c_fc.*"),
    # Rates of parameters, of which the last that matches counts.
    ("pp=2,dp=2", "--zero", "1", "--lr-factor", "*.h.*=0.25", "--lr-factor", "*.h.1.*=3"),
)


@dataclasses.dataclass
class Moments:
    """What an optimizer keeps of one parameter."""

    first: float = 0.0
    second: float = 0.0


def adamw(w, g, kept, step, decay, rate):
    kept.first = BETA1 * kept.first + (1 - BETA1) * g
    kept.second = BETA2 * kept.second + (1 - BETA2) * g * g
    m = kept.first / (1 - BETA1**step)
    v = kept.second / (1 - BETA2**step)
    return (1 - rate * decay) * w - rate * m / (numpy.sqrt(v) + EPSILON)


def sgd(w, g, kept, step, decay, rate):
    kept.first = BETA1 * kept.first + g + decay * w
    return w - rate * kept.first


def lion(w, g, kept, step, decay, rate):
    c = BETA1 * kept.first + (1 - BETA1) * g
    size = BETA1 * numpy.abs(kept.first) + (1 - BETA1) * numpy.abs(g)
    kept.first = BETA2 * kept.first + (1 - BETA2) * g
    moved = (1 - rate * decay) * w - rate * numpy.sign(c)
    # Nobody knows the sign of what is left of a cancellation, nor of less than
    # the probe resolves: the gradient of a key's bias is rounding alone.
    known = 1e-5 * size + 2.0**-22 * numpy.abs(w) / PROBE
    return numpy.where((numpy.abs(c) <= known) & (c != 0), numpy.nan, moved)


def orthogonalize(x):
    """Newton-Schulz iterations as torch.optim.Muon does them, in double."""
    if x.shape[0] > x.shape[1]:
        return orthogonalize(x.T).T
    x = x / max(numpy.linalg.norm(x), 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x


def is_matrix(name, w):
    """All weights of layers; the head is the table of embeddings."""
    return w.ndim == 2 and not name.endswith(("wte.weight", "wpe.weight"))


def muon(w, g, kept, step, decay, rate, name, factor):
    """GPT-2 stores weights as [inputs, outputs], and those of queries, keys and
    values side by side."""
    if not is_matrix(name, w):
        return adamw(w, g, kept, step, decay, rate * RATE_FACTOR)
    kept.first = MOMENTUM * kept.first + (1 - MOMENTUM) * g
    ahead = MOMENTUM * kept.first + (1 - MOMENTUM) * g
    parts = numpy.split(ahead, 3 if "c_attn" in name else 1, axis=1)
    moved = [factor(*x.T.shape) * orthogonalize(x) for x in parts]
    return (1 - rate * decay) * w - rate * numpy.concatenate(moved, axis=1)


def plain(rule):
    """A rule that is the same for all parameters."""
    return lambda w, g, kept, step, decay, rate, name: rule(
        w, g, kept, step, decay, rate
    )


def with_factor(factor):
    """torch's adjust_lr_fn, of outputs and inputs."""
    return lambda *given: muon(*given, factor)


RULES = {
    "adamw": plain(adamw),
    "sgd": plain(sgd),
    "lion": plain(lion),
    "muon": with_factor(lambda rows, columns: max(1, rows / columns) ** 0.5),
    "muon-match-rms": with_factor(lambda *sides: 0.2 * max(sides) ** 0.5),
}


def find_factor(name: str, factors: list[str]) -> float:
    """What the learning rate of a parameter is multiplied by."""
    found = 1.0
    for pattern, _, factor in (x.partition("=") for x in factors):
        if fnmatch.fnmatch(name, pattern):
            found = float(factor)
    return found


def get_choices(case) -> dict:
    (mesh, *options), optimizer = case
    # One that needs whole matrices is held beside each way to divide them.
    whole = {"whole": True} if optimizer.startswith("muon") else {}
    return {"optimizer": optimizer} | whole | covering.split_options(mesh, options)


class Suite:
    def __init__(self, tools: Tools, report: Reporter, folder: pathlib.Path):
        self.tools, self.report, self.folder = tools, report, folder
        self.tokens = folder / "tokens.bin"
        # Of one step: all steps see the same.
        write_tokens(self.tokens, 5, BATCH * SEQUENCE + 1, VOCABULARY)

    def compile(self, setting, optimizer) -> pathlib.Path:
        plan = self.folder / f"{optimizer}.plan"
        mesh, *options = setting
        self.tools.run(
            "plaitc", MODEL, "--mesh", mesh, *options,
            *("--optimizer", optimizer, "--seq", SEQUENCE),
            *("--global-batch", BATCH, "--micro-batch", 2),
            *("--no-reference", "-o", plan),
        )
        return plan

    def train(self, plan, start, steps, **options):
        """The weights after some steps, in double."""
        saved = self.folder / "saved"
        given = {
            "lr": RATE, "beta1": BETA1, "beta2": BETA2, "eps": EPSILON,
            "weight_decay": DECAY, "grad_clip": CLIP, "steps": steps,
            "momentum": MOMENTUM, "adamw_lr_factor": RATE_FACTOR,
        } | options
        optimizer = "sgd" if plan.stem == "probe" else plan.stem
        words = [
            x
            for name, value in given.items()
            if optimizer in READ_BY.get(name, KEPT)
            for x in ("--" + name.replace("_", "-"), value)
        ]
        self.tools.run(
            "plait-run", plan, "--tokens", self.tokens, "--token-type", "uint16",
            *(("--weights", start) if start else ()), *words, "--save", saved,
        )
        path = next(saved.rglob("*.safetensors"))
        return path.rename(self.folder / f"{plan.stem}-{steps}.safetensors")

    def read(self, path):
        return {name: x.astype(float) for name, x in read_tensors(path).items()}

    def gradients(self, probe, start):
        moved = self.train(
            probe, start, 1, lr=PROBE, beta1=0.0, weight_decay=0.0
        ).rename(self.folder / "probe.safetensors")
        before, after = self.read(start), self.read(moved)
        return {name: (before[name] - after[name]) / PROBE for name in before}

    def make_probe(self, setting):
        """A plan whose steps move all weights by their gradients."""
        words = list(setting)
        while "--lr-factor" in words:
            at = words.index("--lr-factor")
            del words[at : at + 2]
        return self.compile(words, "sgd").rename(self.folder / "probe.plan")

    def check_kept(self, plan, optimizer):
        shown = self.tools.run("plait-plan", "show", plan).stdout
        *names, last = KEPT[optimizer]
        kept = " and ".join(filter(None, (", ".join(names), last)))
        expected = f"optimizer {optimizer}, keeps {kept}\n"
        require(expected in shown, f"no '{expected.strip()}' in {shown}")
        return int(re.search(r"optimizer .* (\d+) bytes", shown)[1])

    def check(self, setting, optimizer):
        probe = self.make_probe(setting)
        plan = self.compile(setting, optimizer)
        kept = self.check_kept(plan, optimizer)
        per_slot = self.check_kept(probe, "sgd")
        # Of a parameter Muon keeps the momentum or both moments.
        slots = len(KEPT[optimizer])
        least, most = slots, slots
        if optimizer.startswith("muon"):
            # A matrix of which no side is a multiple of dp is not divided.
            least, most = 1, 6 if "dp=3" in setting else 2
        require(
            least * per_slot <= kept <= most * per_slot,
            f"keeps {kept} bytes, a slot has {per_slot}",
        )
        start = self.train(plan, None, 1, lr=0.0).rename(
            self.folder / "start.safetensors"
        )
        spared, factors = (
            [word for option, word in zip(setting, setting[1:]) if option == name]
            for name in ("--no-decay", "--lr-factor")
        )
        memory = {name: Moments() for name in self.read(start)}
        now, unknown, count = start, 0, 0
        worst = {False: 0.0, True: 0.0}  # of what is updated as a matrix, or not
        for step in range(1, STEPS + 1):
            gradients = self.gradients(probe, now)
            before = self.read(now)
            now = self.train(plan, start, step)
            for name, w in self.read(now).items():
                # Vectors do not decay.
                is_spared = any(fnmatch.fnmatch(name, p) for p in spared)
                decay = DECAY if w.ndim > 1 and not is_spared else 0.0
                expected = RULES[optimizer](
                    before[name], gradients[name], memory[name], step, decay,
                    RATE * find_factor(name, factors), name,
                )
                off = numpy.abs(w - expected) / (numpy.abs(expected) + RATE)
                whole = optimizer.startswith("muon") and is_matrix(name, w)
                worst[whole] = max(worst[whole], float(numpy.nanmax(off)))
                unknown += int(numpy.isnan(expected).sum())
                count += w.size
        require(unknown <= 0.001 * count, f"{unknown} of {count} signs unknown")
        text = f"off {worst[False]:.2g}, matrices {worst[True]:.2g}"
        require(worst[False] <= TOLERANCE, f"{text}, {unknown} signs unknown")
        require(worst[True] <= MATRIX_TOLERANCE, text)
        return f"{text}, {kept} bytes"


def main() -> int:
    parser = arguments(__doc__)
    covering.add_option(parser)
    options = parser.parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("optimizers", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(tools, report, pathlib.Path(folder))
        every = itertools.product(SETTINGS, RULES)
        for setting, optimizer in covering.chosen(every, get_choices, options):
            name = "/".join((optimizer, *(x.lstrip("-") for x in setting)))
            report.case(name, lambda s=setting, o=optimizer: suite.check(s, o))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
