#!/usr/bin/env python3
#===- offload.py - What lies in the memory of hosts -------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Plans with `--offload` against the same without. Copies change no number, and
neither does what decides what is copied: losses, norms and weights have the same
bits. What the optimizer keeps, 8 bytes a parameter of AdamW and 4 more of a bf16
copy's master, is on the host to the byte, and the arena has less by that but for what
the update works with; so is what forward passes keep. Checkpoints go from plans
with to plans without, and back."""

import itertools
import json
import pathlib
import re
import sys
import tempfile

import covering
from harness import ROOT, Failure, Reporter, Tools, arguments, require, write_tokens
from processes import NANO, metrics

STEPS = 3
BATCH = ("--global-batch", 8, "--micro-batch", 1, "--seq", 64)
OFFLOADS = ("optimizer", "activations", "optimizer,activations")
LAYOUTS = {
    "one": (),
    "zero=1": ("--mesh", "dp=2", "--zero", 1),
    "1f1b": ("--mesh", "pp=2"),
    "zb-v": ("--mesh", "pp=2", "--schedule", "zb-v"),
    "tp=2": ("--mesh", "tp=2"),
    "bf16": ("--mesh", "dp=2", "--precision", "bf16"),
    "selective": ("--mesh", "pp=2", "--recompute", "selective"),
    "zero=1-bf16": ("--mesh", "dp=2", "--zero", 1, "--precision", "bf16"),
    "zero=3-bf16": ("--mesh", "dp=2", "--zero", 3, "--precision", "bf16"),
    "lion": ("--mesh", "pp=2,tp=2", "--optimizer", "lion", "--zero", 1),
}
LOSS = re.compile(r'"loss": ([\d.]+)')
# A line of `plait-plan show`: what, and bytes at the end.
ROW = re.compile(r"^ {4}(\S.*?) {2,}.*?(\d+) bytes$", re.MULTILINE)


def get_choices(case: tuple[str, str]) -> dict:
    layout, offload = case
    mesh = dict(zip(LAYOUTS[layout], LAYOUTS[layout][1:])).get("--mesh", "")
    choices = covering.split_options(mesh, LAYOUTS[layout])
    choices.pop("--mesh", None)
    return {"offload": offload} | choices


class Suite:
    def __init__(self, tools: Tools, folder: pathlib.Path):
        self.tools, self.folder = tools, folder
        self.tokens = folder / "tokens.bin"
        write_tokens(self.tokens, 5, 1 << 14, 256)
        self.plain: dict[str, tuple] = {}  # runs without, by layout

    def compile(self, name: str, *options, model=NANO) -> pathlib.Path:
        plan = self.folder / f"{name.replace('/', '-')}.plan"
        words = ("--no-reference", "-o", plan)
        done = self.tools.run("plaitc", model, *options, *BATCH, *words)
        require("cannot be proven" not in done.stderr, done.stderr)
        self.tools.run("plait-plan", "check", plan)
        return plan

    def train(self, plan: pathlib.Path, steps: int, *options) -> tuple:
        log, saved = self.folder / "log", self.folder / "saved"
        log.unlink(missing_ok=True)
        self.tools.run(
            *("plait-run", plan, "--tokens", self.tokens, "--steps", steps),
            *("--lr", 0.01, "--log", log, "--save", saved, *options),
        )
        return metrics(log), (saved / "model.safetensors").read_bytes()

    def get_bytes(self, plan: pathlib.Path) -> list[dict[str, int]]:
        """Of each program, by what `plait-plan show` calls it."""
        text = self.tools.run("plait-plan", "show", plan).stdout
        programs = re.split(r"^program \d+", text, flags=re.MULTILINE)[1:]
        return [
            {name: int(count) for name, count in ROW.findall(program)}
            for program in programs
        ]

    def get_plain(self, layout: str) -> tuple:
        if layout not in self.plain:
            plan = self.compile(layout, *LAYOUTS[layout])
            self.plain[layout] = plan, self.train(plan, STEPS)
        return self.plain[layout]

    def compare(self, layout: str, offload: str) -> str:
        plain, expected = self.get_plain(layout)
        plan = self.compile(
            f"{layout}-{offload}", *LAYOUTS[layout], "--offload", offload
        )
        shown = self.tools.run("plait-plan", "show", plan).stdout
        require(f", offload {offload.replace(',', '+')}" in shown, shown)
        found = self.train(plan, STEPS)
        require(len(found[0]) == STEPS, found[0])
        require(found[0] == expected[0], f"{found[0]}, expected {expected[0]}")
        require(found[1] == expected[1], "weights have other bits")
        told = []
        for before, after in zip(self.get_bytes(plain), self.get_bytes(plan)):
            told.append(self.compare_bytes(offload, before, after))
        return ", ".join(told)

    def compare_bytes(self, offload: str, before: dict, after: dict) -> str:
        host = after["offloaded to the host's memory"]
        least = 0  # bytes on the host
        if "optimizer" in offload:
            # Masters are the parameters that are not there any more.
            state = before["optimizer"]
            state += before["parameters"] - after["parameters"]
            require("optimizer" not in after, "the arena has state")
            least += state
        if "activations" in offload:
            require("activations" not in after, "the arena has activations")
            least += before["activations"]
        if offload == "optimizer":
            require(host == least, f"{host} bytes on the host, state has {least}")
            update = max(
                count for name, count in after.items() if name.startswith("optimizer_")
            )
            # Padding to 64 bytes, of each buffer.
            most = before["arena"] - host + update + 64
            require(
                after["arena"] <= most,
                f"an arena of {after['arena']} bytes, expected at most {most}",
            )
        require(host >= least, f"{host} bytes on the host, expected {least} or more")
        return f"{before['arena']} -> {after['arena']} + {host}"


def smaller(suite: Suite):
    """Of a model whose state is most of what a rank has, 8 of 16 bytes a parameter:
    the arena has those less but for what three updates at a time work with."""
    model = ROOT / "examples" / "models" / "gpt2"
    options = ("--mesh", "dp=2", "--zero", 1, "--no-prove", "--cluster", "h100:2")
    before, after = (
        suite.get_bytes(
            suite.compile(word, *options, "--offload", word, model=model)
        )[0]
        for word in ("none", "optimizer")
    )
    state = before["optimizer"] + before["parameters"] - after["parameters"]
    updates = next(count for name, count in after.items()
                   if name.startswith("optimizer_0"))
    saved = before["arena"] - after["arena"]
    require(state > updates and saved >= state - updates,
            f"{saved} bytes less, state has {state}, updates work with {updates}")
    return f"{before['arena']} -> {after['arena']}, state {state}, updates {updates}"


def picked(suite: Suite) -> str:
    """What the planner puts on hosts by itself, on GPUs too small for the rest:
    compiled for them, it fits; on processors it trains as without. By 1f1b the
    optimizer alone on hosts would be as fast."""
    cluster = suite.folder / "small.json"
    words = (
        *("--seq", 64, "--global-batch", 8, "--zero", 0),
        *("--mesh", "pp=2,dp=1,tp=1", "--schedule", "v-half"),
    )
    for half_megabytes in range(84, 74, -1):  # 68 of them for matmuls
        device = {"memoryBytes": half_megabytes * 5e5, "reservedBytes": 0}
        cluster.write_text(
            json.dumps({"extends": "h100", "name": "small", "device": device})
        )
        name = f"{cluster}:1x2"
        told = suite.tools.run("plaitc", NANO, "--cluster", name, *words, "--json", "-")
        found = json.loads(told.stdout)["configuration"]
        if found["offload"] == "optimizer+activations":
            break
    else:
        raise Failure(f"not all that can be is on hosts: {found}")
    plan = suite.folder / "picked.plan"
    compiled = ("--cluster", name, *words, "--no-reference", "-o", plan)
    suite.tools.run("plaitc", NANO, *compiled)
    suite.tools.run("plait-plan", "check", plan)
    shown = suite.tools.run("plait-plan", "show", plan).stdout
    require(f", offload {found['offload']}" in shown, shown)
    for arena in suite.get_bytes(plan):
        require(arena["arena"] <= device["memoryBytes"], arena)
    layout = (
        *("--mesh", "pp={pp},dp={dp},cp={cp},tp={tp}".format(**found)),
        *("--schedule", found["schedule"], "--chunks", found["chunks"]),
        *("--recompute", found["recompute"], "--zero", found["zero"]),
        *("--seq", 64, "--global-batch", 8, "--micro-batch", found["micro_batch"]),
        *("--layers", ",".join(map(str, found["layers"])), "--no-reference"),
    )
    trained = []
    for offload in ("none", found["offload"]):
        suite.tools.run("plaitc", NANO, *layout, "--offload", offload, "-o", plan)
        trained.append(suite.train(plan, STEPS))
    require(trained[0] == trained[1], "other losses or weights")
    return f"{found['offload']} in {device['memoryBytes']:.0f} bytes"


def resumes(suite: Suite, first: str, then: str):
    """A checkpoint of one plan is the other's, of another mesh."""
    meshes = {
        "none": ("--mesh", "dp=2", "--zero", 1),
        "both": ("--mesh", "pp=2", "--offload", "optimizer,activations"),
    }
    folder = suite.folder / f"checkpoints-{first}"
    words = ("--checkpoint", folder, "--checkpoint-every", 2)
    plans = [suite.compile(f"{name}-resumed", *meshes[name]) for name in (first, then)]
    suite.train(plans[0], 2, *words)
    resumed = suite.train(plans[1], 4, "--resume", folder)
    straight = suite.train(plans[1], 4)
    # Sums over ranks of other meshes have other roundings.
    for one, other in zip(resumed[0], straight[0][2:], strict=True):
        left, right = (float(LOSS.search(line)[1]) for line in (one, other))
        require(abs(left - right) < 1e-5 * right, f"loss {left}, expected {right}")


def main() -> int:
    parser = arguments(__doc__)
    covering.add_option(parser)
    options = parser.parse_args()
    report = Reporter("offload", options.filter)
    tools = Tools(options.bin, options.timeout)
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(tools, pathlib.Path(folder))
        every = itertools.product(LAYOUTS, OFFLOADS)
        for layout, offload in covering.chosen(every, get_choices, options):
            report.case(f"{layout}/{offload}", lambda: suite.compare(layout, offload))
        report.case("smaller", lambda: smaller(suite))
        report.case("picked", lambda: picked(suite))
        for first, then in (("none", "both"), ("both", "none")):
            report.case(
                f"resume/{first}-{then}", lambda: resumes(suite, first, then)
            )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
