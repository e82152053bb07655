# ===- kept_plans.py - Plans of earlier releases still run ------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""usage: kept_plans.py [--write] OUT

Runs three steps of each plan of test/golden/plans, which earlier releases have
compiled, and compares the losses with those that they had then. --write takes those of
now for plans that have none yet."""

import gzip
import json
import pathlib
import struct
import subprocess
import sys

PLANS = pathlib.Path(__file__).resolve().parents[2] / "golden" / "plans"
LOSSES = PLANS / "losses.json"
STEPS = 3
# Sums of a few hundred fp32 terms in another order, as another processor's matmuls
# add them; with bf16 such a sum may be rounded to the next number, 2^-8 away.
TOLERANCE = {"fp32": 1e-5, "bf16": 8e-3}


def train(path, out):
    tokens = out / "tokens.bin"
    tokens.write_bytes(b"".join(struct.pack("<H", index * index % 59)
                                for index in range(1024)))
    plan, log = out / path.stem, out / f"{path.stem}.jsonl"
    plan.write_bytes(gzip.decompress(path.read_bytes()))
    log.unlink(missing_ok=True)
    subprocess.run(["plait-run", plan, "--tokens", tokens, "--steps", str(STEPS),
                    "--log", log], check=True, capture_output=True, text=True)
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


def main():
    out = pathlib.Path(sys.argv[-1])
    out.mkdir(parents=True, exist_ok=True)
    known = json.loads(LOSSES.read_text()) if LOSSES.exists() else {}
    paths = sorted(PLANS.glob("*.plan.gz"))
    found = {path.name: train(path, out) for path in paths}
    if "--write" in sys.argv:
        LOSSES.write_text(json.dumps(
            {name: known.get(name, {"precision": "fp32", "losses": losses})
             for name, losses in found.items()}, indent=1) + "\n")
        return
    for name, losses in found.items():
        expected = known[name]["losses"]
        bound = TOLERANCE[known[name]["precision"]]
        if len(losses) != STEPS or any(
                abs(one - other) > bound * other for one, other in zip(losses, expected)):
            sys.exit(f"{name}: losses are {losses}, were {expected}")
        print(f"{name}: the losses that it had")


if __name__ == "__main__":
    main()
