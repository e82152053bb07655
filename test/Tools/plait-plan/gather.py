#!/usr/bin/env python3
# ===- gather.py - Parameters that are gathered beside a pass --*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Replays a plan that gathers parameters where a step begins, and asks how long the
forward pass waits for them. Standard library only.

  gather.py MODELS OUT"""

import json
import pathlib
import subprocess
import sys

# The planner takes a sixteenth to be exposed. Buckets are cut by whole layers, and what
# the first needs of the second is waited for as well.
MOST = 1 / 10


def main():
    models, out = map(pathlib.Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    plan, trace = out / "plan", out / "trace.json"
    pins = "pp=1,dp=64,tp=1,zero=1,micro-batch=1"
    subprocess.run(["plaitc", models / "llama-3-8b", "--cluster", "h100:8x8",
                    "--global-batch", "128", "--seq", "8192", "--pin", pins,
                    "--no-reference", "--no-prove", "-o", plan],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["plait-plan", "simulate", plan, "--trace", trace], check=True,
                   stdout=subprocess.DEVNULL)
    spans = {event["name"]: event for event in json.loads(trace.read_text())["traceEvents"]
             if event["ph"] == "X"}
    gather, forward = spans["Gather 0"], spans["Forward 0"]
    waits = forward["ts"] - gather["ts"] + forward["args"]["communicating_us"]
    if waits > MOST * gather["dur"]:
        sys.exit(f"the forward pass waits for {waits} us of {gather['dur']}")
    print(f"{100 - 100 * waits / gather['dur']:.0f} % of what is gathered is hidden")


if __name__ == "__main__":
    main()
