#===- checkpoint_suite.py - Plans and runs of checkpoints.py ----------------===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Plans that checkpoints.py goes on with, their runs, and what checkpoints and
logs hold."""

import json
import os
import pathlib
import shutil
import tempfile
import time

import numpy

from harness import Reporter, Tools, require, write_tokens
from processes import NANO
from tensors import read_tensors

BATCH, SEQUENCE, STEPS = 8, 32, 20
# Sums in another order, and what twenty steps of Adam make of that: the bound
# of the loss of a run that goes on elsewhere.
TOLERANCE = 1e-5
# What loading and saving may take beside what a rank holds.
MEMORY = 64 << 20
# Plans of one model and batch. Their order is that of the chain of resumes.
PLANS = {
    "pp=2,dp=2,tp=2": ("--zero", "1", "--schedule", "1f1b"),
    "dp=4": ("--zero", "3"),
    "replicate=2,dp=2": ("--zero", "3"),
    "pp=4,tp=2": ("--schedule", "1f1b"),
    "dp=2,tp=3": ("--zero", "2"),
    "1": (),
}
BIT_EQUAL = ("pp=2,dp=2,tp=2", "dp=4", "1")


def read_checkpoint(folder: pathlib.Path):
    """The index, and all slots put together from their boxes."""
    index = json.loads((folder / "index.json").read_text())
    files = [read_tensors(folder / x["name"]) for x in index["files"]]
    slots = {}
    for name, tensor in index["tensors"].items():
        for slot, boxes in tensor["slots"].items():
            whole = numpy.zeros(tensor["shape"], numpy.float32)
            seen = numpy.zeros(tensor["shape"], numpy.int32)
            for file, begin, shape in boxes:
                place = tuple(slice(b, b + n) for b, n in zip(begin, shape))
                ranges = ", ".join(f"{b}:{b + n}" for b, n in zip(begin, shape))
                whole[place] = files[file][f"{name}/{slot}[{ranges}]"]
                seen[place] += 1
            require((seen == 1).all(), f"{slot} of {name} is not there once")
            slots[name, slot] = whole
    return index, slots


def fast_folder() -> str | None:
    """Where a disk that others use need not be waited for: in memory."""
    memory = "/dev/shm"
    free = shutil.disk_usage(memory).free if os.path.isdir(memory) else 0
    return memory if free > 4 << 30 else None


def steps_in(folder: pathlib.Path) -> list[str]:
    return sorted(x.name for x in folder.iterdir())


class Suite:
    def __init__(self, tools: Tools, report: Reporter, folder: pathlib.Path):
        self.tools, self.report, self.folder = tools, report, folder
        self.tokens = folder / "tokens.bin"
        write_tokens(self.tokens, 5, 40 * BATCH * SEQUENCE + 1, 256)
        # With dropout, whose masks have to go on as well, and heads for tp=3.
        self.model = folder / "model"
        self.model.mkdir()
        config = json.loads((NANO / "config.json").read_text())
        config |= {"n_embd": 96, "n_head": 6, "resid_pdrop": 0.1, "embd_pdrop": 0.1}
        (self.model / "config.json").write_text(json.dumps(config))
        self.plans, self.straight_runs = {}, {}

    def compile(self, name, *options, model=None) -> pathlib.Path:
        path = self.folder / f"{len(self.plans)}.plan"
        if name in self.plans:
            return self.plans[name]
        batch = () if "--global-batch" in options else ("--global-batch", BATCH)
        self.tools.run(
            "plaitc", model or self.model, *options, *batch,
            *("--micro-batch", 1, "--seq", SEQUENCE, "--no-reference"),
            *("-o", path),
        )
        self.plans[name] = path
        return path

    def plan(self, mesh: str) -> pathlib.Path:
        return self.compile(mesh, "--mesh", mesh, *PLANS.get(mesh, ()))

    def command(self, plan, steps, *more, seed=3):
        # One thread a rank: what shares this machine takes its time.
        return (
            plan, "--tokens", self.tokens, "--token-type", "uint16",
            *("--threads", 1, "--seed", seed, "--shuffle", "--lr", 1e-3, "--steps", steps, *more),
        )

    def train(self, plan, steps, *more):
        return self.tools.run("plait-run", *self.command(plan, steps, *more))

    def fail(self, expected: str, *command):
        """The run fails with a line that has `expected`."""
        outcome = self.tools.call("plait-run", *command)
        line = outcome.stderr.strip().splitlines()[-1]
        require(
            outcome.code == 1 and "plait-run: error: " in line
            and expected in line,
            f"code {outcome.code}, '{line}' lacks '{expected}'",
        )

    def straight(self, mesh: str):
        """Folder and log of an undisturbed run."""
        if mesh not in self.straight_runs:
            folder = self.folder / f"straight-{len(self.straight_runs)}"
            self.train(
                self.plan(mesh), STEPS,
                "--save", folder, "--log", folder.with_suffix(".log"),
            )
            self.straight_runs[mesh] = folder
        return self.straight_runs[mesh]

    def timed(self, mesh: str) -> float:
        """The seconds of a run that writes checkpoints."""
        start = time.monotonic()
        self.make(mesh, STEPS, every=1)
        return time.monotonic() - start

    def make(self, mesh: str, steps: int, every: int = 2) -> pathlib.Path:
        """A directory with checkpoints."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        self.train(
            self.plan(mesh), steps,
            "--checkpoint", folder, "--checkpoint-every", every, "--keep", 3,
        )
        return folder

    def compare(self, mesh: str, saved: pathlib.Path) -> None:
        same = (saved / "model.safetensors").read_bytes() == (
            self.straight(mesh) / "model.safetensors"
        ).read_bytes()
        require(same, "other weights than without interruption")


def read_log(path: pathlib.Path) -> dict[int, tuple]:
    """What the last run said of each step. A kill may have cut a line."""
    log = {}
    for line in path.read_text().splitlines():
        try:
            step = json.loads(line)
        except json.JSONDecodeError:
            continue
        log[step["step"]] = (step["loss"], step["grad_norm"], step["tokens"])
    return log
