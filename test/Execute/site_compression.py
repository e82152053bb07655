#!/usr/bin/env python3
#===- site_compression.py - Compressed agreements ---------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains a small GPT-2 on sites that compress what they send. A compressor jumps where
what it gets changes a little, so that each agreement is compared for itself: weights,
anchors and errors of a checkpoint right before it, with a step of rate 0, have to become
what numpy makes of them (site_messages.py). Chunks are those of whole parameters there,
whatever the mesh was."""

import json
import random
import sys

import numpy

import gossip
import site_message_defects
import site_messages
from checkpoint_suite import read_checkpoint
from harness import require
from site_defects import fields
from sites import Run, run_suite
from tensors import read_tensors

# The second agreement, which has errors of the first one, is in the last step.
STEPS = 4
TOLERANCE = 1e-6
RUNS = (
    Run("diloco:2,compress=int4,chunk=64,decay=0.5", "sites=4", "sgd"),
    Run("diloco:2,compress=sign,chunk=128,momentum=0", "sites=2"),
    Run("diloco:2,compress=topk,k=5,chunk=64,decay=0", "sites=2"),
    Run("average:2,compress=int8", "sites=2", "sgd"),
    Run("sparseloco:2", "sites=2"),
    Run("sparseloco:2,k=7,chunk=32,rate=0.5", "tp=2,sites=2"),
    Run("sparseloco:2,k=3,chunk=64", "pp=2,sites=2"),
    Run("diloco:2,compress=int8,chunk=64", "dp=2,sites=2", "sgd",
        ("--precision", "bf16", "--zero", "2")),
    Run("streaming:2,fragments=1,compress=e3m0", "sites=2"),
)  # fmt: skip

# With --all, and without it.
DRAWS, FEW_DRAWS = 60, 1


def draw_run(seed: int) -> Run:
    """A scheme, a compressor, and a layout of each site."""
    rng = random.Random(seed)
    name = rng.choice(("diloco", "average", "streaming", "sparseloco", "sparseloco"))
    compressor = rng.choice(tuple(site_messages.USUAL))
    chunk = rng.choice((32, 64))
    outer = f"{name}:2,compress={compressor},chunk={chunk}"
    if compressor.startswith("topk"):
        outer += f",k={rng.randint(1, chunk)}"
    outer += f",decay={rng.choice((0, 0.5, 0.95, 1))}"
    if name != "average":
        outer += f",rate={rng.uniform(0.1, 1):.2f}"
    if name in ("diloco", "streaming"):
        outer += f",momentum={rng.choice((0, 0.5, 0.9))}"
    if name == "streaming":
        outer += f",delay={rng.choice((0, 1))},mix={rng.choice((0, 0.5))}"
        outer += ",fragments=1"
    axes = rng.choice(("", "tp=2,", "pp=2,", "dp=2,", "pp=2,tp=2,", "dp=2,tp=2,"))
    precision = rng.choice(("fp32", "bf16"))
    options = ["--recompute", rng.choice(("none", "full")), "--precision", precision]
    if "pp" in axes:
        options += ["--schedule", rng.choice(("1f1b", "gpipe", "zb-h1"))]
    if "dp" in axes:
        options += ["--zero", rng.choice("012" if precision == "fp32" else "02")]
    optimizer = rng.choice(("adamw", "sgd"))
    return Run(outer, f"{axes}sites={rng.choice((2, 4))}", optimizer, tuple(options))


def parse(outer: str):
    scheme, _, rest = outer.partition(":")
    _, *options = rest.split(",")
    return scheme, dict(option.split("=") for option in options)


class Suite(gossip.Suite):
    def train_to(self, plan, count: int, optimizer: str) -> tuple[dict, dict]:
        """The slots right before the last agreement and after it, which is in a step
        that changes no weight of a site."""
        kept = self.folder / "kept"
        rules = self.rules(optimizer)
        still = ("--lr", 0, *rules[2:])
        self.train_sites(plan, count, STEPS - 1, "--weights", self.start, *rules)
        _, before = read_checkpoint(kept / f"step-{STEPS - 1:08}")
        target = self.folder / "still.safetensors"
        again = ("--resume", kept, "--checkpoint", kept, "--checkpoint-every", STEPS)
        self.train(plan, target, STEPS, *again, *still)
        _, after = read_checkpoint(kept / f"step-{STEPS:08}")
        return before, after

    def check(self, run: Run) -> str:
        plan = self.compile_outer(
            run.mesh, run.outer, "--optimizer", run.optimizer, *run.options
        )
        before, after = self.train_to(plan, run.sites, run.optimizer)
        worst, lost = 0.0, 0.0
        for parameter in fields.read(plan)["parameters"]:
            box = tuple(
                slice(begin, begin + size)
                for begin, size in zip(parameter["box_begin"], parameter["box_shape"])
            )
            own = {
                slot: values[box] for (name, slot), values in before.items()
                if name == parameter["file_name"]
            }  # fmt: skip
            expected = self.agree(run, own)
            moved = numpy.abs(own["weight.0"] - own["anchor"]).max()
            for slot, values in expected.items():
                found = after[parameter["file_name"], slot][box]
                off = numpy.abs(found - values).max() / (moved + 1e-30)
                require(off <= TOLERANCE, f"{slot} of {parameter['name']} is off {off}")
                worst = max(worst, float(off))
            if "site_error.0" in expected:
                lost = max(lost, float(numpy.abs(expected["site_error.0"]).max() / moved))
        require(lost > 0 or "decay=0," in f"{run.outer},", "nothing was lost")
        return f"off {worst:.2g} of what weights moved by, of which {lost:.2g} is kept"

    def agree(self, run: Run, own: dict) -> dict:
        """The slots that an agreement changes."""
        scheme, options = parse(run.outer)
        compression = site_messages.Compression(scheme, options)
        rate = float(options.get("rate", {"average": 1, "sparseloco": 1}.get(scheme, 0.7)))
        usual = 0.9 if scheme in ("diloco", "streaming") else 0
        momentum = float(options.get("momentum", usual))
        sites = range(run.sites)
        errors = [own[f"site_error.{i}"] for i in sites] if compression.decay else []
        streams = scheme == "streaming"
        if streams and options.get("delay", "1") != "0":
            differences = [own[f"difference.{i}"] for i in sites]
        else:
            differences = [own["anchor"] - own[f"weight.{i}"] for i in sites]
        total = site_messages.add_up(compression, differences, errors)
        anchor, moved = site_messages.move(
            own["anchor"], own.get("outer_momentum"), total, run.sites, rate, momentum
        )
        result = {"anchor": anchor} | {f"site_error.{i}": x for i, x in enumerate(errors)}
        if momentum:
            result["outer_momentum"] = moved
        mix = numpy.float32(options.get("mix", 0.5)) if streams else 0
        for i in sites:
            result[f"weight.{i}"] = anchor + mix * (own[f"weight.{i}"] - anchor)
        return result

    def check_draw(self, seed: int) -> str:
        run = draw_run(seed)
        return f"{run.name}: {self.check(run)}"

    def check_all_kept(self) -> str:
        """A compressor that sends all is none, to the bit."""
        rules, told = self.rules("adamw"), []
        whole = "compress=topk,chunk=64,k=64"
        pairs = (
            ("diloco:2", f"diloco:2,{whole}"),
            ("diloco:2,rate=1,momentum=0", f"average:2,{whole},decay=0"),
            ("streaming:3", f"streaming:3,{whole}"),
        )
        for plain, sent in pairs:
            expected, losses = self.result("sites=2", ("--outer", plain), *rules)
            found, own = self.result("sites=2", ("--outer", sent), *rules)
            require(losses == own, f"{sent}: losses {own}, expected {losses}")
            for name, values in expected.items():
                require(numpy.array_equal(values, found[name]), f"{sent}: {name}")
            told.append(sent)
        return ", ".join(told)

    def check_resumed(self) -> str:
        """A run that goes on from errors has the bits of a whole one."""
        outer = ("--outer", "streaming:4,delay=2,compress=e3m0")
        rules = self.rules("adamw")
        whole, _ = self.result("sites=2", outer, *rules)
        plan, target = self.compile("sites=2", *outer), self.folder / "two.safetensors"
        for step in (2, 4):
            folder = self.folder / f"checkpoints-{step}"
            kept = ("--checkpoint", folder, "--checkpoint-every", step)
            self.train(plan, target, step, "--weights", self.start, *kept, *rules)
            self.train(plan, target, 5, "--resume", folder, *rules)
            for name, values in read_tensors(target).items():
                require(numpy.array_equal(values, whole[name]), f"{step}: {name}")
        return ""

    def check_processes(self) -> str:
        self.compare_processes("pp=2,sites=2", "--outer", "sparseloco:2", steps=3)
        return ""

    def check_told(self) -> str:
        """Bytes that are sent and kept, in the plan and in the planner's list."""
        told = []
        for outer in ("diloco:4,compress=int8", "average:4,compress=sign", "sparseloco:4"):
            plan = self.compile("sites=4", "--outer", outer)
            parameters = fields.read(plan)["parameters"]
            sizes = [int(numpy.prod(x["shape"])) for x in parameters]
            compression = site_messages.Compression(*parse(outer))
            sent = 3 * 4 * sum(compression.words(size) for size in sizes)
            text = self.tools.run("plait-plan", "show", plan).stdout
            found = self.bytes_of("sites, every 4 steps", text)
            require(found == sent, f"{outer}: {found} bytes, expected {sent}")
            plain = self.compile("sites=4", "--outer", outer + ",decay=0")
            text = [self.tools.run("plait-plan", "show", x).stdout for x in (plan, plain)]
            kept = self.bytes_of("arena", text[0]) - self.bytes_of("arena", text[1])
            weights = self.bytes_of("gradients", text[0])
            require(weights <= kept <= weights + 4096, f"{outer}: kept {kept}")
            self.check_listed(outer, sent)
            told.append(f"{4 * sum(sizes) * 3 / sent:.1f}")
        return f"{', '.join(told)} times less than fp32 to each site"

    def check_listed(self, outer: str, sent: int) -> None:
        """The planner's list, and its ranking of schemes, in the mean over steps."""
        report = self.folder / "report.json"
        self.tools.run(
            *self.words("--mesh", "sites=4", "--outer", outer), "--cluster", "cpu:4",
            "--json", report, "-o", self.folder / "listed.plan",
        )  # fmt: skip
        told = json.loads(report.read_text())
        found = next(
            x["sent_bytes"] for x in told["exchanges"][0] if x["what"] == "all-gather"
        )
        require(4 * found == sent, f"{outer}: listed {found}, expected {sent}")
        ranked = [x for x in told["sites"]["schemes"] if x["outer"] == outer]
        require(4 * ranked[0]["sent_bytes"] == sent + 4 * 18, f"{ranked} of {sent}")

    def check_defects(self) -> str:
        return self.refuse_defects((
            (self.compile("sites=2", "--outer", "diloco:2,compress=int8"),
             site_message_defects.DEFECTS),
            (self.compile("sites=2", "--outer", "streaming:4,compress=e3m0"),
             site_message_defects.STREAMING_DEFECTS),
            (self.compile("sites=2", "--outer", "sparseloco:2"),
             site_message_defects.SPARSE_DEFECTS),
        ))  # fmt: skip

    def check_errors(self) -> str:
        cases = {
            'compress "gzip", expected int8, int4, e3m0, sign, topk or topk2':
                ("sites=2", "diloco:2,compress=gzip"),
            "chunk 48, expected a power of two from 32 to 4096":
                ("sites=2", "diloco:2,compress=int8,chunk=48"),
            'chunk "16", expected 32 to 4096':
                ("sites=2", "diloco:2,compress=int8,chunk=16"),
            'k "0", expected 1 to 4096': ("sites=2", "sparseloco:2,k=0"),
            "k 65, expected 1 to 64, the elements of a chunk":
                ("sites=2", "sparseloco:2,k=65,chunk=64"),
            "k 4, but int8 sends all elements":
                ("sites=2", "diloco:2,compress=int8,k=4"),
            'decay "1.5", expected 0 to 1': ("sites=2", "sparseloco:2,decay=1.5"),
            "has chunk 64, k 0 and decay 0, but no compress":
                ("sites=2", "diloco:2,chunk=64"),
            "but median has none": ("sites=2", "median:2,compress=int8"),
            "expected every=E or average=A, each once":
                ("sites=2", "gossip:ring,compress=int8"),
            "expected rate=R, compress=NAME, chunk=C, k=K or decay=D, each once":
                ("sites=2", "sparseloco:2,momentum=0.5"),
            "a split of 'transformer.wte.weight' cuts chunks of its neighbours":
                ("tp=2,sites=2", "sparseloco:2"),
        }  # fmt: skip
        for text, (mesh, outer) in cases.items():
            self.refuse(text, "--mesh", mesh, "--outer", outer)
        text = "but ranks divide the masters of"
        self.refuse(text, "--mesh", "dp=2,sites=2", "--outer", "sparseloco:2",
                    "--precision", "bf16", "--zero", "1")  # fmt: skip
        return f"{len(cases) + 1} errors"


CHECKS = (
    "all-kept", "resumed", "processes", "told", "defects", "errors",
)  # fmt: skip


def main() -> int:
    return run_suite("site-compression", __doc__, Suite, RUNS, CHECKS, draws=(FEW_DRAWS, DRAWS))


if __name__ == "__main__":
    sys.exit(main())
