#!/usr/bin/env python3
#===- rates.py - Learning rates against PyTorch's ---------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""The rates of short runs, from their logs. Without a warm-up they are those of
PyTorch's own CosineAnnealingLR and LinearLR; with one, those of its LambdaLR with
the functions that Hugging Face transformers documents. Steps are trained with
them: a step of rate 0 leaves the weights alone. Needs Debian's python3-torch."""

import json
import math
import pathlib
import re
import sys
import tempfile

import torch
from torch.optim import lr_scheduler

from harness import GOLDEN, Reporter, Tools, arguments, require

# The log has nine digits.
TOLERANCE = 1e-8
PEAK = 3e-3


def constant(warmup, total, least):
    return lambda s: s / warmup if s < warmup else 1.0


def linear(warmup, total, least):
    """get_polynomial_decay_schedule_with_warmup, power 1."""

    def rate(s):
        if s < warmup:
            return s / warmup
        if s > total:
            return least / PEAK
        left = 1 - (s - warmup) / (total - warmup)
        return ((PEAK - least) * left + least) / PEAK

    return rate


def cosine(warmup, total, least):
    """get_cosine_with_min_lr_schedule_with_warmup, kept at its end."""

    def rate(s):
        if s < warmup:
            return s / warmup
        progress = min(1.0, (s - warmup) / (total - warmup))
        factor = 0.5 * (1.0 + math.cos(math.pi * progress))
        return factor * (1 - least / PEAK) + least / PEAK

    return rate


def wsd(warmup, stable, decay, least):
    """get_wsd_schedule with its decay_type, cosine."""

    def rate(s):
        if s < warmup:
            return s / warmup
        if s < warmup + stable:
            return 1.0
        progress = (s - warmup - stable) / decay
        factor = 0.5 * (1.0 + math.cos(math.pi * progress))
        return factor * (1.0 - least / PEAK) + least / PEAK

    return rate


def follow(make, steps: int) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], PEAK)
    schedule = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def by(function):
    return lambda optimizer: lr_scheduler.LambdaLR(optimizer, function)


CASES = {
    # options, steps, what PyTorch follows
    "default": ((), 6, by(lambda s: 1.0)),
    "constant-warm": (("--warmup-steps", 4), 9, by(constant(4, 9, 0))),
    "constant-all-warm": (("--warmup-steps", 5), 5, by(constant(5, 5, 0))),
    "linear-torch": (
        ("--lr-schedule", "linear", "--min-lr", PEAK / 4),
        12,
        lambda o: lr_scheduler.LinearLR(o, 1.0, 0.25, 12),
    ),
    "cosine-torch": (
        ("--lr-schedule", "cosine", "--min-lr", 1e-4),
        12,
        lambda o: lr_scheduler.CosineAnnealingLR(o, 12, 1e-4),
    ),
    "linear": (
        ("--lr-schedule", "linear", "--warmup-steps", 3),
        11,
        by(linear(3, 11, 0)),
    ),
    "linear-short": (
        ("--lr-schedule", "linear", "--warmup-steps", 2, "--decay-steps", 7,
         "--min-lr", 5e-4),
        11,
        by(linear(2, 7, 5e-4)),
    ),
    "cosine": (
        ("--lr-schedule", "cosine", "--warmup-steps", 4),
        13,
        by(cosine(4, 13, 0)),
    ),
    "cosine-short": (
        ("--lr-schedule", "cosine", "--warmup-steps", 1, "--decay-steps", 6,
         "--min-lr", 3e-4),
        10,
        by(cosine(1, 6, 3e-4)),
    ),
    "cosine-long": (
        ("--lr-schedule", "cosine", "--decay-steps", 40),
        10,
        by(cosine(0, 40, 0)),
    ),
    "wsd": (
        ("--lr-schedule", "wsd", "--warmup-steps", 3, "--decay-steps", 5),
        14,
        by(wsd(3, 6, 5, 0)),
    ),
    "wsd-default": (
        ("--lr-schedule", "wsd", "--min-lr", 1e-3),
        20,
        by(wsd(0, 18, 2, 1e-3)),
    ),
    "wsd-not-stable": (
        ("--lr-schedule", "wsd", "--warmup-steps", 4, "--decay-steps", 6),
        10,
        by(wsd(4, 0, 6, 0)),
    ),
    "one-step": (("--lr-schedule", "cosine"), 1, by(cosine(0, 1, 0))),
}
REFUSED = {
    "warm-up": (
        ("--warmup-steps", 7),
        "--warmup-steps 7 is more than --steps 6",
    ),
    "short": (
        ("--lr-schedule", "cosine", "--warmup-steps", 4, "--decay-steps", 3),
        "--decay-steps 3 is less than --warmup-steps 4, which are a part of it",
    ),
    "wsd": (
        ("--lr-schedule", "wsd", "--warmup-steps", 4, "--decay-steps", 3),
        "--warmup-steps 4 and --decay-steps 3 are together more than --steps 6",
    ),
    "min": (
        ("--lr-schedule", "cosine", "--min-lr", 1),
        "--min-lr 1 is above --lr 0.003",
    ),
    "constant-min": (
        ("--min-lr", 1e-4),
        "--min-lr is of schedules that decay, --lr-schedule is constant",
    ),
    "constant-decay": (
        ("--decay-steps", 4),
        "--decay-steps is of schedules that decay, --lr-schedule is constant",
    ),
    "name": (("--lr-schedule", "step"), ".*--lr-schedule.*step.*"),
    "negative": (("--warmup-steps", -1), ".*--warmup-steps.*-1.*"),
}


class Suite:
    def __init__(self, tools: Tools, folder: pathlib.Path):
        self.tools, self.folder = tools, folder
        self.plan = folder / "plan"
        case = GOLDEN / "gpt2-small-test"
        self.tokens = ("--tokens", case / "tokens.bin")
        self.data = (*self.tokens, "--lr", PEAK)
        tools.run(
            "plaitc", case, "--mesh", "1", "--seq", 16, "--global-batch", 1,
            "--no-reference", "-o", self.plan,
        )

    def check(self, options, steps, make) -> str:
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        self.tools.run(
            "plait-run", self.plan, *self.data, *options, "--steps", steps,
            "--log", log,
        )
        found = [json.loads(x)["lr"] for x in log.read_text().splitlines()]
        expected = follow(make, steps)
        off = max(abs(a - b) for a, b in zip(found, expected, strict=True))
        require(off <= TOLERANCE * PEAK, f"{found}, PyTorch has {expected}")
        return f"off {off / PEAK:.1e}"

    def check_used(self) -> None:
        """The first rate of a warm-up is 0, the second is not."""

        def train(steps):
            saved = self.folder / "saved"
            self.tools.run(
                "plait-run", self.plan, *self.data, "--steps", steps,
                "--warmup-steps", steps, "--save", saved,
            )
            return (saved / "model.safetensors").read_bytes()

        self.tools.run(
            "plait-run", self.plan, *self.tokens, "--steps", 1, "--lr", 0,
            "--save", self.folder / "start",
        )
        start = (self.folder / "start" / "model.safetensors").read_bytes()
        require(train(1) == start, "a step of rate 0 changes weights")
        require(train(2) != start, "a step of another rate does not")

    def refuse(self, options, message) -> None:
        outcome = self.tools.call(
            "plait-run", self.plan, *self.data, *options, "--steps", 6
        )
        found = outcome.stderr.strip().removeprefix("plait-run: error: ")
        require(outcome.code == 1, f"ended with {outcome.code}")
        require(re.fullmatch(message, found) is not None, found)


def main() -> int:
    options = arguments(__doc__).parse_args()
    report = Reporter("rates", options.filter)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(Tools(options.bin, options.timeout), pathlib.Path(folder))
        for name, case in CASES.items():
            report.case(name, lambda c=case: suite.check(*c))
        report.case("used", suite.check_used)
        for name, case in REFUSED.items():
            report.case(f"refuses/{name}", lambda c=case: suite.refuse(*c))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
