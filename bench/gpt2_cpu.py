#!/usr/bin/env python3
#===- gpt2_cpu.py - plait against PyTorch and the floor ---*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Training steps of a model on one rank of this processor: plait, PyTorch eager
and compiled (attention by SDPA, fused AdamW, bf16 by autocast), and the floor
(step_floor.cpp: the plan's matmuls by oneDNN, in whichever layout of their
operands is fastest, and all other bytes at the bandwidth of memory). No dropout. All take
turns, round by round, since the speed of a machine that others use as well
swings from minute to minute; what is printed are medians over the rounds, of
seconds and of ratios within a round. With --processor-time it is the time of the
processor, which what other work takes is not in, and the least of all rounds."""

import argparse
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
# Threads that spin while they wait take the time of whoever runs beside them.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}


def make_environment(threads: int) -> dict:
    return os.environ | WAITING | {"OMP_NUM_THREADS": str(threads)}


class Server:
    """A process that measures once for each line that it is given."""

    def __init__(self, name: str, command: list, threads: int):
        self.name = name
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=make_environment(threads),
        )

    def measure(self) -> dict:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} ended with {self.process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


class Plait:
    """A plan, and steps of it."""

    def __init__(self, options, seq: int, precision: str, folder: pathlib.Path):
        self.name, self.options, self.folder = "plait", options, folder
        self.plan, self.data = folder / "model.plan", folder / "tokens.bin"
        config = json.loads((options.model / "config.json").read_text())
        vocabulary, count = config["vocab_size"], 2 * options.batch * seq + 1
        generator = random.Random(0)
        tokens = [generator.randrange(vocabulary) for _ in range(count)]
        width = "H" if vocabulary <= 1 << 16 else "I"
        self.data.write_bytes(struct.pack(f"<{count}{width}", *tokens))
        words = [options.bin / "plaitc", options.model, "--mesh", "1"]
        words += ["--seq", seq, "--global-batch", options.batch]
        words += ["--micro-batch", options.batch, "--precision", precision]
        words += ["--dropout", "off", "--no-reference", "--no-prove"]
        words += ["--attention", options.attention, "-o", self.plan]
        subprocess.run([str(word) for word in words], check=True)

    def measure(self) -> dict:
        log = self.folder / "steps.jsonl"
        words = [self.options.bin / "plait-run", self.plan]
        words += ["--tokens", self.data, "--log", log, "--lr", "3e-4"]
        words += ["--steps", 1 + self.options.steps]
        words += ["--threads", self.options.threads]
        profile = self.folder / "profile.json"
        if self.options.processor_time:
            words += ["--profile", profile]
        subprocess.run(
            [str(word) for word in words],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=make_environment(self.options.threads),
        )
        if self.options.processor_time:
            return {"seconds": count_processor_time(profile)}
        records = [json.loads(line) for line in log.read_text().splitlines()]
        log.unlink()
        steps = [record["step_seconds"] for record in records[1:]]
        return {"seconds": statistics.median(steps)}

    def close(self) -> None:
        pass


def count_processor_time(profile: pathlib.Path) -> float:
    """Of one step: its functions have been called so often."""
    (program,) = json.loads(profile.read_text())["programs"]
    return sum(
        function["calls"] * step["processor_seconds"]
        for function in program["functions"]
        for step in function["steps"]
    )


# How transformers computes experts, and whether that is compiled: one after the
# other, which is a loop over data, or rows sorted by expert, by one call.
EXPERTS = {"eager": (False,), "grouped_mm": (False, True)}
EXPERT_NAMES = {"eager": "loop", "grouped_mm": "grouped"}


def start_torch(
    options, seq: int, precision: str, compiled: bool, experts: str = ""
) -> Server:
    command = [options.torch_python, HERE / "torch_gpt2.py", options.model]
    command += ["--batch", options.batch, "--seq", seq]
    command += ["--threads", options.threads, "--steps", options.steps]
    command += ["--bf16"] * (precision == "bf16")
    command += ["--compile"] * compiled
    command += ["--experts", experts] if experts else []
    command += ["--processor-time"] * options.processor_time
    name = "PyTorch compiled" if compiled else "PyTorch eager"
    name += f", {EXPERT_NAMES[experts]}" if experts else ""
    return Server(name, command, options.threads)


def start_all(options, seq: int, precision: str, folder: pathlib.Path) -> list:
    plait = Plait(options, seq, precision, folder)
    floor = [options.bin / "plait-bench-floor", plait.plan, options.threads]
    floor += ["processor"] * options.processor_time
    entries = [plait, Server("floor", floor, options.threads)]
    if options.torch_python:
        config = json.loads((options.model / "config.json").read_text())
        known = EXPERTS if "num_experts" in config else {"": (False, True)}
        entries += [
            start_torch(options, seq, precision, compiled, experts)
            for experts, kinds in known.items()
            for compiled in kinds
            if options.compile or not compiled
        ]
    return entries


def compare(options, seq: int, precision: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        entries = start_all(options, seq, precision, pathlib.Path(folder))
        rounds = []
        for _ in range(options.rounds):
            rounds.append({e.name: e.measure()["seconds"] for e in entries})
        for entry in entries:
            entry.close()
    tokens = options.batch * seq
    print(
        f"\n{precision}, {options.batch} x {seq} tokens, "
        f"{options.threads} threads, {options.rounds} rounds"
    )
    print(f"{'':26} {'step s':>8} {'tok/s':>8} {'over plait':>10}")
    least = {e.name: min(r[e.name] for r in rounds) for e in entries}
    for entry in entries:
        seconds = statistics.median(r[entry.name] for r in rounds)
        ratio = statistics.median(r[entry.name] / r["plait"] for r in rounds)
        if options.processor_time:
            seconds, ratio = least[entry.name], least[entry.name] / least["plait"]
        row = f"{entry.name:26} {seconds:8.3f} {tokens / seconds:8.1f}"
        print(f"{row} {ratio:10.2f}")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--bin", type=pathlib.Path, default=ROOT / "build" / "bin"
    )
    parser.add_argument(
        "--model",
        type=pathlib.Path,
        default=ROOT / "examples" / "models" / "gpt2",
        help="folder with config.json",
    )
    parser.add_argument(
        "--torch-python",
        default=sys.executable,
        help="an interpreter with torch and transformers; empty: leave out",
    )
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, nargs="+", default=[64, 256])
    parser.add_argument(
        "--precision", nargs="+", default=["fp32", "bf16"]
    )
    parser.add_argument("--attention", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--processor-time", action="store_true", help="with --threads 1"
    )
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    options = parser.parse_args()
    if options.processor_time and options.threads != 1:
        parser.error("--processor-time counts one thread: --threads 1")
    for seq in options.seq:
        for precision in options.precision:
            compare(options, seq, precision)


if __name__ == "__main__":
    main()
