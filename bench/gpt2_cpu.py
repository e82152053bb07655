#!/usr/bin/env python3
#===- gpt2_cpu.py - plait against PyTorch and the floor ---*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""GPT-2 124M, fp32, one rank: tokens per second of plait, of PyTorch in every
usual setting, and of the floor (matrix products and one AdamW pass), measured
one after the other on this machine with the same number of threads."""

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
GPT2 = ROOT / "examples" / "models" / "gpt2"
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}


def torch_settings(compile_too: bool):
    """(name, environment, options) of the PyTorch runs."""
    for policy, environment in (("default", {}), ("passive", PASSIVE)):
        for optimizer in ("foreach", "fused"):
            name = f"PyTorch eager, {optimizer}, {policy} waiting"
            yield name, environment, ["--optimizer", optimizer]
        if compile_too:
            name = f"PyTorch compile, fused, {policy} waiting"
            yield name, environment, ["--optimizer", "fused", "--compile"]


def run_torch(options, seq: int, what: str, environment: dict, extra: list):
    """The measurement's record, or None with the reason on stderr."""
    command = [str(options.torch_python), str(HERE / "torch_gpt2.py"), what]
    command += ["--batch", str(options.batch), "--seq", str(seq)]
    command += ["--threads", str(options.threads)]
    command += ["--steps", str(options.steps), *extra]
    threads = {"OMP_NUM_THREADS": str(options.threads)}
    done = subprocess.run(
        command,
        env=os.environ | threads | environment,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or ["no message"]
        print(f"skipped {what} {extra}: {reason[0]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def run_plait(options, seq: int) -> float:
    """Median seconds of a step, from the log."""
    vocabulary = json.loads((GPT2 / "config.json").read_text())["vocab_size"]
    generator = random.Random(0)
    count = 2 * options.batch * seq + 1
    tokens = [generator.randrange(vocabulary) for _ in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        data, plan, log = (folder / x for x in ("t.bin", "p.plan", "s.jsonl"))
        data.write_bytes(struct.pack(f"<{count}H", *tokens))
        subprocess.run(
            [
                options.bin / "plaitc",
                *(GPT2, "--mesh", "pp=1", "--seq", str(seq)),
                *("--global-batch", str(options.batch)),
                *("--micro-batch", str(options.batch), "-o", plan),
            ],
            check=True,
        )
        subprocess.run(
            [
                options.bin / "plait-run",
                *(plan, "--tokens", data, "--log", log),
                *("--steps", str(2 + options.steps), "--lr", "3e-4"),
                *("--threads", str(options.threads)),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        records = [json.loads(line) for line in log.read_text().splitlines()]
    return statistics.median(r["step_seconds"] for r in records[2:])


def measure(options, seq: int) -> None:
    tokens = options.batch * seq
    rows = []
    if not options.torch_only:
        rows.append(("plait", run_plait(options, seq)))
    for name, environment, extra in torch_settings(options.compile):
        record = run_torch(options, seq, "step", environment, extra)
        if record:
            rows.append((name, record["seconds"]))
    floor = run_torch(options, seq, "floor", PASSIVE, [])
    if floor:
        parts = f"GEMM {floor['gemm']:.3f} s, AdamW {floor['optimizer']:.3f} s"
        rows.append((f"floor: {parts}", floor["seconds"]))
    print(f"\nB={options.batch} T={seq}, {options.threads} threads")
    print(f"{'':55} {'step s':>8} {'tok/s':>8} {'plait is':>9}")
    for name, seconds in rows:
        ratio = "" if options.torch_only else f"{seconds / rows[0][1]:8.2f}x"
        print(f"{name:55} {seconds:8.3f} {tokens / seconds:8.1f} {ratio:>9}")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--bin", type=pathlib.Path, default=ROOT / "build" / "bin"
    )
    parser.add_argument(
        "--torch-python",
        default=sys.executable,
        help="an interpreter with torch and transformers",
    )
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument(
        "--no-compile", dest="compile", action="store_false"
    )
    parser.add_argument(
        "--torch-only", action="store_true", help="leave plait out"
    )
    options = parser.parse_args()
    for seq in options.seq:
        measure(options, seq)


if __name__ == "__main__":
    main()
