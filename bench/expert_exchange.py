#!/usr/bin/env python3
#===- expert_exchange.py - What ranks of experts exchange -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""The figures of docs/Experts.md, as three tables: what ranks of ep send for a layer
with tokens and with rows, by the plans' own lists; what a rank takes with experts in
chunks of tokens; and the processor's time of steps with tokens and with rows, one
thread a rank, in turns. Of times the least of all rounds counts, which other work on the
machine changes little."""

import argparse
import json
import os
import pathlib
import random
import struct
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Choices of a token, ranks.
SENT = [(2, 4), (2, 8), (8, 8), (8, 2)]
TIMED = [(8, 2), (8, 4), (1, 2)]
CHUNKED = [("none", 1), ("none", 2), ("none", 8), ("full", 1), ("full", 8)]
EXCHANGES = ("tokens", "rows")
VOCABULARY = 8192


class Plans:
    def __init__(self, options, folder: pathlib.Path):
        self.bin, self.folder = options.bin, folder
        model = ROOT / "bench" / "models" / "qwen3-moe-small" / "config.json"
        self.config = json.loads(model.read_text())

    def run(self, tool: str, *words) -> None:
        command = [str(word) for word in (self.bin / tool, *words)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def compile(self, changes: dict, ranks: int, seq: int, *words) -> pathlib.Path:
        """A plan of one sequence a rank."""
        config = self.config | changes
        (self.folder / "config.json").write_text(json.dumps(config))
        plan = self.folder / ("-".join(map(str, (ranks, *words))) + ".plan")
        self.run(
            "plaitc", self.folder, "--mesh", f"ep={ranks}", "--no-plan", *words,
            *("--global-batch", ranks, "--micro-batch", 1, "--seq", seq),
            *("--no-reference", "--no-prove", "-o", plan),
        )  # fmt: skip
        return plan

    def sent(self, plan: pathlib.Path) -> dict:
        """Bytes that a rank sends in a step, by what sends them."""
        listed = self.folder / "list.json"
        self.run("plait-plan", "exchanges", plan, "--json", listed)
        rows = json.loads(listed.read_text())["exchanges"][0]
        found: dict = {}
        for row in rows:
            if row["in"] in ("forward", "backward"):
                key = (row["in"], row["what"])
                found[key] = found.get(key, 0) + row["sent_bytes"]
        return found

    def arena(self, plan: pathlib.Path) -> int:
        command = [str(self.bin / "plait-plan"), "show", str(plan)]
        shown = subprocess.run(command, check=True, capture_output=True, text=True)
        lines = [x.split() for x in shown.stdout.splitlines()]
        return max(int(x[-2]) for x in lines if x[:1] == ["arena"] and x[-1] == "bytes")


def print_sent(plans: Plans) -> None:
    layers, hidden, seq = plans.config["num_hidden_layers"], 512, 128
    print("\nmultiples of (ep - 1) T h that a rank sends for a layer, forward")
    print(f"{'k':>3} {'ep':>3} {'tokens':>8} {'rows':>8}")
    for choices, ranks in SENT:
        made = []
        for exchange in EXCHANGES:
            changes = {"num_experts": 16, "num_experts_per_tok": choices}
            plan = plans.compile(changes, ranks, seq, "--expert-exchange", exchange)
            bytes_ = sum(x for (when, _), x in plans.sent(plan).items() if when == "forward")
            made.append(bytes_ / (layers * (ranks - 1) * seq * hidden * 4))
        print(f"{choices:3} {ranks:3} " + " ".join(f"{x:8.3f}" for x in made))


def print_memory(plans: Plans) -> None:
    changes = {
        "vocab_size": 1024,
        "num_attention_heads": 4,
        "hidden_size": 256,
        "moe_intermediate_size": 192,
        "num_experts": 16,
        "num_experts_per_tok": 4,
    }
    print("\nMB of a rank, sequences of 512 tokens")
    print(f"{'recompute':10} {'chunks':>6} {'ep=1':>7} {'ep=4':>7} {'ep=8':>7}")
    for recompute, chunks in CHUNKED:
        made = []
        for ranks in (1, 4, 8):
            words = ("--recompute", recompute, "--expert-chunks", chunks)
            made.append(plans.arena(plans.compile(changes, ranks, 512, *words)) / 1e6)
        print(f"{recompute:10} {chunks:6} " + " ".join(f"{x:7.1f}" for x in made))


def measure(plans: Plans, plan: pathlib.Path, tokens: pathlib.Path, steps: int) -> float:
    """Seconds of all ranks, a step: of a run with so many more steps than another."""
    taken = []
    for count in (1, 1 + steps):
        command = [plans.bin / "plait-run", plan, "--tokens", tokens, "--steps", count]
        command += ["--lr", "3e-4", "--threads", 1]
        child = subprocess.Popen(
            [str(word) for word in command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            raise SystemExit(f"plait-run {plan} ended with {status}")
        taken.append(usage.ru_utime + usage.ru_stime)
    return (taken[1] - taken[0]) / steps


def print_times(plans: Plans, rounds: int, steps: int) -> None:
    tokens = plans.folder / "tokens.bin"
    draw = random.Random(0)
    count = (1 + steps) * max(ranks for _, ranks in TIMED) * 256 + 1
    numbers = [draw.randrange(VOCABULARY) for _ in range(count)]
    tokens.write_bytes(struct.pack(f"<{count}H", *numbers))
    print("\nprocessor's seconds of a step, all ranks, sequences of 256 tokens")
    print(f"{'k':>3} {'ep':>3} {'tokens':>8} {'rows':>8} {'rows over tokens':>17}")
    for choices, ranks in TIMED:
        changes = {"num_experts": 16, "num_experts_per_tok": choices}
        made = {
            exchange: plans.compile(changes, ranks, 256, "--expert-exchange", exchange)
            for exchange in EXCHANGES
        }
        least = dict.fromkeys(EXCHANGES, float("inf"))
        for _ in range(rounds):
            for exchange, plan in made.items():
                seconds = measure(plans, plan, tokens, steps)
                least[exchange] = min(least[exchange], seconds)
        row = " ".join(f"{x:8.3f}" for x in least.values())
        ratio = least["rows"] / least["tokens"]
        print(f"{choices:3} {ranks:3} {row} {ratio:17.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin")
    parser.add_argument("--rounds", type=int, default=5, help="0: no times")
    parser.add_argument("--steps", type=int, default=4, help="of a round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plans = Plans(options, pathlib.Path(folder))
        print_sent(plans)
        print_memory(plans)
        if options.rounds:
            print_times(plans, options.rounds, options.steps)


if __name__ == "__main__":
    main()
