#!/usr/bin/env python3
#===- rate_groups.py - Parameter groups against PyTorch's -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains a small GPT-2 whose parameters are in groups, with --lr-factor, --no-decay,
--freeze and --optimizer-of, and takes the same steps with the parameter groups of
torch.optim, and with an optimizer for each group, under a LambdaLR: rates follow the
schedule in each group. The gradients of each step are
measured as optimizers.py does. A checkpoint is resumed on another mesh with the
same groups, which gives the weights of a run that was not interrupted, and on a plan
with others, which says so. Needs Debian's python3-torch; torch.optim.Muon, where it has
none, is that of optimizers.py."""

import fnmatch
import pathlib
import sys
import tempfile

import numpy
import torch

import optimizers
from harness import Reporter, Tools, arguments, require
from optimizers import (
    BETA1, BETA2, DECAY, EPSILON, MATRIX_TOLERANCE, RATE, STEPS, TOLERANCE,
)
from tensors import read_tensors
from torch_lion import Lion

# Of several patterns that match, the last one counts.
FACTORS = {"*.h.*": 0.25, "*.h.1.*": 0.0, "*wte.weight": 3.0, "*.ln_f.*": 1.0}
SPARED = ("*wpe.weight",)
FROZEN = ("*.h.0.mlp.c_fc.*", "*.h.1.ln_?.*")
FREEZE = tuple(word for name in FROZEN for word in ("--freeze", name))
GROUPS = tuple(
    word
    for name, factor in FACTORS.items()
    for word in ("--lr-factor", f"{name}={factor}")
) + tuple(word for name in SPARED for word in ("--no-decay", name)) + FREEZE
# Likewise. Decay and the first decay are those of all but where a group has its own.
OWN = {
    "*.bias*": "sgd", "*.mlp.c_*.weight": "muon", "*.attn.c_proj.weight": "muon",
    "*.ln_*": "lion", "*.h.3.mlp.c_proj.weight": "adamw",
}
OPTIMIZERS = tuple(
    word for name, own in OWN.items() for word in ("--optimizer-of", f"{name}={own}")
)
MOMENTUM, MUON_DECAY, MUON_RATE, LION_BETA2, SGD_BETA1 = 0.8, 0.2, 0.5, 0.7, 0.6
OWN_NUMBERS = {
    "muon_momentum": MOMENTUM, "muon_weight_decay": MUON_DECAY,
    "muon_lr_factor": MUON_RATE, "lion_beta2": LION_BETA2, "sgd_beta1": SGD_BETA1,
}
SETTINGS = (
    ("1",),
    ("dp=2", "--zero", "1"),
    ("pp=2,tp=2", "--schedule", "zb-h1"),
    ("dp=2,tp=2", "--zero", "3", "--sequence-parallel"),
    ("dp=3", "--zero", "2", "--precision", "bf16"),
    ("dp=2", "--zero", "1", "--offload", "optimizer"),
)
WARMUP, DECAY_STEPS = 1, 8
SCHEDULE = {
    "lr_schedule": "linear", "warmup_steps": WARMUP, "decay_steps": DECAY_STEPS,
}


def rate(step: int) -> float:
    """get_linear_schedule_with_warmup of transformers."""
    if step < WARMUP:
        return step / WARMUP
    return (DECAY_STEPS - step) / (DECAY_STEPS - WARMUP)


def factor_of(name: str) -> float:
    return [1.0, *(f for p, f in FACTORS.items() if fnmatch.fnmatch(name, p))][-1]


def decay_of(name: str, tensor) -> float:
    spared = any(fnmatch.fnmatch(name, pattern) for pattern in SPARED)
    return 0.0 if spared or tensor.ndim < 2 else DECAY


def is_frozen(name: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in FROZEN)


def make(optimizer: str, tensors: dict):
    """torch's optimizer with a group for each pair of rate and decay."""
    groups = {}
    for name, tensor in tensors.items():
        if is_frozen(name):
            continue
        groups.setdefault((factor_of(name), decay_of(name, tensor)), []).append(tensor)
    given = [
        {"params": group, "lr": RATE * factor, "weight_decay": decay}
        for (factor, decay), group in groups.items()
    ]
    require(len(given) > 4, f"{len(given)} groups")
    if optimizer == "sgd":
        return torch.optim.SGD(given, RATE, momentum=BETA1)
    return torch.optim.AdamW(given, RATE, (BETA1, BETA2), EPSILON)


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon in double, of weights that lie as inputs times outputs."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                m = self.state[w].setdefault("m", torch.zeros_like(w))
                m.lerp_(w.grad, 1 - MOMENTUM)
                moved = optimizers.orthogonalize(w.grad.lerp(m, MOMENTUM).numpy())
                size = max(1, w.shape[1] / w.shape[0]) ** 0.5
                w.mul_(1 - group["lr"] * group["weight_decay"])
                w.sub_(group["lr"] * size * torch.from_numpy(moved))


def own_of(name: str) -> str:
    return ["adamw", *(x for p, x in OWN.items() if fnmatch.fnmatch(name, p))][-1]


def make_each(tensors: dict) -> list:
    """An optimizer for each group, with a group for each rate and decay."""
    made = []
    for own, rule, rate in (
        ("adamw", lambda g: torch.optim.AdamW(g, RATE, (BETA1, BETA2), EPSILON), 1.0),
        ("sgd", lambda g: torch.optim.SGD(g, RATE, momentum=SGD_BETA1), 1.0),
        ("lion", lambda g: Lion(g, (BETA1, LION_BETA2)), 1.0),
        ("muon", lambda g: Muon(g, {}), MUON_RATE),
    ):
        given = []
        for name, tensor in tensors.items():
            if own_of(name) != own or is_frozen(name):
                continue
            decay = decay_of(name, tensor)
            given.append({
                "params": [tensor], "lr": RATE * rate * factor_of(name),
                "weight_decay": MUON_DECAY * bool(decay) if own == "muon" else decay,
            })
        require(given, f"no parameter is updated by {own}")
        made.append(rule(given))
    return made


class Suite(optimizers.Suite):
    """Its plans, runs and gradients, with a schedule."""

    own_numbers = {}

    def train(self, plan, start, steps, **options):
        if plan.stem != "probe":
            options = SCHEDULE | self.own_numbers | options
        return super().train(plan, start, steps, **options)

    def check_optimizers(self, setting):
        self.own_numbers = OWN_NUMBERS
        try:
            return self.check_groups(setting, "adamw", OPTIMIZERS, make_each)
        finally:
            self.own_numbers = {}

    def check_groups(self, setting, optimizer, own=(), make_all=None):
        # Clipping counts what is trained.
        probe = self.make_probe((*setting, *FREEZE))
        plan = self.compile((*setting, *GROUPS, *own), optimizer)
        start = self.train(plan, None, 1).rename(self.folder / "start.safetensors")
        tensors = {
            name: torch.tensor(x, dtype=torch.float64, requires_grad=True)
            for name, x in read_tensors(start).items()
        }
        references = make_all(tensors) if make_all else [make(optimizer, tensors)]
        schedules = [torch.optim.lr_scheduler.LambdaLR(x, rate) for x in references]
        now, worst = start, {False: 0.0, True: 0.0}  # by whether Muon updates it
        for step in range(1, STEPS + 1):
            # The first step has rate 0, but moments.
            for name, gradient in self.gradients(probe, now).items():
                tensors[name].grad = torch.from_numpy(gradient)
            for one in (*references, *schedules):
                one.step()
            before, now = self.read(now), self.train(plan, start, step)
            for name, w in self.read(now).items():
                expected = tensors[name].detach().numpy()
                off = numpy.abs(w - expected) / (numpy.abs(expected) + RATE)
                whole = bool(make_all) and own_of(name) == "muon"
                worst[whole] = max(worst[whole], float(off.max()))
                if factor_of(name) == 0 or is_frozen(name):
                    require((w == before[name]).all(), f"{name} has moved")
        text = f"off {worst[False]:.2g}, matrices {worst[True]:.2g}"
        require(worst[False] <= STEPS * TOLERANCE, text)
        require(worst[True] <= STEPS * MATRIX_TOLERANCE, text)
        return text

    def step_on(self, plan, steps, *more):
        return self.tools.run(
            "plait-run", plan, "--tokens", self.tokens, "--token-type", "uint16",
            *("--steps", steps, "--lr", RATE, "--lr-schedule", "constant", *more),
        )

    def check_resumed(self):
        first = self.compile(("dp=2", "--zero", "1", *GROUPS), "adamw").rename(
            self.folder / "first.plan"
        )
        second = self.compile(("pp=2", *GROUPS), "adamw").rename(
            self.folder / "second.plan"
        )
        other = self.compile(("dp=2", "--zero", "1", *FREEZE), "adamw")
        kept, whole, parts = (self.folder / x for x in ("kept", "whole", "parts"))
        self.step_on(first, 4, "--save", whole)
        self.step_on(first, 2, "--checkpoint", kept)
        again = self.step_on(first, 4, "--resume", kept, "--save", parts)
        require("learning rate" not in again.stderr, again.stderr)
        found, expected = (
            (x / "model.safetensors").read_bytes() for x in (parts, whole)
        )
        require(found == expected, "other weights than in one go")
        resumed = self.step_on(second, 4, "--resume", kept)
        require("learning rate" not in resumed.stderr, resumed.stderr)
        warned = self.step_on(other, 4, "--resume", kept).stderr
        text = "multiplies the learning rate of 'transformer.h.0."
        require(text in warned and "' by 1, the checkpoint's plan by 0.25" in warned, warned)
        # Nothing is kept of what was frozen.
        trained = self.compile(("dp=2", "--zero", "1"), "adamw")
        refused = self.tools.call(
            "plait-run", trained, "--tokens", self.tokens, "--token-type", "uint16",
            *("--steps", 4, "--resume", kept),
        )
        text = "keeps nothing of 'transformer.h.0.mlp.c_fc.bias'"
        require(refused.code == 1 and text in refused.stderr, refused.stderr)
        shown = self.tools.run("plait-plan", "show", first).stdout
        require("3 times lr for transformer.wte.weight\n" in shown, shown)
        require(", 6 of them frozen" in shown, shown)

    def check_optimizers_resumed(self):
        def compile_as(name, *setting):
            plan = self.compile(setting, "adamw")
            return plan.rename(self.folder / f"{name}.plan")

        first = compile_as("first", "dp=2", "--zero", "1", *OPTIMIZERS)
        shown = self.tools.run("plait-plan", "show", first).stdout
        require("adamw, keeps moment1, moment2 and momentum\n" in shown, shown)
        for line in (
            "group     lion for transformer.h.0.ln_1.weight, ",
            "group     muon for transformer.h.0.attn.c_proj.weight, ",
            "group     sgd for transformer.h.0.attn.c_attn.bias.q, ",
        ):
            require(line in shown, shown)
        kept, whole = self.folder / "kept-own", self.folder / "whole-own"
        said = self.step_on(first, 4, "--save", whole, "--lion-beta2", 0.7, "--beta1", 0.8)
        for part in ("adamw with lion, muon and sgd", "beta1 0.8", "lion-beta1 0.8",
                     "lion-beta2 0.7", "beta2 0.999", "muon-momentum 0.95"):
            require(part in said.stderr, said.stderr)
        self.step_on(first, 2, "--checkpoint", kept, "--lion-beta2", 0.7, "--beta1", 0.8)
        # Numbers of groups are kept like others.
        expected = read_tensors(whole / "model.safetensors")
        for number, setting in enumerate((
            ("dp=2", "--zero", "1"), ("pp=2,tp=2",), ("dp=2,tp=2", "--zero", "3"),
        )):
            plan = compile_as("second", *setting, *OPTIMIZERS)
            parts = self.folder / f"parts-own-{number}"
            again = self.step_on(plan, 4, "--resume", kept, "--save", parts)
            require("by lion" not in again.stderr, again.stderr)
            for name, w in read_tensors(parts / "model.safetensors").items():
                off = numpy.abs(w - expected[name]).max()
                # Other meshes add in another order, which Newton-Schulz iterations
                # bend apart.
                bound = 2 * RATE * MATRIX_TOLERANCE if number else 0
                require(off <= bound, f"{setting}: {name} is off {off:.2g}")
        # What keeps the same is not refused.
        other = compile_as(
            "other", "dp=2", *OPTIMIZERS, "--optimizer-of", "*.h.2.ln_2.bias=sgd"
        )
        warned = self.step_on(other, 4, "--resume", kept).stderr
        text = "the plan updates 'transformer.h.2.ln_2.bias' by sgd, the checkpoint's plan"
        require(f"{text} by lion\n" in warned, warned)
        plain = compile_as("plain", "dp=2")
        refused = self.tools.call(
            "plait-run", plain, "--tokens", self.tokens, "--token-type", "uint16",
            *("--steps", 4, "--resume", kept),
        )
        require(refused.code == 1, "resumes what keeps something else")
        text = "is of optimizer adamw with lion, muon and sgd and keeps "
        require(text in refused.stderr, refused.stderr)
        refused = self.tools.call(
            "plait-run", plain, "--tokens", self.tokens, "--token-type", "uint16",
            *("--steps", 4, "--lion-beta2", 0.7),
        )
        text = "--lion-beta2 is of plans with optimizer lion for a group"
        require(refused.code == 1 and text in refused.stderr, refused.stderr)


def main() -> int:
    options = arguments(__doc__).parse_args()
    tools = Tools(options.bin, options.timeout)
    report = Reporter("rate-groups", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(tools, report, pathlib.Path(folder))
        for setting in SETTINGS:
            for optimizer in ("adamw", "sgd"):
                name = "/".join((optimizer, *(x.lstrip("-") for x in setting)))
                report.case(
                    name, lambda s=setting, o=optimizer: suite.check_groups(s, o)
                )
            name = "/".join(("each", *(x.lstrip("-") for x in setting)))
            report.case(name, lambda s=setting: suite.check_optimizers(s))
        report.case("resumed", suite.check_resumed)
        report.case("each-resumed", suite.check_optimizers_resumed)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
