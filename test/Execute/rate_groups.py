#!/usr/bin/env python3
#===- rate_groups.py - Parameter groups against PyTorch's -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains a small GPT-2 whose parameters are in groups, with --lr-factor, --no-decay
and --freeze, and takes the same steps with the parameter groups of torch.optim under a
LambdaLR: rates follow the schedule in each group. The gradients of each step are
measured as optimizers.py does. A checkpoint is resumed on another mesh with the
same groups, which gives the weights of a run that was not interrupted, and on a plan
with others, which says so. Needs Debian's python3-torch."""

import fnmatch
import pathlib
import sys
import tempfile

import numpy
import torch

import optimizers
from harness import Reporter, Tools, arguments, require
from optimizers import BETA1, BETA2, DECAY, EPSILON, RATE, STEPS, TOLERANCE
from tensors import read_tensors

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


class Suite(optimizers.Suite):
    """Its plans, runs and gradients, with a schedule."""

    def train(self, plan, start, steps, **options):
        scheduled = {} if plan.stem == "probe" else SCHEDULE
        return super().train(plan, start, steps, **scheduled, **options)

    def check_groups(self, setting, optimizer):
        # Clipping counts what is trained.
        probe = self.make_probe((*setting, *FREEZE))
        plan = self.compile((*setting, *GROUPS), optimizer)
        start = self.train(plan, None, 1).rename(self.folder / "start.safetensors")
        tensors = {
            name: torch.tensor(x, dtype=torch.float64, requires_grad=True)
            for name, x in read_tensors(start).items()
        }
        reference = make(optimizer, tensors)
        schedule = torch.optim.lr_scheduler.LambdaLR(reference, rate)
        now, worst = start, 0.0
        for step in range(1, STEPS + 1):
            # The first step has rate 0, but moments.
            for name, gradient in self.gradients(probe, now).items():
                tensors[name].grad = torch.from_numpy(gradient)
            reference.step()
            schedule.step()
            before, now = self.read(now), self.train(plan, start, step)
            for name, w in self.read(now).items():
                expected = tensors[name].detach().numpy()
                off = numpy.abs(w - expected) / (numpy.abs(expected) + RATE)
                worst = max(worst, float(off.max()))
                if factor_of(name) == 0 or is_frozen(name):
                    require((w == before[name]).all(), f"{name} has moved")
        require(worst <= STEPS * TOLERANCE, f"off {worst:.2g}")
        return f"off {worst:.2g}"

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
        report.case("resumed", suite.check_resumed)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
