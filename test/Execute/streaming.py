#!/usr/bin/env python3
#===- streaming.py - Streaming DiLoCo against numpy -------*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Trains a small GPT-2 on sites that send a fragment of their weights at a time and take
it steps later, and compares the weights of each site with numpy (sites.py says how)."""

import json
import random
import re
import sys

import numpy

import gossip
import streaming_defects
from harness import require
from sites import Run, draw_layout, run_suite
from tensors import read_tensors

STEPS = 5
RUNS = (
    Run("streaming:3", "sites=2"),
    Run("streaming:4,fragments=1,delay=2,mix=0.25", "sites=2"),
    Run("streaming:2,delay=0,momentum=0", "sites=4", "sgd"),
    Run("streaming:4,fragments=3,rate=0.4", "sites=2", "sgd"),
)

# Of one site the same training as without any split.
LAYOUTS = (
    ("tp=2,sites=2", ("--outer", "streaming:3")),
    # The second stage has nothing of the second fragment.
    ("pp=2,sites=2", ("--outer", "streaming:5,fragments=3,delay=2")),
    ("pp=2,sites=2", ("--outer", "streaming:3", "--schedule", "zb-h1")),
    ("pp=2,dp=2,tp=2,sites=2", ("--outer", "streaming:3")),
    ("dp=2,sites=2", ("--outer", "streaming:3", "--zero", "1")),
    ("dp=2,sites=2", ("--outer", "streaming:4,fragments=3", "--zero", "2")),
)

# With --all, and without it.
DRAWS, FEW_DRAWS = 40, 2


def draw_run(seed: int) -> Run:
    """A scheme, and a layout of each site."""
    rng = random.Random(seed)
    delay, fragments = rng.choice((0, 1, 1, 2)), rng.choice((1, 2, 2, 3))
    every = delay + fragments + rng.choice((0, 1))
    mix, momentum = rng.choice((0, 0.25, 0.5)), rng.choice((0, 0.5, 0.9))
    outer = (
        f"streaming:{every},fragments={fragments},delay={delay},mix={mix},"
        f"rate={rng.uniform(0.1, 1):.2f},momentum={momentum}"
    )
    axes, options = draw_layout(rng)
    optimizer = rng.choice(("adamw", "sgd"))
    return Run(outer, f"{axes}sites={rng.choice((2, 4))}", optimizer, tuple(options))


class Suite(gossip.Suite):
    # What weights move by is less where a site is drawn back to the anchor, and AdamW
    # divides roundings of gradients by their roots: with SGD it is a hundredth of this.
    steps, bound = STEPS, 1e-4

    def check_draw(self, seed: int) -> str:
        run = draw_run(seed)
        return f"{run.name}: {self.check(run)}"

    def check_plain(self) -> str:
        """One fragment that is taken at once, and wholly, is DiLoCo, to the bit."""
        rules = self.rules("adamw")
        whole, losses = self.result("sites=2", ("--outer", "diloco:2"), *rules)
        outer = "streaming:2,fragments=1,delay=0,mix=0"
        found, own = self.result("sites=2", ("--outer", outer), *rules)
        require(losses == own, f"losses {own}, expected {losses}")
        for name, values in whole.items():
            require(numpy.array_equal(values, found[name]), f"{name} has other bits")
        return ""

    def check_bf16(self) -> str:
        """Copies follow weights, whole or divided."""
        rules, told = self.rules("sgd"), []
        outer = ("--outer", "streaming:2,fragments=1,delay=0,mix=0", "--optimizer", "sgd")
        for mesh, more in (("sites=2", ()), ("dp=2,sites=2", ("--zero", "1"))):
            options = ("--optimizer", "sgd", "--precision", "bf16", *more)
            expected, losses = self.result(
                mesh, (*options, "--outer", "diloco:2"), *rules
            )
            found, own = self.result(mesh, (*outer, "--precision", "bf16", *more), *rules)
            require(losses == own, f"{mesh}: losses {own}, expected {losses}")
            told.append(self.compare(found, expected, 1e-6))
        return "; ".join(told)

    def check_resumed(self) -> str:
        """A run that goes on while a fragment is on its way has the bits of a whole one,
        and on other ranks what whole ones there have."""
        outer, rules = ("--outer", "streaming:4,delay=2"), self.rules("adamw")
        whole, _ = self.result("sites=2", outer, *rules)
        plan = self.compile("sites=2", *outer)
        for step in (1, 2, 3):
            folder = self.folder / f"checkpoints-{step}"
            target = self.folder / "two.safetensors"
            kept = ("--checkpoint", folder, "--checkpoint-every", step)
            self.train(plan, target, step, "--weights", self.start, *kept, *rules)
            resume = ("--resume", folder, *rules)
            self.train(plan, target, self.steps, *resume)
            for name, values in read_tensors(target).items():
                require(numpy.array_equal(values, whole[name]), f"{step}: {name}")
        outcome = self.tools.call(
            "plait-run", self.compile("sites=4", *outer), "--steps", self.steps,
            "--tokens", self.tokens, "--token-type", "uint16", *resume,
        )  # fmt: skip
        text = "of 2 sites, the plan of 4 sites, which never agree as a whole by streaming"
        require(outcome.code != 0 and text in outcome.stderr, outcome.stderr)
        other = self.compile("pp=2,tp=2,sites=2", *outer)
        self.train(other, target, self.steps, *resume)
        return self.compare(read_tensors(target), whole)

    def check_processes(self) -> str:
        self.compare_processes("pp=2,sites=2", "--outer", "streaming:4,delay=2")
        return ""

    def check_beside(self) -> str:
        """What is on its way goes on beside steps, with the bits that it has without,
        and is predicted as hidden there."""
        rules, told = self.rules("adamw"), []
        far, listed = self.folder / "slow.json", self.folder / "listed.json"
        for mesh, more in (("sites=2", ""), ("dp=2,sites=2", ",compress=e3m0")):
            link = {"bandwidth": 1e8, "latency": 1e-4}
            size = 2 if "dp" in mesh else 1
            sites = [{"cluster": f"cpu:{size}", "count": 2}]
            far.write_text(json.dumps({"name": "slow", "sites": sites, "link": link}))
            outer = ("--outer", f"streaming:4,delay=2{more}")
            found = [
                self.result(mesh, outer, *rules, "--overlap", choice)
                for choice in ("on", "off")
            ]
            require(found[0][1] == found[1][1], f"{mesh}: other losses")
            for name, values in found[0][0].items():
                require(numpy.array_equal(values, found[1][0][name]), f"{mesh}: {name}")
            plan = self.compile(mesh, *outer)
            self.tools.run("plait-plan", "exchanges", plan, "--cluster", far,
                           "--json", listed)  # fmt: skip
            rows = json.loads(listed.read_text())["exchanges"][0]
            hidden = sum(x["hidden_seconds"] for x in rows if x["over"] == "sites")
            whole = sum(x["seconds"] for x in rows if x["over"] == "sites")
            require(whole / 2 < hidden <= 1.001 * whole, f"{mesh}: {hidden} of {whole} s hidden")
            told.append(f"{hidden / whole:.0%}")
        return f"{', '.join(told)} hidden"

    def check_told(self) -> str:
        """All fragments together are sent once in H steps, in parts that are not cut by
        parameters, and three tensors are kept of each weight."""
        shown = {}
        for outer in ("average:8", "streaming:8,delay=4"):
            plan = self.compile("sites=4", "--outer", outer)
            shown[outer] = self.tools.run("plait-plan", "show", plan).stdout
        plain, text = shown.values()
        whole = self.bytes_of("sites, every 8 steps", plain)
        row = r"^ *sites, (?:step \d of )?every 8(?: steps)? .* (\d+)(?: bytes)?$"
        rows = [int(x) for x in re.findall(row, text, re.MULTILINE)]
        require(len(rows) == 8, f"{rows} of\n{text}")
        require(abs(sum(rows) - whole) <= 8 * 8, f"{rows} of {whole}")
        require(max(rows) <= whole / 2, f"{rows} of {whole}")
        mean = self.bytes_of("sites, in a step on average", text)
        require(abs(mean - 18 - whole / 8) <= 8, f"{mean} of {whole}")
        weights = self.bytes_of("gradients", text)
        kept = self.bytes_of("arena", text) - self.bytes_of("arena", plain)
        require(3 * weights <= kept <= 3 * weights + 1024, f"{kept} of {weights}")
        return f"{rows} bytes"

    def check_link(self) -> str:
        """What sites exchange takes the link's latency and rate, which all ranks of a
        site share, in the planner's report and of the plan; and how often is enough
        follows from that."""
        far, report = self.folder / "far.json", self.folder / "report.json"
        listed, plan = self.folder / "listed.json", self.folder / "far.plan"
        rate, latency = 1e7, 1e-5
        link = {"bandwidth": rate, "latency": latency}
        sites = [{"cluster": "cpu:2", "count": 2}]
        far.write_text(json.dumps({"name": "far", "sites": sites, "link": link}))
        words = self.words("--mesh", "tp=2,sites=2", "--cluster", far, "-o", plan)
        told = []
        for outer in ("average:2", "streaming:4,delay=2", "gossip:ring"):
            self.tools.run(*words, "--outer", outer, "--json", report)
            self.tools.run(
                "plait-plan", "exchanges", plan, "--cluster", far, "--json", listed
            )
            answer = json.loads(report.read_text())
            for path in (answer, json.loads(listed.read_text())):
                for row in path["exchanges"][0]:
                    if row["over"] != "sites":
                        continue
                    passes = 2 if row["what"] == "all-reduce" else 1
                    expected = passes * latency * row["count"]
                    expected += 2 * row["sent_bytes"] / rate
                    off = abs(row["seconds"] / expected - 1)
                    require(off < 1e-3, f"{outer}: {row}, expected {expected}")
            told.append(f"{answer['iteration_seconds']:.3f} s")
        self.check_enough(answer, words, report)
        for text, more in {
            "has 2 sites far apart, but --mesh has 4": ("sites=4", "--outer", "average:2"),
            "has 2 sites far apart, but --mesh has none": ("tp=2",),
        }.items():
            self.refuse(text, "--cluster", far, "--mesh", *more)
        outcome = self.tools.call(
            "plait-plan", "exchanges", self.compile("1"), "--cluster", far
        )
        text = "the plan has 1 site, cluster 'far' has 2"
        require(outcome.code == 1 and text in outcome.stderr, outcome.stderr)
        return ", ".join(told)

    def check_enough(self, answer: dict, words, report) -> None:
        own = answer["sites"]
        seconds = [row["iteration_seconds"] for row in own["schemes"]]
        require(seconds == sorted(seconds) and len(seconds) > 5, f"{seconds}")
        for curve in own["utilisation"]:
            parts = curve["utilisations"]
            require(parts == sorted(parts) and parts[-1] <= 1, f"{curve}")
        every, found = own["every"], []
        for steps in (every, max(1, every // 2)):
            self.tools.run(*words, "--outer", f"average:{steps}", "--json", report)
            rows = json.loads(report.read_text())["sites"]["schemes"]
            found += [x["utilisation"] for x in rows if x["outer"] == f"average:{steps}"]
        require(found[0] >= 0.95 > found[1], f"every {every}: {found}")

    def check_defects(self) -> str:
        outer = "streaming:6,delay=2"
        plans = (
            (self.compile("sites=2", "--outer", outer), streaming_defects.DEFECTS),
            (self.compile("sites=2", "--outer", outer, "--precision", "bf16"),
             streaming_defects.COPY_DEFECTS),
        )  # fmt: skip
        return self.refuse_defects(plans)

    def check_errors(self) -> str:
        cases = {
            'steps "0", expected 1 to': "streaming:0",
            "has fragments 2 and delay 1, expected at most 2 together, the steps from "
            "one agreement to the next": "streaming:2",
            "has fragments 2 and delay 8, expected at most 8 together":
                "streaming:8,delay=8",
            'fragments "0", expected 1 to': "streaming:8,fragments=0",
            'delay "-1", expected 0 to': "streaming:8,delay=-1",
            'mix "1", expected 0 or more, and below 1': "streaming:8,mix=1",
            "fragments 6, which is more than the layers that are trained: fragment 5 "
            "has none": "streaming:8,fragments=6",
            "which takes 258 lists of actions, expected at most 253":
                "streaming:999,fragments=86",
            "expected fragments=F, delay=D, mix=M, rate=R, momentum=M, compress=NAME, chunk=C, "
            "k=K or decay=D, each once":
                "streaming:8,every=2",
        }  # fmt: skip
        for text, outer in cases.items():
            self.refuse(text, "--mesh", "sites=2", "--outer", outer)
        return f"{len(cases)} errors"


CHECKS = (
    "plain", "bf16", "resumed", "processes", "beside", "told", "link", "defects", "errors",
)  # fmt: skip


def main() -> int:
    return run_suite("streaming", __doc__, Suite, RUNS, CHECKS, LAYOUTS, (FEW_DRAWS, DRAWS))


if __name__ == "__main__":
    sys.exit(main())
