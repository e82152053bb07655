#!/usr/bin/env python3
#===- compare.py - A training log against golden numbers --*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Compares the loss and gradient norm of every step of a `plait-run --log` file
with golden.json, or with another log; one line a step, exit code 1 when a
relative difference exceeds the tolerance."""

import argparse
import json
import math
import sys

KEYS = ("loss", "grad_norm")


def read_steps(path: str) -> list[dict]:
    """The records of a golden.json or of a log with one object a line."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if path.endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines() if line]
    return json.loads(text)["steps"]


def relative(found: float, expected: float) -> float:
    """|found - expected| / |expected|; infinite when `found` is no number."""
    if not math.isfinite(found):
        return math.inf
    difference = abs(found - expected)
    return difference / abs(expected) if expected else difference


def differences(golden: list[dict], log: list[dict], keys=KEYS):
    """Per step {key: relative difference}; raises ValueError when the steps
    themselves differ."""
    numbers = [record["step"] for record in golden]
    found = [record["step"] for record in log]
    if found != numbers:
        raise ValueError(f"log has steps {found}, expected {numbers}")
    return [
        {key: relative(b[key], a[key]) for key in keys}
        for a, b in zip(golden, log)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--golden", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument(
        "--loss-only", action="store_true", help="leave out the gradient norm"
    )
    arguments = parser.parse_args()
    keys = KEYS[:1] if arguments.loss_only else KEYS
    golden, log = read_steps(arguments.golden), read_steps(arguments.log)
    try:
        rows = differences(golden, log, keys)
    except (KeyError, ValueError) as error:
        print(f"error: {arguments.log}: {error}")
        return 1
    passed = True
    for a, b, row in zip(golden, log, rows):
        good = max(row.values()) <= arguments.tolerance
        passed &= good
        values = ", ".join(
            f"{key} {b[key]:.9g} expected {a[key]:.9g} ({row[key]:.2g})"
            for key in keys
        )
        print(f"step {a['step']}: {values}{'' if good else '  TOO FAR'}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
